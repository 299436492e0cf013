"""The control API as a table.

Each route is a small function: ask a room of the daemon, answer with a view.

Every POST is an act of the operator and is remembered as such: gates ask how long ago the last one
was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, time, timedelta
from http import HTTPStatus
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field

from daemon.api import (
    approvals,
    ask,
    forecast,
    incidents,
    memory,
    preview,
    rehearse,
    replay,
    seen,
    usage,
)
from daemon.api.binding import Limit, Number, Offset, Seconds, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.events import watch
from daemon.api.problems import InvalidRequest
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
Days = Annotated[int, Field(ge=1, le=400), WholeNumber]

# routines and slots on one page by default: a person's are a handful, a fleet's come in a few pages
WHOLE_LIST = 500


async def show_status(api: ApiContext) -> StatusView:
    """Tell how the daemon is: where it lives, what it counts, what runs and what is next."""
    states = {name: state_of(api, name) for name in names_of(api)}
    counted = Counter(states.values())
    active = await api.journal.active()
    return StatusView(
        **api.process(),
        version=api.version,
        routines=RoutineCounts(
            on=counted["on"],
            paused=counted["paused"],
            disabled=counted["disabled"],
            elsewhere=counted["elsewhere"],
            held=counted["held"],
            invalid=counted["invalid"],
            kept=sum(name in api.engine.routines for name in api.engine.faults),
        ),
        counts=await api.journal.counts(),
        next=(await starts(api, names_of(api), FIRES_SHOWN, None, None))["items"],
        active=[run_brief(run, None) for run in active],
        waiting=dict(api.executor.positions()),
        stranded=dict(await api.waits_for(active)) if api.waits_for else {},
        incidents=(await incidents.list_incidents(api))["items"],
        workers=[worker_view(each) for each in await api.journal.workers()],
        paused=[
            paused_view(api.engine.states[name])
            for name, state in states.items()
            if state == "paused"
        ],
    )


async def list_routines(
    api: ApiContext, *, limit: Limit = WHOLE_LIST, cursor: str | None = None
) -> Page[RoutineView]:
    """List the routines by name: when each runs, when it is next due, how it last went."""
    names, following = _part(names_of(api), limit, cursor)
    last = await api.journal.last_runs()
    words = await _delivery_words(api, [last[name] for name in names if name in last])
    views = [_routine_view(api, name, last.get(name), words) async for name in by_and_by(names)]
    return Page(items=views, next=following)


async def show_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Show one routine: its definition, its next starts, its last run, its faults."""
    check_known(api, name)
    runs = await api.journal.runs(name, limit=1)
    words = await _delivery_words(api, runs)
    routine = api.engine.routines.get(name)
    return RoutineDetail(
        **_routine_view(api, name, runs[0] if runs else None, words),
        fires=[iso(each) for each in fires_of(api, name, FIRES_SHOWN)],
        definition=routine.model_dump(mode="json", exclude_none=True) if routine else {},
    )


