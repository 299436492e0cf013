"""Sums over the journal: outcomes by day, digests, metrics, usage of earlier runs."""

# ruff: noqa: S608  what is put into statements are constants of this module; values are bound
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from daemon.models import Json
from daemon.store.connection import Connection
from daemon.store.database import Repository
from daemon.store.records import DayOutcomes
from daemon.store.rows import to_microseconds
from daemon.store.slots import count_slots_within
from daemon.store.spending import UNDER_WAY, oldest_without_run

if TYPE_CHECKING:
    from sqlmodel import Session

# Rows are summed up in the database: fetching ten thousand of them takes longer than the sums.
# A run belongs to the time in which it ended: only then is it known how. One seek for each routine
# instead of a walk through the history; see runs.py.
_RUNS = """
WITH RECURSIVE name (routine) AS (
    SELECT min(routine) FROM run
    UNION ALL
    SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
), recent AS MATERIALIZED (
    SELECT run.routine, run.status, run.silent FROM name CROSS JOIN run
    WHERE run.routine = name.routine AND run.ended >= ? AND run.ended < ?
)
SELECT routine, count(*), count(CASE WHEN silent = 1 OR status = 'skipped' THEN 1 END),
    count(CASE WHEN status IN ('failed', 'timed_out', 'interrupted') THEN 1 END)
FROM recent GROUP BY routine ORDER BY routine
"""  # noqa: E501
_MISSED = """
SELECT routine, first, last, count FROM slot
WHERE last >= ? AND first < ? AND outcome = 'missed' AND run_id IS NULL
"""
# Given up in this time: a report may be tried for a day before.
_UNDELIVERED = """
SELECT count(*) FROM outbox
WHERE coalesce(waits_since, created) >= ? AND coalesce(waits_since, created) < ? AND status = 'failed'
"""  # noqa: E501
_COST = "SELECT sum(cost) FROM spending WHERE at >= ? AND at < ?"

_GREATEST_ID = 2**63 - 1
_TOKEN_KINDS = ("input", "cache_read", "cache_write", "output", "reasoning")
# Without calls under way, whose rows have the most that they can use: a counter must not fall, as
# Prometheus takes that for a restart, and counts all of it once more.
_USAGE_BY_MODEL = (
    f"SELECT provider, model, {', '.join(f'sum({kind})' for kind in _TOKEN_KINDS)}, sum(cost)"
    f" FROM spending WHERE id > ? AND id <= ? AND NOT ({UNDER_WAY}) GROUP BY 1, 2"
)
# The last call before the first one that is under way: no row up to it changes any more.
_LAST_ENDED_CALL = f"""
SELECT coalesce((
    SELECT id - 1 FROM spending WHERE id > ? AND {UNDER_WAY} ORDER BY id LIMIT 1
), (SELECT max(id) FROM spending), 0)
"""
# One seek for each routine instead of a walk through the history; see runs.py. The status is put
# together, so that SQLite does not look for it by its index, among all successes of other routines.
_LAST_SUCCESSES = """
WITH RECURSIVE name (routine) AS (
    SELECT min(routine) FROM run
    UNION ALL
    SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
)
SELECT name.routine, (
    SELECT ended FROM run WHERE run.routine = name.routine AND status || '' = 'succeeded' ORDER BY id DESC LIMIT 1
) FROM name WHERE name.routine IS NOT NULL
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineDigest:
    """Counts of one routine for a digest."""

    routine: str
    runs: int = 0
    """Runs that ended."""
    quiet: int = 0
    """Runs that succeeded silently or were skipped."""
    failures: int = 0
    """Runs that failed, timed out or were interrupted."""
    missed: int = 0
    """Slots that were missed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestTotals:
    """The counts of all routines for a digest."""

    routines: tuple[RoutineDigest, ...]
    """By name; only those with runs or missed slots."""
    undelivered: int
    """Deliveries that were given up."""
    dollars: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMetrics:
    """What the journal adds to the metrics, as of now."""

    runs: dict[str, int]
    """Counts of runs that have not ended, by status."""
    outbox: dict[str, int]
    """Counts of deliveries by status."""
    incidents: int
    """How many are open."""
    successes: dict[str, float]
    """When each routine last succeeded, in seconds since 1970."""
    tokens: dict[tuple[str, str, str], int]
    """By provider, model and kind: input, cache_read, cache_write, output or reasoning."""
    cost: dict[tuple[str, str], float]
    """Dollars by provider and model, where a price is known."""
    size: int
    """Bytes of the database."""


class UsageTotals(NamedTuple):
    """What the calls to models up to one of them have used."""

    last_call: int = 0
    """The id of its row."""
    sums: Mapping[tuple[str, str], tuple[int | None, ...]] = {}
    """By provider and model: the tokens of each kind, and the cost, None where no price is known.
    """


