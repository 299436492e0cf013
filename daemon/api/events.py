"""Events of runs as server-sent events; those of one run each once, from the first to the last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.schemas import encode_json
from daemon.models import Json, Status
from daemon.runs.events import begin_of, end_of, event_of_step, retry_of, waiting_of

if TYPE_CHECKING:
    from daemon.runs.events import EventBus
    from daemon.store.runs import RunRepository


async def follow_all(api: ApiContext) -> AsyncIterator[Json]:
    """Stream what happens in all runs from now on."""
    return api.events.follow()


async def follow_one(
    run_id: str, runs: RunRepository, events: EventBus, *, after: int = -1
) -> AsyncIterator[Json]:
    """Yield what has happened in the run since step `after`, then what happens, until it has ended.

    Ends without `run_ended` when the daemon stops. The bus is followed before the journal is read,
    so nothing is lost between the two; an event of the bus whose step was read from the journal
    already is not repeated.
    """
    live = events.follow(run_id)
    try:
        last_step, retry_at = after, None
        has_begun = after >= 0
        while True:
            # what the bus drops from here on is read again; what it dropped before is read now
            live.missed = False
            # the row before the steps: if it has ended, then all of its steps are there
            run = await runs.get(run_id)
            if run.started and not has_begun:
                has_begun = True
                yield begin_of(run)
            # a run that has not begun has no events, even if it has steps by now: the bus will have
            # them
            for step in await runs.get_steps(run_id) if has_begun else ():
                if step.seq > last_step:
                    last_step = step.seq
                    if event := event_of_step(run, step):
                        yield event
            if run.status.has_ended:
                yield end_of(run)
                return
            if run.status is Status.WAITING:
                yield waiting_of(run)
            if run.not_before != retry_at and (event := retry_of(run)):
                retry_at = run.not_before
                yield event
            async for event in live:
                if live.missed or not has_begun:
                    break  # the journal knows what the bus has dropped, and when the run began
                if event["type"] in ("run_ended", "run_waiting", "run_retry_scheduled"):
                    break  # its row says how
                if event["type"] == "run_started":
                    continue  # it was yielded from the run's row
                number = event.get("id")
                if number is None:
                    yield {"routine": run.routine, **event}
                elif number > last_step:
                    last_step = number
                    yield event
            else:
                return
    finally:
        live.close()


async def encode_frames(events: AsyncIterator[Json]) -> AsyncIterator[bytes]:
    """Yield the events as SSE frames; the id is the one that `after` takes."""
    async for event in events:
        number = b"id: %d\n" % event["id"] if "id" in event else b""
        yield number + b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encode_json(event))


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/events", follow_all),)
