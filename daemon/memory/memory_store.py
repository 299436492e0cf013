"""Read and write the tables of memory; when the index is damaged, rebuild it and try again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from daemon.errors import StoreDamaged
from daemon.memory import index
from daemon.store.connection import Connection
from daemon.store.database import Database, Work

log = structlog.get_logger()

T = TypeVar("T")

# Batches that are indexed before the transaction is tried again: enough for the whole index of a
# usual store, half a second in a large one. The background task indexes the remaining texts.
_REBUILD_STEPS = 10
# Texts up to which the whole index is checked: 50 ms, in which nothing else can be written.
_SMALL_STORE = 5_000
# Items or runs that are stored between two compactions: FTS5 merges four segments of its index at a
# time.
_WRITES_PER_COMPACTION = 4


class MemoryStore:
    """Run transactions on the tables of memory, and rebuild the index when it is damaged.

    The index is derived from the tables, so no text is lost with it.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._renew_lock = asyncio.Lock()
        self._renewals = 0
        self._is_damage_elsewhere = False
        """The damage is not in the index: a new index did not help."""
        self._writes = 0
        self._pending_compactions = 0
        """Number of archived runs that changed the index and are not counted by
        `compact_sometimes` yet.
        """
        self.incomplete_event = asyncio.Event()
        """Set while texts are not indexed yet."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to the same database."""
        return self._db.shared

    async def begin(self) -> None:
        """Prepare the index for writing, before any other transaction; `refresh` indexes the
        missing texts.
        """
        if await self.write(index.clear_if_outdated):
            self.incomplete_event.set()

    async def read(self, work: Work[T]) -> T:
        """Run a work that reads, as `Database.read` does; again, if it failed as the index was
        damaged, which is repaired first.
        """
        return await self._retry_after_repair(lambda: self._db.read(work))

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run a work that writes, as `Database.write` does, and again after a repair, as `read`.

        It is finished even if the caller is cancelled.
        """
        return await self._retry_after_repair(lambda: self._write_shielded(work, durable=durable))

    def submit(self, work: Work[bool]) -> asyncio.Future[bool]:
        """Queue a write for the next transaction, in the order of submission.

        `work` returns whether searches may change; the future has this result after the commit.
        """
        while self._pending_compactions:
            self._pending_compactions -= 1
            self.compact_sometimes()
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def forward(future: asyncio.Future[bool]) -> None:
            if result.done() or future.cancelled():
                result.cancel()
            elif error := future.exception():
                result.set_exception(error)
            else:
                result.set_result(future.result())

        def check_outcome(future: asyncio.Future[bool]) -> None:
            if future.cancelled() or future.exception():
                failed_attempts = [future]

                def attempt() -> asyncio.Future[bool]:
                    # the write that has failed, then, after the repair, a new one
                    return failed_attempts.pop() if failed_attempts else self._write_shielded(work)

                retry = asyncio.ensure_future(self._retry_after_repair(attempt))
                retry.add_done_callback(forward)
                return
            if future.result():
                self._pending_compactions += 1
            forward(future)

        self._db.submit(work, lazily=True).add_done_callback(check_outcome)
        return result

    def _write_shielded(self, work: Work[T], *, durable: bool = False) -> asyncio.Future[T]:
        # the write continues when its caller is cancelled
        return asyncio.shield(self._db.submit(work, durable=durable))

    def compact_sometimes(self) -> None:
        """Count a write to the index, and queue a compaction after every fourth one."""
        self._writes += 1
        if self._writes % _WRITES_PER_COMPACTION == 0:
            # an error is ignored: the next use of the index meets the same damage and repairs it
            self._db.submit(index.compact, lazily=True).add_done_callback(
                lambda future: future.cancelled() or future.exception()
            )

    async def run_outside_transaction(self, work: Work[T]) -> T:
        """Run a work as `Database.run_outside_transaction` does; without a repair."""
        return await self._db.run_outside_transaction(work)

    async def refresh(self) -> None:
        """Index the texts that are not indexed yet, in one transaction a batch; usually none."""
        self.incomplete_event.clear()
        while not await self.write(index.rebuild_some):
            pass

    async def examine(self) -> list[str]:
        """Check the index, a small one completely, and rebuild a damaged one; return the faults."""
        renewals_before = self._renewals
        faults = await self.read(index.search_samples)
        if not faults and await self.read(_is_small):
            faults = await self.write(index.find_faults)
        if faults:
            log.warning("memory.index_damaged", error="; ".join(faults))
            await self.renew()
        elif self._renewals != renewals_before:
            # reading raised StoreDamaged, and the index is rebuilt already: whether SQLite raises
            # depends on its version
            faults = ["the index could not be read and was made anew"]
        return faults

    async def renew(self) -> None:
        """Replace the index by an empty one and index the first batches; others follow in the
        background.
        """
        async with self._renew_lock:
            await self._renew()

    async def _renew(self) -> None:
        await self.run_outside_transaction(index.renew)
        self._renewals += 1
        for _ in range(_REBUILD_STEPS):
            if await self._write_shielded(index.rebuild_some):
                return
        self.incomplete_event.set()

    async def _retry_after_repair(self, attempt: Callable[[], Awaitable[T]]) -> T:
        renewals_before = self._renewals
        try:
            return await attempt()
        except (StoreDamaged, sqlite3.OperationalError, sqlite3.IntegrityError) as error:
            if self._is_damage_elsewhere:
                raise
            async with self._renew_lock:
                if self._renewals == renewals_before:
                    if not isinstance(error, StoreDamaged) and not await self._is_index_unusable():
                        raise
                    log.warning("memory.index_damaged", error=str(error))
                    await self._renew()
        try:
            return await attempt()
        except StoreDamaged:
            self._is_damage_elsewhere = True
            raise

    async def _is_index_unusable(self) -> bool:
        """Tell whether the index fails its own check, which reads all of it.

        SQLite names the index in few of its errors: a lost table of it is "SQL logic error", and
        a row that it has already is a violated constraint.
        """
        try:
            await self._db.submit(index.check)
        except (StoreDamaged, sqlite3.DatabaseError):
            return True
        return False


def _is_small(connection: Connection) -> bool:
    (last_id,) = connection.execute("SELECT coalesce(max(id), 0) FROM memory_segment").fetchone()
    return int(last_id) <= _SMALL_STORE
