"""Slot decisions, from values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daemon.definitions.schedule import CatchUp, Schedule
from daemon.models import Outcome, Reason
from daemon.scheduler.slots import (
    SkippedSlots,
    SlotDecision,
    classify_slots,
    may_resume,
    next_random_moment,
    random_moments,
    remaining_slots,
    slots_between,
    split_missed,
)
from daemon.store.rows import MICROSECOND
from daemon.store.slots import SlotRange
from tests.properties import scaled_settings


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


def rows_of(decision: SlotDecision) -> list[str]:
    """Return what is written down, one line per row."""
    lines = [
        f"{s.first:%d %H:%M}-{s.last:%d %H:%M} {s.outcome}/{s.reason}" for s in decision.skipped
    ]
    return [*lines, *([f"{decision.slot:%d %H:%M} {decision.start}"] if decision.start else [])]


DOWN = {"up_since": "2026-01-04T13:00"}
HEARTBEAT = {"every": timedelta(minutes=30), "active_hours": "08:00-22:00"}
EVENING = {"cron": "59 21 * * *", "active_hours": "08:00-22:00"}
SPREAD = {"cron": "0 9 * * *", "delay": timedelta(minutes=5)}


@pytest.mark.parametrize(
    ("case", "arguments", "expected"),
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
def test_every_slot_is_classified(
    case: str, arguments: dict[str, Any], expected: list[str]
) -> None:
    assert rows_of(decide(**arguments)) == expected, case


@pytest.mark.parametrize(
    ("case", "arguments"),
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
def test_nothing_is_due(case: str, arguments: dict[str, Any]) -> None:
    assert decide(**arguments) is None, case


def test_lateness_is_counted_in_seconds() -> None:
    decision = decide(floor="2026-01-03T09:00", now="2026-01-04T13:02", **DOWN)
    assert (decision.start, decision.lateness) == (Outcome.CAUGHT_UP, 4 * 3600 + 120)


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
def test_an_interrupted_run_resumes_while_its_slot_would_still_be_started(
    down: timedelta, rule: CatchUp, worth_it: bool
) -> None:
    daily = Schedule.of(timezone="UTC", cron="0 9 * * *", catch_up=rule)
    assert may_resume(daily, at("2026-01-04T09:00"), down) is worth_it


# --- lateness


@pytest.mark.parametrize(
    ("now", "start"),
    [
        ("2026-01-04T09:01:00", Outcome.RAN),
        ("2026-01-04T09:01:00.000001", Outcome.LATE),
    ],
)
def test_a_slot_is_on_time_for_exactly_a_minute(now: str, start: Outcome) -> None:
    assert decide(floor="2026-01-03T09:00", now=now).start is start


@pytest.mark.parametrize(
    ("down", "worth_it"), [(timedelta(minutes=60), True), (timedelta(minutes=61), False)]
)
def test_time_before_a_spread_start_is_no_downtime(down: timedelta, worth_it: bool) -> None:
    spread = Schedule.of(timezone="UTC", catch_up=timedelta(hours=1), **SPREAD)
    assert may_resume(spread, at("2026-01-04T09:00"), down) is worth_it


# --- slots between two moments, and those that remain when the clock was put back

SCHEDULES = st.sampled_from(
    [
        Schedule.of(timezone="UTC", cron="*/20 8-17 * * 1-5"),
        Schedule.of(timezone="Europe/Berlin", cron="30 2 * * *"),
        Schedule.of(timezone="UTC", every=timedelta(minutes=45)),
        Schedule.of(timezone="UTC", at=at("2026-03-29T12:00")),
        Schedule.union(
            (
                Schedule.of(timezone="Europe/Berlin", cron="30 2 * * *"),
                Schedule.of(timezone="UTC", cron="0 */2 * * *"),
                Schedule.of(timezone="UTC", every=timedelta(minutes=45)),
            ),
            zone="UTC",
        ),
    ]
)
MINUTES = st.integers(0, 3 * 24 * 60)
FRIDAY = at("2026-03-27T00:00")


def slots_after(schedule: Schedule, after: datetime, before: datetime) -> list[datetime]:
    """Return the slots strictly between two moments, one by one."""
    slots = []
    while (slot := schedule.next(after)) and slot < before:
        slots.append(slot)
        after = slot
    return slots


def portion(slots: list[datetime]) -> SlotRange | None:
    return SlotRange(first=slots[0], last=slots[-1], count=len(slots)) if slots else None


@scaled_settings(200)
@given(schedule=SCHEDULES, begin=MINUTES, length=MINUTES)
def test_slots_between_two_moments_are_all_but_those_at_the_moments(
    schedule: Schedule, begin: int, length: int
) -> None:
    after = FRIDAY + timedelta(minutes=begin)
    before = after + timedelta(minutes=length)
    assert slots_between(schedule, after, before) == portion(slots_after(schedule, after, before))


@scaled_settings(200)
@given(schedule=SCHEDULES, begin=MINUTES, length=MINUTES, data=st.data())
def test_of_slots_recorded_ahead_of_the_clock_those_remain_that_will_not_be_classified_again(
    schedule: Schedule, begin: int, length: int, data: st.DataObject
) -> None:
    after = FRIDAY + timedelta(minutes=begin)
    slots = slots_after(schedule, after, after + timedelta(minutes=length))
    assume(len(slots) > 1)
    minutes_within = int((slots[-1] - slots[0]) / timedelta(minutes=1))
    now = slots[0] + timedelta(minutes=data.draw(st.integers(0, minutes_within - 1)))
    past_slots = [slot for slot in slots if slot <= now]
    record = portion(slots)
    assert record
    before_last = past_slots[-1] - timedelta(seconds=1)
    assert remaining_slots(schedule, record, now=now, baseline=before_last) == portion(
        past_slots[:-1]
    )
    assert remaining_slots(schedule, record, now=now, baseline=past_slots[-1]) == portion(
        past_slots
    )


@pytest.mark.parametrize("schedule", [None, Schedule.of(timezone="UTC", cron="0 9 * * *")])
def test_remaining_slots_of_an_earlier_schedule_are_counted_as_evenly_spread(
    schedule: Schedule | None,
) -> None:
    first, last = at("2026-01-01T00:00"), at("2026-01-01T10:00")
    for record, now, count in [
        (SlotRange(first=first, last=last, count=11), at("2026-01-01T04:00"), 5),
        (SlotRange(first=first, last=last, count=11), at("2026-01-01T04:30"), 5),
        (SlotRange(first=first, last=last, count=2), at("2026-01-01T09:59"), 1),
    ]:
        assert remaining_slots(schedule, record, now=now, baseline=first) == SlotRange(
            first=first, last=now, count=count
        )


# --- random moments of the active hours

WAKING = Schedule.of(
    timezone="Europe/Berlin", every=timedelta(minutes=30), active_hours="08:00-22:00"
)
NIGHTLY = Schedule.of(timezone="UTC", cron="*/5 * * * *", active_hours="22:00-06:00")
SPARSE = Schedule.of(timezone="UTC", cron="0 9,12,21 * * *", active_hours="08:00-22:00")
ALL_DAY = Schedule.of(timezone="UTC", every=timedelta(hours=1))


@pytest.mark.parametrize("schedule", [WAKING, NIGHTLY, SPARSE, ALL_DAY])
@scaled_settings(50)
@given(
    name=st.sampled_from(["daily", "heartbeat", "x"]),
    number=st.integers(1, 6),
    minute=MINUTES,
)
def test_one_slot_is_drawn_from_each_part_of_the_active_hours_that_has_slots(
    schedule: Schedule, name: str, number: int, minute: int
) -> None:
    moment = FRIDAY + timedelta(minutes=minute)
    begin, end = schedule.window(moment)
    moments = random_moments(schedule, name, number, moment)
    part = (end - begin) / number
    for index in range(number):
        first = begin + index * part
        slots = slots_after(schedule, first - MICROSECOND, first + part)
        draw = [slot for slot in moments if first <= slot < first + part]
        assert len(draw) == bool(slots)
        assert set(draw) <= set(slots)
    assert sorted(set(moments)) == list(moments)
    assert all(schedule.is_active(slot) for slot in moments)
    assert random_moments(schedule, name, number, end - MICROSECOND) == moments, "one draw a day"


def test_random_moments_differ_from_day_to_day_and_from_routine_to_routine() -> None:
    draws = {
        (name, day): [
            moment - WAKING.window(moment)[0]
            for moment in random_moments(WAKING, name, 3, at(f"2026-01-{day:02}T12:00"))
        ]
        for name in ("daily", "heartbeat")
        for day in range(1, 11)
    }
    assert len({str(draw) for draw in draws.values()}) > 15


@pytest.mark.parametrize("schedule", [WAKING, NIGHTLY, SPARSE, ALL_DAY])
def test_next_random_moment_goes_through_all_moments_of_all_days(schedule: Schedule) -> None:
    moments = {
        moment
        for day in range(7)
        for moment in random_moments(schedule, "daily", 3, FRIDAY + timedelta(days=day))
    }
    after, sequence = min(moments) - MICROSECOND, []
    for _ in moments:
        moment = next_random_moment(schedule, "daily", 3, after)
        assert moment
        sequence.append(moment)
        after = moment
    assert sequence == sorted(moments)


def test_a_schedule_without_a_slot_left_has_no_random_moment() -> None:
    once = Schedule.of(timezone="UTC", at=at("2026-01-04T12:00"), active_hours="08:00-22:00")
    assert next_random_moment(once, "daily", 1, at("2026-01-01T00:00")) == once.entries[0].at
    assert next_random_moment(once, "daily", 1, at("2026-01-04T12:00")) is None


@pytest.mark.parametrize(
    ("refused_times", "expected"),
    [
        (("10:00", "11:00"), ["09:00-09:30 down", "10:00-11:00 disk_full", "11:30-12:00 down"]),
        (("09:00", "12:00"), ["09:00-12:00 disk_full"]),
        (("08:00", "12:30"), ["09:00-12:00 disk_full"]),
        (("11:30", "12:30"), ["09:00-11:00 down", "11:30-12:00 disk_full"]),
        (("08:00", "09:00"), ["09:00-09:00 disk_full", "09:30-12:00 down"]),
        (("07:00", "08:00"), ["09:00-12:00 down"]),
        (("12:30", "13:00"), ["09:00-12:00 down"]),
    ],
)
def test_missed_slots_are_split_by_what_a_full_disk_refused(
    refused_times: tuple[str, str], expected: list[str]
) -> None:
    schedule = Schedule.of(timezone="UTC", cron="*/30 * * * *")
    missed_slots = SkippedSlots(
        first=at("2026-01-04T09:00"),
        last=at("2026-01-04T12:00"),
        outcome=Outcome.MISSED,
        reason=Reason.DOWN,
    )
    first, last = (at(f"2026-01-04T{time}") for time in refused_times)
    parts = split_missed(schedule, missed_slots, (first, last))
    assert [f"{p.first:%H:%M}-{p.last:%H:%M} {p.reason}" for p in parts] == expected
    assert {part.outcome for part in parts} == {Outcome.MISSED}


@given(
    numbers=st.lists(st.integers(0, 200), min_size=4, max_size=4),
    spec=st.sampled_from(["*/7 * * * *", "0 9 * * 1-5", "*/30 8-18 * * *"]),
)
@scaled_settings(60)
def test_each_missed_slot_is_in_one_part(numbers: list[int], spec: str) -> None:
    schedule = Schedule.of(timezone="Europe/Berlin", cron=spec)
    slots = [schedule.next(at("2026-03-27T00:00"))]
    for _ in range(200):
        slots.append(schedule.next(slots[-1] or at("2026-03-27T00:00")))
    first, last = sorted(numbers[:2])
    refused_first, refused_last = sorted(numbers[2:])
    missed_slots = SkippedSlots(
        first=slots[first] or at("2026-03-27T00:00"),
        last=slots[last] or at("2026-03-27T00:00"),
        outcome=Outcome.MISSED,
        reason=Reason.DOWN,
    )
    refused_slots = (slots[refused_first], slots[refused_last])
    parts = split_missed(schedule, missed_slots, refused_slots)  # type: ignore[arg-type]
    reasons = {
        slot: part.reason
        for part in parts
        for slot in slots
        if part.first <= slot <= part.last  # type: ignore[operator]
    }
    assert reasons == {
        slot: Reason.DISK_FULL if refused_first <= number <= refused_last else Reason.DOWN
        for number, slot in enumerate(slots)
        if first <= number <= last
    }
