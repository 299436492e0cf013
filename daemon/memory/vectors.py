"""Store embeddings as rows, and compare them with the embedding of a question.

Theory of operation. Comparing a question with every vector needs numpy, or takes a second, so
each vector is stored twice. Its signs, one bit per dimension, are compared with the question's by
counting different bits: a tenth of a microsecond each. Only the few hundred nearest by signs are
compared by cosine. Plain Python is enough for both.

A PostgreSQL server with pgvector compares the vectors itself (pgvector.py). Without pgvector, each
process reads from the server which texts other processes have embedded.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from daemon.memory import pgvector
from daemon.store.connection import Connection, placeholders

# Texts that are compared by signs, the newest of a larger store: 30 ms, and some 50 MB with 1,024
# dimensions.
MAX_COMPARED = 200_000
# Of the nearest texts by signs, those that are compared by cosine.
MAX_NEAREST = 200
# Of the nearest texts by signs, those that are looked up to find MAX_NEAREST that still exist.
MAX_LOOKED_UP = 12_800


class QueryEmbedding(NamedTuple):
    """The embedding of a question, and the signs of all embedded texts by id."""

    model: str
    vector: Sequence[float]
    signs: Mapping[int, int] | None
    """None: pgvector compares."""


def scale_to_unit(vector: Sequence[float]) -> list[float]:
    """Scale a vector to length 1; raises ValueError if it is empty, all zero or not finite."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    if not vector or not math.isfinite(length) or length == 0:
        raise ValueError("an embedding must be numbers, not all of them zero")
    return [value / length for value in vector]


def signs(vector: Sequence[float]) -> int:
    """Return a number with a bit for each dimension, the first one highest: 1 above zero."""
    return int("".join("1" if value > 0 else "0" for value in vector), 2)


def pack(vector: Sequence[float]) -> bytes:
    """Return a vector as numbers of 16 bits, which lose some of its precision."""
    return struct.pack(f"<{len(vector)}e", *vector)


def unpack(blob: bytes) -> tuple[float, ...]:
    """Return the vector that `pack` packed."""
    return struct.unpack(f"<{len(blob) // 2}e", blob)


