"""The heartbeat of a process that shares the database: it renews the leases of the process, and
reads what became of its runs.

There are at least three heartbeats in a lease. A process whose heartbeat failed for a whole lease
does not know whether it still owns its runs: it stops them. A process that was suspended meanwhile
reads with its first heartbeat which runs it has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from daemon.errors import DaemonError
from daemon.models import Json
from daemon.system.tasks import cancel_and_wait

if TYPE_CHECKING:
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.connection import Connection
    from daemon.store.journal import Journal
    from daemon.store.workers import Worker

log = structlog.get_logger()

# Seconds between two heartbeats at most: the next one finds run ids that were lost on their way.
_MAX_INTERVAL = 20.0


class HeartbeatHost(Protocol):
    """The application of this process, as its heartbeat sees it."""

    def capabilities(self) -> Json:
        """Return the tools, providers and other things runs may need that this process has, as
        requirements.capabilities_of makes them.
        """

    def leader_tasks(self) -> Sequence[tuple[str, Coroutine[Any, Any, None]]]:
        """Return names and coroutines of the tasks that only the leader runs."""

    def handle_moved_waits(self) -> None:
        """Look again until when deliveries and approvals wait: these instants were moved."""


class Heartbeat:
    """Renews the leases of this process until it ends, and runs the leader's tasks while this
    process is the leader.
    """

    def __init__(
        self,
        journal: Journal,
        queue: LocalRunQueue,
        worker: Worker,
        host: HeartbeatHost,
        *,
        executes_runs: bool,
        may_lead: bool,
        repair: Callable[[Connection, int], None],
    ) -> None:
        """`worker` is the row of this process in the list of workers.

        `executes_runs`: whether it takes runs itself. `repair` is executed with each heartbeat, see
        queue.repair_queue.
        """
        self._journal, self._queue, self._worker = journal, queue, worker
        self._host = host
        self._executes_runs, self._may_lead, self._repair = executes_runs, may_lead, repair
        self._running_leader_tasks: list[asyncio.Task[None]] = []
        self._end_of_leading: asyncio.Task[None] | None = None
        """Waits for the leader's tasks that were given up."""
        self._wake = asyncio.Event()
        self.has_beaten = asyncio.Event()
        """Set after the first heartbeat, even if it failed."""

    def beat_now(self) -> None:
        """Beat at once, because notifications may have been lost."""
        self._wake.set()

    @property
    def is_leader(self) -> bool:
        return bool(self._running_leader_tasks)

    async def run(self) -> None:
        """Beat until cancelled, then stop leading."""
        loop, lease = asyncio.get_running_loop(), self._journal.runs.lease.total_seconds()
        interval = min(lease / 3, _MAX_INTERVAL)
        last_success = loop.time()
        try:
            while True:
                self._wake.clear()
                started_at = loop.time()
                try:
                    async with asyncio.timeout(max(lease - (started_at - last_success), interval)):
                        await self._beat()
                    # When it was sent: the lease must not end later here than in the database.
                    last_success = started_at
                except (DaemonError, TimeoutError) as error:
                    log.warning(
                        "cluster.heartbeat_failed",
                        detail=str(error) or "the database does not answer",
                    )
                for task in self._running_leader_tasks:
                    if task.done():  # it should not: with its error, this process ends
                        task.result()
                if loop.time() - last_success >= lease:
                    self._give_up()
                self.has_beaten.set()
                try:
                    async with asyncio.timeout(max(0.0, started_at + interval - loop.time())):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            await self._stop_leading()

    async def leave(self) -> None:
        """Take this process off the list of workers."""
        async with asyncio.timeout(self._journal.runs.lease.total_seconds()):
            await self._journal.workers.remove(self._worker.id)

    async def _beat(self) -> None:
        capacity = self._queue.capacity if self._executes_runs else 0
        worker = replace(
            self._worker,
            running=len(self._queue.running),
            capacity=capacity,
            capabilities=self._host.capabilities(),
        )
        renewal = await self._journal.workers.renew_leases(
            worker, may_lead=self._may_lead, repair=self._repair
        )
        for run in (*renewal.lost_runs, *renewal.cancelled_runs):
            if self._queue.interrupt(run):
                log.warning("run.lost" if run in renewal.lost_runs else "run.stopping", run=run)
        if renewal.freed_runs:
            log.warning("cluster.took_over", runs=list(renewal.freed_runs))
        if renewal.waits.deliveries or renewal.waits.questions:
            self._host.handle_moved_waits()
        if renewal.is_leader and not self._running_leader_tasks:
            await self._stop_leading()  # what was given up: no report must be sent by two outboxes
            log.info("cluster.leads")
            self._running_leader_tasks = [
                asyncio.create_task(task, name=name) for name, task in self._host.leader_tasks()
            ]
            for task in self._running_leader_tasks:
                task.add_done_callback(lambda _: self._wake.set())
        elif not renewal.is_leader:
            await self._stop_leading()

    async def _stop_leading(self) -> None:
        """Stop what only the leader does, and wait for its end."""
        self._cancel_leader_tasks()
        if self._end_of_leading:
            await asyncio.shield(self._end_of_leading)
            self._end_of_leading = None

    def _cancel_leader_tasks(self) -> None:
        tasks, self._running_leader_tasks = self._running_leader_tasks, []
        if tasks:
            self._end_of_leading = asyncio.create_task(cancel_and_wait(tasks))

    def _give_up(self) -> None:
        """Stop everything that another process may have taken over by now."""
        self._cancel_leader_tasks()
        for run in list(self._queue.running):
            log.warning(
                "run.given_up", run=run, why="nothing was heard of the database for a whole lease"
            )
            self._queue.interrupt(run)
