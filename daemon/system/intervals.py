"""Intervals that tests set in the environment of a daemon that they start as a process."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.errors import ConfigError, Fault

SHORTEST, LONGEST = 0.05, 3600.0


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
