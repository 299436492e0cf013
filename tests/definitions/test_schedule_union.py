"""A routine with several triggers: its slots are those of all of them, each instant once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.schedule import Schedule
from daemon.scheduler.slots import classify_slots, slots_between
from tests.properties import scaled_settings

BERLIN = "Europe/Berlin"
# On the nights of 29 March and 25 October 2026 the clocks of Berlin change.
BEGINNINGS = [datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)]
DAYS = 4


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def union(*schedules: Schedule) -> Schedule:
    return Schedule.union(schedules, zone="UTC")


def entry(**keys: Any) -> Schedule:
    return Schedule.of(**{"timezone": "UTC", **keys})


CLOCKS = st.one_of(
    st.builds(
        lambda cron, zone: {"cron": cron, "timezone": zone},
        st.sampled_from(
            [
                "30 2 * * *",
                "*/20 * * * *",
                "0 8 * * 1-5",
                "0 12 * * 6,0",
                "15 */2 * * *",
                "5 3 L * *",
            ]
        ),
        st.sampled_from(["UTC", BERLIN, "Asia/Kathmandu"]),
    ),
    st.builds(
        lambda minutes: {"every": timedelta(minutes=minutes)},
        st.sampled_from([10, 15, 20, 45, 60, 90, 7 * 60]),
    ),
    st.builds(
        lambda day, minutes: {
            "at": BEGINNINGS[day] + timedelta(minutes=20 * minutes),
        },
        st.integers(0, 1),
        st.integers(0, DAYS * 72),
    ),
    st.just({"on_start": True}),
)
HOURS = st.sampled_from([{}, {"active_hours": "08:00-18:00"}, {"active_days": "sat,sun"}])
CATCH_UPS = st.sampled_from([{}, {"catch_up": "none"}, {"catch_up": timedelta(hours=3)}])
ENTRIES = st.builds(
    lambda *parts: {k: v for p in parts for k, v in p.items()}, CLOCKS, HOURS, CATCH_UPS
)
DELAYS = st.sampled_from([timedelta(0), timedelta(minutes=4, seconds=7)])


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, list[Schedule]]:
    """Return the union of up to four schedules, and these."""
    delay = draw(DELAYS)
    single = [
        entry(delay=delay, **keys) for keys in draw(st.lists(ENTRIES, min_size=2, max_size=4))
    ]
    return union(*single), single


def slots_of(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    slots = []
    while (slot := schedule.next(slots[-1] if slots else after)) and slot <= until:
        slots.append(slot)
    return slots


def merge_slots(single: list[Schedule], after: datetime, until: datetime) -> list[datetime]:
    return sorted({slot for schedule in single for slot in slots_of(schedule, after, until)})


@scaled_settings(300)
@given(schedules(), st.sampled_from(BEGINNINGS), st.integers(0, 3000), st.integers(0, 3000))
def test_the_slots_of_a_union_are_those_of_its_parts_each_instant_once(
    schedules: tuple[Schedule, list[Schedule]], begin: datetime, first: int, length: int
) -> None:
    schedule, single = schedules
    after = begin + timedelta(minutes=first, seconds=first % 7)
    until = after + timedelta(minutes=length)
    slots = merge_slots(single, after, until)
    assert slots_of(schedule, after, until) == slots
    assert schedule.count(after, until) == len(slots)
    backwards = []
    while (
        slot := schedule.prev(
            (backwards or [until + timedelta(microseconds=1)])[-1] - timedelta(microseconds=1)
        )
    ) and slot > after:
        backwards.append(slot)
    assert backwards[::-1] == slots
    slot_range = slots_between(schedule, after, until + timedelta(microseconds=1))
    assert (slot_range.count if slot_range else 0) == len(slots)


@scaled_settings(300)
@given(schedules(), st.sampled_from(BEGINNINGS), st.integers(0, 3000))
def test_a_slot_of_a_union_is_skipped_only_if_each_trigger_that_has_it_skips_it(
    schedules: tuple[Schedule, list[Schedule]], begin: datetime, first: int
) -> None:
    schedule, single = schedules
    after = begin + timedelta(minutes=first)
    until = begin + timedelta(days=DAYS)
    active = {
        slot
        for single_schedule in single
        for slot in slots_of(single_schedule, after, until)
        if single_schedule.is_active(slot, slot=slot)
    }
    for slot in merge_slots(single, after, until):
        assert schedule.is_active(slot, slot=slot) == (slot in active)
    following = schedule.next_active(after)
    assert (following if following and following <= until else None) == min(active, default=None)


@scaled_settings(200)
@given(
    schedules(),
    st.sampled_from(BEGINNINGS),
    st.lists(
        st.tuples(st.integers(1, 1500), st.booleans(), st.booleans()), min_size=1, max_size=12
    ),
)
def test_each_slot_of_a_union_is_accounted_for_once_over_restarts_and_pauses(
    schedules: tuple[Schedule, list[Schedule]],
    begin: datetime,
    looks: list[tuple[int, bool, bool]],
) -> None:
    schedule, single = schedules
    floor = now = up_since = begin
    slots: list[datetime] = []
    for minutes, is_restart, is_paused in looks:
        now += timedelta(minutes=minutes)
        up_since = now if is_restart else up_since
        decision = classify_slots(
            schedule, floor=floor, now=now, up_since=up_since, paused=is_paused
        )
        if decision is None:
            continue
        for slot_range in decision.skipped:
            slots += slots_of(
                schedule, slot_range.first - timedelta(microseconds=1), slot_range.last
            )
        if decision.start:
            slots.append(decision.slot)
            assert not is_paused
        floor = decision.slot
    assert slots == merge_slots(single, begin, now - schedule.delay)


def test_many_intervals_are_counted_without_listing_their_slots() -> None:
    second, century = timedelta(seconds=1), at("2026-01-01T00:00") + timedelta(days=36_500)
    seconds = union(*(entry(every=number * second) for number in (1, 2, 3, 7, 60)))
    assert seconds.count(at("2026-01-01T00:00"), century) == 36_500 * 86_400
    pair = union(entry(every=2 * second), entry(every=3 * second))
    assert pair.count(at("2026-01-01T00:00"), century) == 36_500 * 86_400 * 4 // 6


MORNING = entry(cron="30 8 * * 1-5", timezone=BERLIN, catch_up="none")
NOON = entry(cron="0 12 * * 6,0", timezone=BERLIN, active_hours="08:00-22:00")
FRIDAY, SATURDAY = at("2026-01-02T07:30"), at("2026-01-03T11:00")


def test_a_slot_has_the_kind_rule_and_catch_up_of_the_trigger_that_has_it() -> None:
    schedule = union(MORNING, NOON, entry(at=SATURDAY, catch_up=timedelta(hours=9)))
    assert (schedule.kind(FRIDAY), schedule.rule(FRIDAY)) == ("cron", 'cron = "30 8 * * 1-5"')
    assert schedule.catch_up(FRIDAY) == "none"
    assert schedule.rule(SATURDAY) == f'cron = "0 12 * * 6,0" and at = {SATURDAY.isoformat()}'
    assert schedule.catch_up(SATURDAY) == "once", (
        "half of a period of a day is longer than nine hours"
    )
    assert union(NOON, entry(at=SATURDAY - timedelta(hours=2))).kind(SATURDAY) == "cron"
    assert (
        union(MORNING, NOON).quiet_rule(SATURDAY, slot=SATURDAY) == 'active_hours = "08:00-22:00"'
    )


@pytest.mark.parametrize(
    ("parts", "events", "words"),
    [
        (
            [MORNING, entry(cron="0 12 * * 6,0", timezone=BERLIN), entry()],
            ["", "", "when a file lands in inbox/*.csv"],
            (
                "at 08:30 on weekdays and at 12:00 on weekends, Europe/Berlin; "
                "or when a file lands in inbox/*.csv"
            ),
        ),
        (
            [MORNING, NOON],
            [],
            (
                "at 08:30 on weekdays, Europe/Berlin; or at 12:00 on weekends within 08:00-22:00, "
                "Europe/Berlin"
            ),
        ),
        (
            [entry(every=timedelta(hours=2)), entry(on_start=True), entry()],
            ["", "", "by webhook"],
            "every 2 hours; or when the daemon starts; or by webhook",
        ),
        (
            [entry(), entry()],
            ["after a succeeded", "after b failed"],
            "after a succeeded; or after b failed",
        ),
    ],
)
def test_several_triggers_are_one_sentence(
    parts: list[Schedule], events: list[str], words: str
) -> None:
    assert union(*parts).words(*events) == words
