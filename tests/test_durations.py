"""Durations in words, which people and models read."""

from __future__ import annotations

import pytest

from daemon.durations import duration_in_words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (1, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (90, "2 min"),
        (3569, "59 min"),
        (3599, "1 h"),
        (3600, "1 h"),
        (3900, "1 h 5 min"),
        (35_999, "10 h"),
        (36_000 + 300, "10 h"),
        (43_199, "12 h"),
        (86_399, "1 d"),
        (86_400, "1 d"),
        (86_400 + 7200, "1 d 2 h"),
        (3.5 * 86_400, "3 d 12 h"),
        (10 * 86_400 - 1, "10 d"),
        (40 * 86_400, "40 d"),
    ],
)
def test_a_duration_is_rounded_to_one_or_two_units(seconds: float, text: str) -> None:
    assert duration_in_words(seconds) == text
