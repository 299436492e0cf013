"""The heart of a process that shares the store: it says that we live, and hears what became of our
runs.

Three beats are in a lease. A process that could not beat for a whole lease does not know whether
its runs are still its own: it stops them. One that was asleep meanwhile is told by its first beat
which it has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from daemon.errors import DaemonError
from daemon.models import Json

if TYPE_CHECKING:
    from daemon.scheduler.run_queue import LocalRunQueue
    from daemon.store.journal import Journal
    from daemon.store.leases import Worker

log = structlog.get_logger()

_SLOWEST = 20.0  # seconds between two beats: what was lost on its way waits no longer


class Heartbeat:
    """Beats for as long as the process lives; `lead` is what only one daemon of all does, as long
    as it is us.
    """

    def __init__(
        self,
        journal: Journal,
        executor: LocalRunQueue,
        me: Worker,
        *,
        lives: bool = True,
        heal: Any = None,
        lead: Callable[[], Sequence[tuple[str, Any]]] | None = None,
        has: Callable[[], Json] = dict,
        on_waits_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`when_waits_moved`: told when a beat has moved the end of deliveries or questions to
        another time.
        """
        self._has, self._when_waits_moved = has, on_waits_moved
        self._journal, self._executor, self._me, self._heal, self._lead = (
            journal,
            executor,
            me,
            heal,
            lead,
        )
        self._lives = lives
        self._leading: list[asyncio.Task[None]] = []
        self._bell = asyncio.Event()
        self.began = asyncio.Event()
        """It has beaten once."""

    def ring(self) -> None:
        """Beat at once: we may have missed something."""
        self._bell.set()

    @property
    def leads(self) -> bool:
        return bool(self._leading)

    async def run(self) -> None:
        """Beat until cancelled; then take us off the list."""
        loop, lease = asyncio.get_running_loop(), self._journal.lease.total_seconds()
        pace = min(lease / 3, _SLOWEST)
        heard = loop.time()
        try:
            while True:
                self._bell.clear()
                begin = loop.time()
                try:
                    async with asyncio.timeout(max(lease - (begin - heard), pace)):
                        await self._beat()
                    heard = begin  # the lease runs from before it was asked for
                except (DaemonError, TimeoutError) as error:
                    log.warning(
                        "cluster.heartbeat_failed",
                        detail=str(error) or "the database does not answer",
                    )
                if loop.time() - heard >= lease:
                    self._let_go()
                self.began.set()
                try:
                    async with asyncio.timeout(max(0.0, begin + pace - loop.time())):
                        await self._bell.wait()
                except TimeoutError:
                    pass
        finally:
            await self._follow()

    async def leave(self) -> None:
        """Say that we are going."""
        async with asyncio.timeout(self._journal.lease.total_seconds()):
            await self._journal.leave(self._me.id)

    async def _beat(self) -> None:
        capacity = self._executor.capacity * self._lives
        me = replace(
            self._me, running=len(self._executor.running), capacity=capacity, has=self._has()
        )
        beat = await self._journal.beat(me, may_lead=self._lead is not None, heal=self._heal)
        for run in (*beat.lost, *beat.cancelled):
            if self._executor.interrupt(run):
                log.warning("run.lost" if run in beat.lost else "run.stopping", run=run)
        if beat.freed:
            log.warning("cluster.took_over", runs=list(beat.freed))
        if beat.waits.deliveries or beat.waits.questions:
            self._when_waits_moved()
        if beat.leads and not self._leading and self._lead:
            log.info("cluster.leads")
            self._leading = [asyncio.create_task(work, name=name) for name, work in self._lead()]
        elif not beat.leads:
            await self._follow()

    async def _follow(self) -> None:
        """Do no more of what one daemon of all does."""
        tasks, self._leading = self._leading, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _let_go(self) -> None:
        """Stop everything that may be somebody else's by now."""
        for task in self._leading:
            task.cancel()
        self._leading = []
        for run in list(self._executor.running):
            log.warning(
                "run.given_up", run=run, why="nothing was heard of the database for a whole lease"
            )
            self._executor.interrupt(run)
