"""Read the body of an HTTP answer, whatever client brings it, and no more of it than a limit
allows.

Every client here (httpx, httpx2 below the SDKs) returns the raw bytes of a body as they come.
Unpacking is done here and bit by bit: a server that packs a gigabyte of zeros into a megabyte is
stopped by what it unpacks to, one that never ends by what it has sent.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import Any

# What a client that reads its answers by this module may ask for in Accept-Encoding.
ACCEPT_ENCODING = "gzip, deflate"
_PACKED = ("gzip", "x-gzip", "deflate")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_GZIP_BEGINNING = b"\x1f\x8b"
# A stream of events wraps each few letters in hundreds of bytes, which nobody keeps: it may be
# longer by this factor.
_STREAM_FACTOR = 4
# Bytes that are handed out at once: the event loop gets its turn after each of them.
_PIECE_BYTES = 64 * 1024

# Values of a JSON text: some 130,000 numbers are what an embedder answers to a batch of texts.
MAX_VALUES = 250_000
# Bytes that neither separate values nor delimit strings.
_NO_MARKS = bytes(set(range(256)) - set(b',[{"'))


class BodyTooLarge(OSError):
    """The body of an answer is larger than its limit; the rest of it was not read."""


class BodyDamaged(OSError):
    """The body of an answer says that it is packed, and cannot be unpacked."""


def begins_part(data: bytes) -> bool:
    """Tell whether bytes behind a part of a packed body begin another one: gzip may have several,
    and what else stands there is no part.
    """
    return bool(data) and data.startswith(_GZIP_BEGINNING[: len(data)])


async def limit_body(
    raw: AsyncIterable[bytes], headers: Mapping[str, str], limit: int
) -> AsyncGenerator[bytes, None]:
    """Yield the body of an answer, unpacked, in pieces of at most 64 KiB.

    Args:
        raw: the bytes of the body as they came, without the framing of HTTP.
        headers: of the answer, looked up by names in lower case.
        limit: bytes; for the body as it came and for what it unpacks to. Of a stream of events four
            times as many.

    Raises BodyTooLarge as soon as the announced length, the bytes that came or the bytes that they
    unpack to are more than that, BodyDamaged where they cannot be unpacked, and what `raw` raises.
    """
    if "text/event-stream" in headers.get("content-type", ""):
        limit *= _STREAM_FACTOR
    content_length = headers.get("content-length", "")
    # Python refuses to convert thousands of digits; a length of more than 18 is too large anyway.
    if content_length.isdecimal() and (len(content_length) > 18 or int(content_length) > limit):
        raise BodyTooLarge(
            f"{content_length:.30} bytes were announced, and at most {limit:,} bytes are read"
        )
    # Some servers name a character set there, which is ignored.
    is_packed = headers.get("content-encoding", "").strip().lower() in _PACKED
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB) if is_packed else None
    received_bytes = unpacked_bytes = 0
    async for data in raw:
        received_bytes += len(data)
        if received_bytes > limit:
            raise BodyTooLarge(f"more than {limit:,} bytes came")
        if unpacker is None:
            for start in range(0, len(data), _PIECE_BYTES):
                if start:
                    await asyncio.sleep(0)
                yield data if len(data) <= _PIECE_BYTES else data[start : start + _PIECE_BYTES]
            continue
        packed_data = data
        while True:
            if unpacker.eof:
                if not begins_part(packed_data):
                    break
                unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = unpacker.decompress(packed_data, _PIECE_BYTES)
            except zlib.error as error:
                raise BodyDamaged(
                    f"the answer says it is packed, and cannot be unpacked: {error}"
                ) from error
            packed_data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            if not piece and not unpacker.eof:
                break
            unpacked_bytes += len(piece)
            if unpacked_bytes > limit:
                raise BodyTooLarge(f"it unpacks to more than {limit:,} bytes")
            if piece:
                yield piece
            await asyncio.sleep(0)
    if unpacker is not None and received_bytes and not unpacker.eof:
        raise BodyDamaged(
            "the answer says it is packed, and cannot be unpacked: its end is missing"
        )


async def read_limited(raw: AsyncIterable[bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """Return the whole body of an answer; arguments and errors are those of `limit_body`."""
    body = bytearray()
    try:
        async for piece in limit_body(raw, headers, limit):
            body += piece
    except BaseException:
        # The traceback of an error keeps this frame, and who tries again may keep the error.
        body.clear()
        raise
    return bytes(body)


class NumberTooLarge(ValueError):
    """A number of a JSON text is beyond any float: Python reads an infinity, which is no JSON."""


def read_float(text: str) -> float:
    """Return the number in a JSON text, as its `parse_float`. Raises NumberTooLarge."""
    number = float(text)
    if math.isinf(number):
        raise NumberTooLarge(f"{text:.40} is larger than any number")
    return number


class TooManyValues(ValueError):
    """A JSON text holds more values than are parsed."""


def parse_json(text: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse JSON that came from outside.

    Raises ValueError where the text is no JSON, TooManyValues where it holds more than `max_values`
    values, and RecursionError where it is nested too deep. The parser holds Python's lock until it
    is done: a long text takes a moment, while millions of small values take seconds in which
    nothing else runs, and twenty times the memory of the text.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > max_values:
        # Count again without the marks inside strings.
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
        if len(re.sub(rb'"[^"]*"', b"", marks)) > max_values:
            raise TooManyValues(f"more than {max_values:,} values")
    return json.loads(text)


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested more than `levels` deep; without recursion, which
    deep values would exhaust.
    """
    layer = [value]
    for _ in range(levels):
        next_layer: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                next_layer += item.values()
            elif isinstance(item, list):
                next_layer += item
        layer = next_layer
    return any(isinstance(item, dict | list) for item in layer)
