"""What is written: items by key, runs in pieces; each with its place in the index.

Functions of a connection, to be handed to the writer; every one is a whole that may be rolled back.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from daemon.memory import index, vectors
from daemon.memory.index import IndexedSegment
from daemon.memory.segments import RunPiece


class IndexedItem(NamedTuple):
    """One row of memory_item."""

    id: int
    key: str
    category: str
    run_id: str | None
    tainted: int
    pinned: int
    created: int
    updated: int
    text: str
    indexed: int = 1


# What the key of the line begins with that stands for an archived run; its id follows.
LINE_PREFIX = "run:"

_ITEM = "id, key, category, run_id, tainted, pinned, created, updated, text, indexed"


def item(connection: sqlite3.Connection, key: str) -> IndexedItem | None:
    row = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE key = ?", (key,)).fetchone()  # noqa: S608
    return IndexedItem(*row) if row else None


def items(connection: sqlite3.Connection, category: str | None, limit: int) -> list[IndexedItem]:
    """Return items, those changed last first."""
    return items_in(
        connection,
        "? IS NULL OR category = ? ORDER BY updated DESC, id DESC LIMIT ?",
        (category, category, limit),
    )


def items_in(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...] = ()
) -> list[IndexedItem]:
    """Return the items that `SELECT … FROM memory_item WHERE` with this condition finds."""
    rows = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE {condition}", values)  # noqa: S608
    return [IndexedItem(*row) for row in rows]


def put_item(
    connection: sqlite3.Connection,
    *,
    key: str,
    text: str,
    category: str,
    run: str | None,
    tainted: bool,
    now: int,
    indexed: bool = True,
) -> bool:
    """Keep a text under a key, in place of what was there; who created the key first is not
    forgotten.

    Tell whether there was anything.
    """
    row = connection.execute(
        "INSERT INTO memory_item (key, category, run_id, tainted, created, updated, text, indexed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING id",
        (key, category, run, int(tainted), now, now, text, int(indexed)),
    ).fetchone()
    existing = item(connection, key) if row is None else None  # most are new
    if existing is not None:
        _remove_from_index(connection, existing)
        row = connection.execute(
            "UPDATE memory_item SET category = ?, run_id = ?, tainted = ?, updated = ?, text = ?, "
            "indexed = ?"
            " WHERE key = ? RETURNING id",
            (category, run, int(tainted), now, text, int(indexed), key),
        ).fetchone()
    if indexed:
        index.add_item(connection, row[0], key, text, now)
    return existing is not None


def _remove_from_index(connection: sqlite3.Connection, old: IndexedItem) -> None:
    if old.indexed:
        index.remove_item(connection, old.id, old.key, old.text, old.updated)
    vectors.drop(connection, [-old.id])


def drop_item(connection: sqlite3.Connection, key: str) -> bool:
    """Delete an item; tell whether there was one."""
    existing = item(connection, key)
    if existing is None:
        return False
    _remove_from_index(connection, existing)
    connection.execute("DELETE FROM memory_item WHERE id = ?", (existing.id,))
    return True


def pin(connection: sqlite3.Connection, key: str, pinned: bool) -> bool:
    """Let no retention take an item, or let it again; tell whether there is one."""
    return (
        connection.execute(
            "UPDATE memory_item SET pinned = ? WHERE key = ?", (pinned, key)
        ).rowcount
        > 0
    )


def demote(connection: sqlite3.Connection, key: str) -> None:
    """Make an item neither core nor pinned."""
    connection.execute(
        "UPDATE memory_item SET category = 'custom', pinned = 0 WHERE key = ?", (key,)
    )


def seed(
    connection: sqlite3.Connection, seeds: Iterable[tuple[str, str]], category: str, now: int
) -> None:
    """Keep these items; one that did not change is not touched, so its date says since when it
    holds.
    """
    for key, text in seeds:
        existing = item(connection, key)
        if existing is None or (existing.text, existing.category) != (text, category):
            put_item(
                connection, key=key, text=text, category=category, run=None, tainted=False, now=now
            )


def put_run(
    connection: sqlite3.Connection,
    *,
    run: str,
    routine: str,
    goal: str,
    status: str,
    started: int,
    ended: int,
    pieces: Sequence[RunPiece],
) -> bool:
    """Keep a run in pieces; doing it again for the same run replaces them, so it may follow a
    crash.

    What a routine says again would flood every answer, so that only one of the texts is in the
    index: the last one, or of several on one day the first, as to move it there costs more than all
    the rest that is done for a run. Tell whether a question may be answered otherwise than before:
    not so where all was said before on that day.
    """
    about = (run, routine, goal, status, started, ended)
    row = connection.execute(_RUN, about).fetchone()
    is_replaced = row is None and drop_run(connection, run)
    if row is None:
        row = connection.execute(_RUN, about).fetchone()
    (owner,) = row
    earlier = _find_repeated(connection, {piece.digest for piece in pieces})
    said_today = [
        next((id_ for id_, at in earlier[piece.digest] if at // _DAY == piece.at // _DAY), None)
        for piece in pieces
    ]
    connection.executemany(
        _SEGMENT,
        [(owner, *piece, later_id) for piece, later_id in zip(pieces, said_today, strict=True)],
    )
    if None in said_today:
        ids = [id_ for (id_,) in connection.execute(_IDS, (owner,))]
        included = {id_ for id_, later_id in zip(ids, said_today, strict=True) if later_id is None}
        successors: dict[int, int] = {}
        for id_, piece in zip(ids, pieces, strict=True):
            if id_ in included:
                successors.setdefault(piece.digest, id_)
        _supersede(
            connection,
            {
                id_: later_id
                for digest, later_id in successors.items()
                for id_, _ in earlier[digest]
            },
        )
        texts = [
            IndexedSegment(id_, piece_.at, piece_.who, routine, piece_.text)
            for id_, piece_ in zip(ids, pieces, strict=True)
        ]
        index.add_texts(connection, texts, included)
    return is_replaced or not pieces or None in said_today


_DAY = 86_400_000_000  # microseconds
_RUN = (
    "INSERT INTO memory_run (run_id, routine, goal, status, started, ended) VALUES (?, ?, ?, ?, ?, "
    "?)"
    " ON CONFLICT (run_id) DO NOTHING RETURNING id"
)
# Row by row, as the ids of a run have to follow each other.
_SEGMENT = (
    "INSERT INTO memory_segment"
    " (memory_run, iteration, segment, part, type, at, who, asks, tainted, digest, text, "
    "superseded)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_IDS = "SELECT id FROM memory_segment WHERE memory_run = ? ORDER BY id"


def _find_repeated(
    connection: sqlite3.Connection, digests: Iterable[int]
) -> defaultdict[int, list[tuple[int, int]]]:
    """Return by digest which texts in the index say so, the first said first, and when they were
    said.
    """
    remaining = list(digests)
    earlier: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for begin in range(0, len(remaining), _DIGESTS_PER_QUERY):
        batch = remaining[begin : begin + _DIGESTS_PER_QUERY]
        batch += batch[:1] * (
            (1 << (len(batch) - 1).bit_length()) - len(batch)
        )  # else each length is a new statement
        rows = connection.execute(
            "SELECT digest, id, at FROM memory_segment WHERE superseded IS NULL"  # noqa: S608  marks only
            f" AND digest IN ({', '.join('?' * len(batch))}) ORDER BY id",
            batch,
        )
        for digest, id_, at in rows:
            earlier[digest].append((id_, at))
    return earlier


_DIGESTS_PER_QUERY = 64


def _supersede(connection: sqlite3.Connection, successors: Mapping[int, int]) -> None:
    """Take what was said before out of the index, given who says it now.

    All are taken out together: between two statements the index writes what it holds, and many
    small writes cost more than the words in them.
    """
    if successors:
        index.remove_segments(connection, successors)
        vectors.drop(connection, successors)
        connection.executemany(
            "UPDATE memory_segment SET superseded = ? WHERE id = ?",
            [(takeover, id_) for id_, takeover in successors.items()],
        )


def drop_run(connection: sqlite3.Connection, run: str) -> bool:
    """Delete a run; what its texts superseded is found again. Tell whether there was one."""
    row = connection.execute("SELECT id FROM memory_run WHERE run_id = ?", (run,)).fetchone()
    if row is None:
        return False
    segments = connection.execute(
        "SELECT id, superseded FROM memory_segment WHERE memory_run = ?", row
    ).fetchall()
    index.remove_segments(connection, [id_ for id_, superseded in segments if superseded is None])
    vectors.drop(connection, [id_ for id_, _ in segments])
    replacements = [(superseded, id_) for id_, superseded in segments if superseded is not None]
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ?", replacements
    )
    # of those that said the same, the last one stands for them from now on
    reinstated = connection.execute(
        "SELECT max(o.id), n.id FROM memory_segment o JOIN memory_segment n ON n.id = o.superseded"
        " WHERE n.memory_run = ? AND o.memory_run != n.memory_run GROUP BY n.id",
        row,
    ).fetchall()
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ? AND id != ?",
        [(successor, id_, successor) for successor, id_ in reinstated],
    )
    connection.execute(
        "DELETE FROM memory_run WHERE id = ?", row
    )  # its segments go with it, `superseded` becomes NULL
    index.add_segments(connection, [successor for successor, _ in reinstated])
    _index_line(connection, run)
    return True


def hide_line(connection: sqlite3.Connection, run: str) -> None:
    """Take the line that stands for a run out of the index: the run's own texts are there, and say
    the same.
    """
    line = item(connection, f"{LINE_PREFIX}{run}")
    if line is not None and line.indexed:
        _remove_from_index(connection, line)
        connection.execute("UPDATE memory_item SET indexed = 0 WHERE id = ?", (line.id,))


def _index_line(connection: sqlite3.Connection, run: str) -> None:
    """Put the line that stands for a run into the index: nothing else in it tells of the run any
    more.
    """
    line = item(connection, f"{LINE_PREFIX}{run}")
    if line is not None and not line.indexed:
        connection.execute("UPDATE memory_item SET indexed = 1 WHERE id = ?", (line.id,))
        index.add_item(connection, line.id, line.key, line.text, line.updated)
