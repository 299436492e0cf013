"""Check a program's arguments against the options we know to be harmless; what is not listed is
refused.

An allow-list is written as the manual writes a synopsis:

    -abc            flags, which may be joined: -a -bc
    -n:NUM          an option that takes a value, joined or as the next word: -n5, -n 5
    -M?NUM          an option whose value, if any, is joined: -M, -M50%
    -NUM            a number as an option: -20
    --long  --long=NUM  --long[=NUM]      likewise; a long option must be written in full
    --arg=TEXT+PATH                       an option that takes the next two words
    --merged=TEXT?                        an option that takes the next word, if there is one

and operands as a list of kinds, each with `?` (may be absent), `*` (any number) or `+` (one or
more) after it, and with `=.` if the current folder is read when none is named. Options go by their
full names, since what an abbreviation stands for changes with the program's version. A value that
is `--` must be joined to its option: as a word of its own some programs take it for the end of the
options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TypeAlias

from daemon.policy.lexer import CallRejected, Word

# What a value or operand must look like. PATH, FILE and TREE are paths that the program reads: TREE
# with all beneath, FILE only if it is no folder, since of a folder the program would read what is
# in it. None begins with +, which is an option of old to some programs: `tail +1f` waits for ever.
KINDS = {
    kind: re.compile(pattern, re.DOTALL)
    for kind, pattern in {
        "TEXT": r".*",
        "ANY": r".*",  # text that may also come from * and ?: what printf prints
        "PATH": r"(?!\+).+",
        "FILE": r"(?!\+).+",
        "TREE": r"(?!\+).+",
        "NAMES": r".*",  # a glob of the program's own that chooses which files of a tree it reads
        "NUM": r"[+-]?\d{1,18}(?:\.\d{1,18})?[A-Za-z%]{0,3}",
        "COUNT": r"all|\+?\d{1,9}",
        # one, or several with commas between; a wider line would only flood the output
        "WIDTH": r"\d{1,4}(?:,\d{1,4}){0,2}",
        "WORD": r"[A-Za-z0-9_.,:=+-]*",
        "KEY": r"[0-9.,bdfgiMhnRrV]+",
        "FORMAT": r"(?!.*%[^A-Za-z%]*\d{4}).*",  # no wide fields
        # of git, with %w(WIDTH) and %(align:WIDTH); nor signatures: it runs gpg for %G?
        "LOG": r"(?!.*%[^A-Za-z%]*\d{4})(?!.*%w?\([^()%]*\d{4})(?!.*%[-+ ]?G).*",
        # git answers REVISION:PATH, where it wants a commit, with the id of a text: its checksum
        "COMMIT": r"[^:]*",
        "DATE": r"(?!.*TZ=).*",  # TZ="…" in a date names a file to read
        "MOUNT": r"/?[A-Za-z0-9_./ -]*",  # where a file system is mounted: looked up, not read
        "DEVICE": r"/dev/[A-Za-z0-9_/-]+",
        # a systemd unit, or a quoted pattern of them
        "UNIT": r"[A-Za-z0-9_.@:*?][A-Za-z0-9_.@:*?\\-]*",
        # of the journal; the environments of programs that crashed are in COREDUMP_ENVIRON, and in
        # COREDUMP, which is their memory
        "FIELDS": r"(?!.*ENVIRON)(?!.*\bCOREDUMP\b)[A-Z_][A-Z0-9_,]*",
        # a field of the journal, or the number after -n or -b
        "MATCH": r"[A-Z0-9_]+=.*|\+|\d+|all|[0-9a-f]{32}",
    }.items()
}
_PATHS = ("PATH", "FILE", "TREE")
_MAY_BE_GLOBS = (*_PATHS, "ANY", "MOUNT")
OPERAND = re.compile(r"([A-Z]+)([?*+]?)(=\.)?")
_NUMBER = re.compile(r"-\d{1,9}")
# Letters of an unknown option by which a similar one is looked for; thousands would take seconds.
_MAX_OPTION_LENGTH = 40


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """What a program would do with its words, as far as the policy must know."""

    argv: tuple[str, ...]
    """The command line that is run, with the safety options of the program."""
    files: tuple[str, ...] = ()
    """Files and folders that it looks at."""
    trees: tuple[str, ...] = ()
    """Folders of which it reads every file beneath."""
    name_globs: tuple[str, ...] = ()
    """Globs of the files that it is to read within `trees`."""
    stdin: bool = False
    """Whether it reads standard input."""
    no_folders: tuple[str, ...] = ()
    """Those of `files` that must not be folders."""
    options_end: int | None = None
    """The index in `argv` of the `--` that ends the options; None if there is none."""


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """The words of a command after its name, as options and operands."""

    name: str
    """Of the program, with its sub-command: `git log`."""
    options: tuple[tuple[str, str | None], ...]
    """Full names, each with its (first) value or None, in order; a number such as -20 is `-NUM`."""
    operands: tuple[Word, ...]
    values: tuple[tuple[str, str], ...] = ()
    """The values of options, each with its kind."""
    options_end: int | None = None
    """The index of the `--` that ends the options; None without one."""
    before_end: int = 0
    """How many of the operands stand before that `--`."""

    def has(self, *names: str) -> bool:
        """Tell whether one of these options is given."""
        return any(name in names for name, _ in self.options)


Check: TypeAlias = Callable[[ParsedArguments], None]
Operands: TypeAlias = Callable[[ParsedArguments], str]


@dataclass(frozen=True, slots=True)
class ProgramOption:
    """An option that a program may be given, with the kinds of its values."""

    name: str
    kinds: tuple[str, ...] = ()
    """The kind of the option's value; two kinds only where both are the next words."""
    optional: bool = False
    """Whether the option's value, if it has one, is joined to the option."""
    may_lack_value: bool = False
    """Whether the option does without its value where no word is left."""

    @property
    def value_count(self) -> int:
        """How many of the next words are its values."""
        return 0 if self.optional else len(self.kinds)


