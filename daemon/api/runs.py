"""Runs: what there are, what each did, and how one is cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from daemon.api.binding import Limit, Number, RouteRow
from daemon.api.context import ApiContext
from daemon.api.events import follow_one
from daemon.api.paging import page_of_keys
from daemon.api.routine_states import check_exists
from daemon.api.schemas import (
    Page,
    RunBrief,
    RunView,
    StepView,
    brief_of_run,
    view_of_run,
    view_of_step,
    worst_status,
)
from daemon.models import DeliveryStatus, Json, Run, Status
from daemon.runs.events import end_of


async def list_runs(
    api: ApiContext,
    *,
    routine: str | None = None,
    status: Status | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
) -> Page[RunBrief]:
    """List runs, newest first."""
    if routine is not None and not await api.journal.runs.find(routine, limit=1):
        await check_exists(api, routine)
    runs = await api.journal.runs.find(routine, status=status, limit=limit + 1, before=cursor)
    page = runs[:limit]
    delivery_statuses = await load_delivery_statuses(api, page)
    views = [brief_of_run(run, delivery_statuses.get(run.id)) for run in page]
    return Page(items=views, next=page[-1].id if len(runs) > limit else None)


async def show_run(api: ApiContext, *, id: str) -> RunView:  # noqa: A002 - the name in the path
    """Return one run; the beginning or the end of its id (4 characters) is enough."""
    return await load_run_view(api, await api.journal.runs.get(id))


async def list_steps(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    limit: Limit = 1000,
    cursor: str | None = None,
) -> Page[StepView]:
    """List the steps of a run, in order."""
    run = await api.journal.runs.get(id)
    steps = {f"{step.seq:09}": step for step in await api.journal.runs.get_steps(run.id)}
    numbers, next_cursor = page_of_keys(list(steps), limit, cursor)
    return Page(items=[view_of_step(steps[number]) for number in numbers], next=next_cursor)


async def follow_run(api: ApiContext, *, id: str, after: Number = -1) -> AsyncIterator[Json]:  # noqa: A002
    """Stream what happens in a run, from its first event to its last; `after` is the id of the last
    event seen.
    """
    run = await api.journal.runs.get(id)
    return follow_one(run.id, api.journal.runs, api.events, after=after)


async def cancel_run(api: ApiContext, *, id: str) -> RunView:  # noqa: A002
    """Cancel a run: at once where it waits, as soon as its tools have stopped where it runs."""
    run = await api.journal.runs.request_cancel(id)
    if run.status.has_ended:
        # no process runs it, so nothing else will tell those who follow it
        api.events.publish(run.id, end_of(run))
    api.queue.interrupt(run.id)
    return await load_run_view(api, run)


async def load_delivery_statuses(api: ApiContext, runs: Sequence[Run]) -> dict[str, str | None]:
    """Return how the deliveries of these runs stand, by run, in a word."""
    statuses: dict[str, list[DeliveryStatus]] = {run.id: [] for run in runs if run.status.has_ended}
    for delivery in await api.journal.outbox.find_of_runs(statuses):
        statuses[delivery.run].append(delivery.status)
    return {run: worst_status(of_run) for run, of_run in statuses.items()}


async def load_run_view(api: ApiContext, run: Run) -> RunView:
    """Return a run with its deliveries, its place in the queue, its input and its price."""
    deliveries = await api.journal.outbox.find_of_runs([run.id]) if run.status.has_ended else ()
    run_input = await api.journal.runs.get_input(run.id) if run.event is not None else None
    usd = await api.journal.spending.get_cost_of_run(run.id) if run.usage.total else None
    return view_of_run(run, deliveries, api.queue.queue_position(run.id), run_input, usd=usd)


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/runs", list_runs),
    ("GET", "/v1/runs/{id}", show_run),
    ("GET", "/v1/runs/{id}/steps", list_steps),
    ("GET", "/v1/runs/{id}/events", follow_run),
    ("POST", "/v1/runs/{id}/cancel", cancel_run),
)
