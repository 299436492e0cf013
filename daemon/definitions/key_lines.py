"""Find the lines of a TOML text in which its keys stand, for faults of their values.

tomllib says nothing of positions. A text that it has read is scanned once more, and only where the
scan finds exactly the keys that tomllib found are its lines believed.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from daemon.definitions.shape import Loc, format_key_path
from daemon.definitions.toml_text import TomlOutOfBounds, parse_toml_text
from daemon.errors import Fault

MAX_LENGTH = 200_000
"""Characters of the longest text that is scanned: it takes up to a second of CPU."""
# Comments are matched to be left out. A string of several lines may end with up to two quotes that
# belong to its content (https://toml.io/en/v1.0.0#string).
_TOKEN = re.compile(
    r"""
    (?P<newline> \n )
    | (?P<text> "{3} (?: [^"\\]+ | \\. | "(?!"") )* "{3,5} | '{3} .*? '{3,5}
        | "(?: [^"\\\n]+ | \\. )*" | '[^'\n]*' )
    | (?P<mark> [=.,\[\]{}] )
    | (?P<bare> [^\s=.,\[\]{}"'\#]+ )
    | \#[^\n]*
    """,
    re.DOTALL | re.VERBOSE,
)


class KeyLines:
    """The lines of the keys of one TOML text."""

    def __init__(self, text: str) -> None:
        """`text` may be anything: of what is no TOML, or too long, no line is known."""
        lines = _lines_by_path(text)
        names = {path: format_key_path(*path) for path in lines}
        same_names = Counter(names.values())  # very long keys are shown by their beginning
        list_lengths = Counter(path[:-1] for path in lines if isinstance(path[-1], int))
        self._lists = {names[path] for path, length in list_lengths.items() if length > 1}
        self._lines = {names[path]: line for path, line in lines.items()}
        for name, count in same_names.items():
            if count > 1:
                del self._lines[name]
        for path, line in lines.items():
            # a fault names the keys of a list with one table, as [[trigger]], like those of a table
            if list_lengths[path[:1]] == 1 and len(path) > 2:
                self._lines.setdefault(format_key_path(path[0], *path[2:]), line)

    def line_of(self, key: str) -> int | None:
        """Return the line of a key such as `gather[1].args`, counted from 1; of a key that is
        missing the line of its table. None if neither stands in the text.
        """
        while key and key not in self._lines:
            # A cut inside a quoted name leaves an open quote, which no key in the text has.
            cut_position = max(key.rfind("."), key.rfind("["))
            is_name = key[max(cut_position, 0)] != "["
            key = key[: max(cut_position, 0)]
            if is_name and key in self._lists:
                return None  # which of its tables is meant is not known
        return self._lines.get(key)


def with_lines(faults: Iterable[Fault], text: str) -> tuple[Fault, ...]:
    """Return faults of keys of a file with the lines of these keys in the file's text, in the order
    of the lines. Those without a line come first, those of other places last.
    """
    lines = KeyLines(text)
    located_faults = [
        replace(fault, line=lines.line_of(fault.key)) if fault.key else fault for fault in faults
    ]
    files = list(dict.fromkeys(fault.file for fault in located_faults))
    located_faults.sort(key=lambda fault: (files.index(fault.file), fault.line or 0))
    return tuple(located_faults)


def _lines_by_path(text: str) -> dict[Loc, int]:
    """Return the line of each table, key and item of a list; nothing where that is not certain."""
    if len(text) > MAX_LENGTH:
        return {}
    try:
        data = parse_toml_text(text)
    except (tomllib.TOMLDecodeError, TomlOutOfBounds):
        return {}
    lines = _Scan(text).lines
    return lines if lines.keys() == set(_paths_in(data)) else {}


def _paths_in(value: Any, path: Loc = ()) -> Iterator[Loc]:
    entries: Iterable[tuple[int | str, Any]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for key, entry in entries:
        yield (*path, key)
        yield from _paths_in(entry, (*path, key))


class _Token(NamedTuple):
    kind: str
    """`newline`, `text`, `mark`, `bare`, or `end`."""
    text: str
    line: int


class _Scan:
    """One pass over the tokens of a text that is TOML."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Loc, int] = {}
        self._table_counts: Counter[Loc] = Counter()  # of lists of tables
        self._tokens = _tokens_of(text)
        self._token = next(self._tokens)
        table: Loc = ()
        while self._token.kind != "end":
            if self._token.kind == "newline":
                self._advance()
            elif self._token.text == "[":
                table = self._read_header()
            else:
                self._read_pair(table)

    def _advance(self) -> _Token:
        """Return the token at hand and go on to the next one; the last one stays."""
        token = self._token
        self._token = next(self._tokens, token)
        return token

    def _is_at(self, mark: str) -> bool:
        return self._token.kind == "mark" and self._token.text == mark

    def _skip_newlines(self) -> None:
        while self._token.kind == "newline":
            self._advance()

    def _read_header(self) -> Loc:
        """Read `[a.b]` or `[[a.b]]` and return the path of this table."""
        line = self._advance().line
        is_list = self._is_at("[")
        if is_list:
            self._advance()
        *parents, name = self._read_key()
        path: Loc = ()
        for part in parents:
            path = (*path, part)
            self.lines.setdefault(path, line)
            if count := self._table_counts[path]:
                path = (*path, count - 1)
        path = (*path, name)
        if is_list:
            self.lines.setdefault(path, line)
            self._table_counts[path] += 1
            path = (*path, self._table_counts[path] - 1)
        self.lines[path] = line
        while self._is_at("]"):
            self._advance()
        return path

    def _read_key(self) -> list[str]:
        """Read a dotted key and return its parts."""
        parts = [_name_of(self._advance())]
        while self._is_at("."):
            self._advance()
            parts.append(_name_of(self._advance()))
        return parts

    def _read_pair(self, table: Loc) -> None:
        """Read `key = value` in a table."""
        line, path = self._token.line, table
        for part in self._read_key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        if self._is_at("="):
            self._advance()
        self._read_value(path)

    def _read_value(self, path: Loc) -> None:
        if self._is_at("["):
            self._advance()
            self._skip_newlines()
            index = 0
            while self._token.kind != "end" and not self._is_at("]"):
                self.lines[(*path, index)] = self._token.line
                self._read_value((*path, index))
                self._skip_separator()
                index += 1
            self._advance()
        elif self._is_at("{"):
            self._advance()
            self._skip_newlines()
            while self._token.kind != "end" and not self._is_at("}"):
                self._read_pair(path)
                self._skip_separator()
            self._advance()
        else:  # a text, or what a number or date consists of
            self._advance()
            while self._token.kind == "bare" or self._is_at("."):
                self._advance()

    def _skip_separator(self) -> None:
        self._skip_newlines()
        if self._is_at(","):
            self._advance()
        self._skip_newlines()


def _tokens_of(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup:
            yield _Token(match.lastgroup, match[0], line)
        line += match[0].count("\n")
    yield _Token("end", "", line)


def _name_of(token: _Token) -> str:
    """Return the name that a part of a key stands for."""
    if token.kind != "text":
        return token.text
    name: str = tomllib.loads(f"name = {token.text}")["name"]
    return name