def _split_kinds(text: str) -> tuple[str, ...]:
    return tuple(text.split("+")) if text else ()


@dataclass(frozen=True)
class Program:
    """How a program may be used: its options and operands, and code for what no table can say."""

    name: str
    options: str = ""
    operands: str | Operands = ""
    check: Check | None = None
    """Raises CallRejected for harmful arguments that options and operands let pass."""
    safety_options: Sequence[str] | Callable[[ParsedArguments], Sequence[str]] = ()
    """Options that are put before those of the command to make it harmless."""
    stdin: bool = False
    """Whether it reads standard input, whatever its operands are."""
    without_input: tuple[str, ...] = ()
    """The options with which it does not read standard input."""
    negative: bool = False
    """Whether a negative number such as -3 is an operand and not an option."""
    success_codes: tuple[int, ...] = ()
    """Exit codes besides 0 that are no failure, such as 1 of grep for "nothing found"."""
    exclude_options: Callable[[str, bool], Sequence[str]] | None = None
    """Returns the options that make the program pass over a pattern when it reads a tree: over
    files of such names, or over folders if the second argument is true. None: it has no such
    option.
    """

    def parse_command(self, words: Sequence[Word]) -> ParsedCommand:
        """Return what the program would do with these words, its own name first.

        Raises CallRejected if that may do harm.
        """
        arguments = self.parse_arguments(words)
        kinds = self.operands if isinstance(self.operands, str) else self.operands(arguments)
        paths_by_kind: dict[str, list[str]] = {kind: [] for kind in _PATHS}
        for word, kind in zip(
            arguments.operands, _assign_kinds(self.name, kinds, arguments.operands), strict=True
        ):
            _refuse_mismatch(self.name, kind, word)
            if kind in _PATHS:
                paths_by_kind[kind].append(word.text)
        if self.check:
            self.check(arguments)
        stdin = self.stdin or "-" in paths_by_kind["PATH"] + paths_by_kind["FILE"]
        for kind, _, default in OPERAND.findall(kinds):
            if kind in _PATHS and not paths_by_kind[kind]:
                if default:
                    paths_by_kind[kind].append(".")
                else:
                    stdin = True
        files, no_folders, trees = (
            [path for path in paths_by_kind[kind] if path != "-"] for kind in _PATHS
        )
        stdin = stdin and not arguments.has(*self.without_input)
        safety_options = self.safety_options_for(arguments)
        argv = (words[0].text, *safety_options, *(word.text for word in words[1:]))
        values = [text for kind, text in arguments.values if kind in _PATHS and text != "-"]
        name_globs = [
            text for kind, text in arguments.values if kind == "NAMES" and not text.startswith("!")
        ]
        options_end = arguments.options_end
        return ParsedCommand(
            argv,
            files=(*values, *files, *no_folders),
            trees=tuple(trees),
            name_globs=tuple(name_globs),
            stdin=stdin,
            no_folders=tuple(no_folders),
            options_end=None if options_end is None else options_end + len(safety_options),
        )

    def safety_options_for(self, arguments: ParsedArguments) -> Sequence[str]:
        """Return the options that are put before these arguments to make them harmless."""
        if callable(self.safety_options):
            return self.safety_options(arguments)
        return self.safety_options

    def parse_arguments(self, words: Sequence[Word]) -> ParsedArguments:
        """Tell options and operands apart; raise CallRejected for an option that is not listed."""
        return option_table(self.options, self.negative).parse(self.name, words)


