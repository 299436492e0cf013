"""Delete or shorten old texts of memory, class by class. Pinned items stay, and
messages until their whole run is deleted.

Of tool calls, results and reasoning, the beginning stays in its place: it says what the text was,
and the journal has the whole. Each function handles one batch and returns True if nothing is left,
so that no transaction blocks the journal for long.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.memory import folding, index, rows, vectors
from daemon.models import SegmentType
from daemon.store.connection import Connection, placeholders
from daemon.store.rows import to_microseconds

# Characters that stay of a text: more than the index reads of a text as context of its neighbours,
# so that cutting a text changes no row of theirs.
BEGINNING_CHARACTERS = 500
# How long a template is kept that no later report fits.
_TEMPLATE_LIFETIME = timedelta(days=7)
# Runs or items per transaction: some 50 ms.
_BATCH = 200

_PROGRESS_KEY = "memory.retention"
TOOL_TYPES = (SegmentType.TOOL_CALL, SegmentType.TOOL_RESULT)
REASONING_TYPES = (SegmentType.REASONING,)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRetention:
    """How long texts stay, counted from the end of their run or the last change of the item.

    None means for ever.
    """

    tools: timedelta | None = None
    """For tool calls and results; then they are shortened."""
    reasoning: timedelta | None = None
    """For reasoning; then it is shortened."""
    runs: timedelta | None = None
    """For whole runs; then they are deleted."""
    daily: timedelta | None = None
    """For memory items of the category daily; then they are deleted."""
    conversation: timedelta | None = None
    """For memory items of the category conversation, the run lines; then they are deleted."""


def apply_retention(connection: Connection, retention: MemoryRetention, now: datetime) -> bool:
    """Delete or shorten one batch of texts that are older than the retention allows.

    Returns True if nothing is left to do. Call it in one write transaction, with an aware `now`.
    """
    template_moments = (to_microseconds(now - _TEMPLATE_LIFETIME), to_microseconds(now))
    folding.forget_old_templates(connection, *template_moments)
    for category, duration in (
        ("daily", retention.daily),
        ("conversation", retention.conversation),
    ):
        if duration is not None and not _drop_items(
            connection, category, to_microseconds(now - duration)
        ):
            return False
    if retention.runs is not None and not _drop_runs(
        connection, to_microseconds(now - retention.runs)
    ):
        return False
    for types, duration in (
        (TOOL_TYPES, retention.tools),
        (REASONING_TYPES, retention.reasoning),
    ):
        if duration is not None and not _shorten_runs(
            connection, types, to_microseconds(now - duration), to_microseconds(now)
        ):
            return False
    return True


def _drop_items(connection: Connection, category: str, before: int) -> bool:
    """Delete a batch of unpinned items of a category that last changed before `before`
    (microseconds). Returns True if none is left.
    """
    items = rows.items_in(
        connection,
        "category = ? AND updated < ? AND pinned = 0 ORDER BY id LIMIT ?",
        (category, before, _BATCH),
    )
    for item in items:
        rows.drop_item(connection, item.key)
    return len(items) < _BATCH


def _drop_runs(connection: Connection, before: int) -> bool:
    """Delete a batch of runs from memory that ended before `before` (microseconds). Returns True if
    none is left.
    """
    rows_of_runs = connection.execute(
        "SELECT run_id FROM memory_run WHERE ended < ? ORDER BY ended LIMIT ?", (before, _BATCH)
    )
    run_ids = [run_id for (run_id,) in rows_of_runs]
    for run_id in run_ids:
        rows.drop_run(connection, run_id)
    return len(run_ids) < _BATCH


def _shorten_runs(
    connection: Connection, types: Sequence[SegmentType], before: int, now: int
) -> bool:
    """Shorten the texts of these types to BEGINNING_CHARACTERS, in the next batch of runs that
    ended before `before` (microseconds). Returns True if no such run is left.

    A run that ended later than now, while the clock was ahead, counts as old as the one behind it.
    """
    progress = _load_progress(connection)
    progress_key = types[0]
    last_shortened = last_expired = progress.get(progress_key, 0)
    for run, ended in connection.execute(
        "SELECT id, ended FROM memory_run WHERE id > ? AND ended <= ? ORDER BY id LIMIT ?",
        (last_shortened, now, _BATCH),
    ):
        if ended >= before:
            break  # runs are archived in the order of their ends: the later ones are newer
        last_expired = run
    rows_of_runs = connection.execute(
        "SELECT id FROM memory_run WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
        (last_shortened, last_expired, _BATCH),
    )
    expired_runs = [run for (run,) in rows_of_runs]
    marks = placeholders(types)
    for run in expired_runs:
        long_texts = connection.execute(
            (
                f"SELECT id FROM memory_segment WHERE memory_run = ? AND type IN ({marks}) AND "
                "length(text) > ?"
            ),
            (run, *types, BEGINNING_CHARACTERS),
        ).fetchall()
        if long_texts:
            shorten_segments(connection, run, {id_ for (id_,) in long_texts})
    if expired_runs:
        connection.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (_PROGRESS_KEY, json.dumps({**progress, progress_key: expired_runs[-1]})),
        )
    return len(expired_runs) < _BATCH


def _load_progress(connection: Connection) -> Mapping[str, int]:
    """Return the id of the last run whose texts were shortened, by the first type of its class."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_PROGRESS_KEY,)).fetchone()
    return json.loads(row[0]) if row else {}


def shorten_segments(connection: Connection, run: int, ids: Collection[int]) -> None:
    """Shorten these segments of a run to BEGINNING_CHARACTERS, and index them again."""
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
        [(BEGINNING_CHARACTERS, id_) for id_ in ids],
    )
    vectors.drop(connection, ids)
    index.add_segments(connection, indexed_ids)
