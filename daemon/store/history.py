"""What happened, summed up for people: by routine and day, over a stretch of time, in all."""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.models import Json
from daemon.store.records import Day
from daemon.store.repository import Repository
from daemon.store.rows import LAST_BEFORE, to_microseconds
from daemon.store.statements import Connection

if TYPE_CHECKING:
    from sqlmodel import Session

# Summed up where the rows are: to carry ten thousand of them over takes longer than all the rest.
# Materialized, so that the runs of these days are read by their ids, and not all runs in the order
# of their routines.
_RECENT = f"""
WITH recent AS MATERIALIZED (
    SELECT routine, status, silent, created, ended, input, output FROM run
    WHERE id > {LAST_BEFORE} AND created >= ? AND created < ?
)
"""
# A run that took days is told with the day it began.
_RUNS = f"""{_RECENT}
SELECT routine, count(*), count(CASE WHEN silent = 1 OR status = 'skipped' THEN 1 END),
    count(CASE WHEN status IN ('failed', 'timed_out', 'interrupted') THEN 1 END),
    count(CASE WHEN status IN ('queued', 'running', 'waiting') THEN 1 END)
FROM recent GROUP BY routine ORDER BY routine
"""
_MISSED = """
SELECT routine, sum(count) FROM slot
WHERE last >= ? AND first < ? AND outcome = 'missed' AND run_id IS NULL GROUP BY routine
"""
_LOST = "SELECT count(*) FROM outbox WHERE created >= ? AND created < ? AND status = 'failed'"
_COST = "SELECT sum(cost) FROM spending WHERE at >= ? AND at < ?"

_KINDS = ("input", "cache_read", "cache_write", "output", "reasoning")
_SPENT = (
    f"SELECT provider, model, {', '.join(f'sum({kind})' for kind in _KINDS)}, sum(cost) FROM "
    "spending GROUP BY 1, 2"
)  # noqa: RUF100, S608
_SUCCESSES = """
WITH RECURSIVE name (routine) AS (
    SELECT min(routine) FROM run
    UNION ALL
    SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
)
SELECT name.routine, (
    SELECT ended FROM run WHERE run.routine = name.routine AND status = 'succeeded' ORDER BY id DESC LIMIT 1
) FROM name WHERE name.routine IS NOT NULL
"""  # noqa: E501


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Counts and sums."""

    runs: dict[str, int]
    outbox: dict[str, int]
    incidents: int
    successes: dict[str, float]
    tokens: dict[tuple[str, str, str], int]
    cost: dict[tuple[str, str], float]
    size: int


class HistoryRepository(Repository):
    """Sums over all tables of the journal; it writes nothing."""

    async def get_days(self, edges: Sequence[datetime]) -> list[Day]:
        """Return what became of each routine between each edge and the next one, where anything
        did.
        """

        def query(session: Session) -> list[Day]:
            from daemon.store.queries.history import get_days

            return get_days(session, edges)

        return await self._db.query(query)

    async def summarize(self, since: datetime, until: datetime) -> DigestTotals:
        """Return what happened from one moment to another."""
        span = (to_microseconds(since), to_microseconds(until))

        def work(connection: Connection) -> DigestTotals:
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

    async def measure(self) -> Measured:
        """Return how things stand."""
        return await self._db.read(_measure)

    async def get_usage_of_runs(
        self, routines: Iterable[str], *, last: int = 100
    ) -> dict[str, list[tuple[int, float, float]]]:
        """Return (tokens, seconds, dollars) of the last runs of each routine; of an unknown price
        as 0.
        """
        names = list(routines)

        def query(session: Session) -> dict[str, list[tuple[int, float, float]]]:
            from daemon.store.queries.history import get_usage_of_runs

            return get_usage_of_runs(session, names, last)

        return await self._db.query(query)

    async def count(self) -> Json:
        """Return how much there is: runs and deliveries by status, steps, and the bytes of the
        database.
        """

        def work(connection: Connection) -> Json:
            return {
                "runs": dict(
                    connection.execute("SELECT status, count(*) FROM run GROUP BY status")
                ),
                "deliveries": dict(
                    connection.execute("SELECT status, count(*) FROM outbox GROUP BY status")
                ),
                "steps": connection.execute("SELECT count(*) FROM step").fetchone()[0],
                "bytes": connection.size(),
            }

        return await self._db.read(work)


def _measure(connection: Connection) -> Measured:
    active = connection.execute(
        (  # noqa: UP034
            "SELECT status, count(*) FROM run WHERE status IN ('queued', 'running', 'waiting') "
            "GROUP BY status"
        )
    )
    runs = dict.fromkeys(("queued", "running", "waiting"), 0) | dict(active.fetchall())
    outbox = dict(
        connection.execute("SELECT status, count(*) FROM outbox GROUP BY status").fetchall()
    )
    (incidents,) = connection.execute(
        "SELECT count(*) FROM incident WHERE closed IS NULL"
    ).fetchone()
    successes = {
        name: ended / 1e6 for name, ended in connection.execute(_SUCCESSES) if ended is not None
    }
    tokens: dict[tuple[str, str, str], int] = {}
    cost: dict[tuple[str, str], float] = {}
    for provider, model, *sums, spent in connection.execute(_SPENT):
        tokens |= {
            (provider, model, kind): number for kind, number in zip(_KINDS, sums, strict=True)
        }
        if spent is not None:
            cost[provider, model] = spent / 1e9
    return Measured(
        runs=runs,
        outbox=outbox,
        incidents=incidents,
        successes=successes,
        tokens=tokens,
        cost=cost,
        size=connection.size(),
    )
