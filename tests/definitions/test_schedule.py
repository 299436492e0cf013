"""Schedules: slots, lateness, hours and words, as pure functions."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.schedule import CatchUp, Schedule, spread_offset
from daemon.definitions.skipped_days import parse_dates
from tests.properties import scaled_settings

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(**words: Any) -> Schedule:
    return Schedule.of(**{"timezone": "UTC", **words})


DAILY = schedule(cron="0 9 * * *")
HALF_HOURLY = schedule(every=timedelta(minutes=30))
ONCE = schedule(at=datetime(2026, 12, 1, 9, tzinfo=UTC))
BY_HAND = schedule()


# --- slots


@pytest.mark.parametrize(
    ("which", "now", "prev", "following"),
    [
        (DAILY, "2026-01-01T09:00", "2026-01-01T09:00", "2026-01-02T09:00"),
        (DAILY, "2026-01-01T08:59:59.999999", "2025-12-31T09:00", "2026-01-01T09:00"),
        (HALF_HOURLY, "2026-01-01T09:29", "2026-01-01T09:00", "2026-01-01T09:30"),
        (HALF_HOURLY, "2026-01-01T09:30", "2026-01-01T09:30", "2026-01-01T10:00"),
        (ONCE, "2026-11-30T00:00", None, "2026-12-01T09:00"),
        (ONCE, "2026-12-01T09:00", "2026-12-01T09:00", None),
        (BY_HAND, "2026-01-01T09:00", None, None),
        (schedule(on_start=True), "2026-01-01T09:00", None, None),
    ],
)
def test_previous_and_next_slot_enclose_now(
    which: Schedule, now: str, prev: str | None, following: str | None
) -> None:
    assert which.prev(at(now)) == (prev and at(prev))
    assert which.next(at(now)) == (following and at(following))


@scaled_settings(100)
@given(
    st.sampled_from(
        [
            DAILY,
            HALF_HOURLY,
            ONCE,
            schedule(every=timedelta(seconds=7)),
            schedule(cron="*/20 8-9 * * 1"),
        ]
    ),
    st.datetimes(datetime(2026, 11, 20), datetime(2026, 12, 10), timezones=st.just(UTC)),
    st.integers(0, 40),
)
def test_count_equals_the_number_of_next_slots(
    which: Schedule, start: datetime, number: int
) -> None:
    slots = [start]
    while len(slots) <= number and (following := which.next(slots[-1])):
        slots.append(following)
    assert which.count(start, slots[-1]) == len(slots) - 1
    assert which.prev(slots[-1]) == (slots[-1] if len(slots) > 1 else which.prev(start))


def test_a_slot_lasts_until_the_next_one() -> None:
    friday = at("2026-01-02T09:00")
    assert schedule(cron="0 9 * * 1-5").period(friday) == timedelta(days=3)
    assert HALF_HOURLY.period(friday) == timedelta(minutes=30)
    assert ONCE.period(at("2026-12-01T09:00")) is None


def test_a_spread_delays_the_start_and_never_moves_the_slot() -> None:
    late = schedule(cron="0 9 * * *", delay=timedelta(minutes=3))
    assert late.next(at("2026-01-01T08:00")) == at("2026-01-01T09:00")
    assert late.next_start(at("2026-01-01T09:01")) == at("2026-01-01T09:03")
    assert late.due(at("2026-01-01T09:02:59")) == at("2025-12-31T09:00")
    assert late.due(at("2026-01-01T09:03")) == at("2026-01-01T09:00")
    assert late.lateness(at("2026-01-01T09:00"), at("2026-01-01T09:04")) == timedelta(minutes=1)


# --- what is late


@pytest.mark.parametrize(
    ("rule", "cron", "late", "worth_it"),
    [
        ("once", "0 9 * * *", timedelta(hours=12), True),
        ("once", "0 9 * * *", timedelta(hours=12, seconds=1), False),
        ("once", "0 9 * * 1", timedelta(days=3), True),
        ("once", "*/30 * * * *", timedelta(minutes=16), False),
        ("none", "0 9 * * *", timedelta(seconds=61), False),
        (timedelta(hours=6), "0 9 * * *", timedelta(hours=6), True),
        (timedelta(hours=6), "0 9 * * *", timedelta(hours=7), False),
        (timedelta(days=2), "0 9 * * *", timedelta(hours=23), True),
    ],
)
def test_missed_slot_is_caught_up_within_its_grace(
    rule: CatchUp, cron: str, late: timedelta, worth_it: bool
) -> None:
    slot = at("2026-01-05T09:00")
    assert schedule(cron=cron, catch_up=rule).may_catch_up(slot, slot + late) is worth_it


def test_missed_one_time_slot_is_caught_up_after_any_delay() -> None:
    assert ONCE.may_catch_up(at("2026-12-01T09:00"), at("2027-03-01T09:00"))


# --- hours and days


@pytest.mark.parametrize(
    ("hours", "days", "wall", "active"),
    [
        ("08:00-22:00", None, "2026-07-01T08:00", True),
        ("08:00-22:00", None, "2026-07-01T21:59:59", True),
        ("08:00-22:00", None, "2026-07-01T22:00", False),
        ("00:00-24:00", None, "2026-07-01T23:59", True),
        ("22:00-06:00", None, "2026-07-01T23:00", True),
        ("22:00-06:00", None, "2026-07-01T05:59", True),
        ("22:00-06:00", None, "2026-07-01T06:00", False),
        (None, "mon-fri", "2026-07-03T12:00", True),
        (None, "mon-fri", "2026-07-04T12:00", False),
        # a night belongs to the day on which it began
        ("22:00-06:00", "fri", "2026-07-04T02:00", True),
        ("22:00-06:00", "fri", "2026-07-03T02:00", False),
        ("22:00-06:00", "sun", "2026-07-06T02:00", True),
        (None, None, "2026-07-01T03:00", True),
    ],
)
def test_active_hours_use_the_zone_of_the_schedule(
    hours: str | None, days: str | None, wall: str, active: bool
) -> None:
    berlin_summer = at(wall) - timedelta(hours=2)
    which = schedule(
        timezone=BERLIN, every=timedelta(hours=1), active_hours=hours, active_days=days
    )
    assert which.is_active(berlin_summer) is active


def test_the_next_fire_lies_in_active_hours() -> None:
    awake = schedule(
        timezone=BERLIN,
        every=timedelta(minutes=30),
        active_hours="08:00-22:00",
        active_days="mon-fri",
    )
    assert awake.next_active(at("2026-07-03T19:00")) == at("2026-07-03T19:30")
    friday_night, monday_morning = at("2026-07-03T20:00"), at("2026-07-06T06:00")
    assert awake.next_active(friday_night) == monday_morning
    asleep = schedule(cron="0 23 * * *", active_hours="08:00-22:00")
    assert asleep.next_active(friday_night) is None


# --- spread


def test_a_spread_offset_is_fixed_per_name_and_machine() -> None:
    window = timedelta(minutes=5)
    shares = [spread_offset(name, window, machine) for name in ("a", "b") for machine in ("x", "y")]
    assert shares == [
        spread_offset(name, window, machine) for name in ("a", "b") for machine in ("x", "y")
    ]
    assert len(set(shares)) == 4
    assert all(timedelta(0) <= share < window for share in shares)
    assert spread_offset("a", timedelta(0), "x") == timedelta(0)


def test_a_thousand_names_spread_over_five_minutes() -> None:
    seconds = Counter(
        spread_offset(f"routine-{n}", timedelta(minutes=5), "x").seconds for n in range(1000)
    )
    assert max(seconds.values()) < 15


# --- words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("30 8 * * 1-5", "at 08:30 on weekdays"),
        ("0 8,12,18 * * *", "at 08:00, 12:00 and 18:00"),
        ("0 9 * * sat,sun", "at 09:00 on weekends"),
        ("0 9 * * 1,0", "at 09:00 on Monday and Sunday"),
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("0 * * * *", "every hour"),
        ("15 */2 * * *", "every 2 hours at minute 15"),
        ("0 1-23/2 * * *", "every 2 hours from 01:00"),
        ("5 2-23/3 * * *", "every 3 hours from 02:05"),
        ("0 9 30,31,L * *", "at 09:00 on the 30th, 31st and last day of the month"),
        ("0 9 1-31,L * *", "at 09:00"),
        ("*/15 9-17 * * mon-fri", "every 15 minutes from 09:00 to 17:45 on weekdays"),
        ("0 9 1,15 * *", "at 09:00 on the 1st and 15th of the month"),
        ("0 9 22 3 *", "at 09:00 on the 22nd of March"),
        ("30 6 * jan,jul *", "at 06:30 in January and July"),
        ("0 9 L * *", "at 09:00 on the last day of the month"),
        ("0 9 13,LW * *", "at 09:00 on the 13th and last workday of the month"),
        ("0 9 * * 5L", "at 09:00 on the last Friday of the month"),
        ("0 9 * 1 1#2", "at 09:00 on the second Monday of January"),
        ("0 0 13 * fri", "at 00:00 on the 13th of the month or on Friday"),
        ("5,10-20/5 8 * * *", "at 08:05, 08:10, 08:15 and 08:20"),
        ("*/7 * * * *", "by the crontab */7 * * * *"),
        ("7-59/10 3,5 * * *", "by the crontab 7-59/10 3,5 * * *"),
        ("*/10 3,5 * * *", "by the crontab */10 3,5 * * *"),
        ("0 9 */2 * mon", "by the crontab 0 9 */2 * mon"),
    ],
)
def test_a_crontab_line_in_words(cron: str, words: str) -> None:
    assert schedule(timezone=BERLIN, cron=cron).words() == f"{words}, Europe/Berlin"


def test_the_last_day_stands_for_no_other_one() -> None:
    words = schedule(timezone=BERLIN, cron="0 9 2-31,L * *").words()
    assert words.startswith("at 09:00 on the 2nd, 3rd, 4th,"), "31 days, and the 1st is none"


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"every": timedelta(minutes=30)}, "every 30 minutes"),
        ({"every": timedelta(hours=1)}, "every hour"),
        ({"every": timedelta(minutes=90)}, "every 1 hour 30 minutes"),
        ({"every": timedelta(seconds=1)}, "every second"),
        ({"every": timedelta(seconds=1.5)}, "every 1.5 seconds"),
        (
            {"every": timedelta(hours=2), "active_hours": "08:00-22:00", "active_days": "mon-fri"},
            "every 2 hours within 08:00-22:00 on weekdays, Europe/Berlin",
        ),
        ({"at": datetime(2026, 12, 1, 8, tzinfo=UTC)}, "once at 2026-12-01 09:00, Europe/Berlin"),
        ({"on_start": True}, "when the daemon starts"),
        (
            {"cron": "0 9 * * *", "on_start": True, "delay": timedelta(seconds=133.4)},
            (
                "at 09:00 and when the daemon starts, Europe/Berlin, started 2 minutes 13 seconds "
                "later"
            ),
        ),
        ({}, "by hand only"),
    ],
)
def test_a_trigger_in_words(trigger: dict[str, Any], words: str) -> None:
    assert schedule(timezone=BERLIN, **trigger).words() == words


# --- days to skip


def on_days_to_skip(*texts: str, **words: Any) -> Schedule:
    return schedule(**words).skipping(*map(parse_dates, texts))


def test_days_to_skip_are_days_of_the_zone_of_the_trigger() -> None:
    hourly = on_days_to_skip("2026-12-25", every=timedelta(hours=1), timezone="America/New_York")
    assert hourly.is_active(at("2026-12-25T04:59")) and not hourly.is_active(at("2026-12-25T05:00"))
    assert not hourly.is_active(at("2026-12-26T04:59")) and hourly.is_active(at("2026-12-26T05:00"))


@pytest.mark.parametrize("hours", [{}, {"active_hours": "22:00-06:00"}, {"active_days": "mon-fri"}])
@pytest.mark.parametrize("zone", ["UTC", BERLIN])
def test_the_next_start_lies_behind_the_days_to_skip(hours: dict[str, Any], zone: str) -> None:
    ranges = ("2026-03-25/2026-04-06", "2026-04-07", "2026-10-20/2028-10-19")
    skipping = on_days_to_skip(*ranges, cron="0 */3 * * *", timezone=zone, **hours)
    without = schedule(cron="0 */3 * * *", timezone=zone, **hours)
    for start in ("2026-03-24T12:00", "2026-03-26T00:00", "2026-10-19T23:00"):
        slot = without.next_active(at(start))
        while slot and any(
            days.first <= slot.astimezone(skipping.zone).date() <= days.last
            for days in map(parse_dates, ranges)
        ):
            slot = without.next_active(slot)
        assert skipping.next_active(at(start)) == slot


def test_a_night_after_a_day_to_skip_is_judged_by_its_own_day() -> None:
    night = on_days_to_skip("2026-12-24", every=timedelta(hours=1), active_hours="22:00-06:00")
    assert not night.is_active(at("2026-12-24T23:00"))
    assert night.is_active(at("2026-12-25T01:00"))


def test_the_rule_names_the_entry_of_skip() -> None:
    skipping = on_days_to_skip(
        "2026-12-24/2027-01-06", "2026-12-24", cron="0 9 * * *", active_hours="10:00-12:00"
    )
    slot, other = at("2026-12-24T09:00"), at("2026-12-23T09:00")
    assert skipping.quiet_rule(slot, slot=slot) == 'skip = "2026-12-24/2027-01-06"'
    assert skipping.quiet_rule(other, slot=other) == 'active_hours = "10:00-12:00"'


def test_days_to_skip_stand_in_the_words() -> None:
    few = on_days_to_skip("2026-12-24/2027-01-06", "2026-05-01", cron="0 9 * * *")
    assert few.words() == "at 09:00, UTC, but not on 2026-12-24 to 2027-01-06 and 2026-05-01"
    many = on_days_to_skip(*(f"2026-05-0{day}" for day in range(1, 6)), every=timedelta(hours=1))
    assert many.words() == (
        "every hour, UTC, but not on 2026-05-01, 2026-05-02, 2026-05-03 and 2 more"
    )


def test_a_slot_of_two_triggers_is_skipped_only_on_a_day_that_both_skip() -> None:
    slot = at("2026-12-25T09:00")
    christmas = on_days_to_skip("2026-12-25", cron="0 9 * * *")
    daily = schedule(every=timedelta(hours=3))
    assert Schedule.union((christmas, daily), zone="UTC").is_active(slot, slot=slot)
    union = Schedule.union(
        (christmas, on_days_to_skip("2026-12-20/2026-12-31", every=timedelta(hours=3))), zone="UTC"
    )
    assert not union.is_active(slot, slot=slot)
    assert union.quiet_rule(slot, slot=slot) == (
        'skip = "2026-12-25" and skip = "2026-12-20/2026-12-31"'
    )
    assert union.next_active(slot) == at("2026-12-26T09:00")
