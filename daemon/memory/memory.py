"""The one object the rest of the house knows of memory."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from daemon.errors import Refused
from daemon.memory import context, index, rows
from daemon.memory.pieces import Segment, pieces
from daemon.memory.retrieve import search
from daemon.memory.texts import chunk
from daemon.models import Anchor, ExpandedContext, MemoryChunk
from daemon.store.database import Database
from daemon.store.rows import clean, moment, stamp

# An item is a thought, not a file; what is longer belongs into the workspace.
MAX_ITEM = 16_000
MAX_KEY = 200
# What one run, and all runs of one routine, may take of a prompt's excerpt: a routine's own reports are alike.
PER_RUN, PER_ROUTINE = 3, 6
CATEGORIES = ("core", "daily", "conversation", "custom")


class Item(NamedTuple):
    """A text kept under a key."""

    key: str
    content: str
    category: str
    run: str | None
    tainted: bool
    created: datetime
    updated: datetime


class Memory:
    """Keep items and runs, and find them again; in English and Chinese, without a server or a model."""

    def __init__(self, db: Database, *, clock: Callable[[], datetime]) -> None:
        self._db = db
        self._clock = clock

    async def store(
        self, key: str, content: str, *, category: str = "core", run: str | None = None, tainted: bool = False
    ) -> None:
        """Keep `content` under `key`, in place of what was there; Refused says why it cannot be kept."""
        key, text, now = _checked_key(key), clean(content).strip(), stamp(self._clock())
        if category not in CATEGORIES:
            msg = f"{category!r} is not a category of items; there are {', '.join(CATEGORIES)}"
            raise Refused(msg)
        if not text:
            msg = f"there is nothing to keep under {key!r}; to delete an item, forget it"
            raise Refused(msg)
        if len(text) > MAX_ITEM:
            msg = (
                f"an item holds at most {MAX_ITEM} characters, this has {len(text)}: keep the essence, or write a file"
            )
            raise Refused(msg)

        def work(connection: sqlite3.Connection) -> None:
            rows.put_item(connection, key=key, text=text, category=category, run=run, tainted=tainted, now=now)

        await self._db.write(work)

    async def get(self, key: str) -> str | None:
        """Return what is kept under exactly this key."""
        found = await self._db.read(lambda connection: rows.item(connection, clean(key).strip()))
        return found.text if found else None

    async def forget(self, key: str) -> bool:
        """Delete the item with this key; tell whether there was one."""
        return await self._db.write(lambda connection: rows.drop_item(connection, clean(key).strip()))

    async def items(self, category: str | None = None, limit: int = 100) -> list[Item]:
        """Return items, of one category or all, those changed last first."""
        found = await self._db.read(lambda connection: rows.items(connection, category, limit))
        return [
            Item(
                each.key,
                each.text,
                each.category,
                each.run_id,
                bool(each.tainted),
                moment(each.created),
                moment(each.updated),
            )
            for each in found
        ]

    async def retrieve(self, query: str, limit: int = 10, *, exclude_run: str | None = None) -> list[MemoryChunk]:
        """Return what fits the question best, best first."""
        hits = await self._db.read(lambda connection: search(connection, query, limit, exclude_run=exclude_run))
        return [chunk(hit.text, hit.relevance) for hit in hits]

    async def expand(self, anchor: Anchor, window: int = 1) -> ExpandedContext:
        """Return a remembered text with what stood around it; raises NotFound."""
        return await self._db.read(lambda connection: context.expand(connection, anchor, window))

    async def excerpt(self, query: str, *, limit: int = 10, tokens: int = 800, exclude_run: str | None = None) -> str:
        """Return what fits the question as text for a prompt: merged, dated, fenced, capped; empty if nothing does."""

        def work(connection: sqlite3.Connection) -> str:
            hits = search(connection, query, limit, exclude_run=exclude_run, per_run=PER_RUN, per_routine=PER_ROUTINE)
            return context.excerpt(connection, hits, tokens)

        return await self._db.read(work)

    def archive(
        self,
        *,
        run: str,
        routine: str,
        goal: str,
        status: str,
        segments: Sequence[Segment],
        started: datetime,
        ended: datetime,
    ) -> asyncio.Future[None]:
        """Keep a run in pieces; await the result to know it is committed. Doing it again replaces what was kept."""

        def work(connection: sqlite3.Connection) -> None:
            rows.put_run(
                connection,
                run=run,
                routine=routine,
                goal=clean(goal),
                status=status,
                started=stamp(started),
                ended=stamp(ended),
                pieces=list(pieces(routine, segments)),
            )

        return self._db.submit(work)

    async def seed(self, seeds: Mapping[str, str]) -> None:
        """Bring the index up to date, and keep what is to be known from the start: key and text."""
        await self.refresh()
        now = stamp(self._clock())
        await self._db.write(lambda connection: rows.seed(connection, seeds.items(), "core", now))

    async def refresh(self) -> None:
        """Index what a change of the index's rules left to index anew, part by part; usually nothing."""
        done = False
        while not done:
            done = await self._db.write(index.rebuild_some)


def _checked_key(key: str) -> str:
    key = clean(key).strip()
    if not key or len(key) > MAX_KEY or not key.isprintable():
        msg = f"a key is 1 to {MAX_KEY} printable characters, found {key[:60]!r}"
        raise Refused(msg)
    return key
