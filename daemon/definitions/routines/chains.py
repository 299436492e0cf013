"""Check what routines name of one another: those of `after` and `context_from` exist, and no chain
of `after` is a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from daemon.definitions.reading import Conflict, as_fault
from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean, display
from daemon.errors import ConfigError


def find_broken_chains(
    routines: Mapping[str, Routine], *, unreadable: Collection[str] = ()
) -> dict[str, ConfigError]:
    """Return the faults of routines that follow an unknown routine, or are told its reports, and of
    those that follow themselves through others.

    `unreadable` names routines that exist, but whose files have faults.
    """
    names = {*routines, *unreadable}
    return _faults_by_name(
        routines,
        lambda name: [
            *_unknown_parents(routines[name], names),
            *_unknown_reporters(routines[name], names),
            *_circles_through(name, routines),
        ],
    )


def find_circles(routines: Mapping[str, Routine]) -> dict[str, ConfigError]:
    """Return the faults of routines that follow themselves, through others."""
    return _faults_by_name(routines, lambda name: _circles_through(name, routines))


def _faults_by_name(
    routines: Mapping[str, Routine], check: Callable[[str], Iterable[Conflict]]
) -> dict[str, ConfigError]:
    faults = {}
    for name, routine in routines.items():
        names_others = _parents(routine) or routine.run.context_from
        if names_others and (conflicts := list(check(name))):
            file = display(routine.path or f"{name}.toml")
            faults[name] = ConfigError(*(as_fault(conflict, file) for conflict in conflicts))
    return faults


def _parents(routine: Routine) -> list[str]:
    """Return the routines that a routine follows."""
    return [name for trigger in routine.triggers for name in trigger.after]


def _unknown_parents(routine: Routine, names: Collection[str]) -> Iterator[Conflict]:
    for key, trigger in routine.keyed_triggers:
        for index, name in enumerate(trigger.after):
            if name not in names:
                hint = did_you_mean(name, {*names} - {routine.name})
                yield Conflict(f"{key}.after[{index}]", "no such routine", name, hint)


def _unknown_reporters(routine: Routine, names: Collection[str]) -> Iterator[Conflict]:
    for index, name in enumerate(routine.run.context_from or ()):
        key = f"run.context_from[{index}]"
        if name == routine.name:
            hint = "take it out: a run is told the last report of its own routine anyway"
            yield Conflict(key, "is this routine", name, hint)
        elif name not in names:
            yield Conflict(
                key, "no such routine", name, did_you_mean(name, {*names} - {routine.name})
            )


def _circles_through(name: str, routines: Mapping[str, Routine]) -> Iterator[Conflict]:
    """Yield the shortest circle through a routine, found breadth-first over the routines it
    follows.
    """
    followers: dict[str, str] = {}
    queue = [name]
    for current in queue:
        for parent in _parents(routines[current]) if current in routines else ():
            if parent == name:
                circle = [name, current]
                while circle[-1] != name:
                    circle.append(followers[circle[-1]])
                hint = "no run would ever be the first; take one of them out"
                key = next(
                    key
                    for key, trigger in routines[name].keyed_triggers
                    if circle[-2] in trigger.after
                )
                yield Conflict(
                    f"{key}.after", f"goes round in a circle: {' → '.join(circle)}", hint=hint
                )
                return
            if parent not in followers:
                followers[parent] = current
                queue.append(parent)
