"""When routines start, and what became of their slots: `next`, `why`, slots and days."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from daemon.api.binding import Limit, Offset, RouteRow, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.moments import parse_moment, parse_schedule_moment
from daemon.api.paging import next_offset
from daemon.api.routine_states import (
    BATCH,
    STARTS_SHOWN,
    check_exists,
    names_of,
    next_slots_of,
    yielding_to_loop,
)
from daemon.api.schemas import (
    DayView,
    FireView,
    Page,
    SlotExplanationView,
    SlotView,
    iso,
    view_of_slot,
)
from daemon.errors import Refused
from daemon.models import ApprovalStatus, Run, Status
from daemon.scheduler.cluster.requirements import describe_missing_worker

DaysAhead = Annotated[int, Field(ge=1, le=3660), WholeNumber]
DaysBack = Annotated[int, Field(ge=1, le=400), WholeNumber]


async def list_next_slots(
    api: ApiContext,
    *,
    name: str,
    count: Limit = STARTS_SHOWN,
    days: DaysAhead | None = None,
    cursor: str | None = None,
) -> Page[FireView]:
    """List the next starts of one routine; with `days`, those within so many days."""
    await check_exists(api, name)
    return await load_next_slots(api, [name], count, days, cursor)


async def list_next_slots_of_all(
    api: ApiContext,
    *,
    count: Limit = 10,
    days: DaysAhead | None = None,
    cursor: str | None = None,
) -> Page[FireView]:
    """List the next starts of all routines, the soonest first; with `days`, those within so many
    days.
    """
    return await load_next_slots(api, names_of(api), count, days, cursor)


async def explain_slot(api: ApiContext, *, name: str, at: str | None = None) -> SlotExplanationView:
    """Return in a sentence why a slot ran or did not; `at` is its minute (or second), by default
    the last one.
    """
    from daemon.scheduler.explain import (
        SlotQuery,
        default_slot,
        explain,
    )  # here: the start needs none

    await check_exists(api, name)
    routine = api.engine.routines.get(name)
    if routine is None:
        raise Refused(api.engine.describe_faults(name))
    schedule, state, now = api.engine.schedule(routine), api.engine.states[name], api.clock.now()
    journal = api.journal
    if at is not None:
        first = parse_schedule_moment("at", at)
    else:
        is_timed = bool(schedule.clock_entries)
        slots = await journal.slots.find(name, now=now, limit=20)
        past = [slot for slot in slots if slot.first <= now]
        latest = next((slot for slot in past if slot.event is None or not is_timed), None)
        first = default_slot(schedule, state, now, latest)
    is_exact = first.second or first.microsecond
    until = first + (timedelta(seconds=1) if is_exact else timedelta(minutes=1))
    rows = await journal.slots.find_within(name, first, until)
    run_id = next((row.run for row in rows if row.run), None)
    run = await journal.runs.get(run_id) if run_id else None
    reasons = await reasons_for_waiting(api, [run]) if run else {}
    waiting_runs = [run] if run and run.status is Status.WAITING else []
    if at is None:
        active_runs = await journal.runs.find_active(name)
        waiting_runs = [active for active in active_runs if active.status is Status.WAITING]
    approvals = [
        approval
        for waiting_run in waiting_runs
        for approval in reversed(await journal.approvals.find_of_run(waiting_run.id))
        if approval.status is ApprovalStatus.PENDING
    ]
    later_slots = await journal.slots.find_within(name, until, now, limit=20)
    later_rows = [row for row in later_slots if row.event is None]
    explanation = explain(
        SlotQuery(
            routine=routine,
            schedule=schedule,
            state=state,
            first=first,
            until=until,
            now=now,
            rows=rows,
            next_row=later_rows[0] if later_rows else None,
            run=run,
            waits_for=reasons.get(run_id or "", ""),
            approvals=approvals,
            elsewhere=api.engine.describe_host_mismatch(routine),
            needs_rehearsal=name in api.engine.unrehearsed_routines,
            paced_start=api.engine.paced_start(name) if at is None else None,
            file_changed=_last_change_of(routine.path) if routine.path else None,
        )
    )
    return SlotExplanationView(
        routine=name,
        slot=iso(explanation.slot) if explanation.slot else None,
        outcome=explanation.outcome,
        reason=explanation.reason.value if explanation.reason else None,
        rule=explanation.rule,
        sentence=explanation.sentence,
        run=explanation.run,
    )


def _last_change_of(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return None


async def list_slots(
    api: ApiContext,
    *,
    routine: str | None = None,
    since: str | None = None,
    scheduled: bool = False,
    limit: Limit = 50,
    cursor: Offset = 0,
) -> Page[SlotView]:
    """List what became of each scheduled moment, newest first; with `since`, those from then on.
    Runs that a person or an event has started are in the list too, but not with `scheduled`.
    """
    if routine is not None and not await api.journal.runs.find(routine, limit=1):
        await check_exists(api, routine)
    first = parse_moment("since", since) if since is not None else None
    end = cursor + limit
    slots = await api.journal.slots.find(
        routine, since=first, now=api.clock.now(), limit=end + 1, scheduled=scheduled
    )
    return Page(
        items=[view_of_slot(slot) for slot in slots[cursor:end]], next=next_offset(slots, end)
    )


async def list_days(api: ApiContext, *, days: DaysBack = 30) -> Page[DayView]:
    """Return what became of each routine, day by day in the daemon's zone, for so many days up to
    today.
    """
    zone = api.settings.zone
    today = api.clock.now().astimezone(zone).date()
    dates = [today + timedelta(days=number - days + 1) for number in range(days + 1)]
    totals = await api.journal.history.get_days(
        [datetime.combine(date, time(), zone) for date in dates]
    )
    items = [
        DayView(
            routine=total.routine,
            day=dates[total.day].isoformat(),
            outcomes=dict(total.outcomes),
            tokens=dict(total.tokens),
        )
        for total in totals
    ]
    return Page(items=items, next=None)


async def load_next_slots(
    api: ApiContext, names: Iterable[str], count: int, days: int | None, cursor: str | None
) -> Page[FireView]:
    """Return a page of the next starts of these routines; the cursor is the last one's moment and
    name.
    """
    until = api.clock.now() + timedelta(days=days) if days else None
    last_start, _, last_name = (cursor or "").partition(" ")
    since = (parse_schedule_moment("cursor", last_start), last_name) if cursor else None
    starts, has_more = await _find_soonest_slots(api, names, count, since=since, until=until)
    next_cursor = f"{starts[-1][0].isoformat()} {starts[-1][1]}" if has_more else None
    items = [FireView(routine=name, at=iso(at)) for at, name in starts]
    return Page(items=items, next=next_cursor)


async def reasons_for_waiting(api: ApiContext, runs: Sequence[Run]) -> dict[str, str]:
    """Return, by run id, what queued runs wait for that no process of the cluster has."""
    queued_runs = [run for run in runs if run.status is Status.QUEUED and not run.not_before]
    if not api.in_cluster or not queued_runs:
        return {}
    journal = api.journal
    workers = [
        worker
        for worker in await journal.workers.find()
        if worker.since_heartbeat < journal.runs.lease
    ]
    reasons = {}
    for run in queued_runs:
        reason = describe_missing_worker(await journal.runs.get_definition(run.definition), workers)
        if reason:
            reasons[run.id] = reason
    return reasons


async def _find_soonest_slots(
    api: ApiContext,
    names: Iterable[str],
    count: int,
    *,
    since: tuple[datetime, str] | None = None,
    until: datetime | None = None,
) -> tuple[list[tuple[datetime, str]], bool]:
    """Return the soonest starts after `since`, by time and name, and whether there are more."""
    after = since[0] - timedelta(microseconds=1) if since else None
    next_starts = [
        (slots[0], name)
        async for name in yielding_to_loop(names)
        if (slots := next_slots_of(api, name, 1, after))
    ]
    heapify(next_starts)
    starts: list[tuple[datetime, str]] = []
    while next_starts and (until is None or next_starts[0][0] <= until):
        if len(starts) == count:
            return starts, True
        at, name = next_starts[0]
        if since is None or (at, name) > since:
            starts.append((at, name))
            if len(starts) % BATCH == 0:
                await asyncio.sleep(0)
        if later_slots := next_slots_of(api, name, 1, at):
            heapreplace(next_starts, (later_slots[0], name))
        else:
            heappop(next_starts)
    return starts, False


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/routines/{name}/next", list_next_slots),
    ("GET", "/v1/routines/{name}/why", explain_slot),
    ("GET", "/v1/next", list_next_slots_of_all),
    ("GET", "/v1/slots", list_slots),
    ("GET", "/v1/days", list_days),
)
