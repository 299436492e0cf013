"""A queue of names without duplicates, processed by one task at a time, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice

import structlog

log = structlog.get_logger()

# Names that are processed at a time: 10,000 at once would stall the event loop.
BATCH_SIZE = 250


class CoalescingQueue:
    """Call `work` with the names that are added, in batches, one batch at a time.

    A name that is added several times while it waits is processed once. A name that is added while
    it is being processed is processed again afterwards: the reason may be newer than what `work`
    has seen.
    """

    def __init__(
        self,
        title: str,
        work: Callable[[Sequence[str]], Awaitable[object]],
        *,
        retry: float,
        session: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        """`title` is for logs and the task. `retry`: seconds until names of a failed batch are
        tried again. `session` is held from the first batch until the queue is empty.
        """
        self._title, self._work, self._session = title, work, session
        self._retry_delay, self._batch_size = retry, batch_size
        self._queued_names: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def add(self, *names: str) -> None:
        """Queue names that are not queued yet; does nothing after `stop`."""
        if names and not self._is_stopped:
            self._queued_names.update(dict.fromkeys(names))
            self._start_task()

    async def stop(self) -> None:
        """Drop the queued names, and wait for the batch that is being processed."""
        self._is_stopped = True
        self._queued_names.clear()
        if self._retry_timer:
            self._retry_timer.cancel()
        if self._task:
            await asyncio.wait([self._task])

    async def finish(self) -> None:
        """Process the queued names, without a retry after a failure, then stop."""
        while self._task and not self._task.done():
            await asyncio.wait([self._task])
        await self.stop()

    def _start_task(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._title)

    async def _run(self) -> None:
        names: list[str] = []
        try:
            async with self._session():
                while names := list(islice(self._queued_names, self._batch_size)):
                    for name in names:
                        del self._queued_names[name]
                    await self._work(names)
        except Exception:  # a background task: those who add names must be able to go on
            log.exception(
                "queue.failed", queue=self._title, names=names[:3], retry=self._retry_delay
            )
            if not self._is_stopped:
                self._queued_names = dict.fromkeys([*names, *self._queued_names])
                self._retry_timer = asyncio.get_running_loop().call_later(
                    self._retry_delay, self._start_task
                )
