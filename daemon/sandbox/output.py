"""Keep the beginning and the end of a command's output in bounded memory, as readable text."""

from __future__ import annotations

import codecs
import re


class BoundedOutput:
    """Takes any number of bytes; `text` returns at most `limit` of them, half from each end.

    Up to two and a half times as many are held.
    """

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0
        """How many bytes came in all."""

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # not at every piece: cutting the front off a bytearray moves all bytes that stay
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return the kept output, with a note in the middle if some was cut out."""
        if len(self._head) + len(self._tail) == self.size and len(self._tail) <= self._half:
            return decode_readable(bytes(self._head + self._tail))
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        # cut between lines, unless a line is so long that half of an end would be lost
        head = head[: head.rfind(b"\n", len(head) // 2) + 1] or head
        begin = tail.find(b"\n", 0, len(tail) // 2) + 1
        tail = tail[begin:]
        missing_size = self.size - len(head) - len(tail)
        note = f"[… {missing_size:,} bytes cut from the middle …]"
        return f"{_decode_start(head)}\n{note}\n{_decode_end(tail)}"


def decode_readable(data: bytes) -> str:
    """Return bytes as text, without colours and cursor movements: what is not UTF-8, and control
    characters, are written as \\xNN.
    """
    return _clean(data.decode("utf-8", errors="backslashreplace"))


def _decode_start(head: bytes) -> str:
    """Read bytes that may end within a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return _clean(decoder.decode(head, final=False)).rstrip("\n")


def _decode_end(tail: bytes) -> str:
    """Read bytes that may begin within a character."""
    # 0b10 in front marks a byte within a character
    start = next((index for index, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
    return decode_readable(tail[start:])


# CSI (colours, cursor); OSC (titles, links), DCS, SOS, PM and APC with the text within; and the
# two-character sequences of ECMA-48. An OSC or the like without its end on the same line loses its
# first two characters only: all output behind it would be gone.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n")
    if _CONTROLS.search(text) is None:
        return text
    # a lone \r is how a progress bar rewrites its line
    text = _ESCAPES.sub("", text).replace("\r", "\n")
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
