"""Which endings are delivered to which target."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from daemon.definitions.routines.routine import Deliver
from daemon.delivery.outbox import deliveries_for
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
    ("status", "is_delivered"),
    [
        (Status.SUCCEEDED, True),
        (Status.FAILED, True),
        (Status.TIMED_OUT, True),
        (Status.INTERRUPTED, True),
        (Status.CANCELLED, False),  # whoever cancelled it knows
        (Status.SKIPPED, False),
    ],
)
def test_default_delivery_sends_reports_and_failures(status, is_delivered):
    assert bool(deliveries_for(run(status), [Deliver(to="log")])) is is_delivered


def test_each_target_receives_the_endings_named_for_it():
    places = [
        Deliver(to="log", on=("failed",)),
        Deliver(to="file", path="x.md", on=("succeeded", "failed")),
    ]
    assert [target for target, _ in deliveries_for(run(Status.SUCCEEDED), places)] == ["file"]
    assert [target for target, _ in deliveries_for(run(Status.FAILED), places)] == ["log", "file"]


def test_a_delivery_carries_trigger_and_times_of_its_run():
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


def test_target_without_matching_endings_receives_nothing():
    assert deliveries_for(run(Status.FAILED), [Place()]) == []