class HistoryRepository(Repository):
    """Sums over all tables of the journal; it writes nothing."""

    _totals = UsageTotals()
    """Of the calls that had ended when the metrics were read last: a monitoring system reads them
    every few seconds, and the calls of years need not be added up each time.
    """

    async def get_days(self, edges: Sequence[datetime]) -> list[DayOutcomes]:
        """Return the outcomes of each routine by day, where there are any; a day goes from one of
        the `edges` until before the next one.
        """

        def query(session: Session) -> list[DayOutcomes]:
            from daemon.store.queries.history import get_days

            return get_days(session, edges)

        return await self._db.query(query)

    async def summarize(self, since: datetime, until: datetime) -> DigestTotals:
        """Return the counts for a digest of the time from `since` until before `until`."""
        begin, end = to_microseconds(since), to_microseconds(until)

        def work(connection: Connection) -> DigestTotals:
            missed_counts: Counter[str] = Counter()
            for name, first, last, count in connection.execute(_MISSED, (begin, end)).fetchall():
                missed_counts[name] += count_slots_within(first, last, count, begin, end)
            digests = {}
            for name, runs, quiet, failures in connection.execute(_RUNS, (begin, end)):
                digests[name] = RoutineDigest(
                    routine=name,
                    runs=runs,
                    quiet=quiet,
                    failures=failures,
                    missed=missed_counts.pop(name, 0),
                )
            for name, count in (+missed_counts).items():  # routines without a run
                digests[name] = RoutineDigest(routine=name, missed=count)
            (undelivered_count,) = connection.execute(_UNDELIVERED, (begin, end)).fetchone()
            (cost,) = connection.execute(_COST, (begin, end)).fetchone()
            return DigestTotals(
                routines=tuple(digests[name] for name in sorted(digests)),
                undelivered=undelivered_count,
                dollars=(cost or 0) / 1e9,
            )

        return await self._db.read(work)

    async def get_metrics(self) -> HistoryMetrics:
        """Return the figures of the present for the metrics."""
        oldest = oldest_without_run(self._clock())

        def work(connection: Connection) -> tuple[HistoryMetrics, UsageTotals]:
            # rows of other machines may appear behind later ones: then all are added up
            totals = UsageTotals() if self.shared else self._totals
            return _read_metrics(connection, totals, oldest)

        metrics, self._totals = await self._db.read(work)
        return metrics

    async def get_usage_of_runs(
        self, routines: Iterable[str], *, last: int = 100
    ) -> dict[str, list[tuple[int, float, float]]]:
        """Return (tokens, seconds, dollars) of the last runs of each routine; an unknown price is
        0 dollars.
        """
        names = list(routines)

        def query(session: Session) -> dict[str, list[tuple[int, float, float]]]:
            from daemon.store.queries.history import get_usage_of_runs

            return get_usage_of_runs(session, names, last)

        return await self._db.query(query)

    async def count(self) -> Json:
        """Return the counts of runs and deliveries by status and of steps, and the bytes of the
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


def _add_usage(
    connection: Connection, totals: UsageTotals, last_call: int, oldest: int
) -> UsageTotals:
    """Return the totals with those of the calls behind them, up to `last_call`. `oldest` is what
    `oldest_without_run` returns.
    """
    sums = dict(totals.sums)
    rows = connection.execute(_USAGE_BY_MODEL, (totals.last_call, last_call, oldest))
    for provider, model, *amounts in rows:
        before = sums.get((provider, model), (None,) * len(amounts))
        sums[provider, model] = tuple(
            total if amount is None else (total or 0) + amount
            for total, amount in zip(before, amounts, strict=True)
        )
    return UsageTotals(last_call, sums)


def _read_metrics(
    connection: Connection, totals: UsageTotals, oldest: int
) -> tuple[HistoryMetrics, UsageTotals]:
    """Return the metrics, and the totals of the calls that have ended. `oldest` is what
    `oldest_without_run` returns.
    """
    active = connection.execute(
        "SELECT status, count(*) FROM run WHERE status IN ('queued', 'running', 'waiting')"
        " GROUP BY status"
    )
    runs = dict.fromkeys(("queued", "running", "waiting"), 0) | dict(active.fetchall())
    outbox = dict(
        connection.execute("SELECT status, count(*) FROM outbox GROUP BY status").fetchall()
    )
    (incidents,) = connection.execute(
        "SELECT count(*) FROM incident WHERE closed IS NULL"
    ).fetchone()
    successes = {
        name: ended / 1e6
        for name, ended in connection.execute(_LAST_SUCCESSES)
        if ended is not None
    }
    tokens: dict[tuple[str, str, str], int] = {}
    cost: dict[tuple[str, str], float] = {}
    (last_ended,) = connection.execute(_LAST_ENDED_CALL, (totals.last_call, oldest)).fetchone()
    totals = _add_usage(connection, totals, max(last_ended, totals.last_call), oldest)
    all_usage = _add_usage(connection, totals, _GREATEST_ID, oldest)
    for (provider, model), (*counts, billionths) in all_usage.sums.items():
        for kind, count in zip(_TOKEN_KINDS, counts, strict=True):
            tokens[provider, model, kind] = count or 0
        if billionths is not None:
            cost[provider, model] = billionths / 1e9
    metrics = HistoryMetrics(
        runs=runs,
        outbox=outbox,
        incidents=incidents,
        successes=successes,
        tokens=tokens,
        cost=cost,
        size=connection.size(),
    )
    return metrics, totals
