"""What texts mean, kept beside what they say; a help that may fail at any time, and that no run
ever waits for long.

Texts are embedded in the background, the newest first, never when they are written. A question
waits for its vector for a moment; an embedder that fails, or is late again and again, is left alone
for a while and words alone decide.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from daemon.memory import pgvector, vectors
from daemon.memory.embedders.base import Embedder, EmbedderFailed
from daemon.memory.repair import MemoryStore
from daemon.models import Json

log = structlog.get_logger()

T = TypeVar("T")

# seconds a question waits for its vector: a person would not notice, a run has not begun yet
PATIENCE = 0.15
LATE = 3  # times in a row that it may be late before it counts as gone
PAUSE, LONGEST_PAUSE = 30.0, 600.0  # seconds it is left alone, doubled each time
BATCH = 32
_CHARACTERS = 2_000  # of a text: what follows says seldom what it is about


class EmbeddingIndex:
    """An embedder, what it knows, and whether it can be relied on."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        patience: float = PATIENCE,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.embedder = embedder
        self.patience = patience
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._signs: dict[int, int] | None = None
        """What is known, by its signs; None before it was read."""
        self._in_server = False
        """The server compares: nothing is read but whether anything is known."""
        self._news = 0
        """Of what processes on a server have embedded, the last that we know of."""
        self._late = 0
        self._pause = PAUSE
        self._closed_until = 0.0
        self._done = 0
        """Of the segments up to this one, all that have to be embedded are."""
        self.fault: str | None = None
        """Why words alone decide, if they do."""

    @property
    def rests(self) -> float:
        """For how many seconds it is left alone from now."""
        return max(0.0, self._closed_until - self._now())

    async def load(self, memory_store: MemoryStore) -> None:
        """Read what is known already; before that, words alone decide."""
        name = self.embedder.name
        if memory_store.shared:
            self._in_server = await memory_store.write(pgvector.prepare)
            while self._in_server and await memory_store.write(
                lambda connection: vectors.fill(connection, name)
            ):
                pass

        def work(connection: sqlite3.Connection) -> tuple[int, dict[int, int]]:
            last = vectors.last_news(connection, name) if memory_store.shared else 0
            return last, {} if self._in_server else vectors.all_signs(connection, name)

        self._news, self._signs = await memory_store.read(work)

    async def of(self, question: str, memory_store: MemoryStore) -> vectors.Meant | None:
        """Return what a question means; None if that cannot be had at once."""
        if (
            self._signs is None
            or not question.strip()
            or self.rests
            or not await self._knows_any(memory_store)
        ):
            return None
        try:
            async with asyncio.timeout(self.patience):
                (vector,) = await self._embedded([question])
        except TimeoutError:
            self._late += 1
            if self._late >= LATE:
                self._leave_alone(f"no answer within {self.patience:g} s, {LATE} times in a row")
            return None
        except EmbedderFailed:
            return None
        self._late = 0
        return vectors.Meant(self.embedder.name, vector, None if self._in_server else self._signs)

    async def _knows_any(self, memory_store: MemoryStore) -> bool:
        """Tell whether there is anything to compare with; on a server, learn first what other
        processes know.
        """
        assert self._signs is not None  # noqa: S101  of() looked
        if not memory_store.shared:
            return bool(self._signs)
        name, since = self.embedder.name, self._news

        def work(connection: sqlite3.Connection) -> tuple[bool, bool, tuple[int, dict[int, int]]]:
            in_server = pgvector.compares(connection)
            news = (since, dict[int, int]()) if in_server else vectors.news(connection, name, since)
            return in_server, vectors.knows_any(connection, name), news

        there, any_, (last, fresh) = await memory_store.read(work)
        if self._in_server and not there:  # somebody has taken the extension away
            await self.load(memory_store)
            return any_
        self._in_server = there
        self._news = max(self._news, last)
        self._signs.update(fresh)
        return any_

    async def backfill(self, memory_store: MemoryStore) -> None:
        """Embed what is not embedded yet, until nothing is left; EmbedderFailed."""
        if self._signs is None:
            await self.load(memory_store)
        top = below = await memory_store.read(_top)
        while True:
            batch = await memory_store.read(
                partial(_lacking, model=self.embedder.name, done=self._done, below=below)
            )
            if not batch:
                break
            found = await self._embedded([each.text for each in batch])
            await self._keep(memory_store, dict(zip(batch, found, strict=True)))
            below = min([below, *(each.id for each in batch if each.id > 0)])
        self._done = max(self._done, top - 1)

    async def _keep(
        self, memory_store: MemoryStore, found: Mapping[_EmbeddingInput, list[float]]
    ) -> None:
        name, shared = self.embedder.name, memory_store.shared

        def work(connection: sqlite3.Connection) -> dict[int, list[float]]:
            # what was changed or forgotten while it was being embedded is gone, or waits for
            # another turn
            fresh = {
                text.id: vector
                for text, vector in found.items()
                if _text_of(connection, text.id) == text
            }
            vectors.put(connection, name, fresh, in_server=shared and pgvector.compares(connection))
            return fresh

        kept = await memory_store.write(work)
        if not self._in_server:
            assert self._signs is not None  # noqa: S101  loaded before anything is embedded
            self._signs.update({id_: vectors.signs(vector) for id_, vector in kept.items()})

    async def _embedded(self, texts: list[str]) -> list[list[float]]:
        """Return unit vectors; an embedder that fails is left alone for a while."""
        try:
            found = [vectors.unit(vector) for vector in await self.embedder.embed(texts)]
            if len(found) != len(texts):
                raise EmbedderFailed(f"{len(found)} vectors for {len(texts)} texts")
        except (EmbedderFailed, ValueError) as error:
            self._leave_alone(str(error))
            raise EmbedderFailed(str(error)) from error
        self._pause, self.fault = PAUSE, None
        return found

    def _leave_alone(self, why: str) -> None:
        self._closed_until = self._now() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._late = 0
        if self.fault != why:
            log.warning("memory.embedder_left_alone", embedder=self.embedder.name, error=why)
        self.fault = why

    def describe(self, embedded: Mapping[str, int]) -> Json:
        """Return how it is; of each model, so many texts are embedded."""
        return {
            "name": self.embedder.name,
            "known": embedded.get(self.embedder.name, 0) if self._signs is not None else 0,
            "compared": "by the server" if self._in_server else "here",
            "fault": self.fault,
        }

    async def close(self) -> None:
        await self.embedder.close()


