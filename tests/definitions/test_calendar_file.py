"""Calendars of holidays, as calendar programs write them: read whole, or refused by the line."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import icalendar
import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given
from hypothesis import strategies as st

from daemon.definitions.calendar_file import (
    MAX_BYTES,
    MAX_EVENTS,
    MAX_RECURRING,
    Calendar,
    CalendarError,
    parse_calendar,
    read_calendar,
)
from tests.properties import scaled_settings

BERLIN, UTC_ZONE = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")
CHRISTMAS = """\
BEGIN:VEVENT
UID:1
SUMMARY:Christmas\\, both days
DTSTART;VALUE=DATE:20251225
DTEND;VALUE=DATE:20251227
RRULE:FREQ=YEARLY
END:VEVENT
"""


def calendar(events: str, newline: str = "\r\n") -> Calendar:
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{events}END:VCALENDAR\n"
    return parse_calendar(text.replace("\n", newline).encode(), "holidays.ics")


def event(*lines: str) -> str:
    return "\n".join(["BEGIN:VEVENT", "UID:1", *lines, "END:VEVENT", ""])


def moment(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def is_skipped(value: Calendar, text: str, zone: ZoneInfo = BERLIN) -> bool:
    return value.find(moment(text, zone), zone) is not None


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
def test_whole_days_are_those_of_the_zone_of_the_trigger(newline: str) -> None:
    value = calendar(CHRISTMAS, newline)
    for zone in (BERLIN, UTC_ZONE, ZoneInfo("Pacific/Auckland")):
        assert value.find(moment("2026-12-25T00:00", zone), zone) == (
            "holidays.ics: Christmas, both days",
            moment("2026-12-27T00:00", zone).astimezone(UTC),
        )
        assert is_skipped(value, "2026-12-26T23:59", zone)
        assert not is_skipped(value, "2026-12-27T00:00", zone)
        assert not is_skipped(value, "2026-12-24T23:59", zone)
    assert not is_skipped(value, "2024-12-25T12:00"), "it begins in 2025"


def test_an_event_over_new_year_is_found_in_both_years() -> None:
    value = calendar(event("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20270107"))
    assert is_skipped(value, "2026-12-31T23:59") and is_skipped(value, "2027-01-06T12:00")
    assert not is_skipped(value, "2027-01-07T00:00")
    skip = value.find(moment("2027-01-01T12:00"), BERLIN)
    assert skip and skip[0] == "holidays.ics", "an event without a summary is named by the file"


def test_an_event_with_times_is_skipped_from_its_beginning_to_its_end() -> None:
    value = calendar(
        event("DTSTART;TZID=America/New_York:20260302T090000", "DURATION:PT1H30M")
        + event("DTSTART:20260401T100000Z", "DTEND;TZID=Europe/Berlin:20260401T130000")
        + event("DTSTART:20260501T080000", "DTEND:20260501T090000")
    )
    assert is_skipped(value, "2026-03-02T15:00") and is_skipped(value, "2026-03-02T16:29")
    assert not is_skipped(value, "2026-03-02T16:30")
    assert is_skipped(value, "2026-04-01T12:59") and not is_skipped(value, "2026-04-01T13:00")
    assert is_skipped(value, "2026-05-01T08:00"), "without a zone: in that of the trigger"


def test_times_of_a_recurring_event_follow_the_clock_of_its_zone() -> None:
    value = calendar(
        event("DTSTART;TZID=Europe/Berlin:20260301T090000", "DURATION:PT1H", "RRULE:FREQ=DAILY")
    )
    for day in ("2026-03-28", "2026-03-30", "2026-10-26"):  # around the changes of the clocks
        assert is_skipped(value, f"{day}T09:30") and not is_skipped(value, f"{day}T10:00")


def test_moved_cancelled_and_excepted_instances_do_not_count() -> None:
    value = calendar(
        event(
            "DTSTART;VALUE=DATE:20260105",
            "RRULE:FREQ=WEEKLY",
            "EXDATE;VALUE=DATE:20260112,20260119",
            "RDATE;VALUE=DATE:20260114",
        )
        + event("RECURRENCE-ID;VALUE=DATE:20260126", "DTSTART;VALUE=DATE:20260128")
        + event(
            "RECURRENCE-ID;VALUE=DATE:20260202", "DTSTART;VALUE=DATE:20260202", "STATUS:CANCELLED"
        )
    )
    days = [f"2026-01-{day:02}" for day in range(1, 32)] + ["2026-02-02", "2026-02-09"]
    skipped_days = [day for day in days if is_skipped(value, f"{day}T12:00")]
    assert skipped_days == ["2026-01-05", "2026-01-14", "2026-01-28", "2026-02-09"]


@pytest.mark.parametrize(
    "instance",
    [
        ";TZID=Europe/Berlin:20260511T080000",
        ":20260511T060000Z",
        ";TZID=Eastern Standard Time:20260511T020000",
        ";VALUE=DATE:20260511",
    ],
)
def test_an_instance_is_found_however_its_time_is_written(instance: str) -> None:
    times = ["DTSTART;TZID=Europe/Berlin:20260504T080000", "DURATION:PT2H", "RRULE:FREQ=WEEKLY"]
    moved = event(f"RECURRENCE-ID{instance}", "DTSTART:20260511T120000Z", "DURATION:PT1H")
    for value in (calendar(event(*times) + moved), calendar(event(*times, f"EXDATE{instance}"))):
        assert not is_skipped(value, "2026-05-11T09:00")
        assert is_skipped(value, "2026-05-18T09:00")
    assert is_skipped(calendar(event(*times) + moved), "2026-05-11T14:30")


def test_lines_are_unfolded_even_within_a_character() -> None:
    long = "SUMMARY:Tag der Deutschen Einheit, nur für die, die Überstunden gemacht haben"
    raw = long.encode()
    index = raw.index("ü".encode()) + 1
    content = (
        b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261003\r\n"
        + raw[:index]
        + b"\r\n "
        + raw[index:]
        + b"\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    event = parse_calendar(content, "x.ics").find(moment("2026-10-03T12:00"), BERLIN)
    assert event and event[0].startswith("x.ics: Tag der Deutschen Einheit, nur für die")
    assert len(event[0]) < 80


def test_what_stands_beside_events_is_passed_over() -> None:
    value = calendar(
        "BEGIN:VTIMEZONE\nTZID:Berlin\nBEGIN:STANDARD\nDTSTART:16010101T000000\n"
        "RRULE:FREQ=HOURLY\nEND:STANDARD\nEND:VTIMEZONE\n"
        "BEGIN:VTODO\nDTSTART:nonsense\nEND:VTODO\n"
        + event(
            "DTSTART;VALUE=DATE:20260501",
            'X-APPLE-THING;X-PARAM="a:b;c":1',
            "BEGIN:VALARM",
            "TRIGGER:-PT5M",
            "DURATION:nonsense",
            "END:VALARM",
        )
    )
    assert is_skipped(value, "2026-05-01T12:00") and len(value.events) == 1


def test_a_zone_that_only_the_file_describes_is_a_fault_with_its_line() -> None:
    content = (
        b"BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nTZID:Our Office\r\nBEGIN:STANDARD\r\n"
        b"DTSTART:16010101T000000\r\nTZOFFSETFROM:+0200\r\nTZOFFSETTO:+0100\r\nEND:STANDARD\r\n"
        b"END:VTIMEZONE\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Our Office:20261224T100000\r\n"
        b"END:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    with pytest.raises(
        CalendarError,
        match=r"^line 11: DTSTART: Our Office is no time zone .* like Europe/Berlin; ",
    ):
        parse_calendar(content, "x.ics")


def test_a_calendar_of_the_library_icalendar_is_read() -> None:
    source = icalendar.Calendar()
    source.add("prodid", "-//x//y//")
    source.add("version", "2.0")
    entry = icalendar.Event()
    entry.add("summary", "Betriebsferien; lang, " + "länger " * 20)
    entry.add("dtstart", date(2026, 8, 3))
    entry.add("dtend", date(2026, 8, 15))
    entry.add("rrule", {"freq": "yearly", "until": date(2028, 12, 31)})
    source.add_component(entry)
    value = parse_calendar(source.to_ical(), "x.ics")
    assert is_skipped(value, "2027-08-14T12:00") and not is_skipped(value, "2027-08-15T12:00")
    assert is_skipped(value, "2028-08-03T12:00") and not is_skipped(value, "2029-08-03T12:00")


RULES = st.builds(
    lambda *parts: ";".join(part for part in parts if part),
    st.sampled_from(["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=YEARLY"]),
    st.sampled_from(["", "INTERVAL=2", "INTERVAL=3"]),
    st.sampled_from(["", "BYMONTH=1,5,12", "BYMONTH=2"]),
    st.sampled_from(["", "", "BYMONTHDAY=1,13,31", "BYMONTHDAY=-1", "BYMONTHDAY=29,30"]),
    st.sampled_from(["", "", "BYDAY=MO,FR", "BYDAY=1MO,-1SU", "BYDAY=3TH", "BYDAY=SU"]),
    st.sampled_from(["", "UNTIL=20270615", "COUNT=7", "COUNT=40"]),
    st.sampled_from(["", "WKST=SU"]),
)


@pytest.mark.slow
@scaled_settings(400)
@given(RULES, st.dates(date(2024, 1, 1), date(2026, 12, 31)))
def test_recurring_events_fall_on_the_days_that_dateutil_names(rule: str, start: date) -> None:
    has_ordinal = "=1MO" in rule or "=3TH" in rule
    assume(not (has_ordinal and ("DAILY" in rule or "WEEKLY" in rule)))
    first, last = datetime(2026, 1, 1), datetime(2028, 12, 31)
    begin = datetime.combine(start, datetime.min.time())
    expected = {day.date() for day in rrulestr(rule, dtstart=begin).between(first, last, inc=True)}
    value = calendar(event(f"DTSTART;VALUE=DATE:{start:%Y%m%d}", f"RRULE:{rule}"))
    days = [(first + timedelta(days=n)).date() for n in range(3 * 366 - 2)]
    skipped_days = {day for day in days if is_skipped(value, f"{day}T12:00", UTC_ZONE)}
    assert skipped_days == expected


def test_times_of_outlook_are_in_the_zone_that_windows_calls_so() -> None:
    value = calendar(
        event(
            'DTSTART;TZID="W. Europe Standard Time":20260724T100000',
            'DTEND;TZID="W. Europe Standard Time":20260724T110000',
        )
        + event("DTSTART;TZID=Eastern Standard Time:20260724T100000", "DURATION:PT1H")
    )
    times = ("07:59", "08:00", "08:59", "09:00", "13:59", "14:00", "14:59", "15:00")
    skipped = [time for time in times if is_skipped(value, f"2026-07-24T{time}", UTC_ZONE)]
    assert skipped == ["08:00", "08:59", "14:00", "14:59"]


@pytest.mark.parametrize(
    ("events", "line", "problem"),
    [
        (event("SUMMARY:x"), 4, "has no DTSTART"),
        (event("DTSTART:2026-12-24"), 6, "DTSTART: 2026-12-24 is no date, like 20261224"),
        (event("DTSTART:20261324"), 6, "DTSTART: 20261324 does not exist"),
        (event("DTSTART:00261224"), 6, "DTSTART: the year 26 is none of 1900 to 2200"),
        (event("DTSTART;TZID=Customized Time Zone:20261224T100000"), 6, "is no time zone that"),
        (event("DTSTART;TZID=../../etc/passwd:20261224T100000"), 6, "is no time zone that"),
        (event("DTSTART:20261224", "DTEND:20261224T100000"), 7, "is of another kind than DTSTART"),
        (event("DTSTART:20261224T100000Z", "DTEND:20261224T090000Z"), 7, "lies before DTSTART"),
        (event("DTSTART:20261224", "DURATION:two days"), 7, "DURATION: two days is none"),
        (event("DTSTART:20261224", "DURATION:P99999W"), 7, "DURATION: P99999W is too long"),
        (event("DTSTART:20261224", "RRULE:FREQ=HOURLY"), 7, "FREQ is one of DAILY, WEEKLY"),
        (event("DTSTART:20261224", "RRULE:INTERVAL=2"), 7, "FREQ is one of DAILY"),
        (event("DTSTART:20261224", "RRULE:FREQ=YEARLY;BYSETPOS=1"), 7, "BYSETPOS is not underst"),
        (event("DTSTART:20261224", "RRULE:FREQ=YEARLY;BYMONTH=13"), 7, "BYMONTH=13 is out of ra"),
        (event("DTSTART:20261224", "RRULE:FREQ=YEARLY;BYMONTH=x"), 7, "BYMONTH=X is not underst"),
        (event("DTSTART:20261224", "RRULE:FREQ=WEEKLY;BYDAY=1MO"), 7, "BYDAY=1MO is not underst"),
        (event("DTSTART:20261224", "RRULE:FREQ=DAILY;INTERVAL=0"), 7, "INTERVAL=0 is out of ran"),
        (event("DTSTART:20261224", "RRULE:FREQ=DAILY;UNTIL=x"), 7, "UNTIL=X is no date"),
        (event("DTSTART:20261224", "RRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101"), 7, "both COUNT an"),
        (event("DTSTART:20261224", *["RRULE:FREQ=DAILY"] * 2), 8, "RRULE is not understood besi"),
        (event("DTSTART:20261224", "RDATE;VALUE=PERIOD:20270101T100000Z/PT1H"), 7, "RDATE: "),
        (event("RECURRENCE-ID;RANGE=THISANDFUTURE:20261224", "DTSTART:20261224"), 6, "RANGE is n"),
        ("BEGIN:VEVENT\nDTSTART:20261224\nEND:VTODO\n", 6, "ends a VTODO that has not begun"),
        ("no property\n", 4, "is no property of a calendar: NAME:VALUE"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_line(
    events: str, line: int, problem: str
) -> None:
    with pytest.raises(CalendarError) as error:
        calendar(events)
    assert str(error.value).startswith(f"line {line}: ")
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"hello", "line 1: is no property"),
        (b"BEGIN:VCARD\nEND:VCARD\n", "line 1: is no calendar"),
        (b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "ends within a VEVENT"),
        (b"BEGIN:VCALENDAR\nSUMMARY:\xff\nEND:VCALENDAR\n", "line 2: is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_calendar_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(CalendarError, match=problem):
        parse_calendar(content, "x.ics")


def test_calendars_are_bounded(tmp_path: Path) -> None:
    many = event("DTSTART:20261224") * (MAX_EVENTS + 1)
    with pytest.raises(CalendarError, match="is one of more than 5,000 events"):
        calendar(many)
    recurring = event("DTSTART:20261224", "RRULE:FREQ=YEARLY") * (MAX_RECURRING + 1)
    with pytest.raises(CalendarError, match="is one of more than 500 recurring events"):
        calendar(recurring)
    daily = event("DTSTART:20261224", "RRULE:FREQ=DAILY") * 60
    with pytest.raises(CalendarError, match="line 274: more than 20,000 recurring events"):
        calendar(daily)
    moments = [datetime(2026, 1, 1) + timedelta(minutes=20 * number) for number in range(20_001)]
    named = ",".join(f"{moment:%Y%m%dT%H%M%S}" for moment in moments)
    with pytest.raises(CalendarError, match="more than 20,000 recurring events"):
        calendar(event("DTSTART:20260101T000000", f"RDATE:{named}"))
    (tmp_path / "big.ics").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(CalendarError, match="longer than the 1,000,000 bytes"):
        read_calendar(tmp_path, "big.ics")


def test_no_calendar_is_read_outside_of_the_workspace(tmp_path: Path) -> None:
    outside = tmp_path / "outside.ics"
    outside.write_text("BEGIN:VCALENDAR\nEND:VCALENDAR\n")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link.ics").symlink_to(outside)
    (workspace / "folder.ics").mkdir()
    os.mkfifo(workspace / "pipe.ics")
    for path in ("../outside.ics", "link.ics", "missing.ics", "folder.ics", "pipe.ics"):
        with pytest.raises(CalendarError):
            read_calendar(workspace, path)


def test_calendars_are_equal_by_name_and_content() -> None:
    assert calendar(CHRISTMAS) == calendar(CHRISTMAS)
    assert hash(calendar(CHRISTMAS)) == hash(calendar(CHRISTMAS))
    assert calendar(CHRISTMAS) != calendar(CHRISTMAS.replace("1225", "1224"))


NOISE = st.one_of(
    st.sampled_from([b"", b" ", b"\t", b"\n", b"\r", b":", b";", b",", b"=", b'"', b"\\", b"\0"]),
    st.sampled_from([b"-1", b"0", b"99999999", b"FREQ=DAILY", b"COUNT=9", b"VALUE=DATE", b"T"]),
    st.binary(max_size=6),
)


@scaled_settings(500)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 8), NOISE), max_size=4))
def test_a_damaged_calendar_is_read_or_refused(changes: list[tuple[int, int, bytes]]) -> None:
    text = (
        "BEGIN:VCALENDAR\n"
        + CHRISTMAS
        + event(
            "DTSTART;TZID=Europe/Berlin:20260105T100000",
            "DURATION:P1DT2H",
            "RRULE:FREQ=MONTHLY;BYDAY=-1FR,2MO;COUNT=30;WKST=SU",
            "EXDATE;TZID=Europe/Berlin:20260130T100000,20260227T100000",
            "RDATE:20260303T100000Z",
        )
        + "END:VCALENDAR\n"
    )
    content = text.encode()
    for position, length, noise in changes:
        content = content[:position] + noise + content[position + length :]
    try:
        value = parse_calendar(content, "x.ics")
    except CalendarError:
        return
    for year in (1, 1900, 2026, 2200, 9999):
        value.find(datetime(year, 6, 1, tzinfo=UTC), BERLIN)
