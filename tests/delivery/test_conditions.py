"""Which ends are told where."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from daemon.definitions.routines.routine import Deliver
from daemon.delivery.channels.base import deliveries_for
from daemon.models import Run, Status

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


def run(status):
    return Run(
        id="01J",
        routine="r",
        definition="h",
        trigger="cron",
        slot=NOW,
        created=NOW,
        started=NOW,
        ended=NOW,
        status=status,
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (Status.SUCCEEDED, True),
        (Status.FAILED, True),
        (Status.TIMED_OUT, True),
        (Status.INTERRUPTED, True),
        (Status.CANCELLED, False),  # whoever cancelled it knows
        (Status.SKIPPED, False),
    ],
)
def test_a_report_and_a_failure_are_told_unless_the_routine_says_otherwise(status, told):
    assert bool(deliveries_for(run(status), [Deliver(to="log")])) is told


def test_each_place_hears_of_the_ends_it_asked_for():
    places = [
        Deliver(to="log", on=("failed",)),
        Deliver(to="file", path="x.md", on=("succeeded", "failed")),
    ]
    assert [target for target, _ in deliveries_for(run(Status.SUCCEEDED), places)] == ["file"]
    assert [target for target, _ in deliveries_for(run(Status.FAILED), places)] == ["log", "file"]


def test_the_facts_of_the_run_travel_with_the_delivery():
    [(_, options)] = deliveries_for(run(Status.SUCCEEDED), [Deliver(to="file", path="x.md")])
    assert options == {
        "path": "x.md",
        "trigger": "cron",
        "started": "2026-11-20T08:30:00+00:00",
        "ended": "2026-11-20T08:30:00+00:00",
    }


@dataclass
class Place:
    to: str = "log"
    path: None = None
    on: tuple[str, ...] = ()


def test_a_place_that_asked_for_nothing_hears_nothing():
    assert deliveries_for(run(Status.FAILED), [Place()]) == []
