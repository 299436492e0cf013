"""What happened in a stretch of time, in numbers; and that it was told, once."""

# ruff: noqa: S608  what is put into statements are constants of this room; values are bound
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from daemon.store.incidents import put_message
from daemon.store.repository import Repository
from daemon.store.rows import KEEP_FACT, LAST_BEFORE, moment, stamp

_MARK = "digest"
# A run that took days is told with the day it began.
# `+`: by the ids, of which it is a part, and not in the order of the routines through all there are
_RUNS = f"""
SELECT routine, count(*), count(CASE WHEN silent = 1 OR status = 'skipped' THEN 1 END),
    count(CASE WHEN status IN ('failed', 'timed_out', 'interrupted') THEN 1 END),
    count(CASE WHEN status IN ('queued', 'running', 'waiting') THEN 1 END)
FROM run WHERE id > {LAST_BEFORE} AND created >= ? AND created < ? GROUP BY +routine ORDER BY +routine
"""  # noqa: E501
_MISSED = """
SELECT routine, sum(count) FROM slot
WHERE last >= ? AND first < ? AND outcome = 'missed' AND run_id IS NULL GROUP BY routine
"""
_LOST = "SELECT count(*) FROM outbox WHERE created >= ? AND created < ? AND status = 'failed'"
_COST = "SELECT sum(cost) FROM spending WHERE at >= ? AND at < ?"


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineDigest:
    """What one routine did."""

    routine: str
    runs: int = 0
    quiet: int = 0
    """Ended well with nothing to say, or found nothing to do."""
    alerts: int = 0
    """Failed, timed out, interrupted."""
    open: int = 0
    missed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestTotals:
    """What all of them did."""

    routines: tuple[RoutineDigest, ...]
    undelivered: int
    dollars: float


class Digests(Repository):
    """Sums over stretches of time."""

    async def stretch(self, since: datetime, until: datetime) -> DigestTotals:
        """Return what happened from one moment to another."""
        span = (stamp(since), stamp(until))

        def work(connection: sqlite3.Connection) -> DigestTotals:
            missed = dict(connection.execute(_MISSED, span).fetchall())
            found = {
                name: RoutineDigest(
                    routine=name,
                    runs=runs,
                    quiet=quiet,
                    alerts=alerts,
                    open=left,
                    missed=missed.pop(name, 0),
                )
                for name, runs, quiet, alerts, left in connection.execute(_RUNS, (span[0], *span))
            }
            found |= {
                name: RoutineDigest(routine=name, missed=number) for name, number in missed.items()
            }
            (lost,) = connection.execute(_LOST, span).fetchone()
            (cost,) = connection.execute(_COST, span).fetchone()
            return DigestTotals(
                routines=tuple(found[name] for name in sorted(found)),
                undelivered=lost,
                dollars=(cost or 0) / 1e9,
            )

        return await self._db.read(work)

    async def digest_told(self) -> datetime | None:
        """Return up to when digests were told; None if there never was one."""

        def work(connection: sqlite3.Connection) -> datetime | None:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (_MARK,)).fetchone()
            return moment(int(row[0])) if row else None

        return await self._db.read(work)

    async def tell_digest(
        self, targets: Sequence[str], title: str, text: str, *, until: datetime, zone: str
    ) -> None:
        """Send a digest to these targets, and take note of it, in one commit."""
        now = self._clock()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(KEEP_FACT, (_MARK, str(stamp(until))))
            put_message(connection, targets, "digest", title, text, now, zone=zone)

        await self._db.write(work, durable=True)
