"""The database as memory uses it: where the index turns out to be damaged, it is made anew and the
work done again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from daemon.errors import StoreDamaged
from daemon.memory import fulltext, index
from daemon.store.database import Database, Work

log = structlog.get_logger()

T = TypeVar("T")

# Parts of a new index that are made before the work is tried again: a usual store is then complete,
# a big one half a second further. The rest follows in the background.
_REBUILD_STEPS = 10
# Texts whose index is checked in full: 50 ms, in which nobody else writes.
_SMALL_STORE = 5_000
# So many texts or runs are kept between two times that the index is put in order: it joins four of
# its parts at a time.
_WRITES_PER_COMPACTION = 4


class MemoryStore:
    """Read and write what memory keeps; the index may be lost at any time, and nothing is lost with
    it.

    Whatever is written comes by here, so that what was answered before is forgotten with it.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._renew_lock = asyncio.Lock()
        self._renewals = 0
        self._is_damage_elsewhere = False
        """The damage is not in the index: making it anew did not help."""
        self._writes = 0
        self._pending_compactions = 0
        """So many runs that were archived lately had something new to say, and put it into the
        index.
        """
        self.is_incomplete = asyncio.Event()
        """Something is left to index."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to the same database."""
        return self._db.shared

    async def begin(self) -> None:
        """Make the index one that others may write to; what is missing in it is made by
        `refresh`.
        """
        if await self.write(index.begin):
            self.is_incomplete.set()

    async def read(self, work: Work[T]) -> T:
        return await self._retry_after_repair(lambda: self._db.read(work))

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        return await self._retry_after_repair(lambda: self._write_shielded(work, durable=durable))

    def submit(self, work: Work[bool]) -> asyncio.Future[bool]:
        """Do it with whatever is written next; works are committed in the order of their
        submission.

        It tells whether a question may be answered otherwise than before.
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
                attempts = (
                    future if is_first else self._write_shielded(work) for is_first in (True, False)
                )
                asyncio.ensure_future(
                    self._retry_after_repair(lambda: next(attempts))
                ).add_done_callback(forward)
                return
            if future.result():
                self._pending_compactions += 1
            forward(future)

        self._db.submit(work, lazily=True).add_done_callback(check_outcome)
        return result

    def _write_shielded(self, work: Work[T], *, durable: bool = False) -> asyncio.Future[T]:
        # it is written as well where nobody waits for it any more
        return asyncio.shield(self._db.submit(work, durable=durable))

    def compact_sometimes(self) -> None:
        """Note that the index is about to grow, and now and then put it in order, with whatever is
        written next.
        """
        self._writes += 1
        if self._writes % _WRITES_PER_COMPACTION == 0:
            # whoever uses the index next hears of its damage
            self._db.submit(index.compact, lazily=True).add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )

    async def run_outside_transaction(self, work: Work[T]) -> T:
        return await self._db.apart(work)

    async def refresh(self) -> None:
        """Index what is left to index, part by part; usually nothing."""
        self.is_incomplete.clear()
        while not await self.write(index.rebuild_some):
            pass

    async def examine(self) -> list[str]:
        """Look whether the index is what it should be; a small one in full.

        One that is not is made anew.
        """
        renewals_before = self._renewals
        faults = await self.read(index.probe)
        if not faults and await self.read(_is_small):
            faults = await self.write(index.faults)
        if faults:
            log.warning("memory.index_damaged", error="; ".join(faults))
            await self.renew()
        elif (
            self._renewals != renewals_before
        ):  # SQLite itself refused to read it; that depends on its version
            faults = ["the index could not be read and was made anew"]
        return faults

    async def renew(self) -> None:
        """Throw the index away, begin a new one, and have the rest of it made in the background."""
        async with self._renew_lock:
            await self._renew()

    async def _renew(self) -> None:
        await self.run_outside_transaction(index.renew)
        self._renewals += 1
        for _ in range(_REBUILD_STEPS):
            if await self._write_shielded(index.rebuild_some):
                return
        self.is_incomplete.set()

    async def _retry_after_repair(self, attempt: Callable[[], Awaitable[T]]) -> T:
        renewals_before = self._renewals
        try:
            return await attempt()
        except (StoreDamaged, sqlite3.OperationalError) as error:
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
        """Tell whether the index cannot even be asked for one word."""
        try:
            await self._db.read(
                lambda connection: fulltext.of(connection).holds(connection, 0, ["a"])
            )
        except (StoreDamaged, sqlite3.OperationalError):
            return True
        return False


def _is_small(connection: sqlite3.Connection) -> bool:
    (last_id,) = connection.execute("SELECT coalesce(max(id), 0) FROM memory_segment").fetchone()
    return int(last_id) <= _SMALL_STORE
