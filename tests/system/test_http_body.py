"""Bodies are read, and JSON is parsed, within limits on size and depth."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator
from itertools import chain, repeat
from traceback import walk_tb

import pytest

from daemon.providers.wire.sse import EventStreamParser
from daemon.system.http_body import (
    MAX_VALUES,
    BodyDamaged,
    BodyTooLarge,
    parse_json,
    read_limited,
)


def test_a_long_text_full_of_commas_and_quotes_is_one_value() -> None:
    value = {"text": '[,{"\\' * MAX_VALUES}
    assert parse_json(json.dumps(value).encode()) == value


def test_a_list_of_vectors_is_read_and_one_of_a_million_values_is_not() -> None:
    vectors = [[0.25] * 1536 for _ in range(64)]
    assert parse_json(json.dumps(vectors).encode()) == vectors
    with pytest.raises(ValueError, match="more than 250,000 values"):
        parse_json(b"[" + b"0," * MAX_VALUES + b"0]")
    with pytest.raises(ValueError, match="more than 250,000 values"):
        parse_json(b"[" * 1_000_000)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"a": ' + b"1" * 10_000 + b"}", b"[1,]"])
def test_invalid_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever the parser says of it
        parse_json(text)


def test_too_deeply_nested_json_is_refused() -> None:
    with pytest.raises(RecursionError):
        parse_json(b"[" * 100_000)


async def test_an_error_keeps_nothing_of_a_body_that_is_too_large() -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 1000

    with pytest.raises(BodyTooLarge) as error:
        await read_limited(endless(), {}, 1_000_000)
    values = [value for frame, _ in walk_tb(error.tb) for value in frame.f_locals.values()]
    assert sum(len(value) for value in values if isinstance(value, bytes | bytearray)) < 10_000


def test_an_error_keeps_nothing_of_an_event_that_is_too_large() -> None:
    parser = EventStreamParser(limit=1_000_000)
    with pytest.raises(BodyTooLarge):
        list(chain.from_iterable(map(parser.feed, repeat(b"data: x\n" * 100))))
    assert list(parser.finish()) == []


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
async def test_a_packed_body_of_several_parts_is_read_to_its_end(piece_bytes: int) -> None:
    async def send(body: bytes) -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), piece_bytes):
            yield body[start : start + piece_bytes]

    headers = {"content-encoding": "gzip"}
    body = b"".join(map(gzip.compress, (b"one ", b"", b"two")))
    assert await read_limited(send(body), headers, 1000) == b"one two"
    assert await read_limited(send(body + b"\0no part"), headers, 1000) == b"one two"
    with pytest.raises(BodyDamaged, match="its end is missing"):
        await read_limited(send(body[:-1]), headers, 1000)
    with pytest.raises(BodyTooLarge, match="unpacks to more"):
        await read_limited(send(gzip.compress(b"0" * 600) * 2), headers, 1000)
