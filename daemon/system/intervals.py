"""Intervals at which a daemon looks at something, and those that tests set in its environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from daemon.errors import ConfigError, Fault

SHORTEST, LONGEST = 0.05, 3600.0  # seconds


def until_next_multiple(seconds: float) -> float:
    """Return the seconds until the clock of the running event loop is at a multiple of `seconds`;
    0 for 0.

    Tasks that look at something every 30 or 60 seconds wake up together if they sleep for this
    long: an idle daemon wakes up once for all of them.
    """
    return seconds - asyncio.get_running_loop().time() % seconds if seconds else 0.0


def read_interval(env: Mapping[str, str], variable: str) -> float | None:
    """Return the seconds that a variable holds, SHORTEST to LONGEST; None if it is not set or
    empty. Raises ConfigError for anything else.
    """
    text = env.get(variable)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        problem = f"expected seconds, from {SHORTEST:g} to {LONGEST:g}"
        raise ConfigError(
            Fault(
                file="the environment",
                key=variable,
                found=text,
                problem=problem,
                hint="leave it out: it is for tests",
            )
        )
    return seconds
