"""What is done for memory in the background: indexing, embedding, letting go of what is old."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import structlog

from daemon.memory.embedders.base import EmbedderFailed
from daemon.memory.memory import Memory
from daemon.memory.retention import Retention, apply_retention

log = structlog.get_logger()

DAY = 86_400.0


class MemoryMaintenance:
    """Keep a memory in order for as long as `run` runs; what goes wrong is logged and tried again
    later.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        clock: Callable[[], datetime],
        retention: Callable[[], Retention] = Retention,
    ) -> None:
        self._memory, self._clock, self._retention = memory, clock, retention

    async def run(self) -> None:
        """Sleep until there is something to do, and do it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._index(), name="memory index")
            tasks.create_task(self._daily(), name="memory retention")
            if self._memory.embedding_index:
                tasks.create_task(self._embed(), name="memory embedder")

    async def _index(self) -> None:
        while True:
            await self._memory.memory_store.is_incomplete.wait()
            await self._run_chore("index", self._memory.refresh)

    async def _daily(self) -> None:
        while True:
            await self._run_chore("examination", self._examine)
            await self._run_chore("retention", self.retain)
            await asyncio.sleep(DAY)

    async def _examine(self) -> None:
        await self._memory.memory_store.examine()

    async def retain(self) -> None:
        """Let go of what is too old, part by part, and give back the room that the log of the
        database takes.
        """
        memory_store, now = self._memory.memory_store, self._clock()
        while not await memory_store.write(
            partial(apply_retention, retention=self._retention(), now=now)
        ):
            continue
        await memory_store.run_outside_transaction(_optimize)

    async def _embed(self) -> None:
        embedding_index, change_event = self._memory.embedding_index, self._memory.watch()
        assert embedding_index is not None  # noqa: S101  run() looked
        while True:
            change_event.clear()
            await self._run_chore("embedding", self._backfill)
            if pause := embedding_index.seconds_paused:
                await asyncio.sleep(pause)
            else:
                await change_event.wait()

    async def _backfill(self) -> None:
        assert self._memory.embedding_index is not None  # noqa: S101  run() looked
        try:
            await self._memory.embedding_index.backfill(self._memory.memory_store)
        except EmbedderFailed:
            return  # it is said already, and left alone for a while

    async def _run_chore(self, chore: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except Exception:
            log.exception("memory.chore_failed", chore=chore)
            await asyncio.sleep(
                1.0
            )  # whatever it was, it must not come thousands of times a second


def _optimize(connection: sqlite3.Connection) -> None:
    """https://sqlite.org/pragma.html#pragma_optimize; a log that grew while somebody read long is
    cut.
    """
    if not isinstance(connection, sqlite3.Connection):
        return  # a server does so by itself
    connection.execute("PRAGMA analysis_limit = 400")
    connection.execute("PRAGMA optimize")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
