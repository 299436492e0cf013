"""What is sound in a policy and still worth a second look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean
from daemon.policy.policy import Policy


def notes(policy: Policy, routines: Iterable[Routine]) -> Iterator[str]:
    """Yield a sentence for each."""
    routines_by_name = {routine.name: routine for routine in routines}
    for name in policy.routines:
        if routines_by_name and name not in routines_by_name:
            hint = did_you_mean(name, sorted(routines_by_name)) or "is it gone?"
            yield f"[routine.{name}]: there is no routine of that name; {hint}"
    for rule in policy.rules:
        for pattern in rule.routines:
            if routines_by_name and not any(
                fnmatchcase(name, pattern) for name in routines_by_name
            ):
                yield f"{rule.label}: no routine is called {pattern}"
