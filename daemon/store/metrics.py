"""What metrics ask of the journal, in one snapshot."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from daemon.store.repository import Repository

_KINDS = ("input", "cache_read", "cache_write", "output", "reasoning")
_SPENT = (
    f"SELECT provider, model, {', '.join(f'sum({kind})' for kind in _KINDS)}, sum(cost) FROM "  # noqa: S608
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
class Measured:
    """Counts and sums."""

    runs: dict[str, int]
    outbox: dict[str, int]
    incidents: int
    successes: dict[str, float]
    tokens: dict[tuple[str, str, str], int]
    cost: dict[tuple[str, str], float]
    size: int


class MetricsRepository(Repository):
    """Sums over the journal."""

    async def measure(self) -> Measured:
        """Return how things stand."""
        return await self._db.read(_measure)


def _measure(connection: sqlite3.Connection) -> Measured:
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
    (size,) = connection.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return Measured(
        runs=runs,
        outbox=outbox,
        incidents=incidents,
        successes=successes,
        tokens=tokens,
        cost=cost,
        size=size,
    )
