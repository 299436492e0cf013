"""The control API as a table. Each route is a small function: ask a room of the daemon, answer with a view.

Every POST is an act of the operator and is remembered as such: gates ask how long ago the last one was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, time, timedelta
from http import HTTPStatus
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from daemon.api import approvals, ask, forecast, incidents, memory, preview, rehearse, replay, seen, usage
from daemon.api.binding import Between, Limit, Offset, Seconds
from daemon.api.context import ApiContext
from daemon.api.events import watch
from daemon.api.problems import BadRequest
from daemon.api.schedule import (
    FIRES_SHOWN,
    by_and_by,
    check_known,
    fires_of,
    moment,
    names_of,
    next_of_all,
    next_of_routine,
    paused_view,
    starts,
    state_of,
    why,
)
from daemon.api.schemas import (
    DayView,
    DeliveryView,
    DoctorView,
    Page,
    ReloadView,
    RenamedView,
    ResumedView,
    RoutineCounts,
    RoutineDetail,
    RoutineView,
    RunBrief,
    RunView,
    SlotView,
    StatusView,
    StepView,
    delivery_view,
    fault_views,
    in_a_word,
    iso,
    run_brief,
    run_view,
    slot_view,
    step_view,
    worker_view,
)
from daemon.models import DeliveryStatus, Json, Run, Status
from daemon.runs.events import end_of

Handler = Callable[..., Any]
Days = Annotated[int, Between(1, 400)]

WHOLE_LIST = 500  # routines and slots on one page by default: a person's are a handful, a fleet's come in a few pages


async def show_status(surface: ApiContext) -> StatusView:
    """Tell how the daemon is: where it lives, what it counts, what runs and what is next."""
    states = {name: state_of(surface, name) for name in names_of(surface)}
    counted = Counter(states.values())
    active = await surface.journal.active()
    return StatusView(
        **surface.process(),
        version=surface.version,
        routines=RoutineCounts(
            on=counted["on"],
            paused=counted["paused"],
            disabled=counted["disabled"],
            elsewhere=counted["elsewhere"],
            held=counted["held"],
            invalid=counted["invalid"],
            kept=sum(name in surface.engine.routines for name in surface.engine.faults),
        ),
        counts=await surface.journal.counts(),
        next=(await starts(surface, names_of(surface), FIRES_SHOWN, None, None))["items"],
        active=[run_brief(run, None) for run in active],
        waiting=dict(surface.executor.positions()),
        stranded=dict(await surface.waits_for(active)) if surface.waits_for else {},
        incidents=(await incidents.list_incidents(surface))["items"],
        workers=[worker_view(each) for each in await surface.journal.workers()],
        paused=[paused_view(surface.engine.states[name]) for name, state in states.items() if state == "paused"],
    )


async def list_routines(
    surface: ApiContext, *, limit: Limit = WHOLE_LIST, cursor: str | None = None
) -> Page[RoutineView]:
    """List the routines by name: when each runs, when it is next due, how it last went."""
    names, following = _part(names_of(surface), limit, cursor)
    last = await surface.journal.last_runs()
    words = await _delivery_words(surface, [last[name] for name in names if name in last])
    views = [_routine_view(surface, name, last.get(name), words) async for name in by_and_by(names)]
    return Page(items=views, next=following)


async def show_routine(surface: ApiContext, *, name: str) -> RoutineDetail:
    """Show one routine: its definition, its next starts, its last run, its faults."""
    check_known(surface, name)
    runs = await surface.journal.runs(name, limit=1)
    words = await _delivery_words(surface, runs)
    routine = surface.engine.routines.get(name)
    return RoutineDetail(
        **_routine_view(surface, name, runs[0] if runs else None, words),
        fires=[iso(each) for each in fires_of(surface, name, FIRES_SHOWN)],
        definition=routine.model_dump(mode="json", exclude_none=True) if routine else {},
    )


async def list_runs(
    surface: ApiContext,
    *,
    routine: str | None = None,
    status: Status | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Page[RunBrief]:
    """List runs, newest first."""
    if routine is not None and not await surface.journal.runs(routine, limit=1):
        check_known(surface, routine)
    runs = await surface.journal.runs(routine, status=status, limit=limit + 1, before=cursor)
    shown = runs[:limit]
    words = await _delivery_words(surface, shown)
    views = [run_brief(run, words.get(run.id)) for run in shown]
    return Page(items=views, next=shown[-1].id if len(runs) > limit else None)


async def show_run(surface: ApiContext, *, id: str) -> RunView:  # noqa: A002 - the name in the path
    """Show one run; the beginning or the end of its id (4 characters) is enough."""
    return await _view(surface, await surface.journal.get(id))


async def list_steps(
    surface: ApiContext,
    *,
    id: str,  # noqa: A002
    limit: Limit = 1000,
    cursor: str | None = None,
) -> Page[StepView]:
    """List what a run did, in order."""
    run = await surface.journal.get(id)
    steps = {f"{step.seq:09}": step for step in await surface.journal.steps(run.id)}
    shown, following = _part(list(steps), limit, cursor)
    return Page(items=[step_view(steps[number]) for number in shown], next=following)


async def follow_run(surface: ApiContext, *, id: str, after: int = -1) -> AsyncIterator[Json]:  # noqa: A002
    """Stream what happens in a run, from its first event to its last; `after` is the id of the last event seen."""
    run = await surface.journal.get(id)
    return watch(run.id, surface.journal, surface.events, after=after)


async def start_run(surface: ApiContext, *, name: str, event: str | None = None) -> RunView:
    """Run a routine now; the same `event` again gives the same run, so a lost answer may be asked for again."""
    check_known(surface, name)
    return await _view(surface, await surface.engine.trigger(name, event=event))


async def rename_routine(surface: ApiContext, *, name: str, to: str) -> RenamedView:
    """Give a routine another name, its file and its history too."""
    check_known(surface, name)
    still = await surface.rename(name, to)
    return RenamedView(routine=await show_routine(surface, name=to), named_by=still)


async def adopt_routine(surface: ApiContext, *, name: str) -> RoutineDetail:
    """Make a routine that an agent made a person's own."""
    await surface.adopt(name)
    return await show_routine(surface, name=name.rpartition("/")[2])


