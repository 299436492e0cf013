"""Maintain memory in the background: indexing, embedding, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import structlog

from daemon.memory.embedders.base import EmbedderFailed
from daemon.memory.memory import Memory
from daemon.memory.retention import MemoryRetention, apply_retention
from daemon.system.tasks import run_as_task

log = structlog.get_logger()

# Seconds.
DAY = 86_400.0


class MemoryMaintenance:
    """Run the background tasks of a memory; a failure is logged, and the task is tried again."""

    def __init__(
        self,
        memory: Memory,
        *,
        clock: Callable[[], datetime],
        retention: Callable[[], MemoryRetention] = MemoryRetention,
    ) -> None:
        self._memory, self._clock, self._retention = memory, clock, retention

    async def run(self) -> None:
        """Run all background tasks until cancelled."""
        loops = {"memory index": self._index(), "memory retention": self._daily()}
        if self._memory.embedding_index:
            loops["memory embedder"] = self._embed()
        async with asyncio.TaskGroup() as tasks:
            for name, loop in loops.items():
                tasks.create_task(run_as_task(loop, name), name=name)

    async def _index(self) -> None:
        while True:
            await self._memory.memory_store.incomplete_event.wait()
            await self._run_task("index", self._memory.refresh)

    async def _daily(self) -> None:
        while True:
            await self._run_task("examination", self.examine)
            await self._run_task("retention", self.retain)
            await asyncio.sleep(DAY)

    async def examine(self) -> None:
        """Check the index, and renew it if it is damaged."""
        await self._memory.memory_store.examine()

    async def retain(self) -> None:
        """Apply the retention in batches, then truncate the log of the database."""
        memory_store, now = self._memory.memory_store, self._clock()
        while not await memory_store.write(
            partial(apply_retention, retention=self._retention(), now=now)
        ):
            continue
        # a long read transaction lets the log grow
        await memory_store.run_outside_transaction(lambda connection: connection.truncate_log())

    async def _embed(self) -> None:
        embedding_index, change_event = self._memory.embedding_index, self._memory.watch()
        assert embedding_index is not None  # noqa: S101  run() has checked
        while True:
            change_event.clear()
            await self._run_task("embedding", self._backfill)
            if pause := embedding_index.seconds_paused:
                await asyncio.sleep(pause)
            else:
                await change_event.wait()

    async def _backfill(self) -> None:
        assert self._memory.embedding_index is not None  # noqa: S101  run() has checked
        try:
            await self._memory.embedding_index.backfill(self._memory.memory_store)
        except EmbedderFailed:
            return  # logged by the embedding index, which has paused the embedder

    async def _run_task(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except Exception:
            log.exception("memory.maintenance_failed", task=name)
            # a failure that comes back at once must not be logged thousands of times a second
            await asyncio.sleep(1.0)
