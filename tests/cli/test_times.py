"""Times as people type them."""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from daemon.cli.times import parse_time

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 20, 10, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "back", "ahead"),
    [
        ("09:00", "2026-11-20T09:00+01:00", "2026-11-21T09:00+01:00"),
        ("18:30", "2026-11-20T18:30+01:00", "2026-11-20T18:30+01:00"),
        ("9:00:30", "2026-11-20T09:00:30+01:00", "2026-11-21T09:00:30+01:00"),
        ("today 09:00", "2026-11-20T09:00+01:00", "2026-11-20T09:00+01:00"),
        ("Yesterday 09:00", "2026-11-19T09:00+01:00", "2026-11-19T09:00+01:00"),
        ("tomorrow 7:00", "2026-11-21T07:00+01:00", "2026-11-21T07:00+01:00"),
        ("tomorrow", "2026-11-21T00:00+01:00", "2026-11-21T00:00+01:00"),
        ("mon 18:30", "2026-11-16T18:30+01:00", "2026-11-23T18:30+01:00"),
        ("friday 09:00", "2026-11-20T09:00+01:00", "2026-11-27T09:00+01:00"),
        ("friday 12:00", "2026-11-13T12:00+01:00", "2026-11-20T12:00+01:00"),
        ("fri 10:30", "2026-11-20T10:30+01:00", "2026-11-27T10:30+01:00"),
        ("friday", "2026-11-20T00:00+01:00", "2026-11-27T00:00+01:00"),
        ("2026-10-01 09:00", "2026-10-01T09:00+02:00", "2026-10-01T09:00+02:00"),
        ("2026-10-01", "2026-10-01T00:00+02:00", "2026-10-01T00:00+02:00"),
        ("2026-10-01T09:00Z", "2026-10-01T11:00+02:00", "2026-10-01T11:00+02:00"),
    ],
)
def test_common_forms_are_understood(text: str, back: str, ahead: str) -> None:
    assert parse_time(text, FRIDAY) == datetime.fromisoformat(back)
    assert parse_time(text, FRIDAY, future=True) == datetime.fromisoformat(ahead)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", "12:30"),
        ("45m", "11:15"),
        ("90s", "10:31:30"),
        ("20 minutes", "10:50"),
        ("1h30m", "12:00"),
        ("1 Hour and 5 min", "11:35"),
        (" 2 hours ", "12:30"),
    ],
)
def test_a_future_duration_counts_from_now(text: str, expected: str) -> None:
    moment = parse_time(text, FRIDAY, future=True)
    assert moment == datetime.fromisoformat(f"2026-11-20T{expected}").replace(tzinfo=BERLIN)
    with pytest.raises(ValueError, match="no moment"):
        parse_time(text, FRIDAY)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-29T01:30+01:00", "2026-03-29T04:30+02:00"),
        ("2026-10-25T01:30+02:00", "2026-10-25T02:30+01:00"),
    ],
)
def test_a_duration_has_its_length_where_clocks_change(now: str, expected: str) -> None:
    moment = parse_time("2h", datetime.fromisoformat(now).astimezone(BERLIN), future=True)
    assert moment.isoformat() == datetime.fromisoformat(expected).isoformat()


def test_a_time_that_clocks_skip_today_is_that_time_tomorrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = datetime.fromisoformat("2026-03-29T12:00+02:00").astimezone()
        assert parse_time("02:30", now, future=True).isoformat() == "2026-03-30T02:30:00+02:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "09:00 yesterday", "mon mon", "2026-13-01", "9", "h", "99999999999w"],
)
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"no moment; write it like|no time of the day|longer than ten years"
    ):
        parse_time(text, FRIDAY, future=True)


def test_the_examples_of_a_time_to_come_lie_in_the_future() -> None:
    with pytest.raises(ValueError, match="no moment") as error:
        parse_time("never", FRIDAY, future=True)
    examples = str(error.value).partition("write it like ")[2].replace(" or ", ", ").split(", ")
    assert len(examples) == 6
    assert all(parse_time(example, FRIDAY, future=True) > FRIDAY for example in examples)


@given_settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(BERLIN)),
    st.integers(0, 23),
)
def test_a_future_time_of_day_is_the_next_one(now: datetime, hour: int) -> None:
    moment = parse_time(f"{hour}:00", now, future=True)
    wall = moment.replace(tzinfo=None) - now.replace(tzinfo=None)
    assert moment.hour == hour
    assert 0 < wall.total_seconds() <= 86_400
