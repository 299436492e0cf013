"""Delete runs, steps and report files that are older, or take more room, than `[keep]` allows.

Each function handles one slice, so that no transaction blocks the writer for long. SQLite
overwrites what is deleted (secure_delete); `Connection.shrink` gives its room back to the system.
"""

# ruff: noqa: S608  what is put into statements are constants and marks; values are bound
from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.store.connection import Connection, placeholders
from daemon.store.rows import from_microseconds, to_microseconds
from daemon.store.texts import find_unused_texts

SLICE = 100  # runs in one transaction, which takes some milliseconds
# The newest runs of each routine stay whatever their age: gates, streaks and people need them.
NEWEST = 10
# Bytes; a smaller free room in the file is filled again soon enough.
MIN_FREED_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionLimits:
    """How long runs, their steps and report files stay, and how large the journal may be.

    None means no limit.
    """

    runs: timedelta | None = None
    steps: timedelta | None = None
    reports: timedelta | None = None
    max_bytes: int | None = None
    file_targets: frozenset[str] = frozenset()
    """Targets of the config whose own path has {slot} or {run}: deliveries to them name none."""


# A run that succeeded is old only if its routine has succeeded since: gates and reports compare
# with what the last such run had gathered. The empty text keeps SQLite from the index of statuses,
# where the runs of all routines are.
_NOT_THE_LAST_SUCCESS = """(status <> 'succeeded' OR EXISTS (SELECT 1 FROM run AS newer
    WHERE newer.routine = run.routine AND newer.id > run.id AND newer.status || '' = 'succeeded'))
"""
# Without those whose reports are still on their way.
_OLD_RUNS = f"""
SELECT id FROM run WHERE ended IS NOT NULL AND ended < ?
    AND id NOT IN (SELECT id FROM run AS newer WHERE newer.routine = run.routine ORDER BY id DESC LIMIT {NEWEST})
    AND {_NOT_THE_LAST_SUCCESS}
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE run_id = run.id AND status = 'pending')
"""  # noqa: E501


def _select_old_runs_with(table: str, condition: str = "") -> str:
    """Return the statement for (id, created) of old runs that have rows in a table, the oldest
    first; with a `condition`, of those that fulfil it.

    One seek for each run that has rows, from the first on until the runs were created after that
    moment. Ids sort by when runs were created. Without a join: SQLite may read a joined table as a
    whole, to filter by it.
    """
    return f"""
WITH RECURSIVE with_rows (run_id) AS (
    SELECT min(run_id) FROM {table}
    UNION ALL
    SELECT (SELECT min(run_id) FROM {table} WHERE run_id > with_rows.run_id) FROM with_rows
    WHERE run_id IS NOT NULL AND (SELECT created FROM run WHERE id = with_rows.run_id) < ?
)
SELECT run_id, (SELECT created FROM run WHERE id = with_rows.run_id) FROM with_rows
WHERE (SELECT ended FROM run WHERE id = with_rows.run_id {condition} AND id NOT IN
    (SELECT id FROM run AS newer WHERE newer.routine = run.routine ORDER BY id DESC LIMIT {NEWEST})
    AND {_NOT_THE_LAST_SUCCESS}
) < ?
LIMIT ?
"""


# Never over the runs of years whose steps are gone.
_OLD_RUNS_WITH_STEPS = _select_old_runs_with("step")
# The inputs of a person's questions tell to which conversation a run belongs: they stay, and this
# statement passes each of them.
_NO_QUESTION = "\"trigger\" <> 'ask'"
_OLD_RUNS_WITH_INPUTS = _select_old_runs_with("input", f"AND {_NO_QUESTION}")


def delete_slice(connection: Connection, limits: RetentionLimits, now: datetime) -> int:
    """Delete one slice of steps and runs beyond the limits. Returns how many runs lost their steps
    or were deleted; 0 when nothing is left to do.
    """
    count = 0
    if limits.steps is not None:
        count += _delete_steps(connection, to_microseconds(now - limits.steps))
    if limits.runs is not None:
        count += _delete_runs(connection, to_microseconds(now - limits.runs), limits)
    if not count and limits.max_bytes is not None and connection.used() > limits.max_bytes:
        # the steps first, which are most of the bytes
        count = _delete_steps(connection, to_microseconds(now))
        count = count or _delete_runs(connection, to_microseconds(now), limits)
    return count


def _delete_steps(connection: Connection, before: int) -> int:
    """Delete the steps of a slice of runs that ended before `before` (microseconds), what people
    told these runs, and their inputs; if no such run has steps, the inputs of a slice of runs
    without steps. Returns how many runs that were.
    """
    rows = connection.execute(_OLD_RUNS_WITH_STEPS, (before, before, SLICE))
    runs = [(id_,) for id_, _ in rows]
    for table in ("step", "told"):
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", runs)
    connection.executemany(
        f"DELETE FROM input WHERE run_id IN (SELECT id FROM run WHERE id = ? AND {_NO_QUESTION})",
        runs,
    )
    if runs:
        return len(runs)
    # last, as it takes longer with the years
    rows = connection.execute(_OLD_RUNS_WITH_INPUTS, (before, before, SLICE))
    runs_with_inputs = [(id_,) for id_, _ in rows]
    connection.executemany("DELETE FROM input WHERE run_id = ?", runs_with_inputs)
    return len(runs_with_inputs)