class _EmbeddingInput(NamedTuple):
    """A text to be embedded; its id is that of the index."""

    id: int
    text: str


_ITEM = f"SELECT -id, substr(key || ': ' || text, 1, {_CHARACTERS}) FROM memory_item"  # noqa: S608  constants
_SEGMENT = (
    f"SELECT id, substr(CASE who WHEN '' THEN text ELSE who || ': ' || text END, 1, {_CHARACTERS})"  # noqa: S608
    " FROM memory_segment"
)


def _top(connection: sqlite3.Connection) -> int:
    (top,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM memory_segment").fetchone()
    return int(top)


def _lacking(
    connection: sqlite3.Connection, model: str, done: int, below: int
) -> list[_EmbeddingInput]:
    """Return some texts without a vector: items first, then the newest segments."""
    found = [
        *connection.execute(
            f"{_ITEM} AS i WHERE indexed = 1 AND NOT EXISTS"  # noqa: S608
            " (SELECT 1 FROM memory_embedding WHERE model = ? AND id = -i.id) LIMIT ?",
            (model, BATCH),
        )
    ]
    if not found:
        found += connection.execute(
            f"{_SEGMENT} AS s WHERE id > ? AND id < ? AND superseded IS NULL AND NOT EXISTS (SELECT "  # noqa: E501, S608
            "1"  # noqa: RUF100, S608
            " FROM memory_embedding WHERE model = ? AND id = s.id) ORDER BY id DESC LIMIT ?",
            (done, below, model, BATCH),
        )
    return [_EmbeddingInput(*row) for row in found]


def _text_of(connection: sqlite3.Connection, id_: int) -> _EmbeddingInput | None:
    query = (
        f"{_ITEM} WHERE id = ? AND indexed = 1"
        if id_ < 0
        else f"{_SEGMENT} WHERE id = ? AND superseded IS NULL"
    )
    row = connection.execute(query, (abs(id_),)).fetchone()
    return _EmbeddingInput(*row) if row else None
