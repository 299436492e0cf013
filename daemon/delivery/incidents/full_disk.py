"""The incident of a database that accepts no writes, usually because its disk is full.

It may be impossible to write such an incident while it lasts. Until then the journal has it in
memory only (`Journal.lasting`), where `agentctl status` reads it. A disk that is too full for a
long step may still have room for a short row: so the incident is written as soon as that succeeds,
and people are alerted. It is closed only when there is room again for any step of a run.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from daemon.errors import StoreDamaged, StoreFull
from daemon.models import Incident
from daemon.store.journal import Journal

if TYPE_CHECKING:
    from daemon.delivery.outbox import Outbox
    from daemon.system.clock import Clock

log = structlog.get_logger()

_DATABASE = "database"
_CAUSE = "takes nothing"
_PROBE_KEY = "room"  # of the fact that is written to see whether there is room
_PROBE_SIZE = 256 * 1024  # bytes: more than nearly every step has
_RETRY_INTERVAL = 15.0  # seconds: nothing notifies us when somebody has made room
_ADVICE = (
    "Runs waited meanwhile where they were, and no tool was started whose call could not be written "  # noqa: E501
    "down first."
)


class FullDiskIncident:
    """Opens and closes the incident of a database that accepts no writes."""

    def __init__(
        self,
        journal: Journal,
        outbox: Outbox,
        *,
        clock: Clock,
        retry: float = _RETRY_INTERVAL,
    ) -> None:
        """`retry` is in seconds."""
        self._journal = journal
        self._clock = clock
        self._outbox = outbox
        self._retry = retry
        self._task: asyncio.Task[None] | None = None

    def record(self, fault: StoreFull) -> None:
        """Open the incident if it is not open yet. Returns at once; a task writes it."""
        if isinstance(fault, StoreDamaged) or (self._task and not self._task.done()):
            return  # room does not repair a damaged file, which store/maintenance.py reports
        now = self._clock.now()
        log.error("store.refused", detail=str(fault))
        self._journal.incidents.lasting = Incident(
            id=0,
            subject=_DATABASE,
            signature="",
            detail=str(fault),
            opened=now,
            last_seen=now,
            count=1,
            last_alert=None,
            targets=(),
            acked=None,
            closed=None,
            run=None,
        )
        self._task = asyncio.create_task(
            self._write_until_recovered(self._journal.incidents.lasting),
            name="incident of a full disk",
        )

    async def close(self) -> None:
        """Stop the task; an incident that was not written is lost with the process."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write_until_recovered(self, incident: Incident) -> None:
        """Write the incident as soon as that succeeds, and its end when a probe fits again."""
        journal = self._journal
        is_written = False
        while True:
            try:
                if not is_written:
                    start = incident.opened
                    await journal.incidents.report(
                        _DATABASE, incident.detail, cause=_CAUSE, advice=_ADVICE, since=start
                    )
                    self._outbox.wake()
                    is_written = True
                await journal.facts.remember(_PROBE_KEY, "." * _PROBE_SIZE)
                await journal.facts.remember(_PROBE_KEY, "")
                await journal.incidents.resolve(_DATABASE)
                break
            except StoreFull as error:
                incident = replace(
                    incident,
                    detail=str(error),
                    last_seen=self._clock.now(),
                    count=incident.count + 1,
                )
                journal.incidents.lasting = incident
            await asyncio.sleep(self._retry)
        journal.incidents.lasting = None
        log.info("store.accepted", since=incident.opened.isoformat())
        self._outbox.wake()
