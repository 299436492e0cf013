"""Memory: the one object through which other packages store, find and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from daemon.errors import NotFound, Refused
from daemon.memory import rows, stats
from daemon.memory.embedding_index import EmbeddingIndex
from daemon.memory.memory_store import MemoryStore
from daemon.memory.segments import Segment, make_segment_parts
from daemon.models import Anchor, ExpandedContext, Json, MemoryChunk
from daemon.store.connection import Connection
from daemon.store.database import Database, Work
from daemon.store.rows import clean, from_microseconds, to_microseconds

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.memory.recall import RecallHit, Selection

# An item is a thought, not a file; what is longer belongs into the workspace.
MAX_ITEM_CHARACTERS = 16_000
MAX_KEY_CHARACTERS = 200
# Hits that one run, and all runs of one routine, may take of a prompt's excerpt: the reports of a
# routine are alike and would fill it.
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
    """What memory adds to the prompt of a run before the run begins."""

    excerpt_text: str
    """The texts that fit the goal, as text for a prompt; empty if no text fits."""
    item_text: str
    """The text of the item with the requested key; empty if there is no such item."""
    tainted: bool
    """Untrusted bytes may have influenced the excerpt or the item."""
    left_out_texts: int = 0
    """How many texts, the item included, were left out since strangers may have written them."""
    extra: Any = None
    """What `read_extra` returned in the same transaction; None without it."""


class Memory:
    """Store items and archived runs, and search them in English and Chinese; no server or model is
    needed.

    `settings` gives the time zone for words such as "yesterday" in a question, UTC if left out.
    `open` must be called first.
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
        """Prepare the index for writing; texts that are not indexed yet are left to `refresh`."""
        await self.memory_store.begin()

    async def close(self) -> None:
        """Close the embedder; the database stays open and belongs to its owner."""
        if self.embedding_index:
            await self.embedding_index.close()

    def watch(self) -> asyncio.Event:
        """Return an event that is set whenever memory changes; the caller clears the event."""
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def notify_watchers(self) -> None:
        """Set the events of all watchers."""
        if not len(self._watchers):  # mostly so, and iterating over a WeakSet is slower
            return
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
        """Store an item under its key, in place of an earlier one; raises Refused for a bad key,
        text or category.
        """
        key, text, now = check_key(key), check_text(key, content), to_microseconds(self._clock())
        if category not in CATEGORIES:
            msg = f"{category!r} is not a category of items; there are {', '.join(CATEGORIES)}"
            raise Refused(msg)

        def work(connection: Connection) -> None:
            rows.put_item(
                connection, key=key, text=text, category=category, run=run, tainted=tainted, now=now
            )

        self.memory_store.compact_sometimes()
        await self.memory_store.write(work)
        self.notify_watchers()

    async def get(self, key: str) -> str | None:
        """Return the text of the item with exactly this key; None if there is no such item."""
        row = await self.memory_store.read(
            lambda connection: rows.item(connection, clean(key).strip())
        )
        return row.text if row else None

    async def delete_item(self, key: str) -> bool:
        """Delete the item with this key; False if there was none."""
        is_deleted = await self.memory_store.write(
            lambda connection: rows.drop_item(connection, clean(key).strip())
        )
        self.notify_watchers()
        return is_deleted

    async def pin(self, key: str, is_pinned: bool = True) -> None:
        """Protect an item from retention, or end the protection; raises NotFound."""
        if not await self.memory_store.write(
            lambda connection: rows.pin(connection, clean(key).strip(), is_pinned)
        ):
            msg = f"nothing is kept under {key!r}; `agentctl memory list` shows what is"
            raise NotFound(msg)
        self.notify_watchers()

    async def items(self, category: str | None = None, limit: int = 100) -> list[MemoryItem]:
        """Return the items of one category or of all, the last changed first."""
        item_rows = await self.memory_store.read(
            lambda connection: rows.items(connection, category, limit)
        )
        return [item_of(row) for row in item_rows]

    async def item(self, key: str) -> MemoryItem | None:
        """Return the item with exactly this key; None if there is no such item."""
        row = await self.memory_store.read(
            lambda connection: rows.item(connection, clean(key).strip())
        )
        return item_of(row) if row else None

    async def mirrored_items(self) -> list[MemoryItem]:
        """Return the items of MEMORY.md: core and pinned ones, the oldest first."""
        item_rows = await self.memory_store.read(
            lambda connection: rows.items_in(
                connection, "category = 'core' OR pinned = 1 ORDER BY id"
            )
        )
        return [item_of(row) for row in item_rows]

    async def demote(self, key: str) -> None:
        """Make an item neither core nor pinned; searches find it as before."""
        await self.memory_store.write(
            lambda connection: rows.demote(connection, clean(key).strip())
        )
        self.notify_watchers()

    async def seed(self, seeds: Mapping[str, str]) -> None:
        """Store the items that come with the daemon, texts by key."""
        now = to_microseconds(self._clock())
        await self.memory_store.write(
            lambda connection: rows.seed(connection, seeds.items(), "core", now)
        )

    # --- searching (its modules are imported inside of the methods: the daemon starts without
    # them, and imports them after READY or with the first question) ---

    async def retrieve(
        self, query: str | Sequence[str], limit: int = 10, *, exclude_run: str | None = None
    ) -> list[MemoryChunk]:
        """Return the texts that fit a question, the best first; of several questions, the texts
        that fit any of them.
        """
        from daemon.memory.rows import chunk

        hits = await self.search(query, limit, exclude_run=exclude_run)
        return [chunk(hit.text, hit.relevance) for hit in hits]

    async def search(
        self, query: str | Sequence[str], limit: int = 10, *, exclude_run: str | None = None
    ) -> list[RecallHit]:
        """Return the texts that fit a question, as `retrieve` does, with the reasons for each."""
        from daemon.memory.recall import merge_hits

        queries = [query] if isinstance(query, str) else list(query)
        hit_lists = [
            await self._search(question, limit, exclude_run=exclude_run) for question in queries
        ]
        return hit_lists[0] if len(hit_lists) == 1 else merge_hits(hit_lists, limit)

    async def excerpt(
        self, query: str, *, limit: int = 10, tokens: int = 800, exclude_run: str | None = None
    ) -> str:
        """Return the texts that fit a question as text for a prompt: merged, dated, fenced and
        within `tokens`; empty if no text fits.
        """
        context = await self.recall(query, limit=limit, tokens=tokens, exclude_run=exclude_run)
        return context.excerpt_text

    async def recall(
        self,
        query: str,
        key: str = "",
        *,
        limit: int = 10,
        tokens: int = 800,
        exclude_run: str | None = None,
        untainted_only: bool = False,
        without_seeds: bool = False,
        read_extra: Work[Any] | None = None,
    ) -> RecallContext:
        """Return the recall context for a prompt: up to `limit` hits within `tokens`, and the item
        stored under `key`.

        With `untainted_only`, what strangers may have written is left out and counted; with
        `without_seeds`, what the daemon says of itself is left out. Uses one read transaction;
        `read_extra` runs in it too, and its result is the context's `extra`.
        """
        from daemon.memory import recall

        def make_context(connection: Connection, selection: Selection) -> RecallContext:
            item = rows.item(connection, key) if key else None
            left_out_texts = sum(
                hit.relevance >= recall.MIN_RELEVANCE and not (key and hit.text.key == key)
                for hit in selection.left_out_hits
            )
            if item and item.tainted and untainted_only:
                item, left_out_texts = None, left_out_texts + 1
            text, tainted = recall.excerpt(
                connection, selection.hits, tokens, untainted_only=untainted_only
            )
            return RecallContext(
                text,
                item.text if item else "",
                tainted or bool(item and item.tainted),
                left_out_texts,
                read_extra(connection) if read_extra else None,
            )

        context: RecallContext = await self._search(
            query,
            limit,
            exclude_run=exclude_run,
            per_run=PER_RUN,
            per_routine=PER_ROUTINE,
            untainted_only=untainted_only,
            without_goals=True,
            without_seeds=without_seeds,
            convert=make_context,
        )
        return context

    async def _search(
        self,
        query: str,
        limit: int,
        *,
        exclude_run: str | None,
        per_run: int | None = None,
        per_routine: int | None = None,
        untainted_only: bool = False,
        without_goals: bool = False,
        without_seeds: bool = False,
        convert: Callable[[Connection, Selection], Any] = lambda _, selection: selection.hits,
    ) -> Any:
        """Search, and return what `convert` makes of the hits in the same read transaction."""
        from daemon.memory.recall import search

        zone = self._settings.zone if self._settings else UTC
        now = self._clock().astimezone(zone)
        query_embedding = (
            await self.embedding_index.embed_query(query, self.memory_store)
            if self.embedding_index
            else None
        )

        def work(connection: Connection) -> Any:
            selection = search(
                connection,
                query,
                limit,
                now=now,
                query_embedding=query_embedding,
                exclude_run=exclude_run,
                per_run=per_run,
                per_routine=per_routine,
                untainted_only=untainted_only,
                without_goals=without_goals,
                without_seeds=without_seeds,
            )
            return convert(connection, selection)

        return await self.memory_store.read(work)

    async def expand(self, anchor: Anchor, window: int = 1) -> ExpandedContext:
        """Return the text at an anchor with `window` texts before and after it; raises NotFound."""
        from daemon.memory import recall

        return await self.memory_store.read(
            lambda connection: recall.expand(connection, anchor, window)
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
        run_line: str | None = None,
        tainted: bool = False,
    ) -> asyncio.Future[bool]:
        """Archive a run as segments, in place of an earlier archive of the run.

        The future ends when the run is committed; its result says whether searches may change.

        `run_line`, the run in one line, is stored as the item `run:<id>`. It repeats the segments,
        so it is indexed only when they are deleted: otherwise the lines of earlier runs would be
        the best answers to a routine's goal.
        """
        key = f"{rows.RUN_LINE_PREFIX}{run}"
        run_line = check_text(key, run_line) if run_line else None

        def work(connection: Connection) -> bool:
            is_changed = rows.put_run(
                connection,
                run=run,
                routine=routine,
                goal=clean(goal),
                status=status,
                started=to_microseconds(started),
                ended=to_microseconds(ended),
                parts=list(make_segment_parts(routine, segments)),
            )
            if run_line:
                is_changed |= rows.put_item(
                    connection,
                    key=key,
                    text=run_line,
                    category="conversation",
                    run=run,
                    tainted=tainted,
                    now=to_microseconds(ended),
                    indexed=False,
                )
            return is_changed

        result = self.memory_store.submit(work)
        # not before the commit: a watcher would not find the run yet
        result.add_done_callback(lambda _: self.notify_watchers())
        return result

    # --- maintenance ---

    async def refresh(self) -> None:
        """Index the texts that are not indexed yet, in one transaction a batch; usually none."""
        await self.memory_store.refresh()

    async def stats(self) -> Json:
        """Return the counts of items, runs and segments, the progress of the index and the
        embedder's state.
        """
        counts = await self.memory_store.read(lambda connection: stats.counts(connection))
        return counts | {
            "embedder": self.embedding_index.describe(counts["embedded"])
            if self.embedding_index
            else None
        }


def item_of(row: rows.StoredItem) -> MemoryItem:
    """Return the memory item of a row."""
    return MemoryItem(
        row.key,
        row.text,
        row.category,
        row.run_id,
        bool(row.tainted),
        from_microseconds(row.created),
        from_microseconds(row.updated),
        bool(row.pinned),
    )


def check_key(key: str) -> str:
    """Return a key as it is stored; raises Refused for an invalid one."""
    key = clean(key).strip()
    if not key or len(key) > MAX_KEY_CHARACTERS or not key.isprintable():
        msg = f"a key is 1 to {MAX_KEY_CHARACTERS} printable characters, found {key[:60]!r}"
        raise Refused(msg)
    return key


def check_text(key: str, content: str) -> str:
    """Return the text of an item as it is stored; raises Refused if it is empty or too long."""
    text = clean(content).strip()
    if not text:
        msg = f"there is nothing to keep under {key!r}; to delete an item, forget it"
        raise Refused(msg)
    if len(text) > MAX_ITEM_CHARACTERS:
        msg = (
            f"an item holds at most {MAX_ITEM_CHARACTERS} characters, this has {len(text)}: "
            "keep the essence, or write a file"
        )
        raise Refused(msg)
    return text
