"""Durations as people write and read them, the same in files, commands and a chat.

Standard library only, as the client imports this module, too. The web page writes durations by a
function in JavaScript (web/static/times.mjs), which a test compares with the one here.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import floor

_DURATION = re.compile(
    r"(?:(\d+)(?:w|wks?|weeks?))?(?:(\d+)(?:d|days?))?(?:(\d+)(?:h|hrs?|hours?))?"
    r"(?:(\d+)(?:m|mins?|minutes?))?(?:(\d+(?:\.\d+)?)(?:s|secs?|seconds?))?"
)
_SECONDS_OF_UNITS = (604_800, 86_400, 3600, 60, 1)
LONGEST = timedelta(days=366 * 10)


def parse_duration(text: str) -> timedelta | None:
    """Return the duration that a text such as `90s`, `2h`, `1h30m`, `2w`, `20 minutes` or
    `1 hour and 30 min` means; None if it is no duration. Raises ValueError if it is longer than
    ten years.
    """
    words = re.sub(r"(?<=[a-z]),? and (?=\d)", "", text.strip().lower())
    match = _DURATION.fullmatch(words.replace(" ", ""))
    if match is None or not any(match.groups()):
        return None
    seconds = sum(
        float(count or 0) * size
        for count, size in zip(match.groups(), _SECONDS_OF_UNITS, strict=True)
    )
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"{text.strip()!r} is longer than ten years")
    return timedelta(seconds=seconds)


def duration_in_words(seconds: float) -> str:
    """Return a duration rounded to one or two units: `12 ms`, `3.1 s`, `45 s`, `3 min`,
    `2 h 5 min`, `14 h`, `3 d 4 h`, `12 d`.

    The smaller unit is left out where it is zero, and from ten of the larger one on. A negative
    duration is `0 ms`.
    """
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = _round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 600:
        return _two_units(minutes, 60, "h", "min")
    hours = _round(seconds / 3600)
    if hours < 24:
        return f"{hours} h"
    if hours < 240:
        return _two_units(hours, 24, "d", "h")
    return f"{_round(seconds / 86_400)} d"


def _two_units(count: int, size: int, larger: str, smaller: str) -> str:
    """Return a count of the smaller unit, `size` of which make one of the larger."""
    whole, remainder = divmod(count, size)
    return f"{whole} {larger} {remainder} {smaller}" if remainder else f"{whole} {larger}"


def _round(number: float) -> int:
    """Round to the nearest integer, and a half upwards, as `Math.round` of JavaScript does."""
    return floor(number + 0.5)
