"""What must hold between routines: `after` names one that is there, and no chain leads back to its
beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from daemon.definitions.reading import Conflict, as_fault
from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean, display
from daemon.errors import ConfigError


def tangled(
    routines: Mapping[str, Routine], *, unread: Collection[str] = ()
) -> dict[str, ConfigError]:
    """Return those that come after nobody or, in the end, after themselves; `unread` are there,
    only not readable.
    """
    known = {*routines, *unread}
    return _faulty(
        routines, lambda name: [*_unknown(routines[name], known), *_circle(name, routines)]
    )


def circles(routines: Mapping[str, Routine]) -> dict[str, ConfigError]:
    """Return those that, in the end, come after themselves."""
    return _faulty(routines, lambda name: _circle(name, routines))


def _faulty(
    routines: Mapping[str, Routine], check: Callable[[str], Iterable[Conflict]]
) -> dict[str, ConfigError]:
    faults = {}
    for name, routine in routines.items():
        if routine.trigger.after and (found := list(check(name))):
            file = display(routine.path or f"{name}.toml")
            faults[name] = ConfigError(*(as_fault(conflict, file) for conflict in found))
    return faults


def _unknown(routine: Routine, known: Collection[str]) -> Iterator[Conflict]:
    for index, name in enumerate(routine.trigger.after):
        if name not in known:
            hint = did_you_mean(name, {*known} - {routine.name})
            yield Conflict(f"trigger.after[{index}]", "no such routine", name, hint)


def _circle(name: str, routines: Mapping[str, Routine]) -> Iterator[Conflict]:
    """Walk back from a routine over those it comes after; the shortest way that meets it again is
    the circle.
    """
    came_from: dict[str, str] = {}
    todo = [name]
    for each in todo:
        for before in routines[each].trigger.after if each in routines else ():
            if before == name:
                circle = [name, each]
                while circle[-1] != name:
                    circle.append(came_from[circle[-1]])
                hint = "no run would ever be the first; take one of them out"
                yield Conflict(
                    "trigger.after", f"goes round in a circle: {' → '.join(circle)}", hint=hint
                )
                return
            if before not in came_from:
                came_from[before] = each
                todo.append(before)
