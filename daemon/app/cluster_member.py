"""The daemon as a member of a cluster: what it can run, what it does as the leader, and how it
reacts to changes by other processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from daemon.app.background import (
    BackgroundTask,
    chat_tasks,
    maintenance_tasks,
    run_with_retries,
)
from daemon.errors import DaemonError
from daemon.models import Json, Run, Status
from daemon.scheduler.cluster.requirements import capabilities_of
from daemon.scheduler.routine_times import matches_host
from daemon.system.tasks import run_as_task

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.app.parts import DeliveryServices, Store, Tools
    from daemon.chat.inbound import ChatInbound
    from daemon.delivery.outbox import Outbox
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.run_queue import LocalRunQueue, RunSupervisor
    from daemon.system.clock import Clock

log = structlog.get_logger()


def wake_waits(queue: LocalRunQueue, outbox: Outbox, approvals: Approvals) -> None:
    """Let everything that waits for an instant read it again: the clock was set, and some were
    moved.
    """
    queue.rebuild_order()
    outbox.wake()
    approvals.wake()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterMember:
    """The interface ClusterHost, implemented by the parts of the daemon."""

    installation: Installation
    clock: Clock
    settings: LiveSettings
    store: Store
    delivery: DeliveryServices
    tools: Tools
    queue: LocalRunQueue
    approvals: Approvals
    engine: RoutineEngine
    supervisor: RunSupervisor
    chat_inbound: Sequence[ChatInbound]
    tasks: asyncio.TaskGroup

    def capabilities(self) -> Json:
        """Return the tools, providers and the like that runs find here now."""
        config, host = self.settings.config, os.uname().nodename
        absent = {
            tool
            for tool, source in self.tools.sources.items()
            if not matches_host(config.tools.machines.get(source, ()), host)
        }
        return capabilities_of(config, self.tools.registry.names(), absent=absent, host=host)

    def leader_tasks(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what one daemon of a cluster does for all of them."""
        tasks = [
            BackgroundTask(name="outbox", run=self.delivery.outbox.run),
            *maintenance_tasks(
                self.installation, self.settings, self.clock, self.store, self.delivery, self.queue
            ),
            *chat_tasks(self.chat_inbound),
        ]
        return [(task.name, run_as_task(run_with_retries(task), task.name)) for task in tasks]

    def handle_moved_waits(self) -> None:
        """Look again until when deliveries and approvals wait: these instants were moved."""
        wake_waits(self.queue, self.delivery.outbox, self.approvals)

    def handle_run_change(self, run: Run) -> None:
        """React to a run of another process that waits for a person or has ended."""
        if run.status is Status.WAITING:
            self.approvals.wake()
        elif run.status.has_ended:
            self.delivery.outbox.wake()
            # it may have archived texts that need embeddings
            self.store.memory.notify_watchers()
            self.store.journal.runs.on_ended(run)
            self.tasks.create_task(self._follow_up(run), name=f"end of run {run.id}")

    def handle_pause_change(self) -> None:
        """React to a person who may have paused or resumed a routine, or allowed a call for good,
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
            await self.approvals.refresh_remembered()
            await self.engine.refresh_states()
        except DaemonError as error:
            # the connection that reports changes comes back with the database, and then they are
            # read again
            log.warning("cluster.pause_missed", detail=str(error))
