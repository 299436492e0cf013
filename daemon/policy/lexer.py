"""Read a command line in the one small language that the shell tool speaks; whatever lies outside
it is refused.

Theory of operation: there is no shell. A line is cut into words here, judged as lists of words, and
exactly those lists are run. So the policy cannot read a line in one way and an interpreter in
another: there is no interpreter. The language is the part of bash in which a word means what it
looks like:

    line      = pipeline (("&&" | "||" | ";" | newline) pipeline)*
    pipeline  = command ("|" command)*
    command   = (word | ">/dev/null" | "2>/dev/null" | "2>&1" | "<" word)+
    word      = plain text | '…' | "…", in any succession; * and ? outside quotes are wildcards

Every line we accept, bash would run in the same way (tests/policy/test_lexer.py asks it); where
bash would do more, such as expand, substitute or assign, the line is refused with a word on how to
say it here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NoReturn, TypeAlias

from daemon.policy.tables import word_list

MAX_LINE = 10_000  # characters; a longer line is no command but a program
MAX_WORDS = 500  # of a line; each may be a path whose links are followed
MAX_PIPED = 20  # programs that run at the same time, each with its own limit of memory


class CallRejected(ValueError):
    """What a call would do cannot be told, or it is nothing that we run; `alternative` says how
    to rewrite it.
    """

    def __init__(self, problem: str, alternative: str = "") -> None:
        self.problem, self.alternative = problem, alternative
        super().__init__(f"{problem}; {alternative}" if alternative else problem)


@dataclass(frozen=True, slots=True)
class Word:
    """One word, without its quotes."""

    text: str
    pattern: str = ""
    """Set if * or ? stood outside quotes: the word as fnmatch reads it, with quoted wildcards
    escaped.
    """
    bare: bool = True
    """Whether nothing in it was quoted."""


class Stream(Enum):
    """Where a redirect sends an output of a command."""

    NULL = "/dev/null"
    STDOUT = "&1"


@dataclass(frozen=True, slots=True)
class Redirect:
    """Send file descriptor 1 or 2 elsewhere; a later one sees what the earlier ones did, as in
    bash.
    """

    fd: Literal[1, 2]
    to: Stream


@dataclass(frozen=True, slots=True)
class Command:
    """One program with its words, and where its streams go."""

    words: tuple[Word, ...]
    """The name of the program first."""
    redirects: tuple[Redirect, ...] = ()
    stdin: Word | None = None
    """The file that it reads as standard input; None: the pipe, or nothing."""


Operator: TypeAlias = Literal[";", "&&", "||"]
"""When a pipeline runs: always, if the one before succeeded, if it failed."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands that run side by side, each reading what the one before puts out."""

    operator: Operator
    commands: tuple[Command, ...]


def parse_line(line: str) -> tuple[Pipeline, ...]:
    """Return the pipelines of a line; raise CallRejected if bash might do anything but run these
    words.
    """
    if len(line) > MAX_LINE:
        raise CallRejected(
            f"the line is longer than {MAX_LINE} characters", "split it into several calls"
        )
    _refuse_invisible(line)
    return _LineParser(line).read_pipelines()


# --- characters

# Characters that are not drawn, and that Unicode does not class as format or space.
_NOT_DRAWN = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef"  # noqa: E501
_HIDDEN = re.compile(f"[{_NOT_DRAWN}]")
_PLAIN_LINE = re.compile(r"[\n -~]*")  # ASCII, printable; most lines end the search here


def _refuse_invisible(line: str) -> None:
    """Refuse what a person reading the line would not see, or would take for something else."""
    if _PLAIN_LINE.fullmatch(line):
        return
    for char in line:
        if char in "\n " or "!" <= char <= "~":
            continue
        category = unicodedata.category(char)
        if category[0] in "CZ" or _HIDDEN.match(char):
            raise CallRejected(
                f"the line holds {_describe_char(char)}, which is invisible or no plain space",
                "write plain spaces and newlines between words",
            )


def _describe_char(char: str) -> str:
    return f"U+{ord(char):04X} ({unicodedata.name(char, 'a control character')})"


