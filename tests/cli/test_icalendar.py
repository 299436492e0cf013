"""The iCalendar of coming starts, by RFC 5545."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import icalendar
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.icalendar import MAX_LINE_OCTETS, format_calendar
from tests.properties import scaled_settings

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
NAMES = "aä中;,:\\\"'-._ "
ABOUT = {"daily": ("Mail, news; and\\more", "at 08:30 on weekdays, Europe/Berlin")}


def read(text: str) -> list[tuple[str, str]]:
    """Return the content lines of a calendar, as a strict reader takes them."""
    assert text.endswith("\r\n")
    lines = text[:-2].split("\r\n")
    assert all(len(line.encode()) <= MAX_LINE_OCTETS for line in lines)
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", "".join(lines))
    content_lines = "\r\n".join(lines).replace("\r\n ", "").split("\r\n")
    pairs = [tuple(line.split(":", 1)) for line in content_lines]
    assert all(len(pair) == 2 and re.fullmatch(r"[A-Z-]+", pair[0]) for pair in pairs)
    return pairs  # type: ignore[return-value]


def unescape(value: str) -> str:
    assert not re.search(r"(?<!\\)(?:\\\\)*[;,]", value), "unescaped"
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] in "nN" else match[1], value)


def calendar(*fires: tuple[str, datetime], **more: object) -> str:
    return format_calendar(fires, descriptions=ABOUT, now=NOW, host="box", version="1.0", **more)  # type: ignore[arg-type]


def test_the_calendar_has_one_event_per_start() -> None:
    text = calendar(("daily", NOW + timedelta(hours=1)), ("daily", NOW + timedelta(days=1)))
    pairs = read(text)
    assert pairs[0] == ("BEGIN", "VCALENDAR")
    assert pairs[-1] == ("END", "VCALENDAR")
    assert ("VERSION", "2.0") in pairs
    begins = [value for name, value in pairs if name == "DTSTART"]
    assert begins == ["20261120T100000Z", "20261121T090000Z"]
    uids = [value for name, value in pairs if name == "UID"]
    assert uids == ["daily-20261120T100000Z@box.agentd", "daily-20261121T090000Z@box.agentd"]
    assert [name for name, _ in pairs].count("DTSTAMP") == 2
    (description, _) = [unescape(value) for name, value in pairs if name == "DESCRIPTION"]
    assert description == "Mail, news; and\\more\nat 08:30 on weekdays, Europe/Berlin"


def test_an_event_keeps_its_uid() -> None:
    later = format_calendar(
        [("daily", NOW + timedelta(hours=1))],
        descriptions={},
        now=NOW + timedelta(minutes=5),
        host="box",
        version="2",
    )
    uid = re.compile(r"UID:\S+")
    assert uid.search(later)[0] == uid.search(calendar(("daily", NOW + timedelta(hours=1))))[0]  # type: ignore[index]


def test_an_empty_calendar_is_valid() -> None:
    assert read(calendar())[-1] == ("END", "VCALENDAR")


@scaled_settings(100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_description_round_trips_without_split_characters(text: str) -> None:
    pairs = read(
        format_calendar(
            [("a", NOW)], descriptions={"a": (text, "")}, now=NOW, host="h", version="1"
        )
    )
    descriptions = [unescape(value) for name, value in pairs if name == "DESCRIPTION"]
    lines = [
        "".join(char for char in line if char == "\t" or (char >= " " and char != "\x7f"))
        for line in text.splitlines()
    ]
    assert (descriptions[0] if descriptions else "") == "\n".join(lines) or not "".join(lines)


@scaled_settings(50)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.text("aä中;,:\\\"'-._ ", min_size=1, max_size=60),
)
def test_the_calendar_is_parsed_by_the_icalendar_package(text: str, name: str) -> None:
    fires = [(name, NOW + timedelta(hours=hour)) for hour in (1, 30)]
    parsed_calendar = icalendar.Calendar.from_ical(
        format_calendar(fires, descriptions={name: (text, "daily")}, now=NOW, host="h", version="1")
    )
    events = parsed_calendar.walk("VEVENT")
    assert not parsed_calendar.errors and not any(event.errors for event in events)
    assert [event.decoded("DTSTART") for event in events] == [at for _, at in fires]
    assert [str(event["SUMMARY"]) for event in events] == [name] * 2
    assert str(events[0]["DESCRIPTION"]).endswith("daily")
    assert len({str(event["UID"]) for event in events}) == 2