async def list_runs(
    api: ApiContext,
    *,
    routine: str | None = None,
    status: Status | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Page[RunBrief]:
    """List runs, newest first."""
    if routine is not None and not await api.journal.runs(routine, limit=1):
        check_known(api, routine)
    runs = await api.journal.runs(routine, status=status, limit=limit + 1, before=cursor)
    shown = runs[:limit]
    words = await _delivery_words(api, shown)
    views = [run_brief(run, words.get(run.id)) for run in shown]
    return Page(items=views, next=shown[-1].id if len(runs) > limit else None)


async def show_run(api: ApiContext, *, id: str) -> RunView:  # noqa: A002 - the name in the path
    """Show one run; the beginning or the end of its id (4 characters) is enough."""
    return await _view(api, await api.journal.get(id))


async def list_steps(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    limit: Limit = 1000,
    cursor: str | None = None,
) -> Page[StepView]:
    """List what a run did, in order."""
    run = await api.journal.get(id)
    steps = {f"{step.seq:09}": step for step in await api.journal.steps(run.id)}
    shown, following = _part(list(steps), limit, cursor)
    return Page(items=[step_view(steps[number]) for number in shown], next=following)


async def follow_run(api: ApiContext, *, id: str, after: Number = -1) -> AsyncIterator[Json]:  # noqa: A002
    """Stream what happens in a run, from its first event to its last; `after` is the id of the last
    event seen.
    """
    run = await api.journal.get(id)
    return watch(run.id, api.journal, api.events, after=after)


async def start_run(api: ApiContext, *, name: str, event: str | None = None) -> RunView:
    """Run a routine now; the same `event` again gives the same run, so a lost answer may be asked
    for again.
    """
    check_known(api, name)
    return await _view(api, await api.engine.trigger(name, event=event))


async def rename_routine(api: ApiContext, *, name: str, to: str) -> RenamedView:
    """Give a routine another name, its file and its history too."""
    check_known(api, name)
    still = await api.rename(name, to)
    return RenamedView(routine=await show_routine(api, name=to), named_by=still)


async def adopt_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Make a routine that an agent made a person's own."""
    await api.adopt(name)
    return await show_routine(api, name=name.rpartition("/")[2])


async def remove_routine(api: ApiContext, *, name: str) -> dict[str, str]:
    """Remove a routine that an agent made; those of people are theirs to remove."""
    await api.remove(name)
    return {"removed": name}


async def pause_routine(
    api: ApiContext, *, name: str, until: str | None = None, seconds: Seconds | None = None
) -> RoutineDetail:
    """Let no slot of a routine start until a moment, for so many seconds from now, or until it is
    resumed.
    """
    check_known(api, name)
    if until is not None and seconds is not None:
        raise InvalidRequest(
            "'until' and 'seconds' are two ends of one pause; send one",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    end = moment("until", until) if until is not None else None
    if end is not None and end <= api.clock():
        raise InvalidRequest(
            f"'until': {iso(end)} has passed already", HTTPStatus.UNPROCESSABLE_ENTITY
        )
    await api.engine.pause(
        name, until=end, length=None if seconds is None else timedelta(seconds=seconds)
    )
    return await show_routine(api, name=name)


async def resume_routine(api: ApiContext, *, name: str) -> RoutineDetail:
    """Let a paused routine go on from its next slot."""
    check_known(api, name)
    await api.engine.resume(name)
    return await show_routine(api, name=name)


async def resume_all(api: ApiContext) -> ResumedView:
    """Let every paused routine go on, as after a restore."""
    await api.journal.let_go()
    paused = [name for name, state in api.engine.states.items() if state.paused]
    for name in paused:
        await api.engine.resume(name)
    return ResumedView(resumed=paused)


async def cancel_run(api: ApiContext, *, id: str) -> RunView:  # noqa: A002
    """Cancel a run: at once where it waits, as soon as its tools have stopped where it runs."""
    run = await api.journal.request_cancel(id)
    if run.status.has_ended:
        # nobody lives it, so nobody else will tell those who follow it
        api.events.publish(run.id, end_of(run))
    api.executor.interrupt(run.id)
    return await _view(api, run)


async def reload(api: ApiContext) -> ReloadView:
    """Read config, policy and routines again; a fault changes nothing and is the answer."""
    return await api.reload()


async def list_deliveries(
    api: ApiContext,
    *,
    run: str | None = None,
    status: DeliveryStatus | None = None,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[DeliveryView]:
    """List deliveries, newest first."""
    run_id = (await api.journal.get(run)).id if run else None
    found = await api.journal.deliveries(run=run_id, status=status, limit=cursor + limit + 1)
    items = [delivery_view(delivery) for delivery in found[cursor : cursor + limit]]
    return Page(items=items, next=_following(found, cursor + limit))


async def retry_delivery(api: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Send a delivery again that failed or was withheld, with its full day of patience."""
    delivery = await api.journal.send_again(id)
    api.wake_outbox()
    return delivery_view(delivery)


async def drop_delivery(api: ApiContext, *, id: Offset) -> DeliveryView:  # noqa: A002
    """Give a delivery up for good: it is neither sent nor shown as trouble any more."""
    return delivery_view(await api.journal.drop(id))


async def list_slots(
    api: ApiContext,
    *,
    routine: str | None = None,
    since: str | None = None,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[SlotView]:
    """List what became of each scheduled moment, newest first; of those from `since` on."""
    if routine is not None and not await api.journal.runs(routine, limit=1):
        check_known(api, routine)
    first = moment("since", since) if since is not None else None
    found = await api.journal.slots(routine, since=first, now=api.clock(), limit=cursor + limit + 1)
    return Page(
        items=[slot_view(slot) for slot in found[cursor : cursor + limit]],
        next=_following(found, cursor + limit),
    )


async def list_days(api: ApiContext, *, days: Days = 30) -> Page[DayView]:
    """Sum up what became of each routine, day by day in the daemon's zone, for so many days up to
    today.
    """
    zone = ZoneInfo(api.process()["zone"])
    today = api.clock().astimezone(zone).date()
    dates = [today + timedelta(days=place - days + 1) for place in range(days + 1)]
    found = await api.journal.days([datetime.combine(date, time(), zone) for date in dates])
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


async def follow_all(api: ApiContext) -> AsyncIterator[Json]:
    """Stream what happens in all runs from now on."""
    return api.events.follow()


async def examine(api: ApiContext) -> DoctorView:
    """Check the installation; every fault comes with its fix."""
    checks = list(await api.check())
    return DoctorView(ok=all(check["state"] != "fail" for check in checks), checks=checks)


async def show_openapi(api: ApiContext) -> dict[str, Any]:
    """Describe this API as an OpenAPI 3.1 document."""
    from daemon.api.openapi import document

    return document(ROUTES, api.version)


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


def _routine_view(
    api: ApiContext, name: str, last: Run | None, words: Mapping[str, str | None]
) -> RoutineView:
    routine = api.engine.routines.get(name)
    fault = api.engine.faults.get(name)
    due = fires_of(api, name, 1)
    paused = paused_view(api.engine.states[name]) if state_of(api, name) == "paused" else None
    return RoutineView(
        name=name,
        description=routine.description if routine else "",
        state=state_of(api, name),
        paused_until=paused["until"] if paused else None,
        paused_why=paused["why"] if paused else None,
        words=api.words(routine) if routine else "",
        by_hand=routine is not None and not routine.trigger.is_automatic,
        next=iso(due[0]) if due else None,
        last=run_brief(last, words.get(last.id)) if last else None,
        path=str(routine.path) if routine and routine.path else None,
        made_by=routine.origin.routine if routine and routine.origin else None,
        faults=fault_views(fault) if fault else [],
    )


async def _delivery_words(api: ApiContext, runs: Sequence[Run]) -> dict[str, str | None]:
    """Return how the deliveries of these runs stand, by run, in a word."""
    statuses: dict[str, list[DeliveryStatus]] = {run.id: [] for run in runs if run.status.has_ended}
    for delivery in await api.journal.deliveries(run=list(statuses), limit=100 * len(statuses)):
        statuses[delivery.run].append(delivery.status)
    return {run: in_a_word(found) for run, found in statuses.items()}


async def _view(api: ApiContext, run: Run) -> RunView:
    deliveries = await api.journal.deliveries(run=run.id) if run.status.has_ended else ()
    given = await api.journal.input_of(run.id) if run.event is not None else None
    usd = await api.journal.paid_for(run.id) if run.usage.total else None
    return run_view(run, deliveries, api.executor.queue_position(run.id), given, usd=usd)
