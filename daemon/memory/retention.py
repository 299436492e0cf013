"""What goes by itself after a while, class by class; pinned items and what somebody said stay.

Of what tools put out and models thought, the beginning stays at its anchor: it says what it was,
and the journal has the whole. Each function does a part and tells whether nothing is left, so that
the journal never waits long for it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.memory import index, rows, vectors
from daemon.models import SegmentType
from daemon.store.rows import stamp

# Exactly what the index reads of a neighbour: cutting to it changes no other text's row.
HEAD = 400
_BATCH = 200  # runs or items: some 50 ms

_STATE = "memory.retention"
TOOLS = (SegmentType.TOOL_CALL, SegmentType.TOOL_RESULT)
REASONING = (SegmentType.REASONING,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How long each class stays; None: for ever."""

    tools: timedelta | None = None
    reasoning: timedelta | None = None
    runs: timedelta | None = None
    daily: timedelta | None = None
    conversation: timedelta | None = None


def apply_retention(connection: sqlite3.Connection, retention: Retention, now: datetime) -> bool:
    """Do a part of what the retention asks for."""
    for category, duration in (
        ("daily", retention.daily),
        ("conversation", retention.conversation),
    ):
        if duration is not None and not _drop_items(connection, category, stamp(now - duration)):
            return False
    if retention.runs is not None and not _drop_runs(connection, stamp(now - retention.runs)):
        return False
    return all(
        duration is None or _cut_some(connection, types, stamp(now - duration))
        for types, duration in ((TOOLS, retention.tools), (REASONING, retention.reasoning))
    )


def _drop_items(connection: sqlite3.Connection, category: str, before: int) -> bool:
    expired = rows.items_in(
        connection,
        "category = ? AND updated < ? AND pinned = 0 ORDER BY id LIMIT ?",
        (category, before, _BATCH),
    )
    for item in expired:
        rows.drop_item(connection, item.key)
    return len(expired) < _BATCH


def _drop_runs(connection: sqlite3.Connection, before: int) -> bool:
    expired = connection.execute(
        "SELECT run_id FROM memory_run WHERE ended < ? ORDER BY ended LIMIT ?", (before, _BATCH)
    )
    run_ids = [run_id for (run_id,) in expired]
    for run_id in run_ids:
        rows.drop_run(connection, run_id)
    return len(run_ids) < _BATCH


def _cut_some(connection: sqlite3.Connection, types: Collection[SegmentType], before: int) -> bool:
    """Cut texts of these types down to their heads, in the next runs that are old enough."""
    progress = _progress(connection)
    class_key = types[0] if isinstance(types, tuple) else ""
    runs = connection.execute(
        "SELECT id, ended FROM memory_run WHERE id > ? ORDER BY id LIMIT ?",
        (progress.get(class_key, 0), _BATCH),
    ).fetchall()
    expired = []
    for run, ended in runs:
        if ended >= before:
            break  # runs are archived as they end: those behind it are younger
        expired.append(run)
    marks = ", ".join("?" * len(types))
    for run in expired:
        long_texts = connection.execute(
            (
                f"SELECT id FROM memory_segment WHERE memory_run = ? AND type IN ({marks}) AND "  # noqa: S608
                "length(text) > ?"
            ),  # noqa: RUF100, S608
            (run, *types, HEAD),
        ).fetchall()
        if long_texts:
            cut_down(connection, run, {id_ for (id_,) in long_texts})
    if expired:
        connection.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (_STATE, json.dumps({**progress, class_key: expired[-1]})),
        )
    return len(expired) < _BATCH


def _progress(connection: sqlite3.Connection) -> Mapping[str, int]:
    """Return up to which run each class has been seen to."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_STATE,)).fetchone()
    return json.loads(row[0]) if row else {}


def cut_down(connection: sqlite3.Connection, run: int, ids: Collection[int]) -> None:
    """Keep the heads of these texts of a run."""
    indexed_ids = [
        id_
        for (id_,) in connection.execute(
            "SELECT id FROM memory_segment WHERE memory_run = ? AND superseded IS NULL", (run,)
        )
        if id_ in ids
    ]
    index.remove_segments(connection, indexed_ids)
    connection.executemany(
        "UPDATE memory_segment SET text = substr(text, 1, ?) WHERE id = ?",
        [(HEAD, id_) for id_ in ids],
    )
    vectors.drop(connection, ids)
    index.add_segments(connection, indexed_ids)
