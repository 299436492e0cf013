"""Compare vectors in PostgreSQL with pgvector: https://github.com/pgvector/pgvector.

Embeddings are in `memory_embedding` as in SQLite. The table `memory_meaning` holds the same vectors
in the type of pgvector, each in its column `meaning`. That table is derived: created when an
embedder is first used, filled from the embeddings, and its rows are deleted with theirs. Without
pgvector, or without the right to create the extension, vectors.py compares.

Every vector is compared. An HNSW index takes 10 ms per inserted row, during which other writers
wait, and is slower than comparing 20,000 vectors. With millions of vectors a person creates one by
hand, and it is used: docs/cluster.md says how.
"""

# ruff: noqa: S608  only numbers and quoted names are put into statements
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog

log = structlog.get_logger()

# The first version with HNSW.
MIN_VERSION = (0, 5)
# Dimensions up to which an index takes vectors whole: https://github.com/pgvector/pgvector#hnsw
_MAX_DIMENSIONS, _MAX_HALF_DIMENSIONS = 2_000, 4_000
# Candidates that an HNSW index looks at, if there is one: twice as many as are returned.
_EF_SEARCH = 400
# Rows that are copied in one transaction.
FILL_BATCH = 500

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
-- an older version, without this table, may embed a text anew: the copy here is of the old text
CREATE OR REPLACE FUNCTION agentd_meaning_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM memory_meaning WHERE model = NEW.model AND id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER agentd_meaning_changed AFTER UPDATE ON memory_embedding
    FOR EACH ROW EXECUTE FUNCTION agentd_meaning_changed();
"""


def compares(connection: Any) -> bool:
    """Tell whether the table of vectors exists, so that the server can compare them."""
    return bool(connection.control(_HAS_TABLE).fetchone()[0])


def prepare(connection: Any) -> bool:
    """Create the table of vectors; False if the server has no pgvector or refuses it."""
    if compares(connection):
        return True
    row = connection.control(_AVAILABLE).fetchone()
    if row is None or tuple(map(int, row[0].split(".")[:2])) < MIN_VERSION:
        return False
    connection.control("SAVEPOINT meaning")
    try:
        connection.control("CREATE EXTENSION IF NOT EXISTS vector")
        connection.control(_TABLE)
    except connection.refusal_errors as error:
        connection.control("ROLLBACK TO meaning")
        hint = "as an administrator of the database: CREATE EXTENSION vector"
        log.info("memory.vectors_compared_here", problem=str(error).splitlines()[0], hint=hint)
        return False
    connection.control("RELEASE meaning")
    return True


def put(connection: Any, model: str, vectors: Mapping[int, Sequence[float]]) -> None:
    """Store vectors in the table of pgvector, with the precision of `memory_embedding`."""
    connection.executemany(
        "INSERT INTO memory_meaning (model, id, size, meaning) VALUES (?, ?, ?, CAST(? AS VECTOR))"
        " ON CONFLICT (model, id) DO UPDATE SET size = excluded.size, meaning = excluded.meaning",
        [(model, id_, len(vector), _text(vector)) for id_, vector in vectors.items()],
    )


def missing_vectors(connection: Any, model: str) -> dict[int, bytes]:
    """Return up to FILL_BATCH packed vectors that are missing in the table of pgvector, by id."""
    rows = connection.execute(
        "SELECT id, vector FROM memory_embedding AS e WHERE model = ? AND NOT EXISTS"
        " (SELECT 1 FROM memory_meaning AS m WHERE m.model = e.model AND m.id = e.id) LIMIT ?",
        (model, FILL_BATCH),
    )
    return {id_: bytes(blob) for id_, blob in rows}


def nearest(connection: Any, model: str, vector: Sequence[float], limit: int) -> list[int]:
    """Return the ids of the texts nearest to a question, the nearest first."""
    size, vector_type = len(vector), _vector_type(connection, len(vector))
    # the question is in a subquery: else the server would parse it for every row
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
    """Return the cosines of the question and these texts, by id, for the embedded ones."""
    rows = connection.execute(
        # CASE: the server may compute the distance before it compares the sizes
        "SELECT id, CASE WHEN size = ? THEN -(meaning <#> (SELECT CAST(? AS VECTOR))) END FROM "
        "memory_meaning"
        " WHERE model = ? AND size = ? AND id = ANY(?)",
        (len(vector), _text(vector), model, len(vector), list(ids)),
    )
    return {id_: float(cosine) for id_, cosine in rows if cosine is not None}


def _vector_type(connection: Any, size: int) -> str:
    return (
        "halfvec"
        if _MAX_DIMENSIONS < size <= _MAX_HALF_DIMENSIONS and _has_half_vectors(connection)
        else "vector"
    )


def _has_half_vectors(connection: Any) -> bool:
    """Tell whether this pgvector has the type halfvec, which came with version 0.7."""
    return bool(connection.control("SELECT to_regtype('halfvec') IS NOT NULL").fetchone()[0])


def _quote_literal(text: str) -> str:
    """Return a text as an SQL literal: with a bound value the server would not choose the index."""
    return "'" + text.replace("'", "''").replace("\x00", "") + "'"


def _text(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.9g}" for value in vector) + "]"
