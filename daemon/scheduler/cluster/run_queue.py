"""Execute runs that the queue in the database brings, as other processes do, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from daemon.errors import NotFound
from daemon.models import Run, Status
from daemon.scheduler.cluster.queue import TASK, open_procrastinate
from daemon.scheduler.run_queue import LocalRunQueue

if TYPE_CHECKING:
    from daemon.store.journal import Journal

log = structlog.get_logger()

_RETRY = 1.0  # seconds between attempts to reach a database that does not answer
# Seconds between two polls of the queue: new runs come by NOTIFY; runs whose `not_before` has come
# are found by polling.
_POLL_INTERVAL = 5.0
# Seconds between procrastinate's heartbeats; for repair.sql a worker is dead after a few of them.
_HEARTBEAT_INTERVAL = 3.0


class ClusterRunQueue(LocalRunQueue):
    """Execute what the queue brings as tasks of this process, at most `max_concurrent` at a time.

    Submitting does nothing here: the transaction that queued a run has put its id into the queue
    (queue.sql). The journal decides who may claim it, and that runs of one routine are executed one
    at a time.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ends: dict[str, asyncio.Future[None]] = {}
        """By run id; done when this process is done with the run."""

    async def submit(self, run: Run) -> None:
        """Do nothing: the queue has the run already."""

    async def submit_all(self, runs: Iterable[Run]) -> None:
        """Do nothing: the queue has the runs already."""

    def hold_parked(self, runs: Iterable[Run]) -> None:
        """Do nothing: the journal lets no run of a routine start before one that is parked."""

    def _park(self, run_id: str, routine: str) -> None:
        """Do nothing: another process may go on with it."""

    async def execute_here(self, run: Run) -> None:
        """Execute a run in this process, if it may be claimed; return once it has ended or was
        given up.
        """
        end = self._ends.setdefault(run.id, asyncio.get_running_loop().create_future())
        await LocalRunQueue.submit(self, run)
        await asyncio.shield(end)

    def _set_end(self, run_id: str) -> None:
        if (end := self._ends.pop(run_id, None)) and not end.done():
            end.set_result(None)

    def interrupt(self, run_id: str) -> bool:
        was_executed = super().interrupt(run_id)
        if not was_executed:
            self._set_end(run_id)
        return was_executed

    def _handle_end(self, run_id: str, *arguments: Any) -> None:
        super()._handle_end(run_id, *arguments)
        self._set_end(run_id)

    async def serve(
        self,
        journal: Journal,
        url: str,
        queues: list[str],
        requeue_if_unable: Callable[[Run], Awaitable[bool]],
    ) -> None:
        """Take runs from these queues until cancelled; connect again whenever the database does not
        answer.

        `requeue_if_unable` puts a run into the queue of its definition if this process cannot
        execute it, and returns whether it did.
        """
        while not self._stopping:
            try:
                await self._work_on(journal, url, queues, requeue_if_unable)
            except Exception as error:  # noqa: BLE001  a background task; procrastinate and psycopg raise many
                log.warning(
                    "cluster.queue_away",
                    problem=str(error).splitlines()[0] if str(error) else repr(error),
                )
            await asyncio.sleep(_RETRY)

    async def _work_on(
        self,
        journal: Journal,
        url: str,
        queues: list[str],
        requeue_if_unable: Callable[[Run], Awaitable[bool]],
    ) -> None:
        app = open_procrastinate(url)

        @app.task(name=TASK)
        async def execute(run: str) -> None:  # the name of the argument is in queue.sql, too
            try:
                queued_run = await journal.runs.get(run)
            except NotFound:
                return
            if queued_run.status is Status.QUEUED and not await requeue_if_unable(queued_run):
                # The queue delivers it when it is due by the clock of the database, which may
                # differ from that of this machine.
                await self.execute_here(replace(queued_run, not_before=None))

        async with app.open_async():
            await app.run_worker_async(
                queues=queues,
                concurrency=2 * self._max_concurrent,
                install_signal_handlers=False,
                listen_notify=True,
                delete_jobs="always",
                fetch_job_polling_interval=_POLL_INTERVAL,
                abort_job_polling_interval=60.0,
                shutdown_graceful_timeout=0.1,
                update_heartbeat_interval=_HEARTBEAT_INTERVAL,
            )