# Scripts whose letters are drawn like Latin ones. Mixed with Latin letters in one word they can
# only be meant to deceive.
_LOOKALIKE = re.compile(r"\b(?:CYRILLIC|GREEK|ARMENIAN|CHEROKEE|COPTIC|LISU|DESERET)\b")
# Dashes, curly quotes, marks drawn over other letters, and mathematical signs (U+2212 is drawn like
# -).
_DECEPTIVE = frozenset(["Pd", "Pi", "Pf", "Mn", "Sm"])
_LETTERS = re.compile(r"[^\W\d_]+")


def _refuse_lookalikes(text: str) -> None:
    """Refuse unquoted text that looks like ASCII without being it: a fullwidth ； for ; or
    a Cyrillic о among Latin letters.
    """
    for char in text:
        if char <= "~":
            continue
        if (
            unicodedata.normalize("NFKC", char)[0] <= "~"
            or unicodedata.category(char) in _DECEPTIVE
        ):
            raise CallRejected(
                f"the line holds {_describe_char(char)} outside quotes",
                "write the ASCII character, or quote it",
            )
    for letters in _LETTERS.findall(text):
        if not letters.isascii() and any(char.isascii() for char in letters):
            for char in letters:
                if not char.isascii() and _LOOKALIKE.search(unicodedata.name(char, "")):
                    raise CallRejected(
                        f"{letters} mixes Latin letters with {_describe_char(char)}",
                        "quote it if it is meant",
                    )


# --- words

# Outside quotes, these are themselves; letters and signs beyond ASCII are too, once
# _refuse_lookalikes has seen them.
_BARE = re.compile(r"[A-Za-z0-9_./,:@%+=^\]\-\u00a1-\U0010ffff]+")
_SINGLE = re.compile(r"'([^'\n]*)'")
_DOUBLE = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Between double quotes a backslash escapes only these two; any other backslash stays as it is.
_ESCAPED = re.compile(r'\\(["\\])')
# What bash does not take literally between double quotes.
_NOT_LITERAL = re.compile(r"[$`]|\\[$`]|!(?![ =]|$)")

_ALTERNATIVES = {
    "$": "write the value itself (a date: --since=yesterday); a literal $ goes in single quotes",
    "`": "run that command first and use what it says; a literal ` goes in single quotes",
    "\\": "put the text in single quotes",
    "(": "there are no subshells; a literal ( goes in single quotes",
    ")": "there are no subshells; a literal ) goes in single quotes",
    "{": "write every word out; a literal { goes in single quotes",
    "}": "write every word out; a literal } goes in single quotes",
    "[": "only * and ? stand for file names; a literal [ goes in single quotes",
    "!": "put it in single quotes; there is no negation of commands",
    "~": "write the path itself, relative to the workspace",
    "#": "leave comments out; a literal # goes in single quotes",
    "&": "join commands with && || ; or |; nothing runs in the background",
    "<": "only `< FILE` is read; there are no here-documents",
    ">": "only >/dev/null, 2>/dev/null and 2>&1 exist; files are written by the file_write tool",
}
_PROBLEMS = {
    "$": "$ is not expanded here",
    "`": "nothing is substituted here",
    "\\": "a backslash outside quotes is not read",
    "~": "~ is not expanded here",
    "&": "& is not known here",
}

_NAME = re.compile(r"[A-Za-z0-9_./+\-\[][A-Za-z0-9_./+\-]*")
# A tilde is bash's at the start of a word and in what looks like an assignment; within HEAD~1 it is
# a letter.
_TILDE_IS_PLAIN = re.compile(r"[A-Za-z0-9_.^/@\-]")
# git's HEAD@{1} and @{upstream}: without a comma or .. in it bash leaves {…} as it is.
_BRACED = re.compile(r"@\{[A-Za-z0-9_-]+\}")
_REDIRECT = re.compile(r"([0-9]*)(>>|>\||>&|>|<<<|<<|<>|<&|<)")
_ESCAPED_WORD = re.compile(r"\\([()!])(?=[ \n;|]|$)")


