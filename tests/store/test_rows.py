"""Bodies of steps round-trip through their stored form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.errors import StoreDamaged
from daemon.store.database import Database
from daemon.store.rows import decode, deflate, encode, from_microseconds
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


@pytest.mark.parametrize("column", [None, "1", b"1", 10**30, -(2**63)])
def test_what_is_no_time_is_damage(column: Any) -> None:
    with pytest.raises(StoreDamaged, match=r"the database is damaged: a time in it is .*restore"):
        from_microseconds(column)


async def test_json_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    database = await Database.open(tmp_path / "agentd.db")
    try:
        for column in (b"{", b"x\x01damaged"):
            with pytest.raises(StoreDamaged, match=r"the file is damaged; .*restore"):
                await database.read(lambda connection, column=column: decode(column))
    finally:
        await database.close()


def test_json_in_the_journal_is_compact_utf_8() -> None:
    assert encode({"说": ["早上好", None, True]}) == '{"说":["早上好",null,true]}'.encode()
