"""JSON of requests is parsed within limits on size and depth."""

from __future__ import annotations

import json

import pytest

from daemon.system.http_body import MAX_VALUES, parse_json


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