def put_vectors(
    connection: Connection,
    model: str,
    vectors: Mapping[int, Sequence[float]],
    *,
    in_server: bool = False,
) -> None:
    """Store unit vectors by the id of their text; with `in_server` also in the table of
    pgvector.
    """
    connection.executemany(
        "INSERT INTO memory_embedding (model, id, signs, vector) VALUES (?, ?, ?, ?) ON CONFLICT "
        "(model, id)"
        " DO UPDATE SET signs = excluded.signs, vector = excluded.vector",
        [
            (model, id_, signs(vector).to_bytes((len(vector) + 7) // 8, "big"), pack(vector))
            for id_, vector in vectors.items()
        ],
    )
    if in_server:
        pgvector.put(
            connection, model, {id_: unpack(pack(vector)) for id_, vector in vectors.items()}
        )


def copy_to_server(connection: Any, model: str) -> bool:
    """Copy a batch of vectors to the table of pgvector; False if none is missing there."""
    rows = pgvector.missing_vectors(connection, model)
    pgvector.put(connection, model, {id_: unpack(blob) for id_, blob in rows.items()})
    return bool(rows)


def drop(connection: Connection, ids: Iterable[int]) -> None:
    """Delete the embeddings of texts, of every model."""
    models = [model for (model,) in connection.execute(_MODELS)]
    connection.executemany(
        "DELETE FROM memory_embedding WHERE model = ? AND id = ?",
        [(model, id_) for id_ in ids for model in models],
    )


# The models with embeddings: one look-up in the primary key for each, and usually there is none. A
# scan of the table would take longer with every text.
_MODELS = """
WITH RECURSIVE known (model) AS (
    SELECT min(model) FROM memory_embedding
    UNION ALL
    SELECT (SELECT min(model) FROM memory_embedding WHERE model > known.model) FROM known WHERE known.model IS NOT NULL
)
SELECT model FROM known WHERE model IS NOT NULL
"""  # noqa: E501


def all_signs(connection: Connection, model: str) -> dict[int, int]:
    """Return the signs of every item and of the newest segments."""
    rows = connection.execute(
        "SELECT id, signs FROM memory_embedding WHERE model = ? AND id < 0 UNION ALL SELECT * FROM "
        "(SELECT id, signs"
        " FROM memory_embedding WHERE model = ? AND id > 0 ORDER BY id DESC LIMIT ?) AS newest",
        (model, model, MAX_COMPARED),
    )
    return {id_: int.from_bytes(blob, "big") for id_, blob in rows}


# On a shared server, the signs that any process has written since a number. It may have embedded a
# text that had an embedding already.
_SIGNS_SINCE = """
SELECT n.seq, e.id, e.signs FROM memory_embedding_news n JOIN memory_embedding e ON e.model = n.model AND e.id = n.id
WHERE n.model = ? AND n.seq > ? ORDER BY n.seq
"""  # noqa: E501
_LAST_CHANGE_NUMBER = "SELECT coalesce(max(seq), 0) FROM memory_embedding_news WHERE model = ?"


def last_change_number(connection: Any, model: str) -> int:
    """Return the number of the latest embedding of any process; 0 if there is none."""
    (number,) = connection.execute(_LAST_CHANGE_NUMBER, (model,)).fetchone()
    return int(number)


def signs_since(connection: Any, model: str, last_number: int) -> tuple[int, dict[int, int]]:
    """Return the latest number, and the signs of texts that were embedded after `last_number`."""
    rows = list(connection.execute(_SIGNS_SINCE, (model, last_number)))
    return max([last_number, *(seq for seq, _, _ in rows)]), {
        id_: int.from_bytes(blob, "big") for _, id_, blob in rows
    }


def has_embeddings(connection: Connection, model: str) -> bool:
    """Tell whether any text has an embedding of this model."""
    return (
        connection.execute(
            "SELECT 1 FROM memory_embedding WHERE model = ? LIMIT 1", (model,)
        ).fetchone()
        is not None
    )


def nearest(connection: Connection, query: QueryEmbedding) -> list[int]:
    """Return the ids of the texts nearest to a question, the nearest first; without pgvector by
    their signs.
    """
    if query.signs is None:
        return pgvector.nearest(connection, query.model, query.vector, MAX_NEAREST)
    query_signs = signs(query.vector)
    signs_by_id = query.signs
    ids = list(signs_by_id)  # a copy: another thread may add signs meanwhile
    limit = MAX_NEAREST
    while True:
        nearest_ids = heapq.nsmallest(
            limit, ids, key=lambda id_: (signs_by_id[id_] ^ query_signs).bit_count()
        )
        # the signs of texts that were deleted or repeated since are still among them
        rows = connection.execute(
            "SELECT id FROM memory_embedding WHERE model = ? AND id IN"
            f" ({placeholders(nearest_ids)})",
            (query.model, *nearest_ids),
        )
        embedded_ids = {id_ for (id_,) in rows}
        is_enough = len(embedded_ids) >= MAX_NEAREST or len(nearest_ids) < limit
        if is_enough or limit >= MAX_LOOKED_UP:
            return [id_ for id_ in nearest_ids if id_ in embedded_ids][:MAX_NEAREST]
        limit *= 2


def cosines(connection: Connection, query: QueryEmbedding, ids: Iterable[int]) -> dict[int, float]:
    """Return the cosines of the question and these texts, by id, for the embedded ones."""
    if query.signs is None:
        return pgvector.cosines(connection, query.model, query.vector, ids)
    text_ids = list(ids)
    marks = placeholders(text_ids)
    rows = connection.execute(
        f"SELECT id, vector FROM memory_embedding WHERE model = ? AND id IN ({marks})",
        (query.model, *text_ids),
    )
    vectors = ((id_, unpack(blob)) for id_, blob in rows)
    return {
        id_: sum(map(mul, query.vector, vector))
        for id_, vector in vectors
        if len(vector) == len(query.vector)
    }
