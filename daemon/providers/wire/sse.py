"""A parser of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from daemon.system.http_body import BodyTooLarge

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """One event. Its name is `message` if the server sent none."""

    name: str
    data: str


class EventStreamParser:
    """Parses bytes as they arrive into events. One of more than `limit` bytes is refused when a
    further chunk comes.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._event_size = 0
        """Bytes since the end of the last event."""
        self.size = 0
        """Bytes in total."""
        self._open_line: list[bytes] = []
        """Parts of a line whose end has not arrived."""
        self._name = ""
        self._data: list[str] = []
        self._is_start = True

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete. The iterator must be exhausted before the
        next call.

        Raises BodyTooLarge if more than `limit` bytes came before these since the last event.
        """
        self.size += len(chunk)
        self._event_size += len(chunk)
        if self._event_size > self._limit + len(chunk):
            self._open_line, self._data = [], []  # whoever keeps the error keeps this parser
            raise BodyTooLarge(f"one event of the stream has more than {self._limit:,} bytes")
        after_return = bool(self._open_line) and self._open_line[-1].endswith(b"\r")
        if not (self._is_start or after_return or b"\n" in chunk or b"\r" in chunk):
            self._open_line.append(chunk)  # joined when the end of the line arrives
            return
        text = b"".join((*self._open_line, chunk))
        if self._is_start:
            if len(text) < 3:
                self._open_line = [text]
                return
            text, self._is_start = text.removeprefix(b"\xef\xbb\xbf"), False
        line_start = 0
        for line_end in _LINE_END.finditer(text):
            if line_end[0] == b"\r" and line_end.end() == len(text):
                break  # a \n may follow in the next chunk
            if event := self._add_line(text[line_start : line_end.start()]):
                yield event
            line_start = line_end.end()
        self._open_line = [text[line_start:]]

    def finish(self) -> Iterator[Event]:
        """Yield the last event if the server did not send the empty line after it.

        The standard discards such an event; some servers leave the line out, and mean the event.
        """
        # A \r at the end is that of a line: there was no telling whether a \n follows.
        for line in (b"".join(self._open_line).removesuffix(b"\r"), b""):
            if event := self._add_line(line):
                yield event

    def _add_line(self, line: bytes) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data, self._event_size = "", [], 0
            return event
        field, _, value = line.partition(b":")  # a comment, sent as keep-alive, has an empty field
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
