"""Crontab lines: parsing, faults and slots."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given
from hypothesis import strategies as st

from daemon.definitions.cron import NICKNAMES, CronError, parse, weekdays
from tests.properties import scaled_settings

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
# A half-hour shift, a gap and an overlap at midnight, an overlap over midnight, a day that never
# was, negative DST.
ODD_ZONES = (
    *(BERLIN, NEW_YORK, "Australia/Lord_Howe", "America/Havana", "America/Sao_Paulo"),
    *("America/St_Johns", "Africa/Cairo", "Africa/Casablanca", "Pacific/Apia", "UTC"),
)

once = scaled_settings(100)


def local(text: str, zone: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return (
        moment.astimezone(ZoneInfo(zone))
        if moment.tzinfo
        else moment.replace(tzinfo=ZoneInfo(zone))
    )


def fires(expr: str, zone: str, after: str, count: int) -> list[str]:
    """Return the next fires as wall times."""
    moment, moments = local(after, zone), []
    for _ in range(count):
        following = parse(expr).next(moment, ZoneInfo(zone))
        assert following is not None
        moment = following.astimezone(ZoneInfo(zone))
        moments.append(f"{moment:%a %Y-%m-%d %H:%M %z}")
    return moments


# --- reading


@pytest.mark.parametrize(
    ("expr", "field", "says", "hint"),
    [
        ("60 * * * *", "minute", "60 is not within 0-59", "a minute is 0-59"),
        ("* 24 * * *", "hour", "24 is not within 0-23", ""),
        ("* * 0 * *", "day of month", "0 is not within 1-31", ""),
        ("* * * 13 *", "month", "13 is not within 1-12", "jan feb"),
        ("* * * * 8", "weekday", "8 is not within 0-7", "0 and 7 are Sunday"),
        ("*/0 * * * *", "minute", "a step of 0", "/1 or more"),
        ("5-1 * * * *", "minute", "5-1 runs backwards", "write 5-59,0-1"),
        ("* 22-2 * * *", "hour", "22-2 runs backwards", "write 22-23,0-2"),
        ("* * * * sat-tue", "weekday", "runs backwards", "write sat-sun,mon-tue"),
        ("* * * * 5-0", "weekday", "runs backwards", "write 5-7"),
        ("0 9 * * monday", "weekday", "'monday' is not understood", "write mon"),
        ("0 9 * janu *", "month", "'janu' is not understood", "write jan"),
        ("0 9 ? * 1", "day of month", "'?' is not understood", "for any, write *"),
        ("0 9 15W * *", "day of month", "'15w' is not understood", "LW, the last workday"),
        ("0 9 * * L", "weekday", "'l' is not understood", "5L is the last Friday"),
        ("0 9 * * mon#6", "weekday", "#6 does not exist", "#1 to #5"),
        ("1, * * * *", "minute", "nothing before or after a comma", ""),
        ("0 0 30 2 *", "day of month", "no month of these is so long", "L is the last day"),
        ("* * * *", "crontab", "has 4 fields", "30 8 * * 1-5"),
        ("61 8 * *", "crontab", "has 4 fields", "30 8 * * 1-5"),
        ("61 8 * *", "crontab", "the minute is wrong: 61 is not within 0-59", "30 8 * * 1-5"),
        ("0 25 * * *", "hour", "25 is not within 0-23", "an hour is 0-23"),
        ("* * * * * *", "crontab", "has 6 fields", "there is every"),
        ("@reboot", "crontab", "not a known nickname", "on_start = true"),
        ("@dailyy", "crontab", "not a known nickname", "@daily"),
    ],
)
def test_invalid_line_is_reported_by_field_with_its_correction(
    expr: str, field: str, says: str, hint: str
) -> None:
    with pytest.raises(CronError) as error:
        parse(expr)
    assert error.value.field == field
    assert says in error.value.problem
    assert hint in error.value.hint
    assert field in str(error.value)


@pytest.mark.parametrize(
    "expr",
    [
        *(
            "",
            "*",
            "a * * * *",
            ",1 * * * *",
            "1-2-3 * * * *",
            "1/2/3 * * * *",
            "-1 * * * *",
            "1- * * * *",
        ),
        *(
            "*/ * * * *",
            "* * * foo *",
            "* * * * mon#0",
            "0 0 31 4,6,9,11 *",
            "1.5 * * * *",
            "0x1 * * * *",
        ),
        *(
            "*5 * * * *",
            "* * * * mond",
            "mon * * * *",
            "* * * mon *",
            "1;2 * * * *",
            "٣ * * * *",
            "+1 * * * *",
        ),
        *(
            "1_0 * * * *",
            "** * * * *",
            "*-5 * * * *",
            "* * L-0x * *",
            "* * last * *",
            f"{'9' * 5000} * * * *",
        ),
    ],
)
def test_lines_invalid_in_any_crontab_are_refused(expr: str) -> None:
    with pytest.raises(CronError):
        parse(expr)


@pytest.mark.parametrize(
    ("expr", "other_expr"),
    [
        ("  0   9 * *\tMON-FRI ", "0 9 * * 1-5"),
        ("00 09 * JAN,jul sun", "0 9 * 1,7 0"),
        ("0 9 * * 7", "0 9 * * 0"),
        ("0 9 * * fri-sun", "0 9 * * 5,6,0"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("*/90 0 * * *", "0 0 * * *"),
        *NICKNAMES.items(),
    ],
)
def test_equivalent_lines_have_the_same_slots(expr: str, other_expr: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = (parse(e).next(start, ZoneInfo(BERLIN)) for e in (expr, other_expr))
    assert first == second


@pytest.mark.parametrize(
    "expr",
    [
        "x" * 300_000,
        "@" + "x" * 300_000,
        "1," * 100_000 + " * * * *",
        "* * * * " + "9" * 5_000 + "L",
        "* * * * 1#" + "9" * 5_000,
        "?" * 9_000 + " * * * *",
    ],
    ids=range(6),
)
def test_the_error_for_a_line_of_any_length_is_short(expr: str) -> None:
    with pytest.raises(CronError) as error:
        parse(expr)
    assert len(str(error.value)) < 600


def test_days_of_a_week_are_read_like_the_weekday_field() -> None:
    assert weekdays("mon-fri") == {1, 2, 3, 4, 5}
    assert weekdays("sat,7") == {6, 0}
    with pytest.raises(CronError):
        weekdays("mon#2")


# --- firing


@pytest.mark.parametrize(
    ("expr", "after", "expected"),
    [
        # 0 is Sunday here; APScheduler would fire on Tuesday
        ("0 9 * * 1", "2026-01-01", ["Mon 2026-01-05 09:00 +0100"]),
        # either day will do ...
        (
            "0 0 13 * fri",
            "2026-02-10",
            ["Fri 2026-02-13 00:00 +0100", "Fri 2026-02-20 00:00 +0100"],
        ),
        # ... unless one of them starts with a star
        (
            "0 0 */13 * fri",
            "2026-02-10",
            ["Fri 2026-02-27 00:00 +0100", "Fri 2026-03-27 00:00 +0100"],
        ),
        ("0 9 L * *", "2028-02-01", ["Tue 2028-02-29 09:00 +0100", "Fri 2028-03-31 09:00 +0200"]),
        ("0 9 LW * *", "2026-01-31", ["Fri 2026-02-27 09:00 +0100", "Tue 2026-03-31 09:00 +0200"]),
        ("0 9 * * 5L", "2026-01-01", ["Fri 2026-01-30 09:00 +0100", "Fri 2026-02-27 09:00 +0100"]),
        ("0 9 * * fri#5", "2026-02-01", ["Fri 2026-05-29 09:00 +0200"]),
        ("0 9 29 2 *", "2026-01-01", ["Tue 2028-02-29 09:00 +0100"]),
    ],
)
def test_days_are_chosen_as_cron_does(expr: str, after: str, expected: list[str]) -> None:
    assert fires(expr, BERLIN, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("case", "expr", "zone", "after", "expected"),
    [
        (
            "a daily job in the gap runs right after the jump, and the day after as ever",
            *("30 2 * * *", BERLIN, "2026-03-28T03:00"),
            ["Sun 2026-03-29 03:00 +0200", "Mon 2026-03-30 02:30 +0200"],
        ),
        (
            "a job after midnight does not lose the day after the clock change",
            *("15 0 * * *", BERLIN, "2026-03-28T12:00"),
            ["Sun 2026-03-29 00:15 +0100", "Mon 2026-03-30 00:15 +0200"],
        ),
        (
            "a job of every minute skips what is not there",
            *("* 2 * * *", BERLIN, "2026-03-28T12:00"),
            ["Mon 2026-03-30 02:00 +0200"],
        ),
        (
            "a daily job in the repeated hour runs once",
            *("30 1 * * *", NEW_YORK, "2026-10-31T12:00"),
            ["Sun 2026-11-01 01:30 -0400", "Mon 2026-11-02 01:30 -0500"],
        ),
        (
            "a job of every half hour runs in both",
            *("*/30 1 * * *", NEW_YORK, "2026-10-31T12:00"),
            [
                "Sun 2026-11-01 01:00 -0400", "Sun 2026-11-01 01:30 -0400",
                "Sun 2026-11-01 01:00 -0500", "Sun 2026-11-01 01:30 -0500",
            ],
        ),
        (
            "asked within the repeated hour, it never answers with the past",
            *("30 1 * * *", NEW_YORK, "2026-11-01T01:10-05:00"),
            ["Mon 2026-11-02 01:30 -0500"],
        ),
        (
            "a half-hour shift is found too",
            *("*/15 3 * * sun", "Australia/Lord_Howe", "2026-04-04T12:00"),
            ["Sun 2026-04-05 03:00 +1030", "Sun 2026-04-05 03:15 +1030"],
        ),
        (
            "a gap at midnight belongs to the day it opens",
            *("30 0 * * *", "Africa/Cairo", "2026-04-23T12:00"),
            ["Fri 2026-04-24 01:00 +0300", "Sat 2026-04-25 00:30 +0300"],
        ),
        (
            "a day that a country left out is not made up for",
            *("0 9 * * *", "Pacific/Apia", "2011-12-29T08:00"),
            ["Thu 2011-12-29 09:00 -1000", "Sat 2011-12-31 09:00 +1400"],
        ),
    ],
)  # fmt: skip
def test_clock_changes(case: str, expr: str, zone: str, after: str, expected: list[str]) -> None:
    assert fires(expr, zone, after, len(expected)) == expected, case


def test_impossible_date_has_no_next_slot() -> None:
    assert parse("0 0 */31 * 1#5").next(datetime(2026, 1, 1, tzinfo=UTC), UTC) is None
    assert parse("0 0 */31 * 1#5").prev(datetime(2026, 1, 1, tzinfo=UTC), UTC) is None


def test_a_schedule_ends_at_the_end_of_the_calendar() -> None:
    assert parse("0 0 29 2 *").next(datetime(9990, 1, 1, tzinfo=UTC), UTC) == datetime(
        9992, 2, 29, tzinfo=UTC
    )
    assert parse("0 0 1 1 *").next(datetime(9998, 6, 1, tzinfo=UTC), UTC) is None


# --- laws


@st.composite
def numbers(draw: st.DrawFn, low: int, high: int) -> str:
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, 25))
    return draw(
        st.sampled_from(
            ["*", "*", f"{a}", f"{a}", f"{a},{b}", f"{a}-{b}", f"{a}-{b}/{step}", f"*/{step}"]
        )
    )


lines = st.builds(
    lambda *fields: " ".join(fields),
    numbers(0, 59),
    st.one_of(numbers(0, 23), numbers(0, 3), st.just("23")),  # at the hours when clocks change
    st.one_of(st.just("*"), numbers(1, 28), st.just("L"), st.just("LW")),
    st.one_of(st.just("*"), numbers(1, 12)),
    st.one_of(st.just("*"), numbers(0, 6), st.just("5L"), st.just("sun#1")),
)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
zones = st.sampled_from(ODD_ZONES)


@once
@given(lines, zones, moments)
def test_next_slot_inverts_previous_slot(line: str, zone_name: str, moment: datetime) -> None:
    cron, zone = parse(line), ZoneInfo(zone_name)
    following, preceding = cron.next(moment, zone), cron.prev(moment, zone)
    if following:
        assert following > moment
        assert cron.prev(following, zone) == following
        assert cron.prev(following - timedelta(microseconds=1), zone) == preceding
    if preceding:
        assert preceding <= moment
        assert cron.next(preceding, zone) == following
        assert cron.next(preceding - timedelta(seconds=1), zone) == preceding


@once
@given(lines, zones, moments, st.integers(1, 60))
def test_count_equals_the_number_of_slots(
    line: str, zone_name: str, moment: datetime, fires_ahead: int
) -> None:
    cron, zone = parse(line), ZoneInfo(zone_name)
    slots = [moment]
    while len(slots) <= fires_ahead and (following := cron.next(slots[-1], zone)):
        slots.append(following)
    assert all(a < b for a, b in pairwise(slots))
    assert cron.count(moment, slots[-1], zone) == len(slots) - 1
    assert cron.count(moment, moment, zone) == 0


@once
@given(lines, moments)
def test_slots_without_clock_changes_equal_those_of_cronsim(line: str, moment: datetime) -> None:
    # it reads 1-1/1 as 1/1, from there on; cron takes the one day
    assume(not re.search(r"\b(\d+)-\1/", line))
    try:
        reference = next(CronSim(line, moment), None)
    except ValueError:  # it gives up on days that cannot be
        reference = None
    assert parse(line).next(moment, UTC) == reference


def walk(line: str, zone: ZoneInfo, start: datetime, minutes: int) -> set[datetime]:
    """Return what a cron daemon fires that looks at its clock once a minute, told from cron(8);
    every day matches.
    """
    cron, minute = parse(line), timedelta(minutes=1)

    def matches(wall: datetime) -> bool:
        return wall.minute in cron.minutes and wall.hour in cron.hours

    fire_times = set()
    last_wall = start.astimezone(zone).replace(tzinfo=None) - minute
    for now in (start + n * minute for n in range(minutes)):
        wall = now.astimezone(zone).replace(tzinfo=None)
        if cron.follows_wall_clock or abs(wall - last_wall) > timedelta(hours=3):
            due, last_wall = [wall], wall
        else:  # what was skipped is due as well; while the clock repeats itself, nothing is
            due, last_wall = (
                [last_wall + n * minute for n in range(1, (wall - last_wall) // minute + 1)],
                max(last_wall, wall),
            )
        if any(map(matches, due)):
            fire_times.add(now)
    return fire_times


CHANGES = [
    (BERLIN, "2026-03-28T20:00"), (BERLIN, "2026-10-24T20:00"), (NEW_YORK, "2026-11-01T00:00"),
    ("Australia/Lord_Howe", "2026-04-04T10:00"), ("Australia/Lord_Howe", "2026-10-03T10:00"),
    ("America/Havana", "2026-03-08T00:00"), ("America/Havana", "2026-11-01T00:00"),
    ("America/Sao_Paulo", "2018-11-03T22:00"), ("America/Sao_Paulo", "2018-02-17T20:00"),
    ("America/St_Johns", "2005-10-29T20:00"), ("Africa/Cairo", "2026-04-23T16:00"),
    ("Pacific/Apia", "2011-12-30T00:00"),
]  # fmt: skip


@once
@given(
    st.builds(
        "{} {} * * *".format,
        numbers(0, 59),
        st.sampled_from(["*", "0", "1", "2", "0-3", "23,0", "22-23", "*/2"]),
    ),
    st.sampled_from(CHANGES),
)
def test_slots_around_a_clock_change_equal_those_of_a_minutely_daemon(
    line: str, change: tuple[str, str]
) -> None:
    zone, start = ZoneInfo(change[0]), datetime.fromisoformat(change[1]).replace(tzinfo=UTC)
    expected, moment = walk(line, zone, start, 24 * 60), start - timedelta(minutes=1)
    moments = set()
    while (following := parse(line).next(moment, zone)) and following < start + timedelta(days=1):
        moments.add(following)
        moment = following
    assert moments == expected
