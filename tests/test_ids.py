"""Ids sort by creation time and are unique."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from daemon.models import new_id, new_ids

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def made_at(id_: str) -> float:
    """Return the second that a ULID tells, as its specification says: the first ten characters are
    milliseconds.
    """
    milliseconds = 0
    for char in id_[:10]:
        milliseconds = 32 * milliseconds + CROCKFORD.index(char)
    return milliseconds / 1000


def test_a_new_id_is_a_ulid_of_the_current_time() -> None:
    before = datetime.now(UTC).timestamp()
    id_ = new_id()
    assert re.fullmatch(f"[0-7][{CROCKFORD}]{{25}}", id_)
    assert before - 0.001 <= made_at(id_) <= datetime.now(UTC).timestamp() + 0.001


def test_a_batch_of_ids_is_sorted_and_unique() -> None:
    first, second = new_ids(10_000), new_ids(3)
    assert first == sorted(first)
    assert len({*first, *second}) == 10_003
    assert made_at(first[-1]) - made_at(first[0]) <= 0.001


def test_a_batch_of_ids_may_cross_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_123_999_998)
    ids = new_ids(4)
    assert ids == sorted(ids)
    assert [made_at(id_) for id_ in ids] == [1_800_000_000.123] * 2 + [1_800_000_000.124] * 2


def test_a_batch_of_zero_ids_is_empty() -> None:
    assert new_ids(0) == []


def test_random_parts_of_ids_use_every_character() -> None:
    assert {char for id_ in new_ids(1000) for char in id_[14:]} == set(CROCKFORD)
