"""The days that a trigger skips: single dates and ranges of dates, by its key `skip`.

A calendar of the workspace may stand in their place: calendar_file.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import PurePosixPath
from typing import Protocol
from zoneinfo import ZoneInfo

_DATES = re.compile(r"(\d{4}-\d\d-\d\d)(?:/(\d{4}-\d\d-\d\d))?")
CALENDAR_SUFFIX = ".ics"


class SkippedTime(Protocol):
    """Time in which a trigger starts no run. Equal ones have the same hash."""

    @property
    def words(self) -> str:
        """What is skipped, in English."""

    def find(self, moment: datetime, zone: ZoneInfo) -> tuple[str, datetime] | None:
        """Return what a moment is skipped for, as text, and when that ends, in UTC; None if the
        moment is not skipped. `zone` is that of the trigger.
        """


@dataclass(frozen=True, slots=True)
class DateRange:
    """The days from one to another, both included."""

    text: str
    """As it is written in the file."""
    first: date
    last: date

    @property
    def words(self) -> str:
        """What is skipped, in English."""
        return self.text.replace("/", " to ")

    def find(self, moment: datetime, zone: ZoneInfo) -> tuple[str, datetime] | None:
        """Return the text of the range and its end, for a moment within it."""
        if not self.first <= moment.astimezone(zone).date() <= self.last:
            return None
        end = datetime.combine(self.last + timedelta(days=1), time(), zone)
        return self.text, end.astimezone(UTC)


def is_calendar(text: str) -> bool:
    """Tell whether an entry of `skip` names a calendar."""
    return text.lower().endswith(CALENDAR_SUFFIX)


def parse_dates(text: str) -> DateRange:
    """Read `2026-12-25` or `2026-12-24/2027-01-06`. Raises ValueError with what is wrong."""
    match = _DATES.fullmatch(text)
    if match is None:
        raise ValueError("is no date, no range of dates and no calendar")
    try:
        first, last = (date.fromisoformat(part) for part in (match[1], match[2] or match[1]))
    except ValueError:
        raise ValueError("has a day that does not exist") from None
    if last < first:
        raise ValueError("ends before it begins")
    if last.year > 9000:  # the day after it must be one, too
        raise ValueError("lies too far ahead")
    return DateRange(text, first, last)


def leaves_workspace(path: str) -> bool:
    """Tell whether the path of a calendar is none within the workspace."""
    return path.startswith(("/", "~")) or ".." in PurePosixPath(path).parts
