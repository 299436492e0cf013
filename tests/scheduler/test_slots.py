"""What becomes of slots, decided from values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daemon.definitions.schedule import CatchUp, Schedule
from daemon.models import Outcome
from daemon.scheduler.slots import SlotDecision, classify_slots, may_resume


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def decide(
    *, floor: str, now: str, up_since: str = "2026-01-01T00:00", paused: bool = False, **words: Any
) -> Any:
    words = words or {"cron": "0 9 * * *"}
    schedule = Schedule.of(timezone="UTC", **words)
    return classify_slots(
        schedule, floor=at(floor), now=at(now), up_since=at(up_since), paused=paused
    )


def told(settled: SlotDecision) -> list[str]:
    """Return what is written down, one line per row."""
    lines = [
        f"{s.first:%d %H:%M}-{s.last:%d %H:%M} {s.outcome}/{s.reason}" for s in settled.skipped
    ]
    return [*lines, *([f"{settled.slot:%d %H:%M} {settled.start}"] if settled.start else [])]


DOWN = {"up_since": "2026-01-04T13:00"}
HEARTBEAT = {"every": timedelta(minutes=30), "active_hours": "08:00-22:00"}
EVENING = {"cron": "59 21 * * *", "active_hours": "08:00-22:00"}
SPREAD = {"cron": "0 9 * * *", "delay": timedelta(minutes=5)}


@pytest.mark.parametrize(
    ("what", "given", "expected"),
    [
        ("on time", {"floor": "2026-01-03T09:00", "now": "2026-01-04T09:00"}, ["04 09:00 ran"]),
        (
            "a busy minute is no lateness",
            {"floor": "2026-01-03T09:00", "now": "2026-01-04T09:00:59"},
            ["04 09:00 ran"],
        ),
        (
            "three days down: the latest, and the others in one row",
            {"floor": "2026-01-01T09:00", "now": "2026-01-04T13:00", **DOWN},
            ["02 09:00-03 09:00 missed/down", "04 09:00 caught_up"],
        ),
        (
            "the machine slept over it",
            {"floor": "2026-01-03T09:00", "now": "2026-01-04T13:00"},
            ["04 09:00 late"],
        ),
        (
            "too late to be worth it: half a day after, the next one is nearer",
            {
                "floor": "2026-01-01T09:00",
                "now": "2026-01-05T08:30",
                "up_since": "2026-01-05T08:30",
            },
            ["02 09:00-04 09:00 missed/down"],
        ),
        (
            "paused: everything passes, down or not",
            {"floor": "2026-01-01T09:00", "now": "2026-01-04T09:00", "paused": True},
            ["02 09:00-04 09:00 skipped/paused"],
        ),
        (
            "outside its hours",
            {"floor": "2026-01-01T22:00", "now": "2026-01-01T22:30", **HEARTBEAT},
            ["01 22:30-01 22:30 skipped/quiet_hours"],
        ),
        (
            "the last slot within the hours starts, even if a moment after them",
            {
                "floor": "2026-01-01T20:59",
                "now": "2026-01-01T22:04",
                **EVENING,
                "delay": timedelta(minutes=5),
            },
            ["01 21:59 ran"],
        ),
        (
            "a slot of the day that would be caught up in the night",
            {"floor": "2026-01-03T22:00", "now": "2026-01-04T23:00", **EVENING},
            ["04 21:59-04 21:59 skipped/quiet_hours"],
        ),
        (
            "a spread is no lateness",
            {"floor": "2026-01-03T09:00", "now": "2026-01-04T09:05", **SPREAD},
            ["04 09:00 ran"],
        ),
    ],
)
def test_every_slot_is_classified(what: str, given: dict[str, Any], expected: list[str]) -> None:
    assert told(decide(**given)) == expected, what


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("nothing came since", {"floor": "2026-01-04T09:00", "now": "2026-01-04T09:00"}),
        (
            "a new routine, after today's slot",
            {"floor": "2026-01-04T09:30", "now": "2026-01-04T10:00"},
        ),
        (
            "the floor is ahead of a clock that was set back",
            {"floor": "2026-01-04T09:00", "now": "2026-01-04T04:00"},
        ),
        (
            "by hand only",
            {"floor": "2026-01-04T09:00", "now": "2026-01-04T12:00", "on_start": True},
        ),
        (
            "not due yet for its spread",
            {"floor": "2026-01-03T09:00", "now": "2026-01-04T09:04:59", **SPREAD},
        ),
    ],
)
def test_nothing_is_due(what: str, given: dict[str, Any]) -> None:
    assert decide(**given) is None, what


def test_lateness_is_counted_in_seconds() -> None:
    settled = decide(floor="2026-01-03T09:00", now="2026-01-04T13:02", **DOWN)
    assert (settled.start, settled.lateness) == (Outcome.CAUGHT_UP, 4 * 3600 + 120)


@pytest.mark.parametrize(
    ("down", "rule", "worth_it"),
    [
        (timedelta(seconds=30), "none", True),
        (timedelta(minutes=5), "none", False),
        (timedelta(hours=12), "once", True),
        (timedelta(hours=13), "once", False),
        (timedelta(hours=7), timedelta(hours=6), False),
    ],
)
def test_a_run_that_broke_off_goes_on_while_its_slot_would_still_be_started(
    down: timedelta, rule: CatchUp, worth_it: bool
) -> None:
    daily = Schedule.of(timezone="UTC", cron="0 9 * * *", catch_up=rule)
    assert may_resume(daily, at("2026-01-04T09:00"), down) is worth_it
