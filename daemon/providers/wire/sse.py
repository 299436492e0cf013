"""Server-sent events, read as they come
(https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from daemon.system.http_body import BodyTooLarge

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """One event: its name, `message` where the server gave none, and its data."""

    name: str
    data: str


class EventStreamParser:
    """Takes bytes as the network cuts them, and gives events of at most `limit` bytes."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._event_size = 0
        """Bytes that came since the last event ended."""
        self.size = 0
        """How many bytes were fed."""
        self._unfinished: list[bytes] = []
        """The beginning of a line whose end has not come."""
        self._name = ""
        self._data: list[str] = []
        self._first = True

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete; to be used up before the next ones are fed.

        Raises BodyTooLarge where an event that has no end yet is larger than the limit.
        """
        self.size += len(piece)
        self._event_size += len(piece)
        if self._event_size > self._limit + len(piece):
            raise BodyTooLarge(f"one event of the stream has more than {self._limit:,} bytes")
        after_return = bool(self._unfinished) and self._unfinished[-1].endswith(b"\r")
        if not (self._first or after_return or b"\n" in piece or b"\r" in piece):
            self._unfinished.append(
                piece
            )  # a long line is put together once, when its end has come
            return
        text = b"".join((*self._unfinished, piece))
        if self._first:
            if len(text) < 3:
                self._unfinished = [text]
                return
            text, self._first = text.removeprefix(b"\xef\xbb\xbf"), False
        begin = 0
        for end in _LINE_END.finditer(text):
            if end[0] == b"\r" and end.end() == len(text):
                break  # its \n may be on the way
            if event := self._line(text[begin : end.start()]):
                yield event
            begin = end.end()
        self._unfinished = [text[begin:]]

    def end(self) -> Iterator[Event]:
        """Yield what a server left without the empty line that should follow it."""
        for line in (b"".join(self._unfinished), b""):
            if event := self._line(line):
                yield event

    def _line(self, line: bytes) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data, self._event_size = "", [], 0
            return event
        field, _, value = line.partition(
            b":"
        )  # a comment has no name, and keeps the connection alive
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
