"""The benchmarks themselves still run: each row once, as small as it gets, without a word on how
fast it was. Most rows start daemons, and run with the soak tests.
"""

import pytest

from tests.bench.__main__ import ROWS
from tests.bench.measure import Effort, Row, in_turns, percentile, ratio, table

SMALLEST = Effort(rounds=1, size=0.004, around=0.02, warmed=False)

# These wait by the clock: for a while, for the next instant at which all is due, for processes to
# start, for a lease.
SLOW = {
    "idle",
    "idle-chat",
    "resident-sdks",
    "routines-due",
    "routines-edit",
    "fire",
    "cluster-slots",
    "cluster-takeover",
}


# The same once more for each vendor (`cpu-small:claude`): one shows that they can be measured.
SAME = {name for name in ROWS if ":" in name} - {"cpu-small:claude"}

# One row of each file that starts no daemon.
WITHOUT_DAEMON = {
    "append-sqlite",
    "injection",
    "journal-one",
    "memory-in",
    "routines-load",
    "sandbox",
    "verdict",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in WITHOUT_DAEMON else pytest.mark.soak)
        for name in sorted(ROWS.keys() - SLOW - SAME)
    ],
)
def test_each_benchmark_row_can_be_measured(name):
    rows = list(ROWS[name](SMALLEST))
    assert rows
    assert all(row.ours for row in rows)


def test_the_first_round_is_not_counted():
    class Counter:
        rounds = 0

        def round(self, count):
            self.rounds += 1
            return self.rounds

    assert in_turns(Effort(rounds=3, size=1), 1, Counter(), Counter()) == [[2, 3, 4], [2, 3, 4]]


def test_a_ratio_is_the_median_over_the_rounds():
    assert ratio([2, 30, 6], [1, 10, 2]) == 3


def test_a_percentile_is_one_of_the_values():
    assert percentile([5, 1, 3], 0.5) == 3
    assert percentile([5, 1, 3], 0.99) == 5


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row(name="r", ours="x", ratio=2.5, bar=2.8), "ok"),
        (Row(name="r", ours="x", ratio=2.9, bar=2.8), "MISSED"),
        (Row(name="r", ours="x", ratio=0.7, bar=0.8, more_is_better=True), "MISSED"),
        (Row(name="r", ours="x", value=4, bar=5), "ok"),
        (Row(name="r", ours="x", ratio=9), ""),
    ],
)
def test_the_verdict_of_a_row_follows_its_bar(row, verdict):
    assert row.verdict == verdict
    assert verdict in list(table([row]))[-1]
