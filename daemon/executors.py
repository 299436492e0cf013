"""Who lives which run, and how many at once.

An executor is told run ids and nothing else. Being told twice, late or not at all harms nobody: the journal says
whether a run is there to be taken, and at the next start every run that is left over is told again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Protocol

import structlog

from daemon.models import Run, Status

log = structlog.get_logger()


class Executor(Protocol):
    """Where the engine hands a run on."""

    async def submit(self, run: Run) -> None: ...


class LocalExecutor:
    """Live runs as tasks of this process, at most `max_concurrent` at a time, first come, first served.

    Two runs of one routine never live beside each other: what queues or cancels its forerunner waits for its end.
    """

    def __init__(
        self, live: Callable[[str], Awaitable[Run | None]], *, max_concurrent: int, clock: Callable[[], datetime]
    ) -> None:
        self._live, self._max, self._clock = live, max_concurrent, clock
        self.running: dict[str, asyncio.Task[Run | None]] = {}
        self._ready: dict[str, str] = {}
        """Routines by run, in the order they came."""
        self._later: list[tuple[datetime, str, str]] = []
        self._lively: set[str] = set()
        """Routines of which a run is lived now."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    async def submit(self, run: Run) -> None:
        """Live the run as soon as there is room, not before its `not_before`."""
        if run.not_before is not None and run.not_before > self._clock():
            heapq.heappush(self._later, (run.not_before, run.id, run.routine))
            self._arm()
        else:
            self._line_up(run.id, run.routine)

    async def submit_all(self, runs: Iterable[Run]) -> None:
        """Take up what an earlier process left."""
        for run in runs:
            await self.submit(run)

    def queue_position(self, run_id: str) -> int | None:
        """Return how many runs stand before this one, or None if it does not wait for room."""
        return list(self._ready).index(run_id) if run_id in self._ready else None

    def interrupt(self, run_id: str) -> bool:
        """Stop the run where it is, tools included; the journal says whether that cancels or suspends it."""
        task = self.running.get(run_id)
        return task.cancel() if task else False

    async def idle(self) -> None:
        """Wait until no run is lived."""
        await self._idle.wait()

    async def stop(self, grace: float) -> None:
        """Start nothing more, wait up to `grace` seconds for the runs under way, then suspend them."""
        self._stopping = True
        if self._timer:
            self._timer.cancel()
        if self.running:
            log.info("executor.draining", runs=list(self.running), grace=grace)
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            tasks = list(self.running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _line_up(self, run_id: str, routine: str) -> None:
        if run_id not in self.running:
            self._ready.setdefault(run_id, routine)
            self._next()

    def _next(self) -> None:
        """Start what there is room for, passing over routines that are busy."""
        if self._stopping or len(self.running) >= self._max:
            return
        for run_id, routine in list(self._ready.items()):
            if routine in self._lively:
                continue
            del self._ready[run_id]
            self._lively.add(routine)
            self._idle.clear()
            task = self.running[run_id] = asyncio.create_task(self._one(run_id), name=f"run {run_id}")
            task.add_done_callback(partial(self._done, run_id, routine))
            if len(self.running) >= self._max:
                return

    async def _one(self, run_id: str) -> Run | None:
        try:
            return await self._live(run_id)
        except Exception:  # one run's fault must not stop the others; the run is taken up again at the next start
            log.exception("run.crashed", run=run_id)
            return None

    def _done(self, run_id: str, routine: str, task: asyncio.Task[Run | None]) -> None:
        self.running.pop(run_id, None)
        self._lively.discard(routine)
        run = None if task.cancelled() else task.result()
        if run is not None and run.status is Status.QUEUED:  # put off: it is ours to try again
            heapq.heappush(self._later, (run.not_before or self._clock(), run_id, routine))
            self._arm()
        self._next()
        if not self.running:
            self._idle.set()

    def _arm(self) -> None:
        """Stand one timer at the earliest moment a run may be tried again."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._later and not self._stopping:
            wait = (self._later[0][0] - self._clock()).total_seconds()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._ripen)

    def _ripen(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            _, run_id, routine = heapq.heappop(self._later)
            self._line_up(run_id, routine)
        self._arm()