class _LineParser:
    """Reads a line once from left to right; `position` is the index of the next character."""

    def __init__(self, line: str) -> None:
        self.line, self.position, self.word_count = line, 0, 0

    def read_pipelines(self) -> tuple[Pipeline, ...]:
        pipelines: list[Pipeline] = []
        operator: Operator = ";"
        self._skip(" \n")
        while self.position < len(self.line):
            pipelines.append(Pipeline(operator, self._read_pipeline()))
            operator = self._read_operator()
            self._skip(" \n")
        if not pipelines:
            raise CallRejected("the line is empty", "name a program")
        if operator != ";":
            raise CallRejected(f"nothing stands after {operator}", "leave it out, or add a command")
        return tuple(pipelines)

    def _skip(self, chars: str) -> None:
        while self.position < len(self.line) and self.line[self.position] in chars:
            self.position += 1

    def _skip_text(self, text: str) -> bool:
        """Skip a text if it stands here; return whether it does."""
        if self.line.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def _read_operator(self) -> Operator:
        """Read the operator between two pipelines; a new line, and the end of the line, is `;`."""
        if self._skip_text("&&"):
            return "&&"
        if self._skip_text("||"):
            return "||"
        if self._skip_text(";"):
            if self.line.startswith(";", self.position):
                self._refuse(";", "; stands twice", "write one ;")
            return ";"
        if self.position < len(self.line) and not self._skip_text("\n"):
            self._refuse(self.line[self.position])
        return ";"

    def _read_pipeline(self) -> tuple[Command, ...]:
        commands = [self._read_command()]
        while self.line.startswith("|", self.position) and not self.line.startswith(
            "||", self.position
        ):
            self.position += 1
            if self.line.startswith("&", self.position):
                raise CallRejected("|& is not known here", "write 2>&1 |")
            self._skip(" \n")
            commands.append(self._read_command())
            if len(commands) > MAX_PIPED:
                raise CallRejected(
                    f"more than {MAX_PIPED} programs are joined by |", "split it into several calls"
                )
        return tuple(commands)

    def _read_command(self) -> Command:
        words: list[Word] = []
        redirects: list[Redirect] = []
        stdin: Word | None = None
        self._skip(" ")
        while self.position < len(self.line) and self.line[self.position] not in "\n;|":
            if self.line.startswith("&&", self.position):
                break
            if match := _REDIRECT.match(self.line, self.position):
                self.position = match.end()
                if match[2] == "<" and not match[1]:
                    stdin = self._read_stdin_file(stdin)
                else:
                    redirects.append(self._read_redirect(match[1], match[2]))
            else:
                words.append(self._read_word(first=not words))
            self._skip(" ")
        if not words:
            raise CallRejected(
                "a command is missing", "every | && || and ; needs a command on both sides"
            )
        return Command(tuple(words), tuple(redirects), stdin)

    def _read_stdin_file(self, previous: Word | None) -> Word:
        """Read the file after `<`; `previous` is that of an earlier `<` of the command."""
        self._skip(" ")
        if previous is not None:
            raise CallRejected("a command reads from two files", "write one <")
        if _REDIRECT.match(self.line, self.position):
            raise CallRejected("< lacks its file", "write < FILE")
        word = self._read_word(first=False)
        if word.pattern:
            raise CallRejected("after < one file is named, without * or ?", "write its name out")
        return word

    def _read_redirect(self, fd: str, operator: str) -> Redirect:
        if operator == ">&" and fd == "2" and self._skip_text("1") and self._is_at_end_of_word():
            return Redirect(2, Stream.STDOUT)
        if operator == ">" and fd in ("", "1", "2"):
            self._skip(" ")
            if self._read_word(first=False).text == "/dev/null":
                return Redirect(2 if fd == "2" else 1, Stream.NULL)
        raise CallRejected(
            f"{fd}{operator} is not allowed here", _ALTERNATIVES["<" if operator[0] == "<" else ">"]
        )

    def _is_at_end_of_word(self) -> bool:
        return self.position == len(self.line) or self.line[self.position] in " \n;|&<>"

    def _read_word(self, *, first: bool) -> Word:
        if not first and (match := _ESCAPED_WORD.match(self.line, self.position)):
            # find's \( \) and \!: the only escapes that can mean nothing else
            self.position = match.end()
            return Word(match[1], bare=False)
        self.word_count += 1
        if self.word_count > MAX_WORDS:
            raise CallRejected(
                f"the line has more than {MAX_WORDS} words",
                "split it into several calls, or use find",
            )
        start = self.position
        text: list[str] = []
        pattern: list[str] = []
        wild = quoted = False
        while self.position < len(self.line) and self.line[self.position] not in " \n;|&<>":
            piece, is_quoted, is_wild = self._read_piece(start, first=first)
            text.append(piece)
            pattern.append(piece if is_wild else _as_literal(piece))
            wild, quoted = wild or is_wild, quoted or is_quoted
        if self.position == start:
            self._refuse(self.line[self.position] if self.position < len(self.line) else "\n")
        word = Word("".join(text), pattern="".join(pattern) if wild else "", bare=not quoted)
        if first:
            _refuse_as_command(word)
        return word

    def _read_piece(self, start: int, *, first: bool) -> tuple[str, bool, bool]:
        """Return the next part of a word: its text, whether it was quoted, whether it stands for
        file names.
        """
        char = self.line[self.position]
        if match := _BARE.match(self.line, self.position):
            self.position = match.end()
            if not match[0].isascii():
                _refuse_lookalikes(match[0])
            return match[0], False, False
        if char in "*?":
            self.position += 1
            return char, False, True
        if char == "'":
            return self._take_quoted(_SINGLE.match(self.line, self.position)), True, False
        if char == '"':
            inside = self._take_quoted(_DOUBLE.match(self.line, self.position))
            if match := _NOT_LITERAL.search(inside):
                self._refuse(
                    match[0][-1],
                    alternative="put the text in single quotes, where everything is literal",
                )
            return _ESCAPED.sub(r"\1", inside), True, False
        if (
            char == "{"
            and self.position > start
            and (match := _BRACED.match(self.line, self.position - 1))
        ):
            self.position = match.end()
            return match[0][1:], False, False
        if char == "#" and self.position > start:
            self.position += 1
            return char, False, False
        if (
            char == "~"
            and self.position > start
            and _TILDE_IS_PLAIN.match(self.line[self.position - 1])
        ):
            self.position += 1
            return char, False, False
        if (
            char == "!"
            and not first
            and self.position == start
            and re.match(r"!=?(?=[ \n;|]|$)", self.line[self.position :])
        ):
            self.position += 1
            return char, False, False
        if (
            char == "["
            and first
            and self.position == start
            and re.match(r"\[(?=[ \n;|]|$)", self.line[self.position :])
        ):
            self.position += 1
            return char, False, False
        return self._refuse(char)

    def _take_quoted(self, match: re.Match[str] | None) -> str:
        if match is None:
            raise CallRejected(
                f"a {self.line[self.position]} is not closed on its line", "close the quotes"
            )
        self.position = match.end()
        return match[1]

    def _refuse(self, char: str, problem: str = "", alternative: str = "") -> NoReturn:
        """Raise CallRejected, by default with the problem and the advice for a character."""
        problem = problem or _PROBLEMS.get(
            char, f"{char if char != chr(10) else 'a line end'} is not allowed here"
        )
        raise CallRejected(problem, alternative or _ALTERNATIVES.get(char, ""))


def _as_literal(text: str) -> str:
    """Return text as fnmatch reads it literally."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _refuse_as_command(word: Word) -> None:
    """Refuse what cannot name a program, or what bash would not take for a name."""
    if word.pattern:
        raise CallRejected(f"{word.text} cannot name a program", "write the name out")
    if "=" in word.text:
        raise CallRejected(
            f"{word.text} assigns a variable",
            "there are none here; write the value where it is used",
        )
    if word.bare and word.text in word_list("shell", "reserved"):
        raise CallRejected(
            f"{word.text} belongs to the shell's grammar", "run the commands one by one"
        )
    if not _NAME.fullmatch(word.text):
        raise CallRejected(
            f"{word.text!r} cannot name a program", "begin with a program's plain name"
        )
