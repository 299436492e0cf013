"""The index in SQLite: a contentless FTS5 table, whose rows are deleted by their words.

`FullText` says what each function promises.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from daemon.errors import StoreDamaged
from daemon.memory.fulltext.base import (
    MAX_POSTINGS,
    SAMPLE,
    SMALL_STORE,
    WEIGHTS,
    Document,
    choose_rare_terms,
)

# As in store/sql/002_memory.sql; a test holds them equal.
CREATE = """
CREATE VIRTUAL TABLE memory_fts USING fts5 (
    body, earlier, later, who, date,
    content = '', tokenize = 'porter unicode61 remove_diacritics 2'
)
"""

# Pages that are written by one step of a merge, and by a compaction, which takes a millisecond as a
# run may wait for it.
_MERGE_PAGES = 200
_COMPACT_PAGES = 32

_SCORED = (
    f"SELECT rowid, -bm25(memory_fts, {', '.join(map(str, WEIGHTS))}) AS score FROM memory_fts"  # noqa: S608
)
# of equal scores the later text first; items have negative ids
_BEST = "ORDER BY score DESC, abs(rowid) DESC LIMIT ?"
# All hits in one row: for each row that it fetches, a thread releases the interpreter's lock, and
# may wait a millisecond to get it back.
_IN_ONE = "SELECT json_group_array(rowid), json_group_array(score) FROM ({})"
_SEARCH = _IN_ONE.format(f"{_SCORED} WHERE memory_fts MATCH ? {_BEST}")
_SEARCH_WITHIN = _IN_ONE.format(
    f"{_SCORED} WHERE memory_fts MATCH ? AND rowid BETWEEN ? AND ? {_BEST}"
)
# Two subqueries: for min and max in one query SQLite would scan the whole table.
_ENDS = "SELECT (SELECT min(id) FROM memory_fts_docsize), (SELECT max(id) FROM memory_fts_docsize)"
# The ids of the texts with each of the terms, all in one row: a list of lists. `?1` are the
# expressions of the terms.
_OF_EACH_TERM = (
    "SELECT json_group_array(json(ids)) FROM (SELECT"
    " (SELECT json_group_array(rowid) FROM"
    " (SELECT rowid FROM memory_fts WHERE memory_fts MATCH term.value {})) AS ids"
    " FROM json_each(?1) AS term ORDER BY term.key)"
)
_IDS_WITH = _OF_EACH_TERM.format("LIMIT ?2")
_IDS_WITHIN = _OF_EACH_TERM.format("AND rowid BETWEEN ?2 AND ?3")
_COUNT = "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH ? AND rowid BETWEEN ? AND ?"


def any_of(terms: Iterable[str]) -> str:
    """Return the FTS5 expression for any of the terms: quoted, so that nothing in them is
    syntax.
    """
    return " OR ".join(f'"{term}"' for term in terms)


def insert(connection: sqlite3.Connection, rows: Iterable[Document]) -> None:
    connection.executemany(
        "INSERT INTO memory_fts (rowid, body, earlier, later, who, date) VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )


def delete(connection: sqlite3.Connection, rows: Iterable[Document]) -> None:
    connection.executemany(
        "INSERT INTO memory_fts (memory_fts, rowid, body, earlier, later, who, date)"
        " VALUES ('delete', ?, ?, ?, ?, ?, ?)",
        rows,
    )


def clear(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO memory_fts (memory_fts) VALUES ('delete-all')")


def renew(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DROP TABLE IF EXISTS memory_fts")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        _remove_from_schema(connection)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(CREATE)
    connection.execute("COMMIT")


def _remove_from_schema(connection: sqlite3.Connection) -> None:
    """Remove the index from the schema when DROP TABLE fails; VACUUM frees its pages."""
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute(
            "DELETE FROM sqlite_master WHERE name = 'memory_fts' OR name GLOB 'memory_fts_*'"
        )
    finally:
        connection.execute("PRAGMA writable_schema = RESET")
    connection.execute("VACUUM")


def merge_some(connection: sqlite3.Connection, is_first: bool) -> bool:
    """Do one step of merging the index into one tree; True at the end of the merge.

    A negative number begins a merge, positive ones continue it:
    https://sqlite.org/fts5.html#the_merge_command.
    """
    changes_before = connection.total_changes
    connection.execute(
        "INSERT INTO memory_fts (memory_fts, rank) VALUES ('merge', ?)",
        (-_MERGE_PAGES if is_first else _MERGE_PAGES,),
    )
    return connection.total_changes - changes_before < 2


def compact(connection: sqlite3.Connection) -> None:
    """Merge four segments of one level of the index, if there are four.

    With small writes FTS5 alone waits for 16 of them, and each costs a search 20 µs.
    """
    connection.execute(
        "INSERT INTO memory_fts (memory_fts, rank) VALUES ('merge', ?)", (_COMPACT_PAGES,)
    )


def check(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO memory_fts (memory_fts) VALUES ('integrity-check')")
    return check_size(connection)


def check_size(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM memory_fts_docsize").fetchone()
    row = connection.execute("SELECT block FROM memory_fts_data WHERE id = 1").fetchone()
    # an index that was never written to has no averages, or empty ones
    index_count = _first_varint(row[0]) if row else 0
    if index_count != count:
        msg = f"the index of the memory counts {index_count} texts where it holds {count}"
        raise StoreDamaged(msg)
    return int(count)


def _first_varint(block: bytes) -> int:
    """Return the first number of a record: 7 bits a byte, the highest first, the last of up to 9
    bytes without the highest bit (https://sqlite.org/fileformat2.html#varint).
    """
    value = 0
    for position, byte in enumerate(block[:9]):
        if position == 8:
            return value << 8 | byte
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    return 0 if not block else -1


def holds(connection: sqlite3.Connection, id_: int, words: Sequence[str]) -> bool:
    match = " AND ".join(f'body : "{word}"' for word in words)
    query = "SELECT 1 FROM memory_fts WHERE memory_fts MATCH ? AND rowid = ?"
    return connection.execute(query, (match, id_)).fetchone() is not None


def runs_with_terms(connection: sqlite3.Connection, terms: Sequence[str]) -> list[str]:
    match = "body : (" + " AND ".join(any_of([term]) for term in terms) + ")"
    rows = connection.execute(
        "SELECT DISTINCT r.run_id FROM memory_fts f JOIN memory_segment s ON s.id = f.rowid"
        " JOIN memory_run r ON r.id = s.memory_run WHERE memory_fts MATCH ?",
        (match,),
    )
    return [run for (run,) in rows]


def ids_with(connection: sqlite3.Connection, terms: Sequence[str], limit: int) -> list[list[int]]:
    return _ids_of_each(connection, _IDS_WITH, terms, limit)


def ids_within(
    connection: sqlite3.Connection, terms: Sequence[str], first_id: int, last_id: int
) -> list[list[int]]:
    return _ids_of_each(connection, _IDS_WITHIN, terms, first_id, last_id)


def _ids_of_each(
    connection: sqlite3.Connection, query: str, terms: Sequence[str], *limits: int
) -> list[list[int]]:
    expressions = json.dumps([any_of([term]) for term in terms], ensure_ascii=False)
    (result,) = connection.execute(query, (expressions, *limits)).fetchone()
    ids: list[list[int]] = json.loads(result)
    return ids


def best(connection: sqlite3.Connection, terms: Sequence[str], pool: int) -> dict[int, float]:
    return _scores(connection.execute(_SEARCH, (expression(connection, terms), pool)))


def best_within(
    connection: sqlite3.Connection, terms: Sequence[str], first_id: int, last_id: int, pool: int
) -> dict[int, float]:
    return _scores(connection.execute(_SEARCH_WITHIN, (any_of(terms), first_id, last_id, pool)))


def _scores(cursor: sqlite3.Cursor) -> dict[int, float]:
    ids, scores = (json.loads(column) for column in cursor.fetchone())
    if None in scores:  # bm25 divides by the average length of a text
        raise StoreDamaged("the index of the memory has wrong averages")
    return dict(zip(ids, scores, strict=True))


def expression(
    connection: sqlite3.Connection,
    terms: Sequence[str],
    *,
    small: int = SMALL_STORE,
    budget: int = MAX_POSTINGS,
) -> str:
    """Return a MATCH expression: any of the terms; in a large store also any of the rare terms.

    `small` and `budget` are SMALL_STORE and MAX_POSTINGS.
    """
    rare = choose_rare_terms(terms, _frequencies(connection, terms, small), max_postings=budget)
    return any_of(terms) if rare is None else f"({any_of(rare)}) AND ({any_of(terms)})"


def _frequencies(
    connection: sqlite3.Connection, terms: Sequence[str], small: int
) -> dict[str, int]:
    """Estimate the number of texts with each term from the newest texts; 0 in a small store, where
    the numbers do not matter.
    """
    low, high = connection.execute(_ENDS).fetchone()
    size = (high or 0) - (low or 0)
    if size <= small:
        return dict.fromkeys(terms, 0)
    sample_size = min(size, SAMPLE)
    # of segments or of items, whichever are more
    sample = (high - sample_size, high) if high > -low else (low, low + sample_size)
    counts = {
        term: connection.execute(_COUNT, (any_of([term]), *sample)).fetchone()[0] for term in terms
    }
    return {term: count * size // sample_size for term, count in counts.items()}
