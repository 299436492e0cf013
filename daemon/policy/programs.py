"""The programs that a read-only report needs: tables/programs.toml lists them with their options,
and this module has what depends on several of their words.

Programs whose words are a language of their own are in grammars.py and git.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daemon.policy.globs import make_case_insensitive
from daemon.policy.lexer import CallRejected
from daemon.policy.options import ParsedArguments, Program
from daemon.policy.tables import load_table, program_fields_of, word_list


def table_programs() -> Iterator[Program]:
    """Yield the programs of tables/programs.toml, each with its functions of this module."""
    for fields in program_fields_of(load_table("programs"), _CODE_BY_PROGRAM):
        yield Program(**fields)


# --- operands that depend on options


def _grep_operands(arguments: ParsedArguments) -> str:
    paths = "TREE*=." if arguments.has("-r", "--recursive") else "PATH*"
    return paths if arguments.has("-e", "--regexp", "-f", "--file") else f"TEXT {paths}"


def _rg_operands(arguments: ParsedArguments) -> str:
    pattern = (
        "" if arguments.has("--files", "--type-list", "-e", "--regexp", "-f", "--file") else "TEXT "
    )
    return pattern + "TREE*=."


def _diff_operands(arguments: ParsedArguments) -> str:
    # of two folders it compares the files in them, of a file and a folder that file in the folder:
    # not only with -r
    return "TREE TREE" if arguments.has("-r", "--recursive") else "FILE FILE"


def _diff_without_links(arguments: ParsedArguments) -> Sequence[str]:
    return ("--no-dereference",) if arguments.has("-r", "--recursive") else ()


# --- what must not be read within a tree


def _skip_in_grep(pattern: str, is_folder: bool) -> Sequence[str]:
    name = make_case_insensitive(pattern)
    return (
        (f"--exclude-dir={name}",) if is_folder else (f"--exclude={name}", f"--exclude-dir={name}")
    )


def _skip_in_rg(pattern: str, is_folder: bool) -> Sequence[str]:
    pattern = re.sub(r"[{}]", r"[\g<0>]", pattern)  # {a,b} would be one or the other
    return (f"--iglob=!**/{pattern}/**" if is_folder else f"--iglob=!**/{pattern}",)


def _skip_in_diff(pattern: str, is_folder: bool) -> Sequence[str]:
    return (f"--exclude={make_case_insensitive(pattern)}",)


# --- checks of single programs: each raises CallRejected for what it refuses


def _check_date(arguments: ParsedArguments) -> None:
    if arguments.operands and not arguments.operands[0].text.startswith("+"):
        raise CallRejected(
            "date with a bare operand sets the clock", "write date +FORMAT, or date -d TEXT"
        )


_WIDE_FIELD = re.compile(r"%[^A-Za-z%]*(?:\d{4,}|\*)")


def _check_printf(arguments: ParsedArguments) -> None:
    if arguments.operands and _WIDE_FIELD.search(arguments.operands[0].text):
        raise CallRejected(
            "printf with so wide a field would flood the output", "give a width of at most 999"
        )


_SEQ_NUMBER = re.compile(r"-?\d{1,6}(?:\.\d{1,3})?")
_MAX_SEQUENCE_LENGTH = 100_000


def _check_seq(arguments: ParsedArguments) -> None:
    alternative = (
        f"seq takes plain numbers of at most six digits, and gives at most {_MAX_SEQUENCE_LENGTH:,} of "  # noqa: E501
        "them"
    )
    numbers = [float(word.text) for word in arguments.operands if _SEQ_NUMBER.fullmatch(word.text)]
    if len(numbers) < len(arguments.operands):
        raise CallRejected("seq with such numbers might not end", alternative)
    first = numbers[0] if len(numbers) > 1 else 1.0
    step = numbers[1] if len(numbers) > 2 else 1.0
    if not step or abs(numbers[-1] - first) / abs(step) > _MAX_SEQUENCE_LENGTH:
        raise CallRejected("seq would not end soon", alternative)


def _check_vmstat(arguments: ParsedArguments) -> None:
    if len(arguments.operands) == 1:
        raise CallRejected("vmstat DELAY goes on for ever", "write vmstat, or vmstat DELAY COUNT")
    if any(not re.fullmatch(r"[1-9]\d?", word.text) for word in arguments.operands):
        raise CallRejected("vmstat would take too long", "give a delay and a count below 100")


# Reads modules or the environment, or might never end; as a field (.env) a word is just a name.
_JQ_WORDS = re.compile(
    r"(?<![.\w$])(?:"
    r"import|include|modulemeta|env|def|repeat|while|until|infinite|combinations|pow|exp10|exp2|exp)\b"
    r"|\$\s*(?:ENV|__prog_args)\b|\brecurse\s*\(|\*\s*(?:\d{4,}|\d+[eE])|\*[^*]*\*\s*\d{3,}"
)
# range(5), range(0; length), range(1; .n): how often it runs is known, or depends on the data.
_JQ_END = r"\s*(?:-?\d{1,6}|(?:\.[\w.\[\]]*\s*\|\s*)?length|\.[\w.]+)\s*"
_JQ_RANGE = re.compile(rf"\brange\s*\({_JQ_END}(?:;{_JQ_END}){{0,2}}\)")
_MAX_FILTER_CHARACTERS = 1000


def _check_jq(arguments: ParsedArguments) -> None:
    for word in arguments.operands[:1]:
        if len(word.text) > _MAX_FILTER_CHARACTERS:
            raise CallRejected("jq with so long a filter is not read", "write a shorter one")
        if match := _JQ_WORDS.search(word.text):
            problem = (
                f"jq {match[0]} is not allowed: it could read elsewhere, never end, or fill the "
                "memory"
            )
            raise CallRejected(problem, "use plain filters")
        if len(re.findall(r"\brange\b", word.text)) > min(1, len(_JQ_RANGE.findall(word.text))):
            raise CallRejected(
                "jq range is not allowed like this: it might never end",
                "write one range(N), or map",
            )


_WHO_AM_I = frozenset([(), ("am", "i"), ("am", "I")])


def _check_who(arguments: ParsedArguments) -> None:
    if tuple(word.text for word in arguments.operands) not in _WHO_AM_I:
        raise CallRejected(
            "who FILE reads that file as a record of logins", "write who, or who am i"
        )


_SS_WORD = re.compile(
    r"state|exclude|all|connected|synchronized|bucket|big|established|syn-sent|syn-recv|fin-wait-[12]|time-wait|closed"
    r"|close-wait|last-ack|listening|listen|closing|sport|dport|src|dst|and|or|not|[=!<>]=?"
    r"|eq|ne|lt|le|gt|ge|[()]"
    r"|:\d{1,5}|\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?"
)


def _check_ss(arguments: ParsedArguments) -> None:
    for text in (text for word in arguments.operands for text in word.text.split()):
        if not _SS_WORD.fullmatch(text):
            raise CallRejected(
                f"ss {text} might look a name up", "filter by state and by port number, like :22"
            )


# These formats of the journal show the fields that a person reads; all others show all fields.
_JOURNAL_LINES = re.compile("short(?:-[a-z-]+)?|with-unit|cat")


def _shows_all_fields(arguments: ParsedArguments) -> bool:
    return any(
        name in ("-o", "--output") and not _JOURNAL_LINES.fullmatch(value or "")
        for name, value in arguments.options
    )


def _check_journalctl(arguments: ParsedArguments) -> None:
    if _shows_all_fields(arguments) and not arguments.has("--output-fields"):
        raise CallRejected(
            "journalctl shows environments of crashed programs among all fields",
            "add --output-fields=MESSAGE,_SYSTEMD_UNIT,PRIORITY",
        )


def _check_systemctl(arguments: ParsedArguments) -> None:
    verbs = word_list("systemctl", "verbs")
    for word in arguments.operands[:1]:
        if word.text not in verbs:
            problem = f"systemctl {word.text} is not known here to change nothing"
            raise CallRejected(problem, f"systemctl takes {', '.join(sorted(verbs))}")
        if word.text == "status" and _shows_all_fields(arguments):
            raise CallRejected(
                "systemctl status shows environments of crashed programs among all fields",
                "write -o short-iso, or leave it out",
            )


# More fields of options.Program, by program.
_CODE_BY_PROGRAM: Mapping[str, Mapping[str, Any]] = {
    "diff": {
        "operands": _diff_operands,
        "safety_options": _diff_without_links,
        "exclude_options": _skip_in_diff,
    },
    "grep": {"operands": _grep_operands, "exclude_options": _skip_in_grep},
    "rg": {"operands": _rg_operands, "exclude_options": _skip_in_rg},
    "jq": {"check": _check_jq},
    "printf": {"check": _check_printf},
    "seq": {"check": _check_seq},
    "date": {"check": _check_date},
    "vmstat": {"check": _check_vmstat},
    "who": {"check": _check_who},
    "ss": {"check": _check_ss},
    "journalctl": {"check": _check_journalctl},
    "systemctl": {"check": _check_systemctl},
}
