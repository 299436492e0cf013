"""Times as people type them: `09:00`, `yesterday 09:00`, `mon 18:30`, `2026-11-20 09:00`, `2h`.

Standard library only; the zone is that of the time from which they are told.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

from daemon.durations import parse_duration

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAY_NUMBERS = {name: number for number, day in enumerate(WEEKDAYS) for name in (day, day[:3])}
EXAMPLES = "09:00, yesterday 09:00, mon 18:30, 2026-11-20 09:00 or 2026-11-20T09:00+01:00"


def parse_time(text: str, now: datetime, *, future: bool = False) -> datetime:
    """Return the time that a text means; raise ValueError if it means none.

    It is in the zone of `now`, or in that of the machine if `now` has a fixed offset.

    A bare time is today's, or with `future` the next one; a weekday is the last one, or with
    `future` the next. With `future` a duration such as `2h` or `20 minutes` counts from `now`.
    """
    words = text.strip().lower().split()
    if future and (duration := parse_duration(text)) is not None:
        # in UTC: with a zone Python adds what a clock on the wall shows, hours that are skipped too
        time_after = now.astimezone(UTC) + duration
        return time_after.astimezone(None if _has_fixed_offset(now) else now.tzinfo)
    first_word, *more_words = words or [""]
    day = _parse_day(first_word, now, future=future)
    if day is not None and len(more_words) <= 1:
        time_of_day = _parse_time_of_day(more_words[0]) if more_words else time()
        result = _localize(datetime.combine(day, time_of_day), now)
        if first_word in WEEKDAY_NUMBERS and (result <= now if future else result > now):
            day += timedelta(days=7 if future else -7)  # it was the day of `now`
            result = _localize(datetime.combine(day, time_of_day), now)
        return result
    digits_and_colons = set("0123456789:")
    if (
        len(words) == 1
        and first_word.count(":") in (1, 2)
        and not set(first_word) - digits_and_colons
    ):
        time_of_day = _parse_time_of_day(first_word)
        result = _localize(datetime.combine(now.date(), time_of_day), now)
        if future and result <= now:
            tomorrow = now.date() + timedelta(days=1)
            result = _localize(datetime.combine(tomorrow, time_of_day), now)
        return result
    try:
        result = datetime.fromisoformat(text.strip())
    except ValueError:
        examples = EXAMPLES
        if future:
            day = (now + timedelta(days=7)).date()
            examples = f"2h, 09:00, tomorrow 09:00, mon 18:30, {day} 09:00 or {day}T09:00+01:00"
        raise ValueError(f"{text!r} is no moment; write it like {examples}") from None
    return result if result.tzinfo else _localize(result, now)


def _localize(wall_time: datetime, now: datetime) -> datetime:
    """Return a wall time in the zone of `now`, or in that of the machine if `now` has a fixed
    offset.
    """
    if _has_fixed_offset(now):
        return wall_time.astimezone()
    return wall_time.replace(tzinfo=now.tzinfo)


def _has_fixed_offset(now: datetime) -> bool:
    """Tell whether `now` is like `datetime.now().astimezone()`, whose offset is today's: on another
    day the clocks of the machine may show another one.
    """
    return type(now.tzinfo) is timezone


def _parse_day(word: str, now: datetime, *, future: bool) -> date | None:
    offset = {"today": 0, "yesterday": -1, "tomorrow": 1}.get(word)
    if offset is not None:
        return now.date() + timedelta(days=offset)
    weekday = WEEKDAY_NUMBERS.get(word)
    if weekday is None:
        return None
    days_since = (now.weekday() - weekday) % 7
    days_until = (7 - days_since) % 7
    return now.date() + timedelta(days=days_until if future else -days_since)


def _parse_time_of_day(text: str) -> time:
    hour, _, minutes = text.partition(":")
    minute, _, second = minutes.partition(":")
    try:
        return time(int(hour), int(minute), int(second or 0))
    except ValueError:
        raise ValueError(f"{text!r} is no time of the day; write it like 09:00") from None
