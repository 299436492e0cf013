"""What is to come of the routines, and what became of what was to come: `next` and `why`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from heapq import heapify, heappop, heapreplace
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from daemon.api.binding import Limit, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.problems import InvalidRequest
from daemon.api.schemas import FireView, Page, PausedView, WhyView, iso, iso_or_none
from daemon.errors import NotFound, Refused
from daemon.store.journal import RoutineState

Days = Annotated[int, Field(ge=1, le=3660), WholeNumber]

FIRES_SHOWN = 3
AT_ONCE = 100  # routines, before others get the loop: some 3 ms


async def next_of_routine(
    api: ApiContext,
    *,
    name: str,
    count: Limit = FIRES_SHOWN,
    days: Days | None = None,
    cursor: str | None = None,
) -> Page[FireView]:
    """List the next starts of one routine; with `days`, those within so many days."""
    check_known(api, name)
    return await starts(api, [name], count, days, cursor)


async def next_of_all(
    api: ApiContext, *, count: Limit = 10, days: Days | None = None, cursor: str | None = None
) -> Page[FireView]:
    """List the next starts of all routines, the soonest first; with `days`, those within so many
    days.
    """
    return await starts(api, names_of(api), count, days, cursor)


async def why(api: ApiContext, *, name: str, at: str | None = None) -> WhyView:
    """Say in a sentence why a slot ran or did not; `at` is its minute (or second), by default the
    last one.
    """
    from daemon.scheduler.explain import SlotQuery, default_slot, explain  # not by the start

    check_known(api, name)
    routine = api.engine.routines.get(name)
    if routine is None:
        raise Refused(f"{name} cannot be used: {api.engine.faults[name].faults[0]}")
    schedule, state, now = api.engine.schedule(routine), api.engine.states[name], api.clock()
    journal = api.journal
    if at is not None:
        first = moment("at", at)
    else:
        timed = schedule.cron or schedule.every or schedule.at
        known = [slot for slot in await journal.slots(name, now=now, limit=20) if slot.first <= now]
        latest = next((slot for slot in known if slot.event is None or not timed), None)
        first = default_slot(schedule, state, now, latest)
    until = first + (
        timedelta(seconds=1) if first.second or first.microsecond else timedelta(minutes=1)
    )
    rows = await journal.slots_within(name, first, until)
    run_id = next((row.run for row in rows if row.run), None)
    run = await journal.get(run_id) if run_id else None
    waits_for = await api.waits_for([run]) if run and api.waits_for else {}
    after = [
        row for row in await journal.slots_within(name, until, now, limit=20) if row.event is None
    ]
    explanation = explain(
        SlotQuery(
            routine=routine,
            schedule=schedule,
            state=state,
            first=first,
            until=until,
            now=now,
            rows=rows,
            following=after[0] if after else None,
            run=run,
            waits_for=waits_for.get(run_id or "", ""),
            elsewhere=api.elsewhere(routine),
            held=name in api.engine.unrehearsed_routines,
        )
    )
    return WhyView(
        routine=name,
        slot=iso(explanation.slot) if explanation.slot else None,
        outcome=explanation.outcome,
        reason=explanation.reason.value if explanation.reason else None,
        rule=explanation.rule,
        sentence=explanation.sentence,
        run=explanation.run,
    )


async def starts(
    api: ApiContext, names: Iterable[str], count: int, days: int | None, cursor: str | None
) -> Page[FireView]:
    until = api.clock() + timedelta(days=days) if days else None
    after, _, last = (cursor or "").partition(" ")
    since = (moment("cursor", after), last) if cursor else None
    found, more = await _fires(api, names, count, since=since, until=until)
    following = f"{found[-1][0].isoformat()} {found[-1][1]}" if more else None
    return Page(items=[FireView(routine=name, at=iso(at)) for at, name in found], next=following)


async def _fires(
    api: ApiContext,
    names: Iterable[str],
    count: int,
    *,
    since: tuple[datetime, str] | None = None,
    until: datetime | None = None,
) -> tuple[list[tuple[datetime, str]], bool]:
    """Return the soonest starts, by time and name, and whether there are more of them."""
    after = since[0] - timedelta(microseconds=1) if since else None
    coming = [
        (due[0], name) async for name in by_and_by(names) if (due := fires_of(api, name, 1, after))
    ]
    heapify(coming)
    found: list[tuple[datetime, str]] = []
    while coming and (until is None or coming[0][0] <= until):
        if len(found) == count:
            return found, True
        at, name = coming[0]
        if since is None or (at, name) > since:
            found.append((at, name))
            if len(found) % AT_ONCE == 0:
                await asyncio.sleep(0)
        if due := fires_of(api, name, 1, at):
            heapreplace(coming, (due[0], name))
        else:
            heappop(coming)
    return found, False


def names_of(api: ApiContext) -> list[str]:
    return sorted({*api.engine.routines, *api.engine.faults})


def check_known(api: ApiContext, name: str) -> None:
    names = names_of(api)
    if name not in names:
        near = get_close_matches(name, names, 1)
        told = f"did you mean {near[0]!r}?" if near else "`agentctl list` shows what there is"
        told = (
            told
            if names
            else f'there are none yet: agentctl new {name} "weekdays at 9am" writes one'
        )
        message = f"there is no routine {name!r}; {told}"
        raise NotFound(message)


def state_of(api: ApiContext, name: str) -> str:
    routine = api.engine.routines.get(name)
    if routine is None:
        return "invalid"
    if not routine.enabled:
        return "disabled"
    if api.elsewhere(routine):
        return "elsewhere"
    state = api.engine.states.get(name)
    if state and state.pausing(api.clock()):
        return "paused"
    return "held" if name in api.engine.unrehearsed_routines else "on"


def fires_of(
    api: ApiContext, name: str, count: int, after: datetime | None = None
) -> Sequence[datetime]:
    state = state_of(api, name)
    if state == "paused" and (until := api.engine.states[name].paused_until):
        return api.engine.next_fires(name, count, after=max(after, until) if after else until)
    return api.engine.next_fires(name, count, after=after) if state == "on" else ()


def paused_view(state: RoutineState) -> PausedView:
    return PausedView(
        routine=state.name, until=iso_or_none(state.paused_until), why=state.paused_why
    )


def moment(key: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        expected = "expected a moment with its zone, like 2026-11-20T09:00:00Z"
        raise InvalidRequest(
            f"{key!r}: {expected} (found {text[:80]!r})", HTTPStatus.UNPROCESSABLE_ENTITY
        )
    return found.astimezone(UTC)


async def by_and_by(names: Iterable[str]) -> AsyncIterator[str]:
    """Yield the names, letting others have the loop now and then: a schedule takes some 30 µs to
    answer.
    """
    for number, name in enumerate(names, 1):
        yield name
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
