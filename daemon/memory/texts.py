"""Read segments and items from the database in one form, `Text`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from daemon.models import Anchor, MemoryChunk, SegmentType
from daemon.store.rows import from_microseconds
from daemon.store.statements import Connection, placeholders

# Iteration in the anchor of an item, whose segment is the id of the item; runs begin at 0.
ITEM_ITERATION = -1


class Text(NamedTuple):
    """A segment, or an item: then `run` is 0, and `id` negative as in the index."""

    id: int
    run: int
    run_id: str
    source: str
    iteration: int
    segment: int
    type: str
    at: int
    who: str
    asks: int
    tainted: int
    key: str | None
    text: str


# The same as `Text._make` in a third of the time: a search makes a hundred of them.
_make_text = partial(tuple.__new__, Text)

_PIECE = (
    "s.id, s.memory_run, r.run_id, r.routine, s.iteration, s.segment, s.type, s.at, s.who, s.asks, "
    "s.tainted,"
    " NULL, s.text"
)
_PIECES = "FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
_ITEM = (
    f"-id, 0, coalesce(run_id, ''), '', {ITEM_ITERATION}, id,"
    " CASE category WHEN 'conversation' THEN 'summary' ELSE 'knowledge' END, updated, '', 0, "
    "tainted, key, text"
)
_ITEMS = "FROM memory_item"


def by_ids(connection: Connection, ids: Iterable[int]) -> dict[int, Text]:
    """Return the existing texts with these ids, by id."""
    id_list = list(ids)
    texts: dict[int, Text] = {}
    for columns, source, numbers in (
        (_PIECE, f"{_PIECES} WHERE s.id IN ", [id_ for id_ in id_list if id_ > 0]),
        (_ITEM, f"{_ITEMS} WHERE id IN ", [-id_ for id_ in id_list if id_ < 0]),
    ):
        if numbers:
            texts |= {
                row[0]: _make_text(row)
                for row in _select_by_number(connection, columns, source, numbers)
            }
    return texts


def times_of_change(connection: Connection, items: Iterable[int]) -> dict[int, int]:
    """Return the times of the last change of the existing items, in microseconds by id."""
    return dict(
        _select_by_number(
            connection, "-id, updated", "FROM memory_item WHERE id IN ", [-id_ for id_ in items]
        )
    )


def _select_by_number(
    connection: Connection, columns: str, source: str, numbers: list[int]
) -> Iterable[Any]:
    """Return rows by their ids; SQLite returns all of them as one JSON value.

    For each row that it fetches, a thread releases the interpreter's lock, and may wait a
    millisecond to get it back.
    """
    # Padded with ids that no row has: each new length would be a new statement to prepare.
    numbers += [0] * ((1 << (len(numbers) - 1).bit_length()) - len(numbers))
    source = f"{source}({placeholders(numbers)})"
    if not isinstance(connection, sqlite3.Connection):
        return connection.execute(f"SELECT {columns} {source}", numbers)
    query = f"SELECT CAST(json_group_array(json_array({columns})) AS BLOB) {source}"
    (result,) = connection.execute(query, numbers).fetchone()
    rows: list[Any] = json.loads(result)
    return rows


def of_run(connection: Connection, run_id: str) -> list[Text]:
    """Return the texts of a run in their order."""
    rows = connection.execute(
        f"SELECT {_PIECE} {_PIECES} WHERE r.run_id = ? ORDER BY s.id", (run_id,)
    )
    return list(map(_make_text, rows))


def anchor_of(text: Text) -> Anchor:
    return Anchor(
        run_id=text.run_id,
        iteration=text.iteration,
        segment=text.segment,
        type=SegmentType(text.type),
        timestamp=from_microseconds(text.at),
    )


def chunk(text: Text, relevance: float = 1.0) -> MemoryChunk:
    """Return a text as a MemoryChunk, which other packages use."""
    return MemoryChunk(
        content=text.text,
        anchor=anchor_of(text),
        relevance=relevance,
        key=text.key,
        source=text.source,
        speaker=text.who,
        tainted=bool(text.tainted),
    )
