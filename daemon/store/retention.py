"""How long history stays. Functions of a connection, to be handed to the writer a slice at a time.

What is deleted is overwritten (secure_delete); the room it took is given back to the system by
`Connection.shrink`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.store.rows import from_microseconds, to_microseconds
from daemon.store.statements import Connection
from daemon.store.texts import unused

SLICE = 100  # runs at a time: the writer is ours for some milliseconds
# Whatever their age: the last ones of a routine, which gates, streaks and people compare with.
NEWEST = 10
# Bytes of free room; less than that is used again soon enough.
LEAST_TO_GIVE_BACK = 64_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """How long what stays; None: for ever."""

    runs: timedelta | None = None
    steps: timedelta | None = None
    reports: timedelta | None = None
    max_bytes: int | None = None


_OLD = """
SELECT id FROM run WHERE ended IS NOT NULL AND ended < ?
    AND id NOT IN (SELECT id FROM run AS newer WHERE newer.routine = run.routine ORDER BY id DESC LIMIT {newest})
"""  # noqa: E501
_WITH_STEPS = " AND EXISTS (SELECT 1 FROM step WHERE run_id = run.id)"


def let_go_some(connection: Connection, keep: Keep, now: datetime) -> int:
    """Delete a slice of what is too old or too much; return how many runs it was of, 0 when nothing
    is left to do.
    """
    done = 0
    if keep.steps is not None:
        done += _steps_of(connection, to_microseconds(now - keep.steps))
    if keep.runs is not None:
        done += _runs_of(connection, to_microseconds(now - keep.runs))
    if not done and keep.max_bytes is not None and connection.used() > keep.max_bytes:
        # the transcripts first, which are most of it; of a routine's last runs they stay
        done = _steps_of(connection, to_microseconds(now)) or _runs_of(
            connection, to_microseconds(now)
        )
    return done


def _steps_of(connection: Connection, before: int) -> int:
    query = f"{_OLD.format(newest=NEWEST)}{_WITH_STEPS} ORDER BY id LIMIT {SLICE}"
    runs = [id_ for (id_,) in connection.execute(query, (before,))]
    connection.executemany("DELETE FROM step WHERE run_id = ?", [(id_,) for id_ in runs])
    return len(runs)


def _runs_of(connection: Connection, before: int) -> int:
    query = f"{_OLD.format(newest=NEWEST)} ORDER BY id LIMIT {SLICE}"
    runs = [id_ for (id_,) in connection.execute(query, (before,))]
    connection.executemany("DELETE FROM run WHERE id = ?", [(id_,) for id_ in runs])
    if runs:
        connection.execute("DELETE FROM definition WHERE hash NOT IN (SELECT definition FROM run)")
    return len(runs)


def unused_texts(connection: Connection, now: datetime) -> tuple[list[bytes], datetime]:
    """Return the texts that only prompts named that are gone, and the moment since which they were
    not used.

    Only those are looked at that nobody used since the oldest run that may go next: most of the
    runs before it are.
    """
    oldest = (
        f"SELECT created FROM run WHERE id = ({_OLD.format(newest=NEWEST)}{_WITH_STEPS} ORDER BY id "  # noqa: E501, S608
        "LIMIT 1)"
    )  # noqa: RUF100, S608
    row = connection.execute(oldest, (to_microseconds(now),)).fetchone()
    before = min(now, from_microseconds(row[0])) if row else now
    return unused(connection, before), before


def old_reports(connection: Connection, before: datetime) -> list[tuple[int, str]]:
    """Return (delivery, path) of the report files that are older than that and were not written
    over since.
    """
    rows = connection.execute(
        "SELECT id, receipt FROM outbox WHERE status = 'delivered' AND created < ? AND receipt LIKE "  # noqa: E501
        "'/%' AND (options LIKE '%{slot%' OR options LIKE '%{run}%') ORDER BY id LIMIT 1000",
        (to_microseconds(before),),
    )
    return [(id_, receipt) for id_, receipt in rows]


def without_files(connection: Connection, deliveries: Iterable[int]) -> None:
    """Take note that the files of these deliveries are gone."""
    connection.executemany(
        "UPDATE outbox SET receipt = 'removed by [keep] reports: ' || receipt WHERE id = ?",
        [(id_,) for id_ in deliveries],
    )
