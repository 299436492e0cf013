"""Embed the texts of memory and the questions; the embedder may fail at any time, and no run waits
for it long.

Texts are embedded in the background, the newest first, never when they are written. A question
waits at most `query_timeout` for its vector. After a failure, or several timeouts in a row, the
embedder is paused, and searches use words only.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from daemon.memory import pgvector, vectors
from daemon.memory.embedders.base import Embedder, EmbedderFailed
from daemon.memory.memory_store import MemoryStore
from daemon.models import Json
from daemon.store.connection import Connection, placeholders

log = structlog.get_logger()

T = TypeVar("T")

# Seconds that a question waits for its vector: too short for a person to notice.
QUERY_TIMEOUT = 0.15
# Timeouts in a row after which the embedder is paused.
MAX_TIMEOUTS = 3
# Seconds of the first and the longest pause; each failure doubles the pause.
PAUSE, LONGEST_PAUSE = 30.0, 600.0
# Texts per request to the embedder.
BATCH = 32
# Characters of a text that are embedded: the subject of a text is seldom behind them.
_CHARACTERS = 2_000
# Characters of a text that the server refuses as a whole: small models take 512 tokens, which
# Chinese fills with as many characters.
_CHARACTERS_OF_REFUSED = 400
# Statuses by which servers refuse a text that is too long for the model: OpenAI, vLLM and
# text-embeddings-inference; then llama.cpp, which others may answer for any fault.
_REFUSALS = frozenset([400, 413, 422])
_POSSIBLE_REFUSALS = _REFUSALS | {500}
# A text that every model takes: it shows whether a server refuses some texts or all.
_PROBE = "text"


class EmbeddingIndex:
    """An embedder, the embeddings it has made, and its faults."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        query_timeout: float = QUERY_TIMEOUT,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.embedder = embedder
        self.query_timeout = query_timeout
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._signs_by_id: dict[int, int] | None = None
        """The signs of all embeddings by text id; None before `load`."""
        self._is_compared_by_server = False
        """PostgreSQL compares the vectors: no signs are read from it."""
        self._last_change_number = 0
        """The latest embedding of other processes on a server that is in `_signs_by_id`."""
        self._timeouts = 0
        self._pause = PAUSE
        self._paused_until = 0.0
        self._complete_below = 0
        """All segments up to this id are embedded, or need no embedding."""
        self._refused_items: set[_EmbeddingInput] = set()
        """Items that the server does not take; such segments are not asked for again anyway."""
        self._refusals: list[str] = []
        """What the server answered to the texts that it did not take in this backfill."""
        self.fault: str | None = None
        """Why the embedder was paused last; None after a success."""

    @property
    def seconds_paused(self) -> float:
        """Seconds until the embedder may be used again; 0.0 if it may be used now."""
        return max(0.0, self._paused_until - self._now())

    async def load(self, memory_store: MemoryStore) -> None:
        """Read the embeddings that are stored; until then `embed_query` returns None."""
        name = self.embedder.name
        if memory_store.is_shared:
            self._is_compared_by_server = await memory_store.write(pgvector.prepare)
            while self._is_compared_by_server and await memory_store.write(
                lambda connection: vectors.copy_to_server(connection, name)
            ):
                pass

        def work(connection: Connection) -> tuple[int, dict[int, int]]:
            last_change_number = (
                vectors.last_change_number(connection, name) if memory_store.is_shared else 0
            )
            return last_change_number, {} if self._is_compared_by_server else vectors.all_signs(
                connection, name
            )

        self._last_change_number, self._signs_by_id = await memory_store.read(work)

    async def embed_query(
        self, question: str, memory_store: MemoryStore
    ) -> vectors.QueryEmbedding | None:
        """Return the embedding of a question; None if it is not available within the timeout."""
        if (
            self._signs_by_id is None
            or not question.strip()
            or self.seconds_paused
            or not await self._has_embeddings(memory_store)
        ):
            return None
        try:
            async with asyncio.timeout(self.query_timeout):
                (vector,) = await self._request([question[:_CHARACTERS]])
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= MAX_TIMEOUTS:
                self._pause_embedder(
                    f"no answer within {self.query_timeout:g} s, {MAX_TIMEOUTS} times in a row"
                )
            return None
        except EmbedderFailed as error:
            if error.status not in _REFUSALS:  # a long question is no fault of the server's
                self._pause_embedder(str(error))
            return None
        self._timeouts = 0
        return vectors.QueryEmbedding(
            self.embedder.name, vector, None if self._is_compared_by_server else self._signs_by_id
        )

    async def _has_embeddings(self, memory_store: MemoryStore) -> bool:
        """Tell whether any text is embedded; on a server, read the new embeddings of other
        processes first.
        """
        assert self._signs_by_id is not None  # noqa: S101  embed_query has checked
        if not memory_store.is_shared:
            return bool(self._signs_by_id)
        name, last_change_number = self.embedder.name, self._last_change_number

        def work(connection: Connection) -> tuple[bool, bool, tuple[int, dict[int, int]]]:
            in_server = pgvector.compares(connection)
            news = (
                (last_change_number, dict[int, int]())
                if in_server
                else vectors.signs_since(connection, name, last_change_number)
            )
            return in_server, vectors.has_embeddings(connection, name), news

        can_compare, has_any, (newest, new_signs) = await memory_store.read(work)
        # the extension was removed from the server
        if self._is_compared_by_server and not can_compare:
            await self.load(memory_store)
            return has_any
        self._is_compared_by_server = can_compare
        self._last_change_number = max(self._last_change_number, newest)
        self._signs_by_id.update(new_signs)
        return has_any

    async def backfill(self, memory_store: MemoryStore) -> None:
        """Embed all texts that are not embedded yet, in batches; raises EmbedderFailed."""
        self._refusals = []
        try:
            await self._embed_missing(memory_store)
        finally:
            if self._refusals:
                count, error = len(self._refusals), self._refusals[-1]
                log.warning("memory.texts_not_embedded", texts=count, error=error)

    async def _embed_missing(self, memory_store: MemoryStore) -> None:
        """Embed the texts that have no embedding, the newest first; raises EmbedderFailed."""
        if self._signs_by_id is None:
            await self.load(memory_store)
        next_id = below = await memory_store.read(_next_segment_id)
        while True:
            batch = await memory_store.read(
                partial(
                    _unembedded_texts,
                    model=self.embedder.name,
                    complete_below=self._complete_below,
                    below=below,
                    refused_items=sorted(self._refused_items),
                )
            )
            if not batch:
                break
            await self._store_vectors(memory_store, await self._embed(batch))
            below = min([below, *(text.id for text in batch if text.id > 0)])
        self._complete_below = max(self._complete_below, next_id - 1)

    async def _store_vectors(
        self, memory_store: MemoryStore, embeddings: Mapping[_EmbeddingInput, list[float]]
    ) -> None:
        name, is_shared = self.embedder.name, memory_store.is_shared

        def work(connection: Connection) -> dict[int, list[float]]:
            # a text that was changed or deleted meanwhile is left out; a changed one is embedded
            # with a later batch
            current = {
                text.id: vector
                for text, vector in embeddings.items()
                if _text_of(connection, text.id) == text
            }
            vectors.put_vectors(
                connection, name, current, in_server=is_shared and pgvector.compares(connection)
            )
            return current

        stored_vectors = await memory_store.write(work)
        if not self._is_compared_by_server:
            assert self._signs_by_id is not None  # noqa: S101  loaded before anything is embedded
            self._signs_by_id.update(
                {id_: vectors.signs(vector) for id_, vector in stored_vectors.items()}
            )

    async def _embed(self, batch: Sequence[_EmbeddingInput]) -> dict[_EmbeddingInput, list[float]]:
        """Return the vectors of these texts, without those that the server refuses; after another
        failure, pause the embedder and raise EmbedderFailed.
        """
        try:
            try:
                embeddings = await self._request([text.text for text in batch])
            except EmbedderFailed as error:
                if error.status not in _POSSIBLE_REFUSALS:
                    raise
                await self.embedder.embed([_PROBE])  # fails if the server takes none at all
                return await self._embed_each(batch)
        except EmbedderFailed as error:
            self._pause_embedder(str(error))
            raise
        return dict(zip(batch, embeddings, strict=True))

    async def _embed_each(
        self, batch: Sequence[_EmbeddingInput]
    ) -> dict[_EmbeddingInput, list[float]]:
        """Return the vectors of those of these texts that the server takes; of a text that it
        refuses as a whole, the vector of its beginning.
        """
        embeddings = {}
        for text in batch:
            refusal = ""
            for part in dict.fromkeys((text.text, text.text[:_CHARACTERS_OF_REFUSED])):
                try:
                    (embeddings[text],) = await self._request([part])
                    break
                except EmbedderFailed as error:
                    if error.status not in _POSSIBLE_REFUSALS:
                        raise
                    refusal = str(error)
            else:
                self._refusals.append(refusal)
                if text.id < 0:
                    self._refused_items.add(text)
        return embeddings

    async def _request(self, texts: list[str]) -> list[list[float]]:
        """Return a unit vector per text; raises EmbedderFailed."""
        try:
            embeddings = [
                vectors.scale_to_unit(vector) for vector in await self.embedder.embed(texts)
            ]
        except ValueError as error:
            raise EmbedderFailed(str(error)) from error
        if len(embeddings) != len(texts):
            raise EmbedderFailed(f"{len(embeddings)} vectors for {len(texts)} texts")
        self._pause, self.fault = PAUSE, None
        return embeddings

    def _pause_embedder(self, reason: str) -> None:
        self._paused_until = self._now() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._timeouts = 0
        if self.fault != reason:
            log.warning("memory.embedder_left_alone", embedder=self.embedder.name, error=reason)
        self.fault = reason

    def describe(self, embedded_counts: Mapping[str, int]) -> Json:
        """Return the state of the embedder; `embedded_counts` has the number of embedded texts by
        model.
        """
        return {
            "name": self.embedder.name,
            "known": embedded_counts.get(self.embedder.name, 0)
            if self._signs_by_id is not None
            else 0,
            "compared": "by the server" if self._is_compared_by_server else "here",
            "fault": self.fault,
        }

    async def close(self) -> None:
        await self.embedder.close()


