"""What is written: items by key, runs in pieces; each with its place in the index.

Functions of a connection, to be handed to the writer; every one is a whole that may be rolled back.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from daemon.memory import index, vectors
from daemon.memory.index import Indexable
from daemon.memory.segments import Piece


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
LINE = "run:"

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
    old = item(connection, key) if row is None else None  # most are new
    if old is not None:
        _leave_index(connection, old)
        row = connection.execute(
            "UPDATE memory_item SET category = ?, run_id = ?, tainted = ?, updated = ?, text = ?, "
            "indexed = ?"
            " WHERE key = ? RETURNING id",
            (category, run, int(tainted), now, text, int(indexed), key),
        ).fetchone()
    if indexed:
        index.add_item(connection, row[0], key, text, now)
    return old is not None


def _leave_index(connection: sqlite3.Connection, old: IndexedItem) -> None:
    if old.indexed:
        index.remove_item(connection, old.id, old.key, old.text, old.updated)
    vectors.drop(connection, [-old.id])


def drop_item(connection: sqlite3.Connection, key: str) -> bool:
    """Delete an item; tell whether there was one."""
    old = item(connection, key)
    if old is None:
        return False
    _leave_index(connection, old)
    connection.execute("DELETE FROM memory_item WHERE id = ?", (old.id,))
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
        old = item(connection, key)
        if old is None or (old.text, old.category) != (text, category):
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
    pieces: Sequence[Piece],
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
    replaced = row is None and drop_run(connection, run)
    if row is None:
        row = connection.execute(_RUN, about).fetchone()
    (owner,) = row
    said = _said(connection, {piece.digest for piece in pieces})
    today = [
        next((id_ for id_, at in said[piece.digest] if at // _DAY == piece.at // _DAY), None)
        for piece in pieces
    ]
    connection.executemany(
        _SEGMENT, [(owner, *piece, takeover) for piece, takeover in zip(pieces, today, strict=True)]
    )
    if None in today:
        ids = [id_ for (id_,) in connection.execute(_IDS, (owner,))]
        fresh = {id_ for id_, takeover in zip(ids, today, strict=True) if takeover is None}
        heirs: dict[int, int] = {}
        for id_, piece in zip(ids, pieces, strict=True):
            if id_ in fresh:
                heirs.setdefault(piece.digest, id_)
        _supersede(
            connection,
            {id_: takeover for digest, takeover in heirs.items() for id_, _ in said[digest]},
        )
        texts = [
            Indexable(id_, each.at, each.who, routine, each.text)
            for id_, each in zip(ids, pieces, strict=True)
        ]
        index.add_texts(connection, texts, fresh)
    return replaced or not pieces or None in today


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


def _said(
    connection: sqlite3.Connection, digests: Iterable[int]
) -> defaultdict[int, list[tuple[int, int]]]:
    """Return by digest which texts in the index say so, the first said first, and when they were
    said.
    """
    wanted = list(digests)
    said: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for begin in range(0, len(wanted), _AT_ONCE):
        some = wanted[begin : begin + _AT_ONCE]
        some += some[:1] * (
            (1 << (len(some) - 1).bit_length()) - len(some)
        )  # else each length is a new statement
        found = connection.execute(
            "SELECT digest, id, at FROM memory_segment WHERE superseded IS NULL"  # noqa: S608  marks only
            f" AND digest IN ({', '.join('?' * len(some))}) ORDER BY id",
            some,
        )
        for digest, id_, at in found:
            said[digest].append((id_, at))
    return said


_AT_ONCE = 64


def _supersede(connection: sqlite3.Connection, old: Mapping[int, int]) -> None:
    """Take what was said before out of the index, given who says it now.

    All are taken out together: between two statements the index writes what it holds, and many
    small writes cost more than the words in them.
    """
    if old:
        index.remove_segments(connection, old)
        vectors.drop(connection, old)
        connection.executemany(
            "UPDATE memory_segment SET superseded = ? WHERE id = ?",
            [(takeover, id_) for id_, takeover in old.items()],
        )


def drop_run(connection: sqlite3.Connection, run: str) -> bool:
    """Delete a run; what its texts superseded is found again. Tell whether there was one."""
    row = connection.execute("SELECT id FROM memory_run WHERE run_id = ?", (run,)).fetchone()
    if row is None:
        return False
    own = connection.execute(
        "SELECT id, superseded FROM memory_segment WHERE memory_run = ?", row
    ).fetchall()
    index.remove_segments(connection, [id_ for id_, superseded in own if superseded is None])
    vectors.drop(connection, [id_ for id_, _ in own])
    heirs = [(superseded, id_) for id_, superseded in own if superseded is not None]
    connection.executemany("UPDATE memory_segment SET superseded = ? WHERE superseded = ?", heirs)
    # of those that said the same, the last one stands for them from now on
    freed = connection.execute(
        "SELECT max(o.id), n.id FROM memory_segment o JOIN memory_segment n ON n.id = o.superseded"
        " WHERE n.memory_run = ? AND o.memory_run != n.memory_run GROUP BY n.id",
        row,
    ).fetchall()
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ? AND id != ?",
        [(takeover, id_, takeover) for takeover, id_ in freed],
    )
    connection.execute(
        "DELETE FROM memory_run WHERE id = ?", row
    )  # its segments go with it, `superseded` becomes NULL
    index.add_segments(connection, [takeover for takeover, _ in freed])
    _index_line(connection, run)
    return True


def hide_line(connection: sqlite3.Connection, run: str) -> None:
    """Take the line that stands for a run out of the index: the run's own texts are there, and say
    the same.
    """
    line = item(connection, f"{LINE}{run}")
    if line is not None and line.indexed:
        _leave_index(connection, line)
        connection.execute("UPDATE memory_item SET indexed = 0 WHERE id = ?", (line.id,))


def _index_line(connection: sqlite3.Connection, run: str) -> None:
    """Put the line that stands for a run into the index: nothing else in it tells of the run any
    more.
    """
    line = item(connection, f"{LINE}{run}")
    if line is not None and not line.indexed:
        connection.execute("UPDATE memory_item SET indexed = 1 WHERE id = ?", (line.id,))
        index.add_item(connection, line.id, line.key, line.text, line.updated)
