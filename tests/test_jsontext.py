"""Whichever of the two encoders writes, what is kept reads back the same, by either."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemon import jsontext

SETTINGS = settings(deadline=None, derandomize=True)
TEXTS = st.text() | st.text(st.characters(categories=("Cs", "Cc", "Ll")), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@SETTINGS
@given(VALUES)
@example({"big": 10**400, "small": -(2**70), "float": 1e16})
@example({"half \ud800": "\udfff", "zero": "\0\x1f\x7f\u2028"})
@example(math.inf)
@example(nested(300))
def test_what_is_written_is_read_back_the_same(value: Any) -> None:
    kept = json.loads(json.dumps(value))  # the value itself, but two halves of a character beside each other are one
    text = jsontext.written(value)
    assert jsontext.read(text) == kept
    assert json.loads(text) == kept


def test_not_a_number_stays_one() -> None:
    assert jsontext.written(math.nan) == b"NaN"
    assert math.isnan(jsontext.read(b"NaN"))


@SETTINGS
@given(VALUES)
@example("\ud83d")
@example(nested(300))
def test_what_is_sent_is_utf_8_and_says_the_same_but_for_halves_of_characters(value: Any) -> None:
    sent = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    assert json.loads(jsontext.sendable(value)) == json.loads(sent)


def test_chinese_stays_readable_and_nothing_is_put_between() -> None:
    assert jsontext.written({"说": ["早上好", None, True]}) == '{"说":["早上好",null,true]}'.encode()
    assert jsontext.sendable({"a": "\ud800"}) == b'{"a":"?"}'


@SETTINGS
@given(st.text(st.sampled_from('[]{}",:0123456789.eE+-\\ud8tfn aNIity\n\t\x01\xef')) | st.text())
@example("\ufeff1")
@example('"\\ud800"')
@example('{"a":1,"a":2}')
@example("1e999")
@example("[" * 300 + "]" * 300)
@example("-Infinity")
@example("01")
def test_every_text_is_read_as_the_standard_library_reads_it(text: str) -> None:
    _alike(text.encode(errors="surrogatepass"))


@SETTINGS
@given(st.binary())
def test_and_so_is_what_is_no_text(raw: bytes) -> None:
    _alike(raw)


def _alike(raw: bytes) -> None:
    try:
        expected = json.loads(raw)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  # whatever it says of it
            jsontext.read(raw)
        return
    # by their texts: NaN is not equal to itself, and 1 is equal to 1.0
    assert repr(jsontext.read(raw)) == repr(expected)


def test_what_is_no_json_is_refused_as_before() -> None:
    with pytest.raises(TypeError):
        jsontext.written({"a": object()})
    with pytest.raises(RecursionError):
        jsontext.read(b"[" * 100_000)
