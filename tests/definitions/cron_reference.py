"""A crontab line as crontab(5) and cron(8) tell it, and a daemon that looks at the clock once a
minute.

Written from the manual pages alone, without a look at daemon/definitions/cron.py, and as slow as it
is plain: what it fires is what has to be fired.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def numbers(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    """Return what a field stands for: lists of numbers and ranges, an asterisk for first-last,
    steps after a slash.
    """

    def value(text: str) -> int:
        return names.index(text.lower()) + low if text.lower() in names else int(text)

    values: set[int] = set()
    for element in field.split(","):
        span, _, step = element.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = (value(end) for end in span.split("-"))
        else:
            first = last = value(span)
        values |= set(range(first, last + 1, int(step or 1)))
    return values


class Line:
    """The five fields."""

    def __init__(self, line: str) -> None:
        minute, hour, day, month, weekday = line.split()
        self.minutes, self.hours = numbers(minute, 0, 59), numbers(hour, 0, 23)
        self.days, self.months = numbers(day, 1, 31), numbers(month, 1, 12, MONTHS)
        # "0 or 7 is Sunday"
        self.weekdays = {number % 7 for number in numbers(weekday, 0, 7, DAYS)}
        # "If both fields are restricted (i.e., do not contain the "*" character), the command will
        # be run when either field matches the current time."
        self.either = not day.startswith("*") and not weekday.startswith("*")
        # cron(8): "jobs that run at a particular time" as opposed to those with a wildcard in hour
        # or minute
        self.at_fixed_times = not minute.startswith("*") and not hour.startswith("*")

    def matches(self, wall: datetime) -> bool:
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        on_day = (day or weekday) if self.either else (day and weekday)
        return (
            on_day
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
        )


def find_slots(line: str, zone: ZoneInfo, start: datetime, minutes: int) -> Iterator[datetime]:
    """Yield the instants at which a daemon fires that looks at the wall clock once a minute, from
    `start` on.

    cron(8), "Daylight Saving Time and other time changes": local time changes of less than three
    hours are handled specially. If time was adjusted one hour forward, those jobs that would have
    run in the interval that has been skipped will be run immediately. If time was adjusted
    backward, running the same job twice is avoided. This only applies to jobs that run at a
    particular time; jobs with a wildcard are run based on the new time immediately. Changes of more
    than 3 hours are considered to be corrections to the clock, and the new time is used
    immediately.
    """
    cron = Line(line)
    minute = _wall(start, zone) - MINUTE
    for moment in (start + number * MINUTE for number in range(minutes)):
        wall = _wall(moment, zone)
        if not cron.at_fixed_times or abs(wall - minute) > timedelta(hours=3):
            due, minute = [wall], wall
        else:
            due = [minute + number * MINUTE for number in range(1, (wall - minute) // MINUTE + 1)]
            minute = max(minute, wall)
        if any(map(cron.matches, due)):
            yield moment


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
