"""The one object the rest of the house knows of memory."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from daemon.errors import NotFound, Refused
from daemon.memory import rows, stats
from daemon.memory.embedding_index import EmbeddingIndex
from daemon.memory.repair import MemoryStore
from daemon.memory.segments import Segment, segment_rows
from daemon.models import Anchor, ExpandedContext, Json, MemoryChunk
from daemon.store.database import Database, Work
from daemon.store.rows import clean, moment, stamp

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.memory.recall import RecallHit

# An item is a thought, not a file; what is longer belongs into the workspace.
MAX_ITEM = 16_000
MAX_KEY = 200
# What one run, and all runs of one routine, may take of a prompt's excerpt: a routine's own reports
# are alike.
PER_RUN, PER_ROUTINE = 3, 6
CATEGORIES = ("core", "daily", "conversation", "custom")


class MemoryItem(NamedTuple):
    """A text kept under a key."""

    key: str
    content: str
    category: str
    run: str | None
    tainted: bool
    created: datetime
    updated: datetime
    pinned: bool = False


class RecallContext(NamedTuple):
    """What a run is told from memory before it begins."""

    excerpt_text: str
    """What fits its task, as text for a prompt; empty if nothing does."""
    item_text: str
    """What is kept under the key that was asked for."""
    tainted: bool
    """Strangers may have had a hand in some of it."""
    extra: Any = None
    """What was asked for in the same look, if anything."""


class Memory:
    """Keep items and runs, and find them again; in English and Chinese, without a server or a
    model.

    `settings` gives the time zone in which a question means yesterday, UTC if left out. Call
    `open` before anything else.
    """

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        settings: LiveConfig | None = None,
        embedding_index: EmbeddingIndex | None = None,
    ) -> None:
        self.memory_store = MemoryStore(db)
        self._clock, self._settings = clock, settings
        self.embedding_index = embedding_index
        self._watchers: WeakSet[asyncio.Event] = WeakSet()

    async def open(self) -> None:
        """Make the index ready to be written to; indexing anew, if it has to be, is left to
        `refresh`.
        """
        await self.memory_store.begin()

    async def close(self) -> None:
        """Let go of the embedder; the database is its owner's."""
        if self.embedding_index:
            await self.embedding_index.close()

    def watch(self) -> asyncio.Event:
        """Return an event that is set whenever something was kept, changed or forgotten; its holder
        clears it.
        """
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def notify_watchers(self) -> None:
        """Tell those who watch that something has changed."""
        if len(self._watchers):  # mostly nobody does, and to find that out one by one takes longer
            for event in self._watchers:
                event.set()

    # --- items ---

    async def store(
        self,
        key: str,
        content: str,
        *,
        category: str = "core",
        run: str | None = None,
        tainted: bool = False,
    ) -> None:
        """Keep `content` under `key`, in place of what was there; Refused says why it cannot be
        kept.
        """
        key, text, now = check_key(key), check_text(key, content), stamp(self._clock())
        if category not in CATEGORIES:
            msg = f"{category!r} is not a category of items; there are {', '.join(CATEGORIES)}"
            raise Refused(msg)

        def work(connection: sqlite3.Connection) -> None:
            rows.put_item(
                connection, key=key, text=text, category=category, run=run, tainted=tainted, now=now
            )

        self.memory_store.compact_sometimes()
        await self.memory_store.write(work)
        self.notify_watchers()

    async def get(self, key: str) -> str | None:
        """Return what is kept under exactly this key."""
        row = await self.memory_store.read(
            lambda connection: rows.item(connection, clean(key).strip())
        )
        return row.text if row else None

    async def forget(self, key: str) -> bool:
        """Delete the item with this key; tell whether there was one."""
        existed = await self.memory_store.write(
            lambda connection: rows.drop_item(connection, clean(key).strip())
        )
        self.notify_watchers()
        return existed

    async def pin(self, key: str, is_pinned: bool = True) -> None:
        """Let no retention take the item with this key, or let it again; NotFound."""
        if not await self.memory_store.write(
            lambda connection: rows.pin(connection, clean(key).strip(), is_pinned)
        ):
            msg = f"nothing is kept under {key!r}; `agentctl memory list` shows what is"
            raise NotFound(msg)
        self.notify_watchers()

    async def items(self, category: str | None = None, limit: int = 100) -> list[MemoryItem]:
        """Return items, of one category or all, those changed last first."""
        return [
            item_of(row)
            for row in await self.memory_store.read(
                lambda connection: rows.items(connection, category, limit)
            )
        ]

    async def item(self, key: str) -> MemoryItem | None:
        """Return the item with exactly this key."""
        row = await self.memory_store.read(
            lambda connection: rows.item(connection, clean(key).strip())
        )
        return item_of(row) if row else None

    async def mirrored_items(self) -> list[MemoryItem]:
        """Return what a person may want to have before their eyes: core and pinned items."""
        rows_found = await self.memory_store.read(
            lambda connection: rows.items_in(
                connection, "category = 'core' OR pinned = 1 ORDER BY id"
            )
        )
        return [item_of(row) for row in rows_found]

    async def demote(self, key: str) -> None:
        """Make an item neither core nor pinned; it is found as before."""
        await self.memory_store.write(
            lambda connection: rows.demote(connection, clean(key).strip())
        )
        self.notify_watchers()

    async def seed(self, seeds: Mapping[str, str]) -> None:
        """Keep what is to be known from the start: key and text."""
        now = stamp(self._clock())
        await self.memory_store.write(
            lambda connection: rows.seed(connection, seeds.items(), "core", now)
        )

    # --- finding (imported with the first question, and right after READY: the daemon starts
    # without it) ---

    async def retrieve(
        self, query: str | Sequence[str], limit: int = 10, *, exclude_run: str | None = None
    ) -> list[MemoryChunk]:
        """Return what fits the question best, best first; of several questions, what fits any of
        them.
        """
        from daemon.memory.texts import chunk

        hits = await self.search(query, limit, exclude_run=exclude_run)
        return [chunk(hit.text, hit.relevance) for hit in hits]

    async def search(
        self, query: str | Sequence[str], limit: int = 10, *, exclude_run: str | None = None
    ) -> list[RecallHit]:
        """Do the same, and say of each hit why it was found."""
        from daemon.memory.recall import merge_hits

        queries = [query] if isinstance(query, str) else list(query)
        hits = [await self._search(query_, limit, exclude_run=exclude_run) for query_ in queries]
        return hits[0] if len(hits) == 1 else merge_hits(hits, limit)

    async def excerpt(
        self, query: str, *, limit: int = 10, tokens: int = 800, exclude_run: str | None = None
    ) -> str:
        """Return what fits the question as text for a prompt: merged, dated, fenced, capped; empty
        if nothing does.
        """
        return (
            await self.recall(query, limit=limit, tokens=tokens, exclude_run=exclude_run)
        ).excerpt_text

    async def recall(
        self,
        query: str,
        key: str = "",
        *,
        limit: int = 10,
        tokens: int = 800,
        exclude_run: str | None = None,
        read_extra: Work[Any] | None = None,
    ) -> RecallContext:
        """Return the recall context for a prompt: up to `limit` hits within `tokens`, and the item
        stored under `key`.

        Uses one read transaction; what `beside` reads in it comes back as the briefing's `beside`.
        """
        from daemon.memory import context

        def make(connection: sqlite3.Connection, hits: list[RecallHit]) -> RecallContext:
            item = rows.item(connection, key) if key else None
            text, tainted = context.excerpt(connection, hits, tokens)
            return RecallContext(
                text,
                item.text if item else "",
                tainted or bool(item and item.tainted),
                read_extra(connection) if read_extra else None,
            )

        recalled: RecallContext = await self._search(
            query,
            limit,
            exclude_run=exclude_run,
            per_run=PER_RUN,
            per_routine=PER_ROUTINE,
            convert=make,
        )
        return recalled

    async def _search(
        self,
        query: str,
        limit: int,
        *,
        exclude_run: str | None,
        per_run: int | None = None,
        per_routine: int | None = None,
        convert: Callable[[sqlite3.Connection, list[RecallHit]], Any] = lambda _connection, hits: (
            hits
        ),
    ) -> Any:
        """Return what `make` makes of the hits, in the read transaction that found them."""
        from daemon.memory.recall import search

        zone = self._settings.zone if self._settings else UTC
        now = self._clock().astimezone(zone)
        query_embedding = (
            await self.embedding_index.embed_query(query, self.memory_store)
            if self.embedding_index
            else None
        )

        def work(connection: sqlite3.Connection) -> Any:
            hits = search(
                connection,
                query,
                limit,
                now=now,
                query_embedding=query_embedding,
                exclude_run=exclude_run,
                per_run=per_run,
                per_routine=per_routine,
            )
            return convert(connection, hits)

        return await self.memory_store.read(work)

    async def expand(self, anchor: Anchor, window: int = 1) -> ExpandedContext:
        """Return a remembered text with what stood around it; raises NotFound."""
        from daemon.memory import context

        return await self.memory_store.read(
            lambda connection: context.expand(connection, anchor, window)
        )

    # --- runs ---

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
        line: str | None = None,
        tainted: bool = False,
    ) -> asyncio.Future[bool]:
        """Keep a run in pieces; await the result to know it is committed.

        Doing it again replaces what was kept.

        `line`, which stands for the whole, is kept with them as the item `run:<id>`. As it says
        what they say, it is in the index only when they are gone: the lines of all its runs would
        be the best answers to a routine's goal.
        """
        key = f"{rows.LINE_PREFIX}{run}"
        line = check_text(key, line) if line else None

        def work(connection: sqlite3.Connection) -> bool:
            is_changed = rows.put_run(
                connection,
                run=run,
                routine=routine,
                goal=clean(goal),
                status=status,
                started=stamp(started),
                ended=stamp(ended),
                pieces=list(segment_rows(routine, segments)),
            )
            if line:
                is_changed |= rows.put_item(
                    connection,
                    key=key,
                    text=line,
                    category="conversation",
                    run=run,
                    tainted=tainted,
                    now=stamp(ended),
                    indexed=False,
                )
            return is_changed

        result = self.memory_store.submit(work)
        result.add_done_callback(
            lambda _: self.notify_watchers()
        )  # and not before: whoever looks now would find nothing
        return result

    # --- keeping it in order ---

    async def refresh(self) -> None:
        """Index what is left to index, part by part; usually nothing."""
        await self.memory_store.refresh()

    async def stats(self) -> Json:
        """Return how much there is of everything, and how far the index is."""
        counts = await self.memory_store.read(lambda connection: stats.counts(connection))
        return counts | {
            "embedder": self.embedding_index.describe(counts["embedded"])
            if self.embedding_index
            else None
        }


def item_of(row: rows.IndexedItem) -> MemoryItem:
    return MemoryItem(
        row.key,
        row.text,
        row.category,
        row.run_id,
        bool(row.tainted),
        moment(row.created),
        moment(row.updated),
        bool(row.pinned),
    )


def check_key(key: str) -> str:
    """Return the key as it is kept; Refused if it is none."""
    key = clean(key).strip()
    if not key or len(key) > MAX_KEY or not key.isprintable():
        msg = f"a key is 1 to {MAX_KEY} printable characters, found {key[:60]!r}"
        raise Refused(msg)
    return key


def check_text(key: str, content: str) -> str:
    """Return the text of an item as it is kept; Refused if there is none, or too much."""
    text = clean(content).strip()
    if not text:
        msg = f"there is nothing to keep under {key!r}; to delete an item, forget it"
        raise Refused(msg)
    if len(text) > MAX_ITEM:
        msg = (
            f"an item holds at most {MAX_ITEM} characters, this has {len(text)}: keep the essence, "
            "or write a file"
        )
        raise Refused(msg)
    return text
