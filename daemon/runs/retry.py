"""How long runs and routines wait after a failure: twice as long each time, and runs that failed
together do not come back together.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

# A vendor that asks for a longer wait is asked again after this all the same.
MAX_RETRY_AFTER = timedelta(days=1)


def backoff_delay(failures: int, first_delay: timedelta, max_delay: timedelta) -> timedelta:
    """Return the delay after so many failures in a row: `first_delay`, doubled with each further
    failure, and `max_delay` at most.
    """
    delay = min(first_delay, max_delay)
    for _ in range(failures - 1):
        if delay == max_delay:
            break
        delay = min(2 * delay, max_delay)
    return delay


def retry_delay(
    failures: int,
    first_delay: timedelta,
    max_delay: timedelta,
    *,
    seed: str,
    retry_after: float | None,
) -> timedelta:
    """Return how long to wait after a vendor's fault: a part of the backoff delay that `seed`
    decides ("full jitter").

    Runs that were refused together do not come back together, and the same seed gives the same
    delay. `retry_after`, in seconds, is what the vendor asked for: it is waited for in any case, up
    to MAX_RETRY_AFTER.
    """
    minimum = timedelta(seconds=min(retry_after or 0.0, MAX_RETRY_AFTER.total_seconds()))
    return max(minimum, backoff_delay(failures, first_delay, max_delay) * hash_to_fraction(seed))


def hash_to_fraction(text: str) -> float:
    """Return a number from 0 to below 1 that only the text decides."""
    return int.from_bytes(hashlib.blake2s(text.encode()).digest()[:6], "big") / 2**48