class _EmbeddingInput(NamedTuple):
    """A text to embed; its id is that of the index: negative for an item."""

    id: int
    text: str


_ITEM = f"SELECT -id, substr(key || ': ' || text, 1, {_CHARACTERS}) FROM memory_item"
_SEGMENT = (
    f"SELECT id, substr(CASE who WHEN '' THEN text ELSE who || ': ' || text END, 1, {_CHARACTERS})"
    " FROM memory_segment"
)


def _next_segment_id(connection: Connection) -> int:
    (next_id,) = connection.execute(
        "SELECT coalesce(max(id), 0) + 1 FROM memory_segment"
    ).fetchone()
    return int(next_id)


def _unembedded_texts(
    connection: Connection,
    model: str,
    complete_below: int,
    below: int,
    refused_items: Iterable[_EmbeddingInput] = (),
) -> list[_EmbeddingInput]:
    """Return up to BATCH texts without an embedding: items first, without those that were refused
    and have not changed since, then the newest segments.
    """
    refused_ids = [item.id for item in refused_items if _text_of(connection, item.id) == item]
    rows = [
        *connection.execute(
            f"{_ITEM} AS i WHERE indexed = 1 AND NOT EXISTS"
            " (SELECT 1 FROM memory_embedding WHERE model = ? AND id = -i.id)"
            f" AND -id NOT IN ({placeholders([0, *refused_ids])}) LIMIT ?",
            (model, 0, *refused_ids, BATCH),
        )
    ]
    if not rows:
        rows += connection.execute(
            f"{_SEGMENT} AS s WHERE id > ? AND id < ? AND superseded IS NULL AND NOT EXISTS (SELECT "  # noqa: E501
            "1"
            " FROM memory_embedding WHERE model = ? AND id = s.id) ORDER BY id DESC LIMIT ?",
            (complete_below, below, model, BATCH),
        )
    return [_EmbeddingInput(*row) for row in rows]


def _text_of(connection: Connection, id_: int) -> _EmbeddingInput | None:
    query = (
        f"{_ITEM} WHERE id = ? AND indexed = 1"
        if id_ < 0
        else f"{_SEGMENT} WHERE id = ? AND superseded IS NULL"
    )
    row = connection.execute(query, (abs(id_),)).fetchone()
    return _EmbeddingInput(*row) if row else None
