"""The incident of a database that accepts no writes, usually because its disk is full.

While the disk is full, even the row of the incident may not fit into the database. So the incident
is first kept in memory (`IncidentRepository.unwritten`), where `agentctl status` reads it. A task
tries every 15 seconds to write it: a disk that has no room for a long step often has room for a
short row. Once that row is written, people are alerted. The same task then writes a probe, as large
as a long step. When the probe fits, there is room again for the steps of runs, and the incident is
closed.
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

_SUBJECT = "database"  # of the incident
_CAUSE = "takes nothing"
_PROBE_KEY = "room"  # under which the probe is written
_PROBE_SIZE = 256 * 1024  # bytes: more than nearly every step has
_RETRY_INTERVAL = 15.0  # seconds: nothing notifies us when somebody has made room
_ADVICE = (
    "Runs waited meanwhile where they were, and no tool was started whose call could not be "
    "written down first."
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
        """`retry` is the interval, in seconds, in which the task tries to write again."""
        self._journal = journal
        self._clock = clock
        self._outbox = outbox
        self._retry = retry
        self._task: asyncio.Task[None] | None = None

    def record(self, fault: StoreFull) -> None:
        """Open the incident for a write that failed. Returns at once; a task writes the incident.

        Nothing happens while the incident is open, nor for a damaged file: room does not repair
        that, and store/maintenance.py reports it.
        """
        if isinstance(fault, StoreDamaged) or (self._task and not self._task.done()):
            return
        now = self._clock.now()
        log.error("store.refused", detail=str(fault))
        incident = Incident(
            id=0,
            subject=_SUBJECT,
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
        self._journal.incidents.unwritten = incident
        self._task = asyncio.create_task(
            self._write_until_recovered(incident), name="incident of a full disk"
        )

    async def close(self) -> None:
        """Stop the task; an incident that was not written is lost with the process."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write_until_recovered(self, incident: Incident) -> None:
        """Try again and again to write the incident, then the probe, then the incident's end.

        Each refused write counts in the incident that is kept in memory.
        """
        journal = self._journal
        is_written = False
        while True:
            try:
                if not is_written:
                    await journal.incidents.report(
                        _SUBJECT,
                        incident.detail,
                        cause=_CAUSE,
                        advice=_ADVICE,
                        since=incident.opened,
                    )
                    self._outbox.wake()
                    is_written = True
                await journal.key_values.put(_PROBE_KEY, "." * _PROBE_SIZE)
                await journal.key_values.put(_PROBE_KEY, "")
                await journal.incidents.resolve(_SUBJECT, cause=_CAUSE)
                break
            except StoreFull as error:
                incident = replace(
                    incident,
                    detail=str(error),
                    last_seen=self._clock.now(),
                    count=incident.count + 1,
                )
                journal.incidents.unwritten = incident
            await asyncio.sleep(self._retry)
        journal.incidents.unwritten = None
        log.info("store.accepted", since=incident.opened.isoformat())
        self._outbox.wake()