class OptionTable:
    """An allow-list of options, read once."""

    def __init__(self, text: str, negative: bool) -> None:
        self._text, self._negative = text, negative
        self._short: dict[str, ProgramOption] = {}
        self._long: dict[str, ProgramOption] = {}
        self._number = False  # whether -20 is an option
        for item in text.split():
            self._add(item)

    def _add(self, item: str) -> None:
        if item == "-NUM":
            self._number = True
        elif item.startswith("--"):
            name, _, kind = item.partition("=")
            plain = name.rstrip("[")
            kinds = _split_kinds(kind.rstrip("]?"))
            self._long[plain] = ProgramOption(
                plain, kinds, optional=name != plain, may_lack_value=kind.endswith("?")
            )
        elif item[2:3] in (":", "?"):
            self._short[item[1]] = ProgramOption(
                item[:2], _split_kinds(item[3:]), optional=item[2] == "?"
            )
        else:
            self._short.update({letter: ProgramOption(f"-{letter}") for letter in item[1:]})

    @property
    def names(self) -> frozenset[str]:
        """The names of its options, as `ParsedArguments.options` has them."""
        number = ("-NUM",) if self._number else ()
        return frozenset({*(option.name for option in self.options), *number})

    @property
    def options(self) -> list[ProgramOption]:
        """Its options, but for -NUM."""
        return [*self._short.values(), *self._long.values()]

    def parse(self, name: str, words: Sequence[Word]) -> ParsedArguments:
        """Tell options, values and operands apart as getopt_long does, but for abbreviations."""
        options: list[tuple[str, str | None]] = []
        operands: list[Word] = []
        values: list[tuple[str, str]] = []
        options_end, before_end = None, 0
        position = 1
        while position < len(words):
            word = words[position]
            position += 1
            text = word.text
            if text == "--":
                options_end, before_end = position - 1, len(operands)
                operands.extend(words[position:])
                break
            if (
                not text.startswith("-")
                or text == "-"
                or (self._negative and KINDS["NUM"].fullmatch(text))
            ):
                operands.append(word)
                continue
            for option, joined_value in self._read(name, text):
                value_words = (
                    [Word(joined_value)]
                    if joined_value is not None
                    else list(words[position : position + option.value_count])
                )
                if joined_value is None and any(value.text == "--" for value in value_words):
                    problem = (
                        f"{name} {option.name} -- is read as a value by some programs, and as an "
                        "end by others"
                    )
                    form = (
                        f"{option.name}=--" if option.name.startswith("--") else f"{option.name}--"
                    )
                    raise CallRejected(
                        problem, f"write {form}" if option.value_count == 1 else "use another value"
                    )
                if joined_value is None:
                    position += len(value_words)
                values += _check_values(name, option, value_words)
                options.append((option.name, value_words[0].text if value_words else None))
        return ParsedArguments(
            name, tuple(options), tuple(operands), tuple(values), options_end, before_end
        )

    def _read(self, name: str, text: str) -> list[tuple[ProgramOption, str | None]]:
        """Return the options in one word, each with the value that is joined to it."""
        if text.startswith("--"):
            return [self._read_long(name, text)]
        if self._number and _NUMBER.fullmatch(text):
            return [(ProgramOption("-NUM", ("NUM",)), text[1:])]
        options: list[tuple[ProgramOption, str | None]] = []
        letters = text[1:]
        while letters:
            option = self._short.get(letters[0])
            if option is None:
                raise self._make_unknown_error(name, f"-{letters[0]}")
            letters = letters[1:]
            if option.kinds:
                return [*options, (option, letters or None)]
            options.append((option, None))
        return options

    def _read_long(self, name: str, text: str) -> tuple[ProgramOption, str | None]:
        key, equals, value = text.partition("=")
        option = self._long.get(key)
        if option is None:
            raise self._make_unknown_error(name, key)
        if equals and len(option.kinds) != 1:
            raise CallRejected(
                f"{name} {key} takes no value after =",
                f"write {key}" + " VALUE" * len(option.kinds),
            )
        return option, value if equals else None

    def _make_unknown_error(self, name: str, option: str) -> CallRejected:
        problem = (
            f"{name} {option} is not an option that is known here to change nothing and to end by "
            "itself"
        )
        if not option.startswith("--"):
            return CallRejected(problem, self._describe_options(name))
        completions = [name for name in self._long if name.startswith(option)]
        close = completions[:1] or get_close_matches(option[:_MAX_OPTION_LENGTH], self._long, 1)
        if completions:
            problem = f"{name} {option} is an abbreviation"
        return CallRejected(problem, f"write {close[0]}" if close else self._describe_options(name))

    def _describe_options(self, name: str) -> str:
        return f"{name} takes {' '.join(self._text.split()) or 'no options'}"