async def remove_routine(surface: ApiContext, *, name: str) -> dict[str, str]:
    """Remove a routine that an agent made; those of people are theirs to remove."""
    await surface.remove(name)
    return {"removed": name}


async def pause_routine(
    surface: ApiContext, *, name: str, until: str | None = None, seconds: Seconds | None = None
) -> RoutineDetail:
    """Let no slot of a routine start until a moment, for so many seconds from now, or until it is resumed."""
    check_known(surface, name)
    if until is not None and seconds is not None:
        raise BadRequest("'until' and 'seconds' are two ends of one pause; send one", HTTPStatus.UNPROCESSABLE_ENTITY)
    end = moment("until", until) if until is not None else None
    if end is not None and end <= surface.clock():
        raise BadRequest(f"'until': {iso(end)} has passed already", HTTPStatus.UNPROCESSABLE_ENTITY)
    await surface.engine.pause(name, until=end, length=None if seconds is None else timedelta(seconds=seconds))
    return await show_routine(surface, name=name)


async def resume_routine(surface: ApiContext, *, name: str) -> RoutineDetail:
    """Let a paused routine go on from its next slot."""
    check_known(surface, name)
    await surface.engine.resume(name)
    return await show_routine(surface, name=name)


async def resume_all(surface: ApiContext) -> ResumedView:
    """Let every paused routine go on, as after a restore."""
    await surface.journal.let_go()
    paused = [name for name, state in surface.engine.states.items() if state.paused]
    for name in paused:
        await surface.engine.resume(name)
    return ResumedView(resumed=paused)


async def cancel_run(surface: ApiContext, *, id: str) -> RunView:  # noqa: A002
    """Cancel a run: at once where it waits, as soon as its tools have stopped where it runs."""
    run = await surface.journal.request_cancel(id)
    if run.status.ended:
        # nobody lives it, so nobody else will tell those who follow it
        surface.events.publish(run.id, end_of(run))
    surface.executor.interrupt(run.id)
    return await _view(surface, run)


async def reload(surface: ApiContext) -> ReloadView:
    """Read config, policy and routines again; a fault changes nothing and is the answer."""
    return await surface.reload()


