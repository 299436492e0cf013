"""JSON as it is kept and sent: compact, in UTF-8.

pydantic's encoder takes a fifth of the time of the standard library's, which counts with a prompt of 30 kB that is
written down once and sent with every question. What it does not take (half a surrogate pair, lists in lists three
hundred deep) the standard library writes and reads, and says what is wrong with the rest; what both take, both read
alike. Keys are texts: of `None` as a key the two make different ones.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import from_json, to_json

# Of an answer: some 130,000 numbers are what an embedder says to a batch of texts.
MOST_VALUES = 250_000
# What neither begins a value nor a string.
_NO_MARKS = bytes(set(range(256)) - set(b',[{"'))
# Made once: json.dumps makes one per call.
_readable = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_escaped = json.JSONEncoder(separators=(",", ":")).encode


def written(value: Any) -> bytes:
    """Return a value as JSON, readable Chinese included; half a surrogate pair makes all of it ASCII, and is kept."""
    try:
        return to_json(value)
    except ValueError:
        return _kept(value)


def sendable(value: Any) -> bytes:
    """Return a value as JSON that everybody reads: a question mark takes the place of half a surrogate pair."""
    try:
        return to_json(value)
    except ValueError:
        return _readable(value).encode("utf-8", "replace")


def read(text: bytes) -> Any:
    """Return what JSON in UTF-8 says; ValueError, RecursionError."""
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:
        return json.loads(text)


def read_foreign(text: bytes) -> Any:
    """Return what JSON from outside says, however long it is.

    Raises ValueError where it holds more than MOST_VALUES values, else what `read` raises. Parsers hold Python's lock
    until they are done: a long text takes them a moment, millions of small values take seconds in which nothing else
    runs, and twenty times the memory of the text.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        # counted again without what stands in strings
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
        if len(re.sub(rb'"[^"]*"', b"", marks)) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
    return read(text)


def _kept(value: Any) -> bytes:
    try:
        return _readable(value).encode()
    except UnicodeEncodeError:
        return _escaped(value).encode()
