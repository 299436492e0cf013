"""The programs whose arguments are a language of their own, each read word by word; the rest is in
programs.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daemon.policy.lexer import CallRejected, Word
from daemon.policy.options import KINDS, ParsedCommand
from daemon.policy.tables import load_table, word_list


@dataclass(frozen=True)
class Grammar:
    """A program that reads its words in its own way."""

    name: str
    read: Callable[[Sequence[Word]], ParsedCommand] = field(repr=False)
    """Returns what the program would do with the words, its own name first; raises CallRejected if
    that may do harm.
    """
    success_codes: tuple[int, ...] = ()
    exclude_options: None = None
    """None of them reads a whole tree."""

    def parse_command(self, words: Sequence[Word]) -> ParsedCommand:
        return self.read(words)


def _argv(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(word.text for word in words)


def _refuse_globs(name: str, words: Sequence[Word]) -> None:
    for word in words:
        if word.pattern:
            raise CallRejected(
                f"{name}: {word.text} would be replaced by file names here",
                "put the pattern in single quotes",
            )


# --- echo, expr, test


def _parse_echo(words: Sequence[Word]) -> ParsedCommand:
    return ParsedCommand(_argv(words))


def _parse_expr(words: Sequence[Word]) -> ParsedCommand:
    _refuse_globs("expr", words)
    return ParsedCommand(_argv(words))


def _parse_test(words: Sequence[Word]) -> ParsedCommand:
    name = words[0].text
    inner = list(words[1:])
    if name == "[" and (not inner or inner.pop().text != "]"):
        raise CallRejected("[ lacks its ]", "write [ -f FILE ]")
    _refuse_globs(name, inner)
    on_files, between_files = word_list("test", "on_files"), word_list("test", "between_files")
    operators = on_files | between_files | word_list("test", "others")
    files: list[str] = []
    for index, word in enumerate(inner):
        before = inner[index - 1].text if index else ""
        after = inner[index + 1].text if index + 1 < len(inner) else ""
        if before in on_files or before in between_files or after in between_files:
            files.append(word.text)
        elif {before, after} & word_list("test", "between_numbers") and not re.fullmatch(
            r"[+-]?\d+", word.text
        ):
            raise CallRejected(
                f"{name}: {word.text} is no whole number", "compare words with = and !="
            )
        elif (
            re.fullmatch(r"-[A-Za-z]+", word.text)
            and word.text not in operators
            and before not in ("=", "==", "!=", "-n", "-z")
        ):
            raise CallRejected(
                f"{name} {word.text} is not known here", "use -f -d -e -s -r -n -z = != -eq -lt …"
            )
    return ParsedCommand(_argv(words), files=tuple(files))


# --- find

# A field of `-printf` that is 1,000 characters wide or more.
_WIDE_FIELD = re.compile(r"%[^A-Za-z%]*\d{4}")
_FIND_NEWER = re.compile(r"-newer([aBcm])([aBcmt])")
_FIND_SYNOPSIS = (
    "paths, then tests such as -name -type -mtime -size -newer, and -print -printf -ls; never -exec "  # noqa: E501
    "-delete"
)


def _parse_find(words: Sequence[Word]) -> ParsedCommand:
    index = 1
    while index < len(words) and words[index].text == "-P":
        index += 1
    begin = index
    while index < len(words) and not (
        words[index].text[:1] == "-" or words[index].text in ("(", "!", ",", ")")
    ):
        index += 1
    files = [word.text for word in words[begin:index]] or ["."]
    _refuse_globs("find", words[index:])
    number_tests, file_tests = word_list("find", "number"), word_list("find", "file")
    tests_with_value = number_tests | file_tests | word_list("find", "text")
    while index < len(words):
        text = words[index].text
        index += 1
        if text in word_list("find", "plain"):
            continue
        newer = _FIND_NEWER.fullmatch(text)
        if not (newer or text in tests_with_value):
            raise CallRejected(
                f"find {text} is not known here to change nothing", f"find takes {_FIND_SYNOPSIS}"
            )
        if index == len(words):
            raise CallRejected(f"find {text} lacks its value", f"write find {text} VALUE")
        value = words[index].text
        index += 1
        if text in file_tests or (newer and newer[2] != "t"):
            files.append(value)
        elif newer and not KINDS["DATE"].fullmatch(value):
            raise CallRejected(f"find {text} {value} would read a file", "write a date without TZ=")
        elif text in number_tests and not re.fullmatch(r"[+-]?\d{1,12}", value):
            raise CallRejected(f"find {text} {value}: expected a number", f"write find {text} 1")
        elif text == "-printf" and _WIDE_FIELD.search(value):
            raise CallRejected(
                "find -printf with so wide a field would flood the output", "give a smaller width"
            )
    return ParsedCommand(_argv(words), files=tuple(files))


# --- sed

_SED_PRINT = re.compile(r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?p)(?:; *(?:\d+|\$)(?:,(?:\d+|\$))?p)*")
_SED_SYNOPSIS = "-n 'N,Mp' FILE: print lines N to M, and nothing else"


def _parse_sed(words: Sequence[Word]) -> ParsedCommand:
    silent = False
    scripts: list[str] = []
    operands: list[str] = []
    at = 1
    while at < len(words):
        text = words[at].text
        at += 1
        if text in ("-n", "--quiet", "--silent"):
            silent = True
        elif text in ("-e", "-ne") and at < len(words):
            silent = silent or text == "-ne"
            scripts.append(words[at].text)
            at += 1
        elif text.startswith("-") and text != "-":
            raise CallRejected(
                f"sed {text} is not known here to change nothing", f"sed takes {_SED_SYNOPSIS}"
            )
        else:
            operands.append(text)
    # the first operand is the script only where no -e gives one, also behind it
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    files = [text for text in operands if text != "-"]
    if not silent or not scripts or not all(_SED_PRINT.fullmatch(script) for script in scripts):
        raise CallRejected(
            "sed can write and run, so only printing lines is allowed", f"sed takes {_SED_SYNOPSIS}"
        )
    return ParsedCommand(_argv(words), files=tuple(files), stdin=files != operands or not files)


# --- ps

_PS_LIST = re.compile(r"[A-Za-z0-9_.,:/%@+-]*")
_PS_DASHED_BSD = re.compile(r"-auxw*")
_PS_BSD = re.compile(r"[acfghjlmnrsuvwxATSHXZ]+")
_PS_SYNOPSIS = (
    "aux, axo FIELDS, -ef, -eo FIELDS, -p PID, -u USER, --sort=FIELD, --forest; no environments"
)


def _parse_ps(words: Sequence[Word]) -> ParsedCommand:
    """Read the three dialects of ps, and pass it words that it can read in one way only.

    When a word is wrong in one dialect, ps reads all words again as BSD options, in which any stray
    e shows the environment of processes: `ps -fe -H -T` does. So -e becomes its synonym -A, and
    values are joined to long options.
    """
    _refuse_globs("ps", words)
    remaining = [
        word.text.lstrip("-") if _PS_DASHED_BSD.fullmatch(word.text) else word.text
        for word in words[1:]
    ]
    argv = ["ps"]
    while remaining:
        text = remaining.pop(0)
        key, equals, value = text.partition("=")
        if text in word_list("ps", "long_flags") or re.fullmatch(r"[\d,]+", text):
            argv.append(text)
        elif key in word_list("ps", "long_fields") | word_list("ps", "long_lists"):
            argv.append(_join_ps_value(key, value if equals else _take_value(remaining, key)))
        elif text == "-C":
            argv += [text, _check_ps_list(_take_value(remaining, text))]
        elif re.match(r"-[A-Za-z]", text):
            argv += _parse_ps_cluster(text, remaining)
        elif (match := re.fullmatch(r"(\w*?)([ok]?)", text)) and _PS_BSD.fullmatch(match[1] or "x"):
            argv.append(text)
            if match[2]:
                argv.append(_check_ps_fields(_take_value(remaining, text)))
        else:
            raise _ps_unknown(text)
    index = argv.index("-C") if "-C" in argv else 0
    if index and not all(word.startswith("--") for word in (*argv[1:index], *argv[index + 2 :])):
        raise CallRejected(
            "ps -C goes with --format, --sort and the like only", "write ps -C NAME -o pid,args"
        )
    return ParsedCommand(tuple(argv))


def _parse_ps_cluster(text: str, remaining: list[str]) -> list[str]:
    flags = ""
    long_names = load_table("words")["ps"]["short_values"]
    for position, letter in enumerate(text[1:], 2):
        if letter in word_list("ps", "flags"):
            flags += "A" if letter == "e" else letter
        elif letter in long_names:
            value = text[position:]
            if value and letter != "o" and not re.fullmatch(r"[\d,]+", value):
                raise _ps_unknown(text)  # -auxe is the option u with the value xe, or aux and e
            last_option = _join_ps_value(
                long_names[letter], value or _take_value(remaining, f"-{letter}")
            )
            return [f"-{flags}", last_option] if flags else [last_option]
        else:
            raise _ps_unknown(text)
    return [f"-{flags}"]


def _join_ps_value(option: str, value: str) -> str:
    if option in word_list("ps", "long_fields"):
        _check_ps_fields(value)
    else:
        _check_ps_list(value)
    return f"{option}={value}"


def _check_ps_list(text: str) -> str:
    if not _PS_LIST.fullmatch(text):
        raise _ps_unknown(text)
    return text


def _check_ps_fields(text: str) -> str:
    for field_text in re.split(r"[, ]+", text):
        match = re.fullmatch(r"[+-]?([%\w]*)(?::\d+)?(?:=.*)?", field_text)
        if field_text and (not match or match[1] not in word_list("ps", "fields")):
            raise CallRejected(
                f"ps: {field_text} is not a field that is known here",
                "use pid,ppid,user,pcpu,pmem,comm,args",
            )
    return text


def _ps_unknown(text: str) -> CallRejected:
    return CallRejected(
        f"ps {text} is not known here to show no environments", f"ps takes {_PS_SYNOPSIS}"
    )


def _take_value(remaining: list[str], option: str) -> str:
    if not remaining:
        raise CallRejected(f"{option} lacks its value", f"write {option} VALUE")
    return remaining.pop(0)


# --- ip

_IP_WORD = re.compile(r"[A-Za-z0-9_.:/@-]+")
_IP_SYNOPSIS = "[-4 -6 -br -s -d -o -j] addr|route|link [show …]"


def _parse_ip(words: Sequence[Word]) -> ParsedCommand:
    _refuse_globs("ip", words)
    remaining = [word.text for word in words[1:]]
    while remaining and remaining[0].startswith("-"):
        if remaining.pop(0) not in word_list("ip", "options"):
            raise CallRejected(
                "ip: this option is not known here to change nothing", f"ip takes {_IP_SYNOPSIS}"
            )
    # of a link it would mean `set`
    if remaining[1:2] == ["s"] and not remaining[0].startswith("l"):
        remaining[1] = "show"
    if (
        not remaining
        or remaining.pop(0) not in word_list("ip", "objects")
        or (remaining and remaining.pop(0) not in word_list("ip", "verbs"))
    ):
        raise CallRejected(
            "ip shows addresses, routes and links here, and changes nothing",
            f"ip takes {_IP_SYNOPSIS}",
        )
    if not all(_IP_WORD.fullmatch(text) and not text.startswith("-") for text in remaining):
        raise CallRejected("ip: this selection is not known here", f"ip takes {_IP_SYNOPSIS}")
    return ParsedCommand(_argv(words))


GRAMMARS: tuple[Grammar, ...] = (
    Grammar("echo", _parse_echo),
    Grammar("expr", _parse_expr, success_codes=(1,)),
    Grammar("test", _parse_test, success_codes=(1,)),
    Grammar("[", _parse_test, success_codes=(1,)),
    Grammar("find", _parse_find),
    Grammar("sed", _parse_sed),
    Grammar("ps", _parse_ps, success_codes=(1,)),
    Grammar("ip", _parse_ip),
)
