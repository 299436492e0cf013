"""How long runs and routines wait after a failure: twice as long each time, and never all
together.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

# A vendor that asks for more is asked again after so long all the same.
LONGEST_ASKED = timedelta(days=1)


def back_off(failures: int, first: timedelta, most: timedelta) -> timedelta:
    """Return how long a routine rests after so many failures in a row: twice as long each time."""
    rest = min(first, most)
    for _ in range(failures - 1):
        if rest == most:
            break
        rest = min(2 * rest, most)
    return rest


def put_off(
    attempt: int, first: timedelta, most: timedelta, *, by: str, bounded_below: float | None
) -> timedelta:
    """Return how long to wait after a vendor's fault: anywhere up to the back-off of this attempt,
    drawn by lot.

    So that what was turned away together does not come back together. The lot falls by a text, so
    that it can be told again. What the vendor itself asked for, in seconds, is waited for in any
    case, but no longer than a day.
    """
    asked = timedelta(seconds=min(bounded_below or 0.0, LONGEST_ASKED.total_seconds()))
    return max(asked, back_off(attempt, first, most) * draw_lot(by))


def draw_lot(text: str) -> float:
    """Return a number from 0 to below 1 that only the text decides."""
    return int.from_bytes(hashlib.blake2s(text.encode()).digest()[:6], "big") / 2**48
