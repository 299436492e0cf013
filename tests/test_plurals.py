"""Counts in words."""

from __future__ import annotations

from daemon.plurals import pluralize


def test_only_a_count_of_one_has_a_noun_without_s():
    assert [pluralize(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
