"""Names that wait for one piece of work, done by one task at a time; what fails is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice

import structlog

log = structlog.get_logger()

# So many at a time: 10,000 at once would stall the loop.
SLICE = 250


class CoalescingQueue:
    """Do `work` for each name that is added, in slices, and none twice at once.

    A name that is added while its work is under way has its turn again afterwards: what it was
    added for may be newer than what the work has seen.
    """

    def __init__(
        self,
        title: str,
        work: Callable[[Sequence[str]], Awaitable[object]],
        *,
        retry: float,
        session: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        at_once: int = SLICE,
    ) -> None:
        self._at_once = at_once
        self._title, self._work, self._after, self._session = title, work, retry, session
        self._waiting: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    def add(self, *names: str) -> None:
        """Have the work done for these names."""
        if names and not self._stopped:
            self._waiting.update(dict.fromkeys(names))
            self._begin()

    async def stop(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        self._stopped = True
        self._waiting.clear()
        if self._retry:
            self._retry.cancel()
        if self._task:
            await asyncio.wait([self._task])

    async def finish(self) -> None:
        """Do what waits, once more if it fails, and begin nothing after that."""
        while self._task and not self._task.done():
            await asyncio.wait([self._task])
        await self.stop()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._title)

    async def _run(self) -> None:
        names: list[str] = []
        try:
            async with self._session():
                while names := list(islice(self._waiting, self._at_once)):
                    for name in names:
                        del self._waiting[name]
                    await self._work(names)
        except Exception:  # those who add must be able to go on; what was not done still waits
            log.exception("errand.failed", errand=self._title, names=names[:3], retry=self._after)
            if not self._stopped:
                self._waiting = dict.fromkeys([*names, *self._waiting])
                self._retry = asyncio.get_running_loop().call_later(self._after, self._begin)
