"""Calendars that a trigger skips the events of: iCalendar files (RFC 5545) of the workspace.

Of a file the events count, with their recurrences: FREQ from DAILY to YEARLY, INTERVAL, COUNT,
UNTIL, BYMONTH, BYMONTHDAY, BYDAY and WKST. Anything that would change what is skipped and is not
understood is a fault that names its line. An event of whole days is skipped in the time zone of the
trigger, one with times from its beginning to its end; cancelled ones do not count.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_core import CoreSchema, core_schema

from daemon.definitions.file_versions import version_of_status
from daemon.definitions.words import display, shorten
from daemon.system.safe_open import open_beneath

MAX_BYTES = 1_000_000
MAX_EVENTS = 5_000
# Events that recur: each of them is worked out anew for each year that is asked about.
MAX_RECURRING = 500
# Times of recurring events within a year, and those that RDATE names.
MAX_PER_YEAR = 20_000
# Days that are looked at for the last day of a rule with COUNT.
MAX_DAYS_OF_COUNT = 20_000
# Years of the events of a calendar: a mistyped one is a fault, and not an event of the year 20.
FIRST_YEAR, LAST_YEAR = 1900, 2200
MAX_LENGTH = timedelta(days=366 * (LAST_YEAR - FIRST_YEAR))
MAX_SUMMARY = 60  # characters, in `agentctl why` and the log
# (years, zones) for which the events are kept.
MAX_CACHED = 8

_DAY = timedelta(days=1)
_LINE = re.compile(
    r'([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:"[^"]*"|[^":;,]*)(?:,(?:"[^"]*"|[^":;,]*))*)*):(.*)',
    re.DOTALL,
)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=("[^"]*"|[^":;,]*)')
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)")
_DATE_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(Z?)")
_DURATION = re.compile(
    r"\+?P(?:(\d{1,5})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,7})M)?(?:(\d{1,9})S)?)?)"
)
_BY_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RULE_PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "WKST"}
# Properties of an event that say when it is.
_TIMES = {"DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "EXRULE"}


class CalendarError(ValueError):
    """A calendar cannot be read, or says something that is not understood."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """On which days an event comes again (RFC 5545, 3.3.10)."""

    frequency: str
    interval: int = 1
    until: date | datetime | None = None
    """The last day, or the last moment, in UTC; None: it never ends."""
    months: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()
    """Negative ones count from the end of the month."""
    weekdays: frozenset[tuple[int, int]] = frozenset()
    """(weekday with Monday as 0, which one of the month or year; 0: each)."""
    week_start: int = 0

    def days(self, start: date, first: date, last: date) -> Iterator[date]:
        """Yield the days from `first` to `last` of an event that begins on `start`, in order."""
        months = self.months
        if self.frequency == "YEARLY" and not (months or self.month_days or self.weekdays):
            months = frozenset({start.month})
        day = max(start, first)
        while day <= last:
            if months and day.month not in months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
                continue
            if self.matches(day, start):
                yield day
            day += _DAY

    def count_in_first_year(self, start: date) -> int:
        """Return how often an event that begins on `start` comes in the year from then on."""
        return sum(1 for _ in self.days(start, start, start + timedelta(days=365)))

    def matches(self, day: date, start: date) -> bool:
        """Tell whether an event that begins on `start` comes again on `day`, which is no earlier.
        COUNT and UNTIL are not looked at.
        """
        if self.months and day.month not in self.months:
            return False
        if not self._is_period(day, start):
            return False
        if self.month_days:
            length = monthrange(day.year, day.month)[1]
            if not {day.day, day.day - length - 1} & self.month_days:
                return False
        if self.weekdays:
            return any(
                day.weekday() == weekday and (not number or number in self._ordinals(day))
                for weekday, number in self.weekdays
            )
        if self.month_days or self.frequency == "DAILY":
            return True
        if self.frequency == "WEEKLY":
            return day.weekday() == start.weekday()
        if self.frequency == "YEARLY" and not self.months and day.month != start.month:
            return False
        return day.day == start.day

    def _is_period(self, day: date, start: date) -> bool:
        """Tell whether a day lies in one of the periods that `interval` leaves."""
        match self.frequency:
            case "DAILY":
                count = (day - start).days
            case "WEEKLY":
                weeks = ((moment.toordinal() - 1 - self.week_start) // 7 for moment in (day, start))
                count = next(weeks) - next(weeks)
            case "MONTHLY":
                count = 12 * (day.year - start.year) + day.month - start.month
            case _:
                count = day.year - start.year
        return count % self.interval == 0

    def _ordinals(self, day: date) -> tuple[int, int]:
        """Return which one of its weekday a day is in its month or year, from the beginning and,
        negative, from the end.
        """
        if self.frequency == "MONTHLY" or self.months:
            index, length = day.day, monthrange(day.year, day.month)[1]
        else:
            index = day.timetuple().tm_yday
            length = date(day.year, 12, 31).timetuple().tm_yday
        return (index + 6) // 7, -((length - index) // 7 + 1)


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """An event of a calendar."""

    summary: str
    begin: datetime
    """By the clock of `zone`, without a zone of its own, and so are all other times."""
    length: timedelta
    """Of whole days, days of the calendar; else of exact time."""
    is_all_day: bool
    zone: ZoneInfo | None
    """None: that of the trigger."""
    recurrence: Recurrence | None = None
    further_times: frozenset[datetime] = frozenset()
    """When it begins besides: RDATE."""
    excluded_times: frozenset[datetime] = frozenset()
    """When it does not begin, though `recurrence` says so: EXDATE, and what was moved."""

    def periods(
        self, first: date, last: date, zone: ZoneInfo
    ) -> Iterator[tuple[datetime, datetime]]:
        """Yield beginning and end, in UTC, of each time that begins on one of these days."""
        begin_times = {
            begin for begin in (self.begin, *self.further_times) if first <= begin.date() <= last
        }
        if self.recurrence:
            begin_times.discard(self.begin)
            begin_times.update(
                datetime.combine(day, self.begin.time())
                for day in self.recurrence.days(self.begin.date(), first, last)
            )
        for begin in begin_times - self.excluded_times:
            start = self._to_utc(begin, zone)
            end = (
                self._to_utc(begin + self.length, zone) if self.is_all_day else start + self.length
            )
            until = self.recurrence.until if self.recurrence else None
            if begin not in self.further_times and until is not None:
                # a moment only where the event has times, else a day
                is_over = start > until if isinstance(until, datetime) else begin.date() > until
                if is_over:
                    continue
            yield start, end

    def _to_utc(self, moment: datetime, zone: ZoneInfo) -> datetime:
        return moment.replace(tzinfo=self.zone or zone).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The events of a file; calendars with the same name and content are equal."""

    path: str
    """Of the file, relative to the workspace."""
    digest: str
    """Of its content."""
    events: tuple[CalendarEvent, ...] = field(compare=False, repr=False)
    version: tuple[int, ...] = field(default=(), compare=False)
    """What tells the file from an earlier one at its path (`version_of_status`)."""
    _cache: dict[tuple[int, str], tuple[list[datetime], list[tuple[datetime, str]], timedelta]] = (
        field(default_factory=dict, compare=False, repr=False)
    )
    """By year of UTC and zone: the beginnings in order, the ends with summaries, and the longest
    length.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        """A model takes a calendar as it is; pydantic would validate each event of it."""
        return core_schema.is_instance_schema(cls)

    @property
    def words(self) -> str:
        """What is skipped, in English."""
        return f"the days of {self.path}"

    def find(self, moment: datetime, zone: ZoneInfo) -> tuple[str, datetime] | None:
        """Return the path with the summary of an event that a moment lies in, and the event's end;
        None if there is none.
        """
        if not FIRST_YEAR <= moment.year <= LAST_YEAR:
            return None
        begins, ends, longest = self._events_of(moment.astimezone(UTC).year, zone)
        for index in range(bisect_left(begins, moment - longest), len(begins)):
            if begins[index] > moment:
                break
            end, summary = ends[index]
            if moment < end:
                return f"{self.path}: {summary}" if summary else self.path, end
        return None

    def _events_of(
        self, year: int, zone: ZoneInfo
    ) -> tuple[list[datetime], list[tuple[datetime, str]], timedelta]:
        key = (year, zone.key)
        if key not in self._cache:
            periods = []
            for event in self.events:
                # a day of a zone may begin on the one before in UTC
                first = date(year, 1, 1) - timedelta(days=event.length.days + 2)
                last = date(year + 1, 1, 1) + timedelta(days=1)
                periods += [
                    (begin, end, event.summary) for begin, end in event.periods(first, last, zone)
                ]
            periods.sort()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = (
                [begin for begin, _, _ in periods],
                [(end, summary) for _, end, summary in periods],
                max((end - begin for begin, end, _ in periods), default=timedelta(0)),
            )
        return self._cache[key]


# --- reading


@dataclass(frozen=True, slots=True)
class _Property:
    """One line of a calendar, unfolded."""

    line: int
    name: str
    parameters: Mapping[str, str]
    value: str


def read_calendar(workspace: Path, path: str) -> Calendar:
    """Return the calendar in a file of the workspace. Raises CalendarError."""
    try:
        # programs of agents may write into the workspace, so no link leads out of it
        with os.fdopen(open_beneath(str(workspace), path), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CalendarError("is no file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CalendarError(f"cannot be read in the workspace: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise CalendarError(f"is longer than the {MAX_BYTES:,} bytes that are read of a calendar")
    return replace(parse_calendar(content, path), version=version_of_status(status))


def parse_calendar(content: bytes, path: str) -> Calendar:
    """Return the calendar with this content. Raises CalendarError with the number of the line."""
    events: list[CalendarEvent] = []
    moved_instances: dict[str, list[_Property]] = {}
    uids: list[str] = []
    recurring_count = per_year = 0
    for begin, properties in _split_events(content):
        uid = next((item.value for item in properties if item.name == "UID"), "")
        moved_instances.setdefault(uid, []).extend(_find_instance(properties))
        if any((item.name, item.value.upper()) == ("STATUS", "CANCELLED") for item in properties):
            continue
        event = _read_event(begin, properties)
        per_year += len(event.further_times)
        if event.recurrence:
            recurring_count += 1
            per_year += event.recurrence.count_in_first_year(event.begin.date())
        if per_year > MAX_PER_YEAR:
            raise CalendarError(
                f"line {begin}: more than {MAX_PER_YEAR:,} recurring events come in a year"
            )
        if len(events) == MAX_EVENTS or recurring_count > MAX_RECURRING:
            number, kind = (
                (MAX_EVENTS, "") if len(events) == MAX_EVENTS else (MAX_RECURRING, "recurring ")
            )
            raise CalendarError(f"line {begin}: is one of more than {number:,} {kind}events")
        events.append(event)
        uids.append(uid)
    for index, (uid, event) in enumerate(zip(uids, events, strict=True)):
        if event.recurrence and moved_instances[uid]:  # such an instance is an event of its own
            times = _read_list(moved_instances[uid], "RECURRENCE-ID", event)
            events[index] = replace(event, excluded_times=event.excluded_times.union(times))
    digest = hashlib.sha256(content).hexdigest()
    return Calendar(path, digest, tuple(events))


def _split_events(content: bytes) -> Iterator[tuple[int, list[_Property]]]:
    """Yield the line of each BEGIN:VEVENT, and the properties of the event; not those of tables
    within it, such as alarms.
    """
    stack: list[str] = []
    begin, properties = 0, list[_Property]()
    for item in _read_lines(content):
        if not stack and (item.name, item.value.upper()) != ("BEGIN", "VCALENDAR"):
            raise CalendarError(
                f"line {item.line}: is no calendar, which has BEGIN:VCALENDAR there"
            )
        if item.name == "BEGIN":
            stack.append(item.value.upper())
            if stack[1:] == ["VEVENT"]:
                begin, properties = item.line, []
        elif item.name == "END":
            if item.value.upper() != stack[-1]:
                raise CalendarError(
                    f"line {item.line}: ends a {shorten(item.value, 20)} that has not begun"
                )
            if stack[1:] == ["VEVENT"]:
                yield begin, properties
            stack.pop()
        elif stack[1:] == ["VEVENT"]:
            properties.append(item)
    if stack:
        raise CalendarError(f"ends within a {stack[-1]}")
    if not content.strip():
        raise CalendarError("is empty")


def _read_lines(content: bytes) -> Iterator[_Property]:
    """Yield the properties of a calendar. A line that begins with a space or a tab goes on with
    the one before, even within a character (RFC 5545, 3.1).
    """
    unfolded_lines: list[tuple[int, list[bytes]]] = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        text = line.removesuffix(b"\r")
        if text[:1] in (b" ", b"\t") and unfolded_lines:
            unfolded_lines[-1][1].append(text[1:])
        elif text.strip():
            unfolded_lines.append((number, [text]))
    for number, pieces in unfolded_lines:
        try:
            match = _LINE.fullmatch(b"".join(pieces).decode())
        except UnicodeDecodeError:
            raise CalendarError(f"line {number}: is not UTF-8 text") from None
        if match is None:
            raise CalendarError(f"line {number}: is no property of a calendar: NAME:VALUE")
        parameters = {
            name.upper(): value.strip('"') for name, value in _PARAMETER.findall(match[2])
        }
        yield _Property(number, match[1].upper(), parameters, match[3].strip())


def _read_event(begin: int, properties: list[_Property]) -> CalendarEvent:
    """Return an event. Raises CalendarError."""
    times: dict[str, _Property] = {}
    for item in properties:
        if item.name in ("RRULE", "EXRULE") and (item.name in times or item.name == "EXRULE"):
            raise CalendarError(
                f"line {item.line}: {item.name} is not understood beside another rule"
            )
        if item.name in _TIMES:
            times.setdefault(item.name, item)
    if "DTSTART" not in times:
        raise CalendarError(f"line {begin}: has no DTSTART")
    start, zone, is_all_day = _read_time(times["DTSTART"])
    length = _DAY if is_all_day else timedelta(0)
    if "DTEND" in times:
        end, end_zone, ends_with_day = _read_time(times["DTEND"])
        if ends_with_day != is_all_day or (zone is None) != (end_zone is None):
            raise CalendarError(
                f"line {times['DTEND'].line}: DTEND is of another kind than DTSTART"
            )
        difference = end - start
        if zone and end_zone:
            difference = end.replace(tzinfo=end_zone).astimezone(UTC) - start.replace(
                tzinfo=zone
            ).astimezone(UTC)
        if difference < timedelta(0):
            raise CalendarError(f"line {times['DTEND'].line}: DTEND lies before DTSTART")
        length = max(length, difference)
    elif "DURATION" in times:
        length = max(length, _read_duration(times["DURATION"]))
    event = CalendarEvent(_read_summary(properties), start, length, is_all_day, zone)
    recurrence = None
    if "RRULE" in times and "RECURRENCE-ID" not in times:
        recurrence = _read_rule(times["RRULE"], event)
    return replace(
        event,
        recurrence=recurrence,
        further_times=frozenset(_read_list(properties, "RDATE", event)),
        excluded_times=frozenset(_read_list(properties, "EXDATE", event)),
    )


def _read_summary(properties: list[_Property]) -> str:
    text = next((item.value for item in properties if item.name == "SUMMARY"), "")
    text = re.sub(r"\\(.)", lambda match: " " if match[1] in "nN" else match[1], text)
    return shorten(" ".join(display(text).split()), MAX_SUMMARY)


def _find_instance(properties: list[_Property]) -> Iterator[_Property]:
    """Yield the property that says which instance of a recurring event an event stands for; nothing
    if it stands for none. Raises CalendarError.
    """
    for item in properties:
        if item.name != "RECURRENCE-ID":
            continue
        _read_time(item)
        if "RANGE" in item.parameters:
            raise CalendarError(
                f"line {item.line}: RECURRENCE-ID: RANGE is not understood: it moves all later "
                "instances"
            )
        yield item


def _read_list(properties: list[_Property], name: str, event: CalendarEvent) -> Iterator[datetime]:
    """Yield the times of EXDATE, RDATE or RECURRENCE-ID by the event's clock. A day without a time
    is the event's time on that day, as some programs write it for events with times, too.
    """
    for item in properties:
        if item.name != name:
            continue
        for value in item.value.split(","):
            moment, zone, is_date = _read_time(replace(item, value=value.strip()))
            if zone and event.zone and zone != event.zone:
                moment = moment.replace(tzinfo=zone).astimezone(event.zone).replace(tzinfo=None)
            if event.is_all_day or is_date:
                moment = datetime.combine(moment.date(), event.begin.time())
            yield moment


def _find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of a name as the IANA or, in files of Outlook and Exchange, as Windows
    has it; None for another one.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # KeyError: not found
        # of the windowsZones of CLDR, the zone of the whole world (territory 001)
        from tzlocal.windows_tz import win_tz  # rare, so not by the start

        try:
            return ZoneInfo(win_tz[name])
        except (OSError, ValueError, KeyError):
            return None


def _read_time(item: _Property) -> tuple[datetime, ZoneInfo | None, bool]:
    """Return a DATE or DATE-TIME by the clock of its zone, its zone, and whether it is a DATE."""

    def fault(problem: str) -> CalendarError:
        return CalendarError(f"line {item.line}: {item.name}: {problem}")

    is_date, zone = False, None
    if match := _DATE.fullmatch(item.value):
        is_date = True
    elif match := _DATE_TIME.fullmatch(item.value):
        name = "UTC" if match[7] else item.parameters.get("TZID")
        if name:
            zone = _find_zone(name)
            if zone is None:
                raise fault(
                    f"{shorten(name)} is no time zone that is known here, like Europe/Berlin; "
                    "what a VTIMEZONE of the file says is not read"
                )
    else:
        raise fault(f"{shorten(item.value)} is no date, like 20261224, and no date with time")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise fault(f"the year {year} is none of {FIRST_YEAR} to {LAST_YEAR}")
    try:
        clock = time()
        if not is_date:
            second = min(int(match[6]), 59)  # 60 is a leap second
            clock = time(int(match[4]), int(match[5]), second)
        return datetime.combine(date(year, month, day), clock), zone, is_date
    except ValueError:
        raise fault(f"{shorten(item.value)} does not exist") from None


def _read_duration(item: _Property) -> timedelta:
    match = _DURATION.fullmatch(item.value)
    if match is None or not any(match.groups()):
        raise CalendarError(f"line {item.line}: DURATION: {shorten(item.value)} is none, like PT2H")
    weeks, days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
    length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    if length > MAX_LENGTH:
        raise CalendarError(f"line {item.line}: DURATION: {shorten(item.value)} is too long")
    return length


def _read_rule(item: _Property, event: CalendarEvent) -> Recurrence:
    """Return an RRULE; COUNT is turned into the last day. Raises CalendarError."""

    def fault(problem: str) -> CalendarError:
        return CalendarError(f"line {item.line}: RRULE: {problem}")

    parts: dict[str, str] = {}
    for part in item.value.upper().rstrip(";").split(";"):
        name, _, value = part.partition("=")
        if name not in _RULE_PARTS:
            raise fault(f"{shorten(name)} is not understood")
        parts[name] = value
    frequency = parts.get("FREQ", "")
    if frequency not in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"):
        problem = "FREQ is one of DAILY, WEEKLY, MONTHLY and YEARLY"
        raise fault(f"{problem}, not {shorten(frequency)}" if frequency else f"{problem}: missing")

    def numbers(name: str, lowest: int, highest: int) -> list[int]:
        texts = parts[name].split(",") if name in parts else []
        if not all(re.fullmatch(r"[+-]?\d{1,6}", text) for text in texts):
            raise fault(f"{name}={shorten(parts[name])} is not understood")
        numbers = [int(text) for text in texts]
        if not all(lowest <= number <= highest and number for number in numbers):
            raise fault(f"{name}={shorten(parts[name])} is out of range")
        return numbers

    weekdays = set()
    for text in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        match = _BY_DAY.fullmatch(text)
        if match is None or (match[1] and frequency not in ("MONTHLY", "YEARLY")):
            raise fault(f"BYDAY={shorten(text)} is not understood with FREQ={frequency}")
        weekdays.add((_WEEKDAYS.index(match[2]), int(match[1] or 0)))
    until: date | datetime | None = None
    if "UNTIL" in parts:
        if match := re.fullmatch(r"(\d{4})(\d{4})(T\d{6}Z?)?", parts["UNTIL"]):
            year = min(int(match[1]), LAST_YEAR)  # some write the year 9999 for never
            value = f"{year:04}{match[2]}{match[3] or ''}"
        else:
            raise fault(f"UNTIL={shorten(parts['UNTIL'])} is no date")
        moment, zone, is_date = _read_time(_Property(item.line, "RRULE: UNTIL", {}, value))
        until = moment.date()
        if not is_date and not event.is_all_day:
            # a time without a zone is of the event's own clock, of which a day is close enough
            until = moment.replace(tzinfo=UTC) if zone else moment.date()
    week_start = parts.get("WKST", "MO")
    if week_start not in _WEEKDAYS:
        raise fault(f"WKST={shorten(week_start)} is not understood")
    interval = (numbers("INTERVAL", 1, 10_000) or [1])[0]
    recurrence = Recurrence(
        frequency=frequency,
        interval=interval,
        until=until,
        months=frozenset(numbers("BYMONTH", 1, 12)),
        month_days=frozenset(numbers("BYMONTHDAY", -31, 31)),
        weekdays=frozenset(weekdays),
        week_start=_WEEKDAYS.index(week_start),
    )
    if "COUNT" not in parts:
        return recurrence
    if until is not None:
        raise fault("has both COUNT and UNTIL")
    count = numbers("COUNT", 1, 100_000)[0]
    start = event.begin.date()
    horizon = start + timedelta(days=MAX_DAYS_OF_COUNT)
    last = start
    for number, last in enumerate(recurrence.days(start, start, horizon), 1):  # noqa: B007
        if number == count:
            break
    # what would go on behind the horizon goes on until there
    return replace(recurrence, until=last)
