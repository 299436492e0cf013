"""Bodies of steps round-trip through their stored form."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from daemon.store.rows import decode, deflate, encode
from tests.properties import scaled_settings

TEXTS = st.text() | st.text(st.characters(categories=("Cs", "Cc", "Ll")), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@scaled_settings(50)
@given(st.dictionaries(TEXTS, VALUES))
@example({"big": 10**400, "small": -(2**70), "float": 1e16})
@example({"half \ud800": "\udfff", "zero": "\0\x1f\x7f\u2028"})
@example({"infinite": math.inf})
@example({"long": "早上好" * 2000})
def test_a_step_body_round_trips(body: dict[str, Any]) -> None:
    # two halves of a character beside each other are one
    assert decode(deflate(encode(body))) == json.loads(json.dumps(body))


def test_json_in_the_journal_is_compact_utf_8() -> None:
    assert encode({"说": ["早上好", None, True]}) == '{"说":["早上好",null,true]}'.encode()
