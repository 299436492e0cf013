"""Vectors compared by the server, where it has pgvector: https://github.com/pgvector/pgvector.

What was embedded stands in `memory_embedding` as everywhere. Beside it, in `memory_meaning`, the
same vectors stand as the server compares them. That table is derived: made when an embedder is
first used, filled with what there is, and let go of with the rows it was made from. A server
without pgvector, or on which we may not have it, compares nothing, and vectors.py does it here.

Every vector is compared. An HNSW index takes 10 ms for each row that comes in, while all who write
wait, and is slower than the look at each of 20,000 vectors; whoever has millions makes one by hand,
and it is used: README says how.
"""

# ruff: noqa: S608  what is put into statements are numbers, and names that are quoted
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog

log = structlog.get_logger()

MIN_VERSION = (0, 5)  # the first with an index that a person might want
# Dimensions up to which an index takes vectors whole: https://github.com/pgvector/pgvector#hnsw
_MAX_DIMENSIONS, _MAX_HALF_DIMENSIONS = 2_000, 4_000
# How far an index looks, where there is one: twice as many as are wanted.
_EF_SEARCH = 400
FILL_BATCH = 500  # rows filled in one commit

_HAS_TABLE = "SELECT to_regclass('memory_meaning') IS NOT NULL"
_AVAILABLE = (
    "SELECT coalesce(installed_version, default_version) FROM pg_available_extensions WHERE name = "
    "'vector'"
)
_TABLE = """
CREATE TABLE memory_meaning (
    model TEXT COLLATE "C" NOT NULL,
    id BIGINT NOT NULL,
    size BIGINT NOT NULL,
    meaning VECTOR NOT NULL,
    PRIMARY KEY (model, id),
    FOREIGN KEY (model, id) REFERENCES memory_embedding (model, id) ON DELETE CASCADE
);
-- a version that knows nothing of this table may write a meaning anew: what stood here is not it
CREATE OR REPLACE FUNCTION agentd_meaning_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM memory_meaning WHERE model = NEW.model AND id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER agentd_meaning_changed AFTER UPDATE ON memory_embedding
    FOR EACH ROW EXECUTE FUNCTION agentd_meaning_changed();
"""


def compares(connection: Any) -> bool:
    """Tell whether the server has our vectors and can compare them."""
    return bool(connection.control(_HAS_TABLE).fetchone()[0])


def prepare(connection: Any) -> bool:
    """Make the table of vectors, where the server lets us; tell whether there is one."""
    if compares(connection):
        return True
    row = connection.control(_AVAILABLE).fetchone()
    if row is None or tuple(map(int, row[0].split(".")[:2])) < MIN_VERSION:
        return False
    connection.control("SAVEPOINT meaning")
    try:
        connection.control("CREATE EXTENSION IF NOT EXISTS vector")
        connection.control(_TABLE)
    except connection.refused as error:
        connection.control("ROLLBACK TO meaning")
        hint = "as an administrator of the database: CREATE EXTENSION vector"
        log.info("memory.vectors_compared_here", problem=str(error).splitlines()[0], hint=hint)
        return False
    connection.control("RELEASE meaning")
    return True


def put(connection: Any, model: str, vectors: Mapping[int, Sequence[float]]) -> None:
    """Let the server know vectors, as precisely as the rows hold them that they stand beside."""
    connection.executemany(
        "INSERT INTO memory_meaning (model, id, size, meaning) VALUES (?, ?, ?, CAST(? AS VECTOR))"
        " ON CONFLICT (model, id) DO UPDATE SET size = excluded.size, meaning = excluded.meaning",
        [(model, id_, len(vector), _text(vector)) for id_, vector in vectors.items()],
    )


def missing_vectors(connection: Any, model: str) -> dict[int, bytes]:
    """Return some rows that the server does not know as vectors yet."""
    rows = connection.execute(
        "SELECT id, vector FROM memory_embedding AS e WHERE model = ? AND NOT EXISTS"
        " (SELECT 1 FROM memory_meaning AS m WHERE m.model = e.model AND m.id = e.id) LIMIT ?",
        (model, FILL_BATCH),
    )
    return {id_: bytes(blob) for id_, blob in rows}


def nearest(connection: Any, model: str, vector: Sequence[float], limit: int) -> list[int]:
    """Return the ids of the texts that are nearest to the question."""
    size, vector_type = len(vector), _vector_type(connection, len(vector))
    # the question stands in a query of its own: else it would be read anew for every row
    connection.execute("SELECT set_config('hnsw.ef_search', ?, true)", (str(_EF_SEARCH),))
    rows = connection.execute(
        f"SELECT id FROM memory_meaning WHERE model = {_quote_literal(model)} AND size = {size}"
        f" ORDER BY CAST(meaning AS {vector_type}({size})) <=>"
        f" (SELECT CAST(? AS {vector_type}({size}))) LIMIT {limit}",
        (_text(vector),),
    )
    return [id_ for (id_,) in rows]


def cosines(
    connection: Any, model: str, vector: Sequence[float], ids: Iterable[int]
) -> dict[int, float]:
    """Return how near these texts are to the question, those whose meaning is known."""
    rows = connection.execute(
        # CASE: the server may ask for the distance before it looks whether the lengths are the same
        "SELECT id, CASE WHEN size = ? THEN -(meaning <#> (SELECT CAST(? AS VECTOR))) END FROM "
        "memory_meaning"
        " WHERE model = ? AND size = ? AND id = ANY(?)",
        (len(vector), _text(vector), model, len(vector), list(ids)),
    )
    return {id_: float(cosine) for id_, cosine in rows if cosine is not None}


def _vector_type(connection: Any, size: int) -> str:
    return (
        "halfvec"
        if _MAX_DIMENSIONS < size <= _MAX_HALF_DIMENSIONS and _has_half(connection)
        else "vector"
    )


def _has_half(connection: Any) -> bool:
    return bool(connection.control("SELECT to_regtype('halfvec') IS NOT NULL").fetchone()[0])


def _quote_literal(text: str) -> str:
    """Return a text as SQL: the index is chosen only where the server sees what it is asked for."""
    return "'" + text.replace("'", "''").replace("\x00", "") + "'"


def _text(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.9g}" for value in vector) + "]"
