"""The generator of reports, and a short year: what must not grow with the past does not."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.bench.reports import (
    ODD_REPORTS,
    ROUTINES,
    RUNS_PER_DAY,
    SILENCE,
    Kind,
    reports,
)
from tests.bench.year import Figure, Year

END = datetime(2026, 11, 20, tzinfo=UTC)


def test_two_reports_of_a_routine_are_seldom_worded_alike():
    texts = [
        report.text
        for routine, _, report in reports(2000, end=END)
        if routine.kind in (Kind.WATCHER, Kind.DAILY, Kind.CHINESE)
    ]
    words = Counter("".join(" " if c.isdigit() or c == "." else c for c in text) for text in texts)
    assert len(words) > 0.9 * len(texts)


def test_a_heartbeat_is_mostly_silent():
    texts = [
        report.text
        for routine, _, report in reports(2000, end=END)
        if routine.kind is Kind.HEARTBEAT
    ]
    assert 0.75 < texts.count(SILENCE) / len(texts) < 1


def test_each_odd_report_is_written_once_and_by_its_routine():
    odd = [(routine, report) for routine, _, report in reports(2000, end=END) if report.odd]
    assert Counter(report.odd for _, report in odd) == Counter(ODD_REPORTS)
    for routine, report in odd:
        assert routine.number == report.odd.routine
        assert report.odd.sentence in report.text


def test_the_same_seed_gives_the_same_reports_and_another_one_others():
    first, again, other = (
        [report.text for *_, report in reports(300, end=END, seed=seed)] for seed in (7, 7, 8)
    )
    assert first == again != other


def test_the_routines_of_a_year_run_a_hundred_thousand_times():
    assert len({routine.name for routine in ROUTINES}) == 20
    assert 100_000 < RUNS_PER_DAY * 365 < 101_000


@pytest.mark.parametrize(
    ("figure", "has_grown"),
    [
        (Figure(name="a run", values=[0.010, 0.019]), False),
        (Figure(name="a run", values=[0.010, 0.021]), True),
        (Figure(name="too little to tell", values=[0.0005, 0.0015]), False),
        (Figure(name="the database", why_it_grows="a row a run", values=[1.0, 100.0]), False),
        (Figure(name="memory", unit="bytes", values=[1e8, 2.1e8]), True),
    ],
)
def test_a_figure_without_a_reason_may_not_double(figure, has_grown):
    assert figure.has_grown is has_grown


@pytest.mark.soak
@pytest.mark.timeout(1800)  # a year has 365 nights, and each has its maintenance
async def test_in_a_short_year_nothing_grows_that_must_not(tmp_path):
    year = Year(tmp_path, runs=2000, marks=[500])
    await year.live()
    print("\n".join(year.table()))
    assert len(year.planted_times) == len(ODD_REPORTS)
    assert year.faults() == []
