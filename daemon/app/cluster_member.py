"""What a process does because it shares its database with others: what it can run, and how it takes
up what they report.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.errors import DaemonError
from daemon.models import Json, Run, Status
from daemon.scheduler.cluster.requirements import capabilities_of
from daemon.scheduler.routine_times import matches_host

if TYPE_CHECKING:
    from daemon.app.run_supervisor import RunSupervisor
    from daemon.delivery.outbox import Outbox
    from daemon.memory.memory import Memory
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.tools.registry import FunctionRegistry

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineCapabilities:
    """What runs may need that this process has."""

    settings: LiveSettings
    registry: FunctionRegistry
    sources: Mapping[str, str]
    """The file or package of each tool of the user's own, by tool."""

    def list(self) -> Json:
        """Return the tools, providers and the like that runs find here now."""
        machines, host = self.settings.config.tools.machines, os.uname().nodename
        absent = {
            tool
            for tool, source in self.sources.items()
            if not matches_host(machines.get(source, ()), host)
        }
        return capabilities_of(
            self.settings.config, self.registry.names(), absent=absent, host=host
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerEvents:
    """Take up what other processes of the cluster report."""

    journal: Journal
    engine: RoutineEngine
    supervisor: RunSupervisor
    approvals: Approvals
    outbox: Outbox
    memory: Memory
    tasks: asyncio.TaskGroup

    def run_moved(self, run: Run) -> None:
        """Take up that a run of another process waits for a person, or has ended."""
        if run.status is Status.WAITING:
            self.approvals.wake()
        elif run.status.has_ended:
            self.outbox.wake()
            self.memory.ring()  # it may have left texts behind that are to be embedded
            self.journal.runs.when_ended(run)
            self.tasks.create_task(self._follow_up(run), name=f"end of run {run.id}")

    def pauses_changed(self) -> None:
        """Take up that a person may have paused or resumed a routine, or allowed a call for good,
        on another machine.
        """
        self.tasks.create_task(self._read_pauses(), name="pauses and approvals of other machines")

    async def _follow_up(self, run: Run) -> None:
        try:
            await self.supervisor.follow_up(run)
        except DaemonError as error:  # ends that were missed are looked up at the next start
            log.warning("cluster.end_missed", run=run.id, detail=str(error))

    async def _read_pauses(self) -> None:
        try:
            await self.approvals.heed()
            await self.engine.refresh_states()
        except DaemonError as error:
            # the connection that reports changes comes back with the database, and then they are
            # read again
            log.warning("cluster.pause_missed", detail=str(error))
