"""When a crontab line fires, as values: parse, next, prev, count.

Theory of operation. The line is read as cronie reads it (crontab(5)), with L, LW, 5L and fri#2
besides. What makes it hard is the wall clock, which twice a year leaves minutes out or shows them
twice. cron(8) knows two kinds of jobs:

* the minute or the hour starts with `*` ("every half hour"): the job follows the wall clock. A
  minute that is left out does not fire, one that is shown twice fires twice.
* both are fixed ("at 02:30"): the job has to run once that night. A minute that is left out fires
  right after the jump, one that is shown twice fires the first time only.

A change of more than three hours (a country crossing the date line) is a correction and not
daylight saving: then every job follows the wall clock.

So a local day is either plain, with one UTC offset from its first minute to its last, and all is
arithmetic; or it is shifted, and its few instants are listed. Days near a jump can overlap in UTC
(23:30 may come again after 00:00), hence the search looks one day further than it seems to need.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from daemon.definitions.words import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
# 29 February on one given weekday comes every 28 years, and every 40 around a year like 2100.
HORIZON_MONTHS = 50 * 12
# cronie, src/cron.c: beyond three hours a clock change is a correction.
CORRECTION = 3 * 3600

LAST_DAY, LAST_WORKDAY = -1, -2
EVERY, LAST = 0, -1
MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class CronError(ValueError):
    """A crontab line cannot be read: the field, its text, the problem and what to write instead."""

    def __init__(self, field: str, text: str, problem: str, hint: str = "") -> None:
        self.field, self.text, self.problem, self.hint = field, text, problem, hint
        # the line may be of any length, and the message is read by people
        super().__init__(f"{field} {shorten(text, 200)!r}: {problem}{f'; {hint}' if hint else ''}")


# --- reading


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    names: dict[str, int] = field(default_factory=dict)


MINUTE = _Field("minute", 0, 59)
HOUR = _Field("hour", 0, 23)
DAY_OF_MONTH = _Field("day of month", 1, 31)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = _Field("month", 1, 12, {name: number for number, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WEEKDAY = _Field("weekday", 0, 7, {name: number for number, name in enumerate(WEEKDAY_NAMES)})

_TERM = re.compile(r"(?:\*|([a-z0-9]{1,9})(?:-([a-z0-9]{1,9}))?)(?:/([0-9]{1,9}))?")
_NTH = re.compile(r"([a-z0-9]{1,9})#([0-9]+)")


@lru_cache(maxsize=1024)  # thousands of routines share a few lines, and their caches
def parse(expr: str) -> Crontab:
    """Read a crontab line of five fields, or a nickname such as @daily. Raises CronError."""
    text = expr.strip().lower()
    if text.startswith("@"):
        text = _expand_nickname(text)
    parts = text.split()
    if len(parts) != 5:
        seconds = "it has no seconds: for those there is every"
        problem = f"has {len(parts)} fields, not the five minute hour day month weekday"
        if 0 < len(parts) < 5:
            problem += _describe_bad_minute(parts[0])
        raise CronError(
            "crontab", expr, problem, seconds if len(parts) == 6 else "for instance 30 8 * * 1-5"
        )
    minute, hour, day, month, weekday = parts
    minutes, hours = _parse_numbers(MINUTE, minute), _parse_numbers(HOUR, hour)
    crontab = Crontab(
        expr=" ".join(parts),
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(_parse_days_of_month(day)),
        months=frozenset(_parse_numbers(MONTH, month)),
        weekdays=frozenset(_parse_weekdays(weekday)),
        # crontab(5): "either may match", unless one of the two starts with a star
        needs_both=day.startswith("*") or weekday.startswith("*"),
        follows_wall_clock=minute.startswith("*") or hour.startswith("*"),
    )
    longest_month = max(MONTH_LENGTHS[number - 1] for number in crontab.months)
    # the markers for last days are negative, so every month has them
    if crontab.needs_both and min(crontab.days) > longest_month:
        raise CronError(
            DAY_OF_MONTH.name, day, "no month of these is so long", "L is the last day of any month"
        )
    return crontab


def _describe_bad_minute(text: str) -> str:
    """Say what is wrong with the first of too few fields, which is the minute whichever is missing;
    empty if nothing is.
    """
    try:
        _parse_numbers(MINUTE, text)
    except CronError as error:
        return f", and the minute is wrong: {error.problem}"
    return ""


def weekdays(text: str) -> frozenset[int]:
    """Read a weekday field without ordinals, such as mon-fri or sat,sun; 0 is Sunday."""
    return frozenset(number % 7 for number in _parse_numbers(WEEKDAY, text.strip().lower()))


def _expand_nickname(text: str) -> str:
    if text not in NICKNAMES:
        close = get_close_matches(text.lower(), NICKNAMES, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"known are {' '.join(NICKNAMES)}"
        hint = "use on_start = true" if text == "@reboot" else hint
        raise CronError("crontab", text, "is not a known nickname", hint)
    return NICKNAMES[text]


def _parse_days_of_month(text: str) -> set[int]:
    days: set[int] = set()
    for term in text.split(","):
        if term in ("l", "lw"):
            days.add(LAST_DAY if term == "l" else LAST_WORKDAY)
        else:
            days |= _parse_numbers(DAY_OF_MONTH, term, text)
    return days


def _parse_weekdays(text: str) -> set[tuple[int, int]]:
    """Return pairs of a weekday (0 is Sunday) and which one of the month: 1 to 5, EVERY or LAST."""
    days: set[tuple[int, int]] = set()
    for term in text.split(","):
        if nth := _NTH.fullmatch(term):
            if nth[2] not in ("1", "2", "3", "4", "5"):
                raise CronError(
                    WEEKDAY.name,
                    text,
                    f"#{shorten(nth[2], 20)} does not exist",
                    "a month has #1 to #5 of a weekday",
                )
            days.add((_parse_number(WEEKDAY, nth[1], text) % 7, int(nth[2])))
        elif len(term) > 1 and term.endswith("l"):
            days.add((_parse_number(WEEKDAY, term[:-1], text) % 7, LAST))
        else:
            days |= {(number % 7, EVERY) for number in _parse_numbers(WEEKDAY, term, text)}
    return days


def _parse_numbers(spec: _Field, text: str, field_text: str | None = None) -> set[int]:
    """Return the numbers of `text`: a field, or one term of the field `field_text`, which the
    error names.
    """
    if text == "*":
        return set(range(spec.first, spec.last + 1))
    field_text = field_text or text
    numbers: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise CronError(spec.name, field_text, _describe_unreadable(term), _hint(spec, term))
        start, end, step = match.groups()
        if start is None:
            first, last = spec.first, spec.last
        else:
            first = _parse_number(spec, start, field_text)
            if end:
                last = _parse_range_end(spec, start, end, field_text)
            else:  # `5/10` goes on to the last number of the field
                last = spec.last if step else first
        if step and int(step) == 0:
            raise CronError(spec.name, field_text, "a step of 0 never moves on", "write /1 or more")
        numbers.update(range(first, last + 1, int(step or 1)))
    return numbers


def _parse_number(spec: _Field, text: str, field_text: str) -> int:
    digits = text.isdecimal() and len(text) <= 9  # int() refuses texts of thousands of digits
    number = int(text) if digits else spec.names.get(text)
    if number is None:
        raise CronError(spec.name, field_text, _describe_unreadable(text), _hint(spec, text))
    if not spec.first <= number <= spec.last:
        raise CronError(
            spec.name,
            field_text,
            f"{number} is not within {spec.first}-{spec.last}",
            _hint(spec, text),
        )
    return number


def _parse_range_end(spec: _Field, start: str, end: str, field_text: str) -> int:
    first, last = _parse_number(spec, start, field_text), _parse_number(spec, end, field_text)
    if spec is WEEKDAY and end == "sun":
        last = 7 if first > 0 else 0  # sat-sun: a week may end with its Sunday
    if last < first:
        around = f"write {start}-{spec.last},{spec.first}-{end}"
        if spec is WEEKDAY:
            around = f"write {start}-7" if end == "0" else f"write {start}-sun,mon-{end}"
        raise CronError(spec.name, field_text, f"{start}-{end} runs backwards", around)
    return last


def _describe_unreadable(term: str) -> str:
    return (
        f"{shorten(term)!r} is not understood"
        if term
        else "there is nothing before or after a comma"
    )


def _hint(spec: _Field, term: str) -> str:
    """Return what a person who wrote `term` may have meant."""
    if "?" in term:
        return "for any, write *"
    if term[:3] in spec.names and term.isalpha():
        return f"write {term[:3]}"
    if spec is DAY_OF_MONTH and ("l" in term or "w" in term):
        return "known are L, the last day, and LW, the last workday of the month"
    if spec is WEEKDAY and term == "l":
        return "5L is the last Friday of the month"
    names = f", {' '.join(spec.names)}" if spec.names else ""
    sunday = ", 0 and 7 are Sunday" if spec is WEEKDAY else ""
    name = f"{'an' if spec is HOUR else 'a'} {spec.name}"
    return f"{name} is {spec.first}-{spec.last}{names}{sunday}; *, a-b, */n and lists with commas"


# --- finding instants


@dataclass(frozen=True, slots=True)
class Crontab:
    """A crontab line as values: the numbers that each field matches, in order."""

    expr: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[tuple[int, int]]
    """(weekday with Sunday as 0, EVERY or LAST or 1 to 5)."""
    needs_both: bool
    """Day of month and weekday must both match; else either will do."""
    follows_wall_clock: bool
    """Minute or hour starts with a star: see the theory of operation."""
    _calendar: dict[tuple[int, int], tuple[int, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Matching days by the month's shape (weekday of its first, length): there are only 28 shapes.
    """
    _recent_shifted_days: dict[tuple[int, tzinfo], _ShiftedDay] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Cache of shifted days, by ordinal and zone: a job of every minute asks for the same day 1440
    times.
    """
    _recent_answers: dict[tuple[int, tzinfo, int], datetime | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Cache of `_nearest`: thousands of routines with this line ask for the same second."""

    def next(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the first instant strictly after `after`, in UTC, or None if there is none in 50
        years.
        """
        return self._nearest(after, zone, 1)

    def prev(self, at: datetime, zone: tzinfo) -> datetime | None:
        """Return the last instant not later than `at`, in UTC, or None if there was none in 50
        years.
        """
        return self._nearest(at, zone, -1)

    def count(self, after: datetime, until: datetime, zone: tzinfo) -> int:
        """Return how many instants lie after `after` and not after `until`, without listing
        them.
        """
        first_second, last_second = _epoch_second(after), _epoch_second(until)
        if last_second <= first_second:
            return 0
        total, previous_seconds = 0, frozenset[int]()
        last_day = until.astimezone(zone).toordinal() + 1
        for day in self._matching_days(after.astimezone(zone).toordinal() - 1, 1):
            if day > last_day:
                break
            instants = self._instants(day, zone)
            total += instants.until(last_second) - instants.until(first_second)
            # A job left out before midnight fires at the jump, and 00:00 may be that very instant.
            total -= sum(
                first_second < second <= last_second
                and instants.until(second) > instants.until(second - 1)
                for second in previous_seconds
            )
            previous_seconds = (
                frozenset(instants.seconds) if isinstance(instants, _ShiftedDay) else frozenset()
            )
        return total

    def _nearest(self, moment: datetime, zone: tzinfo, step: int) -> datetime | None:
        key = (_epoch_second(moment), zone, step)
        try:
            return self._recent_answers[key]
        except KeyError:
            answer = self._search(*key)
        if len(self._recent_answers) > 15:
            self._recent_answers.clear()
        self._recent_answers[key] = answer
        return answer

    def _search(self, second: int, zone: tzinfo, step: int) -> datetime | None:
        """Return the first instant after `second` (`step` 1), or the last one up to it (-1)."""
        nearest: int | None = None
        last_day: int | None = None
        for day in self._matching_days(
            datetime.fromtimestamp(second, zone).toordinal() - step, step
        ):
            if last_day is not None and (day - last_day) * step > 0:
                break
            instants = self._instants(day, zone)
            index = instants.until(second)
            if step < 0:
                index -= 1
            if not 0 <= index < len(instants):
                continue
            instant = instants.at(index)
            if nearest is None or (instant - nearest) * step < 0:
                nearest = instant
            if isinstance(instants, _PlainDay):
                break
            last_day = day + step
        return None if nearest is None else datetime.fromtimestamp(nearest, UTC)

    def _matching_days(self, ordinal: int, step: int) -> Iterator[int]:
        """Yield the ordinals of matching local days from `ordinal` on, in steps of +1 or -1 day;
        stop when 50 years have none.
        """
        start = date.fromordinal(ordinal)
        year, month, months_without = start.year, start.month, 0
        while months_without < HORIZON_MONTHS and MINYEAR < year < MAXYEAR:
            months_without += 1
            if month in self.months:
                day_before = date(year, month, 1).toordinal() - 1
                length = date(year + month // 12, month % 12 + 1, 1).toordinal() - 1 - day_before
                for day in self._days_in((day_before + 1) % 7, length)[::step]:
                    if (day_before + day - ordinal) * step >= 0:
                        months_without = 0
                        yield day_before + day
            year, month = divmod(year * 12 + month - 1 + step, 12)
            month += 1

    def _days_in(self, first: int, length: int) -> tuple[int, ...]:
        """Return the matching days of a month of `length` days whose first is the weekday
        `first`.
        """
        if (first, length) not in self._calendar:
            by_date = {day for day in self.days if 0 < day <= length}
            if LAST_DAY in self.days:
                by_date.add(length)
            if LAST_WORKDAY in self.days:
                by_date.add(length - {0: 2, 6: 1}.get((first + length - 1) % 7, 0))
            by_weekday: set[int] = set()
            for day in range(1, length + 1):
                weekday = (first + day - 1) % 7
                if (
                    (weekday, EVERY) in self.weekdays
                    or (weekday, (day + 6) // 7) in self.weekdays
                    or (day + 7 > length and (weekday, LAST) in self.weekdays)
                ):
                    by_weekday.add(day)
            days = by_date & by_weekday if self.needs_both else by_date | by_weekday
            self._calendar[first, length] = tuple(sorted(days))
        return self._calendar[first, length]

    def _instants(self, ordinal: int, zone: tzinfo) -> _Instants:
        """Return the instants of the local day with this ordinal."""
        if shifted_day := self._recent_shifted_days.get((ordinal, zone)):
            return shifted_day
        midnight = datetime.fromordinal(ordinal)
        # fold tells which of two equal wall times is meant, so these two offsets differ for every
        # jump that touches the day.
        before = _utc_offset(midnight.replace(tzinfo=zone, fold=0))
        after = _utc_offset(midnight.replace(hour=23, minute=59, tzinfo=zone, fold=1))
        local = (ordinal - EPOCH_ORDINAL) * DAY
        if before == after:
            return _PlainDay(self, local - before)
        jump = _find_jump(zone, local - before, local + DAY - after, abs(after - before))
        follows_wall_clock = self.follows_wall_clock or abs(after - before) > CORRECTION
        seconds: set[int] = set()
        for hour in self.hours:
            for minute in self.minutes:
                wall = local + 60 * (60 * hour + minute)
                # None if the wall time is left out, two if it is shown twice.
                candidates = [wall - before] if wall - before < jump else []
                candidates += [wall - after] if wall - after >= jump else []
                seconds.update(candidates if follows_wall_clock else (candidates or [jump])[:1])
        if len(self._recent_shifted_days) > 3:
            self._recent_shifted_days.clear()
        return self._recent_shifted_days.setdefault((ordinal, zone), _ShiftedDay(sorted(seconds)))


class _Instants(Protocol):
    """The instants of one local day in order, as seconds since the epoch."""

    def __len__(self) -> int: ...

    def at(self, index: int) -> int: ...

    def until(self, second: int) -> int:
        """Return how many of them are not later than `second`."""


@dataclass(frozen=True, slots=True)
class _PlainDay:
    """A day with one UTC offset: its instants are computed, not listed."""

    crontab: Crontab
    midnight: int

    def __len__(self) -> int:
        return len(self.crontab.hours) * len(self.crontab.minutes)

    def at(self, index: int) -> int:
        hour, minute = divmod(index, len(self.crontab.minutes))
        return self.midnight + 3600 * self.crontab.hours[hour] + 60 * self.crontab.minutes[minute]

    def until(self, second: int) -> int:
        hours, minutes = self.crontab.hours, self.crontab.minutes
        hour, minute = divmod((second - self.midnight) // 60, 60)
        index = bisect_left(hours, hour)
        within = bisect_right(minutes, minute) if index < len(hours) and hours[index] == hour else 0
        return index * len(minutes) + within


@dataclass(frozen=True, slots=True)
class _ShiftedDay:
    """A day on which the wall clock jumps: its instants are listed."""

    seconds: list[int]

    def __len__(self) -> int:
        return len(self.seconds)

    def at(self, index: int) -> int:
        return self.seconds[index]

    def until(self, second: int) -> int:
        return bisect_right(self.seconds, second)


def _find_jump(zone: tzinfo, start: int, end: int, shift: int) -> int:
    """Return the first second with the new UTC offset, by bisection between `start` and `end`.

    The range is widened by `shift` seconds, as a wall time that is left out may lie outside of its
    day by so much.
    """
    low, high = start - shift, end + shift
    new = _utc_offset(datetime.fromtimestamp(high, zone))
    while high - low > 1:
        middle = (low + high) // 2
        if _utc_offset(datetime.fromtimestamp(middle, zone)) == new:
            high = middle
        else:
            low = middle
    return high


def _utc_offset(moment: datetime) -> int:
    return (moment.utcoffset() or timedelta()) // timedelta(seconds=1)


def _epoch_second(moment: datetime) -> int:
    return int(moment.timestamp() // 1)
