"""The cron engine compared with a minute-by-minute reference and with cronsim."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given
from hypothesis import strategies as st

from daemon.definitions.cron import parse
from tests.definitions.cron_reference import MINUTE, find_slots
from tests.properties import scaled_settings

laws = scaled_settings(100)

# Two days from each of these lies a clock change: gaps and overlaps by day and at midnight, of an
# hour and of less, negative daylight saving, a day that a country left out, and none.
CHANGES = [
    ("Europe/Berlin", "2026-03-28T00:00"), ("Europe/Berlin", "2026-10-24T00:00"),
    ("America/New_York", "2026-03-07T06:00"), ("America/New_York", "2026-10-31T00:00"),
    ("Australia/Lord_Howe", "2026-04-03T12:00"), ("Australia/Lord_Howe", "2026-10-02T12:00"),
    ("America/Havana", "2026-03-07T00:00"), ("America/Havana", "2026-10-31T00:00"),
    ("America/Sao_Paulo", "2018-11-03T00:00"), ("America/Sao_Paulo", "2018-02-17T00:00"),
    ("America/St_Johns", "2005-10-29T00:00"), ("Africa/Cairo", "2026-04-23T00:00"),
    ("Africa/Casablanca", "2026-02-14T00:00"), ("Africa/Casablanca", "2026-03-21T00:00"),
    ("Europe/Dublin", "2026-10-24T00:00"), ("Pacific/Apia", "2011-12-29T12:00"),
    ("Asia/Kathmandu", "2026-02-27T00:00"), ("UTC", "2028-02-28T00:00"),
]  # fmt: skip
SPAN = 3 * 24 * 60  # minutes


@st.composite
def field(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, 30))
    forms = [
        "*",
        "*",
        "*",
        f"{a}",
        f"{a}",
        f"{a},{b}",
        f"{a}-{b}",
        f"{a}-{b}/{step}",
        f"*/{step}",
        f"{b},{a}-{b}/{step}",
    ]
    return draw(st.sampled_from([*forms, *names]))


lines = st.builds(
    lambda *fields: " ".join(fields),
    field(0, 59),
    st.one_of(field(0, 23), field(0, 4), st.sampled_from(["0", "1", "2", "23", "22-23", "0-2"])),
    field(1, 31),
    st.one_of(st.just("*"), field(1, 12, ("mar", "OCT"))),
    field(0, 7, ("sun", "Mon-Fri", "sat")),
).filter(lambda line: _possible(line))


def _possible(line: str) -> bool:
    """Tell whether the line names a day that exists in some month: others are refused, which a
    reference does not.
    """
    try:
        parse(line)
    except ValueError:
        return False
    return True


@scaled_settings(200)
@given(
    lines, st.sampled_from(CHANGES), st.lists(st.integers(60, SPAN - 1), min_size=1, max_size=20)
)
def test_next_and_previous_slots_equal_those_of_a_minutely_daemon(
    line: str, change: tuple[str, str], moments: list[int]
) -> None:
    zone, start = ZoneInfo(change[0]), datetime.fromisoformat(change[1]).replace(tzinfo=UTC)
    # begun an hour early, so that the daemon has seen the wall clock before it counts
    expected = list(find_slots(line, zone, start, SPAN))
    cron, end = parse(line), start + SPAN * MINUTE
    for moment in (start + minute * MINUTE + timedelta(seconds=minute % 60) for minute in moments):
        following, preceding = cron.next(moment, zone), cron.prev(moment, zone)
        after, before = bisect_right(expected, moment), bisect_right(expected, moment) - 1
        if after < len(expected):
            assert following == expected[after]
        else:
            assert following is None or following >= end
        if before >= 0:
            assert preceding == expected[before]
        else:
            assert preceding is None or preceding < start + timedelta(hours=3)
        for fire in filter(None, (following, preceding)):
            if start + timedelta(hours=3) <= fire < end:
                assert bisect_left(expected, fire) < len(expected)
                assert expected[bisect_left(expected, fire)] == fire


SANE = (
    "Europe/Berlin",
    "America/New_York",
    "Asia/Tokyo",
    "America/St_Johns",
    "Australia/Sydney",
    "Africa/Cairo",
)


@laws
@given(lines, st.sampled_from(SANE), st.datetimes(datetime(2021, 1, 1), datetime(2033, 1, 1)))
def test_reference_agrees_with_cronsim_where_cronsim_is_right(
    line: str, name: str, wall: datetime
) -> None:
    # Its defects, found by the differential: asked inside a repeated hour it answers with the past;
    # shifts of half an hour, days left out, and Havana's midnight; and here: 0-0 is any day.
    assume(not re.search(r"\b(\d+)-\1\b", line))
    zone = ZoneInfo(name)
    start = wall.replace(second=0, microsecond=0, tzinfo=zone)
    if any((start + timedelta(hours=hours)).utcoffset() != start.utcoffset() for hours in (-3, 3)):
        start += timedelta(days=1)
    try:
        reference_slots = [slot.astimezone(UTC) for slot in islice(CronSim(line, start), 5)]
    except ValueError:  # it gives up on days that cannot be
        return
    own_slots, moment = [], start.astimezone(UTC)
    while len(own_slots) < len(reference_slots) and (following := parse(line).next(moment, zone)):
        own_slots.append(following)
        moment = following
    assert own_slots == reference_slots


@pytest.mark.parametrize(
    ("line", "zone", "start", "expected"),
    [
        # what the manual says in words, so that the reference is not taken on trust
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", []),
        ("0 0 13 * fri", "UTC", "2026-11-12T12:00", ["2026-11-13T00:00"]),
        ("0 0 14 * fri", "UTC", "2026-11-12T20:00", ["2026-11-13T00:00", "2026-11-14T00:00"]),
        ("0 0 */7 * fri", "UTC", "2026-11-12T12:00", []),
        ("0 12 * * 7", "UTC", "2026-11-14T12:00", ["2026-11-15T12:00"]),
    ],
)
def test_the_cron_reference_follows_the_manual(
    line: str, zone: str, start: str, expected: list[str]
) -> None:
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    moments = list(find_slots(line, ZoneInfo(zone), begin, 30 * 60))
    assert [f"{moment:%Y-%m-%dT%H:%M}" for moment in moments] == expected
