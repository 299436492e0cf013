"""Routines that a policy names and that do not exist: no fault of the file, but worth a look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean
from daemon.policy.policy import Policy


def describe_unknown_routines(policy: Policy, routines: Iterable[Routine]) -> Iterator[str]:
    """Yield a sentence for each section and each pattern of a rule that fits no routine.

    Nothing without `routines`: then nobody knows which ones there are.
    """
    names = sorted(routine.name for routine in routines)
    if not names:
        return
    for name in policy.routines:
        if name not in names:
            hint = did_you_mean(name, names) or "is it gone?"
            yield f"[routine.{name}]: there is no routine of that name; {hint}"
    for rule in policy.rules:
        for pattern in rule.routines:
            if not any(fnmatchcase(name, pattern) for name in names):
                yield f"{rule.label}: no routine is called {pattern}"
