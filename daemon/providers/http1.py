"""HTTP/1.1 as a client reads it: one answer, from the bytes of a connection as they come (RFC 9112).

Theory of operation: nothing here reads or writes. `feed` takes bytes and moves through the parts of an answer (its
head, the parts of its body) as far as they reach; `head` and `complete` tell how far that is, `take` hands over the
body as it stands. A library that does the same (h11) checks and builds an object for each part, and took a sixth of
the CPU of a whole run; the tests hold this one against it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

# Long enough for any server's cookies; what is longer is no head of an answer.
_LONGEST_HEAD = 64 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")  # the end of a line, and an empty one
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\x00]*)?")
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?", re.DOTALL)
_FOLD = re.compile(r"\n[ \t]+")  # an old way to go on in the next line
_SPACE = " \t"  # and no other: `strip` alone would take what is a character of the value
_TOO_LONG = 19  # digits of a length
_BODILESS = (204, 304)


class Malformed(ValueError):
    """What came is no HTTP, or breaks off."""


class Answer:
    """One answer, as much of it as has come."""

    def __init__(self) -> None:
        self.status = 0
        self._fields: list[tuple[str, str]] = []
        self.headers: Mapping[str, str] = {}
        """The same by lower-case name; of several with one name the values are joined by commas."""
        self.head = False
        """The status and the headers are there."""
        self.complete = False
        """All of the body has been fed, if not taken."""
        self._next: Callable[[], bool] = self._read_head
        self._raw = bytearray()
        self._body: list[bytes] = []
        self._left = 0
        self._lasting = False
        self.untaken = 0
        """Bytes of the body that have come and were not taken."""
        self._framing = 0
        """Bytes of heads, of what follows the sizes of chunks, and of trailers."""

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields as they came, in order."""
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._fields]

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request: the server lets it, and has said nothing more."""
        return self.complete and self._lasting and not self._raw

    def feed(self, data: bytes) -> None:
        """Take in what has come; raises Malformed."""
        self._raw += data
        while self._raw and not self.complete and self._next():
            pass

    def end(self) -> None:
        """Take in that nothing more will come; raises Malformed where something is missing."""
        if self._next == self._read_to_the_end:
            self.complete = True
        elif not self.complete:
            raise Malformed(
                "the server closed the connection " + ("within its answer" if self.status else "unanswered")
            )
        self._lasting = False

    def take(self) -> bytes:
        """Return what of the body has come since the last time."""
        self.untaken = 0
        body, self._body = b"".join(self._body), []
        return body

    # Each of these reads one part of the answer, and tells whether it was all there.

    def _read_head(self) -> bool:
        end = _END_OF_HEAD.search(self._raw)
        if end is None:
            if len(self._raw) > _LONGEST_HEAD or not b"HTTP/1.".startswith(bytes(self._raw[:7])):
                raise Malformed("the server does not speak HTTP")
            return False
        text = self._raw[: end.start()].decode("latin-1").removesuffix("\r").replace("\r\n", "\n")
        first, _, lines = text.partition("\n")
        self._count_framing(end.end())
        del self._raw[: end.end()]
        status, is_old = _status(first)
        if status == 101:
            raise Malformed("the server switched to another protocol unasked")
        if status > 199:  # before it there may be interim ones
            self.status, self.head = status, True
            headers = self.headers = self._by_name(lines)
            self._lasting = not is_old and "close" not in headers.get("connection", "").lower()
            self._frame(headers.get("transfer-encoding", "").lower(), headers.get("content-length"))
        return True

    def _by_name(self, lines: str) -> dict[str, str]:
        """Take the headers apart."""
        if "\n " in lines or "\n\t" in lines:
            lines = _FOLD.sub(" ", lines)
        if "\0" in lines or "\r" in lines:
            raise Malformed("a header of the answer is no header")
        headers: dict[str, str] = {}
        for line in lines.split("\n") if lines else ():
            given, colon, value = line.partition(":")
            if not colon:
                raise Malformed("a header of the answer is no header")
            value, name = value.strip(_SPACE), _lower(given)
            self._fields.append((given, value))
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def _frame(self, coding: str, length: str | None) -> None:
        """Find out where the body ends."""
        if self.status in _BODILESS:
            self.complete = True
        elif coding:
            if coding != "chunked":
                raise Malformed(f"the answer is transferred as {coding!r}, which nobody asked for")
            self._next = self._read_size
        elif length is not None:
            if "," in length and len(same := {each.strip() for each in length.split(",")}) == 1:
                length = same.pop()  # said twice
            if not (length.isascii() and length.isdecimal() and len(length) < _TOO_LONG):
                raise Malformed(f"the answer says of its length: {length!r}")
            self._left, self._next = int(length), self._read_body
            self.complete = not self._left
        else:
            self._lasting, self._next = False, self._read_to_the_end

    def _read_body(self) -> bool:
        self._take_over()
        self.complete = not self._left
        return False

    def _read_to_the_end(self) -> bool:
        self._left = len(self._raw)
        self._take_over()
        return False

    def _read_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        size = _SIZE.fullmatch(line)
        if size is None:
            raise Malformed("the answer comes in chunks, and one has no size")
        self._count_framing(len(line) - len(size[1]))
        self._left = int(size[1], 16)
        self._next = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._take_over()
        if not self._left:
            self._next = self._read_end_of_chunk
        return not self._left

    def _read_end_of_chunk(self) -> bool:
        line = self._line()
        if line:
            raise Malformed("a chunk of the answer is longer than it says")
        if line is not None:
            self._next = self._read_size
        return line is not None

    def _read_trailer(self) -> bool:
        line = self._line()
        self.complete = line == b""
        self._count_framing(len(line or b""))
        return line is not None

    def _take_over(self) -> None:
        if len(self._raw) <= self._left:
            some = bytes(self._raw)
            self._raw.clear()
        else:
            some = bytes(self._raw[: self._left])
            del self._raw[: self._left]
        self._left -= len(some)
        self.untaken += len(some)
        self._body.append(some)

    def _count_framing(self, size: int) -> None:
        """Take note of bytes that are no body: a server may send them without end as well."""
        self._framing += size
        if self._framing > 2 * _LONGEST_HEAD:
            raise Malformed("what comes around the answer has no end")

    def _line(self) -> bytes | None:
        """Return the next line; None if its end has not come."""
        end = self._raw.find(b"\n")
        if end < 0:
            if len(self._raw) > _LONGEST_HEAD:
                raise Malformed("a line of the answer has no end")
            return None
        line = bytes(self._raw[:end]).removesuffix(b"\r")
        del self._raw[: end + 1]
        return line


# A server has few first lines and few names of headers, and says them with every answer.


@lru_cache(maxsize=32)
def _status(line: str) -> tuple[int, bool]:
    """Read the first line of an answer: its status, and whether it is of HTTP/1.0."""
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed("the server does not speak HTTP")
    return int(found[2]), found[1] == "0"


@lru_cache(maxsize=256)
def _lower(name: str) -> str:
    """Return the name of a header as it is looked up."""
    if not _NAME.fullmatch(name):
        raise Malformed("a header of the answer is no header")
    return name.lower()
