"""Which routines there are, how each stands, and when it starts next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches

from daemon.api.context import ApiContext
from daemon.api.schemas import PausedRoutineView, iso_or_none
from daemon.errors import ConfigError, NotFound
from daemon.store.journal import RoutineState

STARTS_SHOWN = 3  # next starts: of a routine, and of all of them in the status
BATCH = 20  # routines that are looked at before other tasks get the event loop: up to some 7 ms


def names_of(api: ApiContext) -> list[str]:
    """Return the names of all routines, also of those with faults, in order."""
    return sorted({*api.engine.routines, *api.engine.faults})


async def check_exists(api: ApiContext, name: str) -> None:
    """Raise NotFound, with a name that is near, if there is no routine of this name.

    The files are read again first, as the routine may have been written a moment ago. The error
    says what is wrong with the files where they cannot be used.
    """
    if name in names_of(api):
        return
    with suppress(ConfigError):  # `administration.fault` tells it
        await api.administration.reload()
    names = names_of(api)
    if name in names:
        return
    near = get_close_matches(name, names, 1) or [
        other_name for other_name in names if other_name.startswith(name)
    ]
    if not names:
        hint = f'there are none yet: agentctl new {name} "weekdays at 9am" writes one'
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "`agentctl list` shows what there is"
    message = f"there is no routine {name!r}; {hint}"
    if fault := api.administration.fault:
        message += f"\nNot all that the files say is in force:\n{fault}"
    raise NotFound(message)


def state_of(api: ApiContext, name: str) -> str:
    """Return how a routine stands: on, paused, held, elsewhere, disabled or invalid."""
    routine = api.engine.routines.get(name)
    if routine is None:
        return "invalid"
    if not routine.enabled:
        return "disabled"
    if api.engine.describe_host_mismatch(routine):
        return "elsewhere"
    state = api.engine.states.get(name)
    if state and state.is_paused(api.clock.now()):
        return "paused"
    return "held" if name in api.engine.unrehearsed_routines else "on"


def next_slots_of(
    api: ApiContext, name: str, count: int, after: datetime | None = None
) -> Sequence[datetime]:
    """Return the next slots of a routine that may start, after its pause if that has an end."""
    state = state_of(api, name)
    if state == "paused" and (until := api.engine.states[name].paused_until):
        return api.engine.next_slots(name, count, after=max(after, until) if after else until)
    return api.engine.next_slots(name, count, after=after) if state == "on" else ()


def view_of_paused_routine(state: RoutineState) -> PausedRoutineView:
    return PausedRoutineView(
        routine=state.name, until=iso_or_none(state.paused_until), why=state.paused_why
    )


async def yielding_to_loop(names: Iterable[str]) -> AsyncIterator[str]:
    """Yield the names, and let other tasks run now and then: a schedule takes some 30 µs, and what
    the policy says of what a routine gathers up to some 300 µs when it is first asked for.
    """
    for number, name in enumerate(names, 1):
        yield name
        if number % BATCH == 0:
            await asyncio.sleep(0)
