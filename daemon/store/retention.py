"""Delete runs, steps and report files that are older, or take more room, than `[keep]` allows.

Each function handles one slice, so that no transaction blocks the writer for long. SQLite
overwrites what is deleted (secure_delete); `Connection.shrink` gives its room back to the system.
"""

# ruff: noqa: S608  what is put into statements are constants and marks; values are bound
from __future__ import annotations

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
# The same of runs that still have steps, the oldest first: (id, created). One seek for each run,
# from the first step on until the runs were created after that moment, and never over the runs of
# years whose steps are gone. Ids sort by when runs were created. Without a join: SQLite may read a
# joined table as a whole, to filter by it.
_OLD_RUNS_WITH_STEPS = f"""
WITH RECURSIVE with_steps (run_id) AS (
    SELECT min(run_id) FROM step
    UNION ALL
    SELECT (SELECT min(run_id) FROM step WHERE run_id > with_steps.run_id) FROM with_steps
    WHERE run_id IS NOT NULL AND (SELECT created FROM run WHERE id = with_steps.run_id) < ?
)
SELECT run_id, (SELECT created FROM run WHERE id = with_steps.run_id) FROM with_steps
WHERE (SELECT ended FROM run WHERE id = with_steps.run_id AND id NOT IN
    (SELECT id FROM run AS newer WHERE newer.routine = run.routine ORDER BY id DESC LIMIT {NEWEST})
    AND {_NOT_THE_LAST_SUCCESS}
) < ?
LIMIT ?
"""
# The same of runs that have an input. Not those of a person's questions, which tell to which
# conversation a run belongs.
_OLD_RUNS_WITH_INPUTS = _OLD_RUNS_WITH_STEPS.replace("step", "input").replace(
    "AND id NOT IN", "AND \"trigger\" <> 'ask' AND id NOT IN"
)


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
    told these runs, and the inputs of a slice of such runs. Returns how many runs that were.
    """
    rows = connection.execute(_OLD_RUNS_WITH_STEPS, (before, before, SLICE))
    runs = [(id_,) for id_, _ in rows]
    for table in ("step", "told"):
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", runs)
    inputs = [
        (id_,) for id_, _ in connection.execute(_OLD_RUNS_WITH_INPUTS, (before, before, SLICE))
    ]
    connection.executemany("DELETE FROM input WHERE run_id = ?", inputs)
    return max(len(runs), len(inputs))


def _delete_runs(connection: Connection, before: int, limits: RetentionLimits) -> int:
    """Delete a slice of the runs that ended before `before` (microseconds). Returns how many.

    Where report files are deleted later than their runs, the deliveries of these files stay until
    then: without them nobody would know the files.
    """
    query = f"{_OLD_RUNS} ORDER BY id LIMIT {SLICE}"
    runs = [id_ for (id_,) in connection.execute(query, (before,))]
    if limits.reports is not None:
        condition, values = _is_report_file(limits.file_targets)
        keep_deliveries = f"UPDATE outbox SET run_id = NULL WHERE run_id = ? AND {condition}"
        connection.executemany(keep_deliveries, [(id_, *values) for id_ in runs])
    connection.executemany("DELETE FROM run WHERE id = ?", [(id_,) for id_ in runs])
    if runs:
        connection.execute("DELETE FROM definition WHERE hash NOT IN (SELECT definition FROM run)")
    return len(runs)


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


def mark_files_removed(connection: Connection, deliveries: Iterable[int]) -> None:
    """Write into the receipts of these deliveries that their files were removed; delete those whose
    runs are deleted already.
    """
    ids = [(id_,) for id_ in deliveries]
    connection.executemany(
        "UPDATE outbox SET receipt = 'removed by [keep] reports: ' || receipt WHERE id = ?", ids
    )
    connection.executemany("DELETE FROM outbox WHERE id = ? AND run_id IS NULL", ids)
