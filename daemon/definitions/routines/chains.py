"""Check the names of other routines in `after` and `context_from`: the routines exist, and no chain
of `after` is a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from daemon.definitions.reading import Conflict, as_fault
from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean, display
from daemon.errors import ConfigError


def find_broken_chains(
    routines: Mapping[str, Routine],
    *,
    unreadable: Collection[str] = (),
    among: Iterable[str] | None = None,
) -> dict[str, ConfigError]:
    """Return the faults, by name, of routines that name an unknown routine in `after` or
    `context_from`, or that follow themselves through others.

    `unreadable` names routines that exist, but whose files have faults. `among` are the names of
    the routines to check; None: all.
    """
    names = {*routines, *unreadable}

    def check(name: str) -> Iterator[Conflict]:
        yield from _find_unknown_parents(routines[name], names)
        yield from _find_unknown_reporters(routines[name], names)
        yield from _find_cycle(name, routines)

    return _collect_faults(routines, check, routines if among is None else among)


def find_cycles(routines: Mapping[str, Routine]) -> dict[str, ConfigError]:
    """Return the faults, by name, of routines that follow themselves through others."""
    return _collect_faults(routines, lambda name: _find_cycle(name, routines), routines)


def _collect_faults(
    routines: Mapping[str, Routine],
    check: Callable[[str], Iterable[Conflict]],
    names: Iterable[str],
) -> dict[str, ConfigError]:
    faults = {}
    for name in names:
        routine = routines.get(name)
        if routine is None or not (_parents_of(routine) or routine.run.context_from):
            continue
        if conflicts := list(check(name)):
            file = display(routine.path or f"{name}.toml")
            faults[name] = ConfigError(*(as_fault(conflict, file) for conflict in conflicts))
    return faults


def _parents_of(routine: Routine) -> list[str]:
    """Return the names in `after`: the end of one of these routines starts this one."""
    return [name for trigger in routine.triggers for name in trigger.after]


def _find_unknown_parents(routine: Routine, names: Collection[str]) -> Iterator[Conflict]:
    for key, trigger in routine.keyed_triggers:
        for index, name in enumerate(trigger.after):
            if name not in names:
                hint = did_you_mean(name, {*names} - {routine.name})
                yield Conflict(f"{key}.after[{index}]", "no such routine", name, hint)


def _find_unknown_reporters(routine: Routine, names: Collection[str]) -> Iterator[Conflict]:
    for index, name in enumerate(routine.run.context_from or ()):
        key = f"run.context_from[{index}]"
        if name == routine.name:
            hint = "take it out: a run is told the last report of its own routine anyway"
            yield Conflict(key, "is this routine", name, hint)
        elif name not in names:
            yield Conflict(
                key, "no such routine", name, did_you_mean(name, {*names} - {routine.name})
            )


def _find_cycle(name: str, routines: Mapping[str, Routine]) -> Iterator[Conflict]:
    """Yield the shortest cycle through a routine, or nothing: a breadth-first search from each
    routine to those that it follows.
    """
    # by routine, the one that follows it and from which the search reached it
    followers: dict[str, str] = {}
    queue = [name]
    for current in queue:  # grows meanwhile
        for parent in _parents_of(routines[current]) if current in routines else ():
            if parent == name:
                cycle = [name, current]
                while cycle[-1] != name:
                    cycle.append(followers[cycle[-1]])
                hint = "no run would ever be the first; take one of them out"
                key = next(
                    key
                    for key, trigger in routines[name].keyed_triggers
                    if cycle[-2] in trigger.after
                )
                yield Conflict(
                    f"{key}.after", f"goes round in a circle: {' → '.join(cycle)}", hint=hint
                )
                return
            if parent not in followers:
                followers[parent] = current
                queue.append(parent)
