"""A database that takes nothing, as its disk is full say: an incident that may not be written down
while it lasts.

Until then it stands in the journal's list of what is wrong without being in the journal. A disk
that is full for a long step may still take a short one: so the incident is written as soon as that
can be done, and people are told; but it is over only when there is room again for what a run may
want to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import structlog

from daemon.errors import StoreDamaged, StoreFull
from daemon.models import Incident
from daemon.store.journal import Journal

log = structlog.get_logger()

DATABASE = "database"
CAUSE = "takes nothing"
ROOM = "room"  # the small fact that is written to see whether there is any
ENOUGH = 256 * 1024  # bytes: more than nearly every step has
_RETRY = 15.0  # seconds between looks: nothing tells us when somebody has made room
ADVICE = (
    "Runs waited meanwhile where they were, and no tool was started whose call could not be written "  # noqa: E501
    "down first."
)


class Shortage:
    """Keeps the incident of a database that takes nothing."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        retry: float = _RETRY,
    ) -> None:
        self._journal, self._clock, self._wake, self._retry = journal, clock, wake, retry
        self._task: asyncio.Task[None] | None = None

    def heard(self, fault: StoreFull) -> None:
        """Take note that a write was refused; whoever tells of it waits for nothing."""
        if isinstance(fault, StoreDamaged) or (self._task and not self._task.done()):
            return  # to make room heals no damage, which store/maintenance.py looks for
        now = self._clock()
        log.error("store.refused", detail=str(fault))
        self._journal.incidents.lasting = Incident(
            id=0,
            subject=DATABASE,
            signature="",
            detail=str(fault),
            opened=now,
            seen=now,
            count=1,
            told=None,
            targets=(),
            acked=None,
            closed=None,
            run=None,
        )
        self._task = asyncio.create_task(
            self._until_taken(self._journal.incidents.lasting), name="shortage"
        )

    async def close(self) -> None:
        """Wait no longer."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _until_taken(self, incident: Incident) -> None:
        """Write the incident down as soon as that can be done, and that it is over when there is
        room again.
        """
        journal, written = self._journal, False
        while True:
            try:
                if not written:
                    since = incident.opened
                    await journal.incidents.report(
                        DATABASE, incident.detail, cause=CAUSE, advice=ADVICE, since=since
                    )
                    self._wake()
                    written = True
                await journal.facts.remember(ROOM, "." * ENOUGH)
                await journal.facts.remember(ROOM, "")
                await journal.incidents.resolve(DATABASE)
                break
            except StoreFull as still:
                incident = replace(
                    incident, detail=str(still), seen=self._clock(), count=incident.count + 1
                )
                journal.incidents.lasting = incident
            await asyncio.sleep(self._retry)
        journal.incidents.lasting = None
        log.info("store.accepted", since=incident.opened.isoformat())
        self._wake()
