"""Write items and archived runs, together with the index.

The functions take a connection and run in a transaction of the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from daemon.memory import index, vectors
from daemon.memory.index import IndexedSegment
from daemon.memory.segments import RunPiece
from daemon.store.statements import Connection, placeholders


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


# Prefix of the key of an archived run's line; the run's id follows.
LINE_PREFIX = "run:"

_ITEM = "id, key, category, run_id, tainted, pinned, created, updated, text, indexed"


def item(connection: Connection, key: str) -> IndexedItem | None:
    row = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE key = ?", (key,)).fetchone()  # noqa: S608
    return IndexedItem(*row) if row else None


def items(connection: Connection, category: str | None, limit: int) -> list[IndexedItem]:
    """Return items of a category, None for all, the last changed first."""
    return items_in(
        connection,
        "CAST(? AS TEXT) IS NULL OR category = ? ORDER BY updated DESC, id DESC LIMIT ?",
        (category, category, limit),
    )


def items_in(
    connection: Connection, condition: str, values: tuple[object, ...] = ()
) -> list[IndexedItem]:
    """Return the items of `SELECT … FROM memory_item WHERE <condition>`."""
    rows = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE {condition}", values)  # noqa: S608
    return [IndexedItem(*row) for row in rows]


def put_item(
    connection: Connection,
    *,
    key: str,
    text: str,
    category: str,
    run: str | None,
    tainted: bool,
    now: int,
    indexed: bool = True,
) -> bool:
    """Store an item under its key, in place of an earlier one, whose time of creation stays.

    Return whether there was an earlier one. `now` is in microseconds.
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


def _remove_from_index(connection: Connection, old: IndexedItem) -> None:
    if old.indexed:
        index.remove_item(connection, old.id, old.key, old.text, old.updated)
    vectors.drop(connection, [-old.id])


def drop_item(connection: Connection, key: str) -> bool:
    """Delete an item; False if there was none."""
    existing = item(connection, key)
    if existing is None:
        return False
    _remove_from_index(connection, existing)
    connection.execute("DELETE FROM memory_item WHERE id = ?", (existing.id,))
    return True


def pin(connection: Connection, key: str, pinned: bool) -> bool:
    """Protect an item from retention, or end the protection; False if there is no such item."""
    return (
        connection.execute(
            "UPDATE memory_item SET pinned = ? WHERE key = ?", (pinned, key)
        ).rowcount
        > 0
    )


def demote(connection: Connection, key: str) -> None:
    """Make an item neither core nor pinned."""
    connection.execute(
        "UPDATE memory_item SET category = 'custom', pinned = 0 WHERE key = ?", (key,)
    )


def seed(connection: Connection, seeds: Iterable[tuple[str, str]], category: str, now: int) -> None:
    """Store these items; an unchanged one is not written, so that its time stays that of its last
    change.
    """
    for key, text in seeds:
        existing = item(connection, key)
        if existing is None or (existing.text, existing.category) != (text, category):
            put_item(
                connection, key=key, text=text, category=category, run=None, tainted=False, now=now
            )


