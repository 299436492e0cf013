"""Server-sent events, read as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """One event: its name, `message` where the server gave none, and its data."""

    name: str
    data: str


class Reader:
    """Takes bytes as the network cuts them, and gives events."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._first = True

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete; to be used up before the next ones are fed."""
        self._rest += piece
        if self._first and len(self._rest) >= 3:
            self._rest, self._first = self._rest.removeprefix(b"\xef\xbb\xbf"), False
        begin = 0
        for end in _LINE_END.finditer(self._rest):
            if end[0] == b"\r" and end.end() == len(self._rest):
                break  # its \n may be on the way
            if event := self._line(self._rest[begin : end.start()]):
                yield event
            begin = end.end()
        self._rest = self._rest[begin:]

    def end(self) -> Iterator[Event]:
        """Yield what a server left without the empty line that should follow it."""
        for line in (self._rest, b""):
            if event := self._line(line):
                yield event

    def _line(self, line: bytes) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")  # a comment has no name, and keeps the connection alive
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