def _delete_runs(connection: Connection, before: int, limits: RetentionLimits) -> int:
    """Delete a slice of the runs that ended before `before` (microseconds). Returns how many.

    Where report files are deleted later than their runs, the deliveries of these files stay until
    then: without them nobody would know the files.
    """
    query = f"{_OLD_RUNS} ORDER BY id LIMIT {SLICE}"
    runs = [id_ for (id_,) in connection.execute(query, (before,))]
    if limits.reports is not None:
        for run in runs:
            _detach_report_files(connection, run, limits.file_targets)
    connection.executemany("DELETE FROM run WHERE id = ?", [(id_,) for id_ in runs])
    if runs:
        connection.execute("DELETE FROM definition WHERE hash NOT IN (SELECT definition FROM run)")
    return len(runs)


def _detach_report_files(connection: Connection, run: str, file_targets: Collection[str]) -> None:
    """Take the deliveries of report files from their run, which is deleted next. Of their options
    only the path stays, by which the file is known: nobody could forget the rest by its run.
    """
    condition, values = _is_report_file(file_targets)
    deliveries = connection.execute(
        f"SELECT id, options FROM outbox WHERE run_id = ? AND {condition}", (run, *values)
    ).fetchall()
    for id_, text in deliveries:
        options = {key: value for key, value in json.loads(text).items() if key == "path"}
        new_text = json.dumps(options, separators=(",", ":"))
        connection.execute("UPDATE outbox SET options = ? WHERE id = ?", (new_text, id_))
    # the condition once more: a text that is gone may have held "{run}"
    connection.execute(
        f"UPDATE outbox SET run_id = NULL WHERE run_id = ? AND {condition}", (run, *values)
    )


def find_old_texts(connection: Connection, now: datetime) -> tuple[list[bytes], datetime]:
    """Return the digests of the texts that no step names any more, and the moment before which they
    were used last.

    Only texts are considered that were not used since the oldest run with steps that may be deleted
    next: few runs before that one still have steps, so few have to be searched.
    """
    moment = to_microseconds(now)
    row = connection.execute(_OLD_RUNS_WITH_STEPS, (moment, moment, 1)).fetchone()
    before = min(now, from_microseconds(row[1])) if row else now
    return find_unused_texts(connection, before), before


def _is_report_file(file_targets: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return the condition for a delivery of a file whose path names the slot or the run, and its
    values: other paths are overwritten by later reports.
    """
    condition = (
        "status = 'delivered' AND receipt LIKE '/%' AND (options LIKE '%{slot%'"
        " OR options LIKE '%{run}%' OR options NOT LIKE '%\"path\":%'"
        f" AND target IN ({placeholders(file_targets)}))"
    )
    return condition, tuple(file_targets)


def find_old_reports(
    connection: Connection, before: datetime, file_targets: Collection[str] = ()
) -> tuple[list[tuple[int, str]], set[str]]:
    """Return (delivery id, path) of up to 1,000 report files delivered before `before`, and those
    of the paths to which a later report was written, as the file had been moved away.
    """
    moment = to_microseconds(before)
    condition, values = _is_report_file(file_targets)
    rows = connection.execute(
        f"SELECT id, receipt FROM outbox WHERE {condition} AND created < ? ORDER BY id LIMIT 1000",
        (*values, moment),
    )
    reports = [(id_, receipt) for id_, receipt in rows]
    paths = {path for _, path in reports}
    later_rows = connection.execute(
        f"SELECT receipt FROM outbox WHERE {condition} AND created >= ?"
        f" AND receipt IN ({placeholders(paths)})",
        (*values, moment, *paths),
    )
    return reports, {path for (path,) in later_rows}


def mark_files_removed(
    connection: Connection, reports: Iterable[tuple[int, str]], rewritten_paths: Collection[str]
) -> None:
    """Write into the receipts of these deliveries, given by id and path, that their files were
    removed, or that a later report was written to their paths; delete those whose runs are deleted
    already.
    """
    receipts = [
        (
            f"replaced by a later report: {path}"
            if path in rewritten_paths
            else f"removed by [keep] reports: {path}",
            id_,
        )
        for id_, path in reports
    ]
    connection.executemany("UPDATE outbox SET receipt = ? WHERE id = ?", receipts)
    ids = [(id_,) for _, id_ in receipts]
    connection.executemany("DELETE FROM outbox WHERE id = ? AND run_id IS NULL", ids)
