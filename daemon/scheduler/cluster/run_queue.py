"""Live runs that the queue brings, beside other processes that do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from daemon.errors import DaemonError, NotFound
from daemon.models import Run, Status
from daemon.scheduler.cluster.queue import TASK, open_procrastinate
from daemon.scheduler.run_queue import LocalRunQueue

if TYPE_CHECKING:
    from daemon.store.journal import Journal

log = structlog.get_logger()

_AGAIN = 1.0  # seconds between attempts to reach a queue that is away
# Seconds between looks at the queue: news comes by NOTIFY; runs that were put off are found by
# this.
_LOOK = 5.0
_BEAT = 3.0  # seconds; who is silent for three of these and more is passed by


class ClusterRunQueue(LocalRunQueue):
    """Live what the queue brings as tasks of this process, at most `max_concurrent` at a time.

    To submit a run is nothing: the transaction that queued it has handed it on. Who may have it,
    and that runs of a routine live one at a time, says the journal.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._awaited: dict[str, asyncio.Future[None]] = {}

    async def submit(self, run: Run) -> None:
        """Leave it to the queue, which has it already."""

    async def submit_all(self, runs: Iterable[Run]) -> None:
        """Leave them to the queue, which has them already."""

    def hold_parked(self, runs: Iterable[Run]) -> None:
        """Nothing: the journal lets nothing pass a run that waits for a person."""

    def _park(self, run_id: str, routine: str) -> None:
        """Nothing: it may go on elsewhere."""

    async def lived(self, run: Run) -> None:
        """Live a run here, if it is there to be taken, and return once it has ended or was let go
        of.
        """
        over = self._awaited.setdefault(run.id, asyncio.get_running_loop().create_future())
        await LocalRunQueue.submit(self, run)
        await asyncio.shield(over)

    def _over(self, run_id: str) -> None:
        if (over := self._awaited.pop(run_id, None)) and not over.done():
            over.set_result(None)

    def interrupt(self, run_id: str) -> bool:
        lived = super().interrupt(run_id)
        if not lived:
            self._over(run_id)
        return lived

    def _done(self, run_id: str, *rest: Any) -> None:
        super()._done(run_id, *rest)
        self._over(run_id)

    async def serve(
        self,
        journal: Journal,
        url: str,
        queues: list[str],
        passed_on: Callable[[Run], Awaitable[bool]],
    ) -> None:
        """Take runs from the queue until cancelled; where it is away, until it is back.

        `passed_on` hands a run on that we cannot live, and tells whether it did.
        """
        while not self._stopping:
            try:
                await self._take(journal, url, queues, passed_on)
            except DaemonError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a queue makes of being away; nothing depends on it
                log.warning(
                    "cluster.queue_away",
                    problem=str(error).splitlines()[0] if str(error) else repr(error),
                )
            await asyncio.sleep(_AGAIN)

    async def _take(
        self,
        journal: Journal,
        url: str,
        queues: list[str],
        passed_on: Callable[[Run], Awaitable[bool]],
    ) -> None:
        app = open_procrastinate(url)

        @app.task(name=TASK)
        async def live(run: str) -> None:
            try:
                found = await journal.get(run)
            except NotFound:
                return
            if found.status is Status.QUEUED and not await passed_on(found):
                # the queue brings it when it is due by the clock of the database; ours may be
                # another one
                await self.lived(replace(found, not_before=None))

        async with app.open_async():
            await app.run_worker_async(
                queues=queues,
                concurrency=2 * self._max,
                install_signal_handlers=False,
                listen_notify=True,
                delete_jobs="always",
                fetch_job_polling_interval=_LOOK,
                abort_job_polling_interval=60.0,
                shutdown_graceful_timeout=0.1,
                update_heartbeat_interval=_BEAT,
            )