async def list_deliveries(
    surface: ApiContext,
    *,
    run: str | None = None,
    status: DeliveryStatus | None = None,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[DeliveryView]:
    """List deliveries, newest first."""
    run_id = (await surface.journal.get(run)).id if run else None
    found = await surface.journal.deliveries(run=run_id, status=status, limit=cursor + limit + 1)
    items = [delivery_view(delivery) for delivery in found[cursor : cursor + limit]]
    return Page(items=items, next=_following(found, cursor + limit))


async def retry_delivery(surface: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Send a delivery again that failed or was withheld, with its full day of patience."""
    delivery = await surface.journal.send_again(id)
    surface.wake_outbox()
    return delivery_view(delivery)


async def drop_delivery(surface: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Give a delivery up for good: it is neither sent nor shown as trouble any more."""
    return delivery_view(await surface.journal.drop(id))


async def list_slots(
    surface: ApiContext,
    *,
    routine: str | None = None,
    since: str | None = None,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[SlotView]:
    """List what became of each scheduled moment, newest first; of those from `since` on."""
    if routine is not None and not await surface.journal.runs(routine, limit=1):
        check_known(surface, routine)
    first = moment("since", since) if since is not None else None
    found = await surface.journal.slots(routine, since=first, now=surface.clock(), limit=cursor + limit + 1)
    return Page(
        items=[slot_view(slot) for slot in found[cursor : cursor + limit]], next=_following(found, cursor + limit)
    )


async def list_days(surface: ApiContext, *, days: Days = 30) -> Page[DayView]:
    """Sum up what became of each routine, day by day in the daemon's zone, for so many days up to today."""
    zone = ZoneInfo(surface.process()["zone"])
    today = surface.clock().astimezone(zone).date()
    dates = [today + timedelta(days=place - days + 1) for place in range(days + 1)]
    found = await surface.journal.days([datetime.combine(date, time(), zone) for date in dates])
    items = [
        DayView(
            routine=each.routine,
            day=dates[each.day].isoformat(),
            outcomes=dict(each.outcomes),
            tokens=dict(each.tokens),
        )
        for each in found
    ]
    return Page(items=items, next=None)


async def follow_all(surface: ApiContext) -> AsyncIterator[Json]:
    """Stream what happens in all runs from now on."""
    return surface.events.follow()


async def examine(surface: ApiContext) -> DoctorView:
    """Check the installation; every fault comes with its fix."""
    checks = list(await surface.check())
    return DoctorView(ok=all(check["state"] != "fail" for check in checks), checks=checks)


async def show_openapi(surface: ApiContext) -> dict[str, Any]:
    """Describe this API as an OpenAPI 3.1 document."""
    from daemon.api.openapi import document

    return document(ROUTES, surface.version)


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/v1/status", show_status),
    ("GET", "/v1/routines", list_routines),
    ("GET", "/v1/routines/{name}", show_routine),
    ("GET", "/v1/routines/{name}/next", next_of_routine),
    ("GET", "/v1/routines/{name}/why", why),
    ("POST", "/v1/routines/{name}/run", start_run),
    ("POST", "/v1/routines/{name}/rename", rename_routine),
    ("POST", "/v1/routines/{name}/adopt", adopt_routine),
    ("POST", "/v1/routines/{name}/remove", remove_routine),
    ("POST", "/v1/routines/{name}/pause", pause_routine),
    ("POST", "/v1/routines/{name}/resume", resume_routine),
    ("POST", "/v1/resume", resume_all),
    ("GET", "/v1/next", next_of_all),
    ("GET", "/v1/runs", list_runs),
    ("GET", "/v1/runs/{id}", show_run),
    ("GET", "/v1/runs/{id}/steps", list_steps),
    ("GET", "/v1/runs/{id}/events", follow_run),
    ("POST", "/v1/runs/{id}/cancel", cancel_run),
    ("GET", "/v1/slots", list_slots),
    ("GET", "/v1/days", list_days),
    ("GET", "/v1/events", follow_all),
    ("GET", "/v1/deliveries", list_deliveries),
    ("POST", "/v1/deliveries/{id}/retry", retry_delivery),
    ("POST", "/v1/deliveries/{id}/drop", drop_delivery),
    *incidents.ROUTES,
    *forecast.ROUTES,
    *usage.ROUTES,
    *approvals.ROUTES,
    *ask.ROUTES,
    *preview.ROUTES,
    *replay.ROUTES,
    *rehearse.ROUTES,
    *memory.ROUTES,
    *seen.ROUTES,
    ("GET", "/v1/doctor", examine),
    ("POST", "/v1/reload", reload),
    ("GET", "/v1/openapi.json", show_openapi),
)


def _part(keys: list[str], limit: int, cursor: str | None) -> tuple[list[str], str | None]:
    """Return the keys (sorted) that follow the cursor, and the cursor of those behind them."""
    start = bisect_right(keys, cursor) if cursor else 0
    part = keys[start : start + limit]
    return part, part[-1] if start + limit < len(keys) else None


def _following(found: Sequence[object], end: int) -> str | None:
    return str(end) if len(found) > end else None


def _routine_view(surface: ApiContext, name: str, last: Run | None, words: Mapping[str, str | None]) -> RoutineView:
    routine = surface.engine.routines.get(name)
    fault = surface.engine.faults.get(name)
    due = fires_of(surface, name, 1)
    paused = paused_view(surface.engine.states[name]) if state_of(surface, name) == "paused" else None
    return RoutineView(
        name=name,
        description=routine.description if routine else "",
        state=state_of(surface, name),
        paused_until=paused["until"] if paused else None,
        paused_why=paused["why"] if paused else None,
        words=surface.words(routine) if routine else "",
        by_hand=routine is not None and not routine.trigger.is_automatic,
        next=iso(due[0]) if due else None,
        last=run_brief(last, words.get(last.id)) if last else None,
        path=str(routine.path) if routine and routine.path else None,
        made_by=routine.origin.routine if routine and routine.origin else None,
        faults=fault_views(fault) if fault else [],
    )


async def _delivery_words(surface: ApiContext, runs: Sequence[Run]) -> dict[str, str | None]:
    """Return how the deliveries of these runs stand, by run, in a word."""
    statuses: dict[str, list[DeliveryStatus]] = {run.id: [] for run in runs if run.status.ended}
    for delivery in await surface.journal.deliveries(run=list(statuses), limit=100 * len(statuses)):
        statuses[delivery.run].append(delivery.status)
    return {run: in_a_word(found) for run, found in statuses.items()}


async def _view(surface: ApiContext, run: Run) -> RunView:
    deliveries = await surface.journal.deliveries(run=run.id) if run.status.ended else ()
    given = await surface.journal.input_of(run.id) if run.event is not None else None
    usd = await surface.journal.paid_for(run.id) if run.usage.total else None
    return run_view(run, deliveries, surface.executor.queue_position(run.id), given, usd=usd)
