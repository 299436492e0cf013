"""What happens in a run, each event once, from its first to its last, over Server-Sent Events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from daemon.api.schemas import encoded
from daemon.models import Status
from daemon.runs.events import begin_of, end_of, of_step, waiting_of

if TYPE_CHECKING:
    from daemon.models import Json
    from daemon.runs.events import Events
    from daemon.store.journal import Journal


async def watch(
    run_id: str, journal: Journal, events: Events, *, after: int = -1
) -> AsyncIterator[Json]:
    """Tell what has happened in the run since step `after`, then what happens, until it has ended.

    Ends without `run_ended` when the daemon stops. The bus is followed before the journal is read,
    so nothing falls between the two; an event of the bus whose step was read from the journal
    already is not told again.
    """
    live = events.follow(run_id)
    try:
        told = after
        begun = after >= 0
        while True:
            # what the bus drops from here on is read again; what it dropped before is read now
            live.missed = False
            # the row before the steps: if it has ended, then all of its steps are there
            run = await journal.get(run_id)
            if run.started and not begun:
                begun = True
                yield begin_of(run)
            # a row that has not begun has nothing to tell, even if steps have followed it by now:
            # they will ring
            for step in await journal.steps(run_id) if begun else ():
                if step.seq > told:
                    told = step.seq
                    if event := of_step(run, step):
                        yield event
            if run.status.has_ended:
                yield end_of(run)
                return
            if run.status is Status.WAITING:
                yield waiting_of(run)
            async for event in live:
                if live.missed or not begun:
                    break  # the journal knows what the bus has dropped, and when the run began
                if event["type"] in ("run_ended", "run_waiting"):
                    break  # its row says how
                number = event.get("id")
                if number is None:
                    yield {"routine": run.routine, **event}
                elif number > told:
                    told = number
                    yield event
            else:
                return
    finally:
        live.close()


async def frames(events: AsyncIterator[Json]) -> AsyncIterator[bytes]:
    """Return the events as SSE frames; the id is the one that `after` takes."""
    async for event in events:
        number = b"id: %d\n" % event["id"] if "id" in event else b""
        yield number + b"event: %s\ndata: %s\n\n" % (event["type"].encode(), encoded(event))
