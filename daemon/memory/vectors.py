"""Embeddings as rows: kept small, compared twice.

Theory of operation. To compare a question with every vector in full takes numpy or a second; so
each vector is kept twice. Its signs alone, one bit per dimension, are compared with all others by
counting the bits that differ: a tenth of a microsecond each. The few hundred nearest by signs are
then compared in full. Nothing of this needs more than Python.

A server that can compare vectors does both (pgvector.py). One that cannot tells each process what
others have embedded.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from daemon.memory import pgvector

# So many are compared by their signs; in a bigger store the newest ones. 30 ms, and some 50 MB with
# 1,024 dimensions.
MAX_COMPARED = 200_000
# So many of the nearest by signs are compared in full.
MAX_NEAREST = 200


class QueryEmbedding(NamedTuple):
    """What a question means to an embedder, and the signs of all texts that it knows."""

    model: str
    vector: Sequence[float]
    signs: Mapping[int, int] | None
    """None: the server compares."""


def unit(vector: Sequence[float]) -> list[float]:
    """Return the vector at length 1; ValueError if it has none, or is no vector."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    if not vector or not math.isfinite(length) or length == 0:
        raise ValueError("an embedding must be numbers, not all of them zero")
    return [value / length for value in vector]


def signs(vector: Sequence[float]) -> int:
    return int("".join("1" if value > 0 else "0" for value in vector), 2)


def pack(vector: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(vector)}e", *vector)


def unpack(blob: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(blob) // 2}e", blob)


def put_vectors(
    connection: sqlite3.Connection,
    model: str,
    vectors: Mapping[int, Sequence[float]],
    *,
    in_server: bool = False,
) -> None:
    """Keep unit vectors by the id of their text; `in_server`, where the server compares them
    too.
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
    """Let the server know some vectors that were kept before it could compare; tell whether there
    were any.
    """
    rows = pgvector.missing_vectors(connection, model)
    pgvector.put(connection, model, {id_: unpack(blob) for id_, blob in rows.items()})
    return bool(rows)


def drop(connection: sqlite3.Connection, ids: Iterable[int]) -> None:
    """Forget what texts meant; those of every model."""
    models = [model for (model,) in connection.execute(_MODELS)]
    connection.executemany(
        "DELETE FROM memory_embedding WHERE model = ? AND id = ?",
        [(model, id_) for id_ in ids for model in models],
    )


# One seek per model, and usually none: a walk through all vectors would take as long as there are
# texts.
_MODELS = """
WITH RECURSIVE known (model) AS (
    SELECT min(model) FROM memory_embedding
    UNION ALL
    SELECT (SELECT min(model) FROM memory_embedding WHERE model > known.model) FROM known WHERE known.model IS NOT NULL
)
SELECT model FROM known WHERE model IS NOT NULL
"""  # noqa: E501


def all_signs(connection: sqlite3.Connection, model: str) -> dict[int, int]:
    """Return the signs of every item and of the newest segments."""
    rows = connection.execute(
        "SELECT id, signs FROM memory_embedding WHERE model = ? AND id < 0 UNION ALL SELECT * FROM "
        "(SELECT id, signs"
        " FROM memory_embedding WHERE model = ? AND id > 0 ORDER BY id DESC LIMIT ?) AS newest",
        (model, model, MAX_COMPARED),
    )
    return {id_: int.from_bytes(blob, "big") for id_, blob in rows}


# Where a server is shared, the signs that any process has written since; what a text means may be
# known anew.
_NEWS = """
SELECT n.seq, e.id, e.signs FROM memory_embedding_news n JOIN memory_embedding e ON e.model = n.model AND e.id = n.id
WHERE n.model = ? AND n.seq > ? ORDER BY n.seq
"""  # noqa: E501
_LAST_NEWS = "SELECT coalesce(max(seq), 0) FROM memory_embedding_news WHERE model = ?"


def last_news(connection: Any, model: str) -> int:
    """Return the number of what was embedded last, by whichever process."""
    (number,) = connection.execute(_LAST_NEWS, (model,)).fetchone()
    return int(number)


def signs_since(connection: Any, model: str, last_number: int) -> tuple[int, dict[int, int]]:
    """Return the signs of what was embedded after that number, and the number of the last of
    them.
    """
    rows = list(connection.execute(_NEWS, (model, last_number)))
    return max([last_number, *(seq for seq, _, _ in rows)]), {
        id_: int.from_bytes(blob, "big") for _, id_, blob in rows
    }


def has_embeddings(connection: sqlite3.Connection, model: str) -> bool:
    """Tell whether anything was embedded by this model."""
    return (
        connection.execute(
            "SELECT 1 FROM memory_embedding WHERE model = ? LIMIT 1", (model,)
        ).fetchone()
        is not None
    )


def nearest(connection: sqlite3.Connection, query: QueryEmbedding) -> list[int]:
    """Return the ids of the texts that are nearest to the question; here, by their signs."""
    if query.signs is None:
        return pgvector.nearest(connection, query.model, query.vector, MAX_NEAREST)
    query_signs = signs(query.vector)
    signs_by_id = query.signs
    # a copy: what is embedded meanwhile comes in from another thread
    return heapq.nsmallest(
        MAX_NEAREST, list(signs_by_id), key=lambda id_: (signs_by_id[id_] ^ query_signs).bit_count()
    )


def cosines(
    connection: sqlite3.Connection, query: QueryEmbedding, ids: Iterable[int]
) -> dict[int, float]:
    """Return how near these texts are to the question, those whose meaning is known."""
    if query.signs is None:
        return pgvector.cosines(connection, query.model, query.vector, ids)
    numbers = list(ids)
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(
        f"SELECT id, vector FROM memory_embedding WHERE model = ? AND id IN ({marks})",  # noqa: S608  marks only
        (query.model, *numbers),
    )
    vectors = ((id_, unpack(blob)) for id_, blob in rows)
    return {
        id_: sum(map(mul, query.vector, vector))
        for id_, vector in vectors
        if len(vector) == len(query.vector)
    }