def put_run(
    connection: Connection,
    *,
    run: str,
    routine: str,
    goal: str,
    status: str,
    started: int,
    ended: int,
    pieces: Sequence[RunPiece],
) -> bool:
    """Archive a run as segments, in place of an earlier archive of the run, as after a crash.

    Texts that a routine repeats would flood every search, so only one of them is indexed: the last
    one, or of several on one day the first, as replacing it in the index would cost more than all
    other work for a run. Return whether searches may change: not if the routine had all texts
    before on that day. `started` and `ended` are in microseconds.
    """
    run_columns = (run, routine, goal, status, started, ended)
    row = connection.execute(_RUN, run_columns).fetchone()
    is_replaced = row is None and drop_run(connection, run)
    if row is None:
        row = connection.execute(_RUN, run_columns).fetchone()
    (memory_run,) = row
    earlier = _find_repeated(connection, {piece.digest for piece in pieces})
    same_day_ids = [
        next((id_ for id_, at in earlier[piece.digest] if at // _DAY == piece.at // _DAY), None)
        for piece in pieces
    ]
    connection.executemany(
        _SEGMENT,
        [
            (memory_run, *piece, indexed_id)
            for piece, indexed_id in zip(pieces, same_day_ids, strict=True)
        ],
    )
    if None in same_day_ids:
        ids = [id_ for (id_,) in connection.execute(_IDS, (memory_run,))]
        included = {
            id_ for id_, indexed_id in zip(ids, same_day_ids, strict=True) if indexed_id is None
        }
        successors: dict[int, int] = {}
        for id_, piece in zip(ids, pieces, strict=True):
            if id_ in included:
                successors.setdefault(piece.digest, id_)
        _supersede(
            connection,
            {
                id_: successor
                for digest, successor in successors.items()
                for id_, _ in earlier[digest]
            },
        )
        texts = [
            IndexedSegment(id_, piece.at, piece.who, routine, piece.text)
            for id_, piece in zip(ids, pieces, strict=True)
        ]
        index.add_texts(connection, texts, included)
    return is_replaced or not pieces or None in same_day_ids


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
    connection: Connection, digests: Iterable[int]
) -> defaultdict[int, list[tuple[int, int]]]:
    """Return the ids and times of the indexed texts with these digests, by digest, the oldest
    first.
    """
    remaining = list(digests)
    earlier: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for begin in range(0, len(remaining), _DIGESTS_PER_QUERY):
        batch = remaining[begin : begin + _DIGESTS_PER_QUERY]
        # padded to a power of two: each new length would be a new statement to prepare
        batch += batch[:1] * ((1 << (len(batch) - 1).bit_length()) - len(batch))
        rows = connection.execute(
            "SELECT digest, id, at FROM memory_segment WHERE superseded IS NULL"  # noqa: S608  marks only
            f" AND digest IN ({placeholders(batch)}) ORDER BY id",
            batch,
        )
        for digest, id_, at in rows:
            earlier[digest].append((id_, at))
    return earlier


_DIGESTS_PER_QUERY = 64


def _supersede(connection: Connection, successors: Mapping[int, int]) -> None:
    """Remove repeated texts from the index; `successors` has the id of the newer text by theirs.

    All are removed together: the index is flushed between two statements, and many small writes
    cost more than the words in them.
    """
    if successors:
        index.remove_segments(connection, successors)
        vectors.drop(connection, successors)
        connection.executemany(
            "UPDATE memory_segment SET superseded = ? WHERE id = ?",
            [(successor, id_) for id_, successor in successors.items()],
        )


def drop_run(connection: Connection, run: str) -> bool:
    """Delete an archived run, and index the texts that its texts superseded.

    False if there was no such run.
    """
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
    # of several superseded texts with one digest, the last is indexed and supersedes the others
    reinstated = connection.execute(
        "SELECT max(o.id), n.id FROM memory_segment o JOIN memory_segment n ON n.id = o.superseded"
        " WHERE n.memory_run = ? AND o.memory_run != n.memory_run GROUP BY n.id",
        row,
    ).fetchall()
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ? AND id != ?",
        [(successor, id_, successor) for successor, id_ in reinstated],
    )
    # the foreign keys delete its segments and set `superseded` of other segments to NULL
    connection.execute("DELETE FROM memory_run WHERE id = ?", row)
    index.add_segments(connection, [successor for successor, _ in reinstated])
    _index_line(connection, run)
    return True


def hide_line(connection: Connection, run: str) -> None:
    """Remove the line of a run from the index: the line repeats the segments of the run."""
    line = item(connection, f"{LINE_PREFIX}{run}")
    if line is not None and line.indexed:
        _remove_from_index(connection, line)
        connection.execute("UPDATE memory_item SET indexed = 0 WHERE id = ?", (line.id,))


def _index_line(connection: Connection, run: str) -> None:
    """Index the line of a run whose segments are deleted."""
    line = item(connection, f"{LINE_PREFIX}{run}")
    if line is not None and not line.indexed:
        connection.execute("UPDATE memory_item SET indexed = 1 WHERE id = ?", (line.id,))
        index.add_item(connection, line.id, line.key, line.text, line.updated)
