"""Durations in words, the same for people and models.

Standard library only, as the client imports this module, too. The web page has the same function in
JavaScript (web/static/times.mjs), which a test compares with this one.
"""

from __future__ import annotations

from math import floor


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
