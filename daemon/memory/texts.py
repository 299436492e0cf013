"""What is read: pieces of runs and items, in one form."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from daemon.models import Anchor, MemoryChunk, SegmentType
from daemon.store.rows import moment

# Where an item stands: before any run's first iteration, under its own number.
ITEM = -1


class Text(NamedTuple):
    """A piece of a run, or an item: then `run` is 0 and `id` negative, as in the index."""

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


# What `Text._make` does, in a third of the time: a recall makes a hundred of them.
_text = partial(tuple.__new__, Text)

_PIECES = (
    "SELECT s.id, s.memory_run, r.run_id, r.routine, s.iteration, s.segment, s.type, s.at, s.who, s.asks, s.tainted,"
    " NULL, s.text FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
)
_ITEMS = (
    f"SELECT -id, 0, coalesce(run_id, ''), '', {ITEM}, id,"  # noqa: S608  a constant
    " CASE category WHEN 'conversation' THEN 'summary' ELSE 'knowledge' END, updated, '', 0, tainted, key, text"
    " FROM memory_item"
)


def by_ids(connection: sqlite3.Connection, ids: Iterable[int]) -> dict[int, Text]:
    """Return the texts with these ids, as far as they exist."""
    wanted = list(ids)
    found: dict[int, Text] = {}
    for select, numbers in (
        (f"{_PIECES} WHERE s.id IN ", [id_ for id_ in wanted if id_ > 0]),
        (f"{_ITEMS} WHERE id IN ", [-id_ for id_ in wanted if id_ < 0]),
    ):
        if numbers:
            # Padded with ids that no row has: each new length would be a new statement to prepare.
            numbers += [0] * ((1 << (len(numbers) - 1).bit_length()) - len(numbers))
            rows = connection.execute(f"{select}({', '.join('?' * len(numbers))})", numbers)
            found |= {row[0]: _text(row) for row in rows}
    return found


def of_run(connection: sqlite3.Connection, run_id: str) -> list[Text]:
    """Return a run's texts in the order they happened."""
    rows = connection.execute(f"{_PIECES} WHERE r.run_id = ? ORDER BY s.id", (run_id,))
    return list(map(_text, rows))


def anchor_of(text: Text) -> Anchor:
    return Anchor(
        run_id=text.run_id,
        iteration=text.iteration,
        segment=text.segment,
        type=SegmentType(text.type),
        timestamp=moment(text.at),
    )


def chunk(text: Text, relevance: float = 1.0) -> MemoryChunk:
    """Return a text as the rest of the house knows it."""
    return MemoryChunk(
        content=text.text,
        anchor=anchor_of(text),
        relevance=relevance,
        key=text.key,
        source=text.source,
        who=text.who,
        tainted=bool(text.tainted),
    )