def _check_values(
    name: str, option: ProgramOption, value_words: Sequence[Word]
) -> list[tuple[str, str]]:
    """Return an option's values, each with its kind; raise CallRejected for values that do not
    fit.
    """
    if len(value_words) < option.value_count and not (option.may_lack_value and not value_words):
        raise CallRejected(
            f"{name} {option.name} lacks its value",
            f"write {option.name}" + " VALUE" * option.value_count,
        )
    for kind, word in zip(option.kinds, value_words, strict=False):
        _refuse_mismatch(name, kind, word, option=option.name)
    return [(kind, word.text) for kind, word in zip(option.kinds, value_words, strict=False)]


@cache
def option_table(text: str, negative: bool) -> OptionTable:
    """Return the allow-list that a synopsis describes; it is parsed when first asked for."""
    return OptionTable(text, negative)


def _refuse_mismatch(name: str, kind: str, word: Word, *, option: str = "") -> None:
    subject = f"{name} {option}".rstrip()
    if word.pattern and kind not in _MAY_BE_GLOBS:
        raise CallRejected(
            f"{subject}: {word.text} would be replaced by file names here",
            "put it in single quotes",
        )
    if not KINDS[kind].fullmatch(word.text):
        alternative = f"it takes {kind}"
        if kind in _PATHS and word.text:
            alternative = f"write ./{word.text} if that is the name of a file"
        raise CallRejected(f"{subject} does not take {word.text!r} here", alternative)


def _assign_kinds(name: str, kinds: str, operands: Sequence[Word]) -> list[str]:
    """Return the kinds of the operands, in order. Raises CallRejected for too few or too many."""
    operand_kinds: list[str] = []
    remaining = len(operands)
    for kind, count, _ in OPERAND.findall(kinds):
        count_taken = remaining if count in ("*", "+") else min(remaining, 1)
        if not count_taken and count in ("", "+"):
            raise CallRejected(f"{name} lacks an operand", f"it takes {kinds}")
        operand_kinds += [kind] * count_taken
        remaining -= count_taken
    if remaining:
        expectation = f"it takes {kinds}" if kinds else "it takes none"
        raise CallRejected(
            f"{name} does not take {operands[len(operand_kinds)].text!r} here", expectation
        )
    return operand_kinds
