"""Moments as people type them: `09:00`, `yesterday 09:00`, `mon 18:30`, `2026-11-20 09:00`, or a
time from now, `2h`.

Standard library only; the zone is that of whoever types.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
EXAMPLES = "09:00, yesterday 09:00, mon 18:30, 2026-11-20 09:00 or 2026-11-20T09:00+01:00"


def moment(text: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Return the moment that is meant, in the zone of `now`; ValueError if none can be.

    A bare time is today's, or with `ahead` the next one; a weekday is the last one, or with `ahead`
    the next.
    """
    words = text.strip().lower().split()
    if ahead and (lasts := length(text)):
        return now + lasts
    day, *rest = words or [""]
    if (on := _day(day, now, ahead=ahead)) is not None and len(rest) <= 1:
        found = _local(datetime.combine(on, _time(rest[0]) if rest else time()), now)
        if ahead and found <= now and day in _days_of_the_week():
            found = _local(datetime.combine(on + timedelta(days=7), found.time()), now)
        return found
    if len(words) == 1 and day.count(":") in (1, 2) and not set(day) - set("0123456789:"):
        found = _local(datetime.combine(now.date(), _time(day)), now)
        tomorrow = datetime.combine(now.date() + timedelta(days=1), found.time())
        return _local(tomorrow, now) if ahead and found <= now else found
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        examples = f"2h, tomorrow 09:00, {EXAMPLES}" if ahead else EXAMPLES
        raise ValueError(f"{text!r} is no moment; write it like {examples}") from None
    return found if found.tzinfo else _local(found, now)


def _local(wall: datetime, now: datetime) -> datetime:
    """Return a wall time as it is in the zone of whoever asks."""
    # `now` has a zone that knows its clock changes, or only today's offset, as astimezone() gives
    # it.
    return wall.astimezone() if type(now.tzinfo) is timezone else wall.replace(tzinfo=now.tzinfo)


def _days_of_the_week() -> dict[str, int]:
    return {name: number for number, word in enumerate(WEEKDAYS) for name in (word, word[:3])}


def _day(word: str, now: datetime, *, ahead: bool) -> date | None:
    near = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if word in near:
        return now.date() + timedelta(days=near[word])
    number = _days_of_the_week().get(word)
    if number is None:
        return None
    back = (now.weekday() - number) % 7
    return now.date() + timedelta(days=(7 - back) % 7 if ahead else -back)


def _time(text: str) -> time:
    hour, _, rest = text.partition(":")
    minute, _, second = rest.partition(":")
    try:
        return time(int(hour), int(minute), int(second or 0))
    except ValueError:
        raise ValueError(f"{text!r} is no time of the day; write it like 09:00") from None


def length(text: str) -> timedelta | None:
    """Return how long `2h` and its like are; None if it is a moment of another form, ValueError if
    it is too long.
    """
    word = text.strip().lower()
    number, unit = word[:-1], word[-1:]
    if not number.isdecimal() or unit not in UNITS:
        return None
    try:
        return timedelta(**{UNITS[unit]: int(number)})
    except OverflowError:
        raise ValueError(f"{word!r} is longer than any calendar") from None
