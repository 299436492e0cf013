"""What models were paid: one row per call, written before it where a cap depends on it, else after.

A row that still says `asked` when nobody asks any more is of a process that died in the middle:
what the call may have come to at most is what it counts for.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from daemon.store.records import SpendingTotal, Spent
from daemon.store.repository import Repository
from daemon.store.rows import to_microseconds
from daemon.store.statements import Connection

if TYPE_CHECKING:
    from sqlmodel import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingLimit:
    """What calls since a moment may come to, of one routine or of all."""

    since: datetime
    routine: str
    most: int
    """Billionths of a dollar, or tokens."""
    dollars: bool


_COLUMNS = (
    "at, run_id, routine, provider, model, outcome, input, cache_read, cache_write, output, "
    "reasoning, cost"
)
_INSERT = f"INSERT INTO spending ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RESERVE = f"{_INSERT} RETURNING id"
_UPDATE = (
    "UPDATE spending SET outcome = ?, input = ?, cache_read = ?, cache_write = ?, output = ?, "
    "reasoning = ?, cost = ?"
    " WHERE id = ?"
)
_SINCE = (
    "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM spending"
    " WHERE at >= ? AND (CAST(? AS TEXT) = '' OR routine = ?)"
)
# Of a process that died, nobody will say what its calls came to.
_UNDER_WAY = (
    f"{_SINCE} AND outcome = 'asked' AND run_id IN (SELECT id FROM run WHERE status = 'running')"
)


class SpendingRepository(Repository):
    """The calls to models.

    Table: spending.
    """

    async def reserve(self, spent: Spent, limits: Sequence[SpendingLimit] = ()) -> int | None:
        """Write down a call that is about to be made; return its number, None if one of the limits
        does not cover it.

        Its cost and tokens are the most that it can come to.
        """
        values, tokens = _values(spent), spent.usage.total

        def work(connection: Connection) -> int | None:
            for limit in limits:
                cost, used = connection.execute(
                    _SINCE, (to_microseconds(limit.since), limit.routine, limit.routine)
                ).fetchone()
                # one more: what is set aside is rounded up
                if (
                    cost + (spent.cost or 0) > limit.most + 1
                    if limit.dollars
                    else used + tokens > limit.most
                ):
                    return None
            (number,) = connection.execute(_RESERVE, values).fetchone()
            return int(number)

        return await self._db.write(work)

    def record(self, spent: Spent, number: int | None = None) -> asyncio.Future[None]:
        """Write down how a call ended, with whatever is written next.

        `number` is the one `reserve` gave.
        """
        values = _values(spent)

        def work(connection: Connection) -> None:
            if number is None:
                connection.execute(_INSERT, values)
            else:
                connection.execute(_UPDATE, (*values[5:], number))

        return self._db.submit(work, lazily=True)

    async def get_totals(self, since: datetime, routine: str = "") -> tuple[int, int, int, int]:
        """Return the cost and the tokens of calls since then, of a routine or of all, and those of
        calls under way.
        """
        values = (to_microseconds(since), routine, routine)

        def work(connection: Connection) -> tuple[int, int, int, int]:
            cost, tokens = connection.execute(_SINCE, values).fetchone()
            held_cost, held_tokens = connection.execute(_UNDER_WAY, values).fetchone()
            return cost - held_cost, tokens - held_tokens, held_cost, held_tokens

        return await self._db.read(work)

    async def get_total_of_run(self, run: str) -> tuple[int, int]:
        """Return what a run has cost so far and the tokens it took, those of the runs it has begun
        among them.
        """
        query = (
            "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM spending WHERE "
            "run_id = ?"
            " OR run_id IN (SELECT run_id FROM slot WHERE routine = 'subagent' AND event >= ? AND "
            "event < ?)"
        )

        def work(connection: Connection) -> tuple[int, int]:
            cost, tokens = connection.execute(query, (run, f"{run}/", f"{run}0")).fetchone()
            return cost, tokens

        return await self._db.read(work)

    async def get_cost_of_run(self, run: str) -> float | None:
        """Return what a run cost in dollars; None if one of its calls has no known price, or none
        is written down.
        """
        query = (
            "SELECT sum(cost), count(*) FROM spending WHERE run_id = ? HAVING count(*) = "
            "count(cost)"
        )

        def work(connection: Connection) -> float | None:
            row = connection.execute(query, (run,)).fetchone()
            return row[0] / 1e9 if row and row[1] else None

        return await self._db.read(work)

    async def get_totals_by_routine(self, since: datetime) -> dict[str, tuple[int, int]]:
        """Return the cost and the tokens of each routine's calls since then."""
        query = (
            "SELECT routine, coalesce(sum(cost), 0), sum(input + output) FROM spending WHERE at >= "
            "? GROUP BY routine"
        )

        def work(connection: Connection) -> dict[str, tuple[int, int]]:
            rows = connection.execute(query, (to_microseconds(since),))
            return {routine: (cost, tokens) for routine, cost, tokens in rows}

        return await self._db.read(work)

    async def find_calls(self, run: str) -> list[Spent]:
        """Return the calls that a run has made, those without an answer too, in their order."""

        def query(session: Session) -> list[Spent]:
            from daemon.store.queries.spending import find_calls

            return find_calls(session, run)

        return await self._db.query(query)

    async def sum_by_day(self, edges: Sequence[datetime]) -> list[list[SpendingTotal]]:
        """Return what each routine's calls came to between each edge and the next one."""

        def query(session: Session) -> list[list[SpendingTotal]]:
            from daemon.store.queries.spending import sum_by_day

            return sum_by_day(session, edges)

        return await self._db.query(query)

    async def sum_by(self, by: str, *, since: datetime, zone: ZoneInfo) -> list[SpendingTotal]:
        """Return what was spent since then by routine, model or day, the dearest first, days in
        their order.
        """

        def query(session: Session) -> list[SpendingTotal]:
            from daemon.store.queries.spending import sum_by

            return sum_by(session, by, since, zone)

        return await self._db.query(query)


def _values(spent: Spent) -> tuple[object, ...]:
    usage = spent.usage
    return (
        to_microseconds(spent.at), spent.run, spent.routine,
        spent.provider, spent.model, spent.outcome,
        usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning, spent.cost,
    )  # fmt: skip
