"""What calls to models cost: a row for each call, written before the call where a cap depends on
it, else after.

A row that is `asked` and not under way is of a process that died during the call: it counts with
the most that the call can have cost.
"""

# ruff: noqa: S608  what is put into statements are constants of this file; values are bound
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from daemon.store.connection import Connection
from daemon.store.database import Repository
from daemon.store.records import ModelCall, SpendingTotal
from daemon.store.rows import events_below, to_microseconds

if TYPE_CHECKING:
    from sqlmodel import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingLimit:
    """How much the calls since a moment may cost, of one routine or of all."""

    since: datetime
    routine: str
    """Empty: all routines."""
    amount: int
    """Billionths of a dollar, or tokens."""
    is_money: bool


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
_TOTALS_SINCE = (
    "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM spending"
    " WHERE at >= ? AND (CAST(? AS TEXT) = '' OR routine = ?)"
)
# Calls under way: of runs that are running, and of no run since the moment that
# `oldest_without_run` returns. Not those of a process that died: their rows stay `asked`.
UNDER_WAY = (
    "outcome = 'asked' AND (run_id IN (SELECT id FROM run WHERE status = 'running')"
    " OR (run_id = '' AND at >= ?))"
)
# The question which run a message belongs to is of no run, and has ended after some 20 seconds.
_LONGEST_WITHOUT_RUN = timedelta(minutes=2)
_TOTALS_UNDER_WAY = f"{_TOTALS_SINCE} AND {UNDER_WAY}"


def oldest_without_run(now: datetime) -> int:
    """Return when a call of no run that is under way can have begun at the earliest, in
    microseconds since 1970.
    """
    return to_microseconds(now - _LONGEST_WITHOUT_RUN)


class SpendingRepository(Repository):
    """The calls to models.

    Table: spending.
    """

    async def reserve(self, call: ModelCall, limits: Sequence[SpendingLimit] = ()) -> int | None:
        """Insert the row of a call that is about to be made, unless that exceeds one of the limits.

        Returns the id of the row; None if a limit is exceeded. The cost and the tokens of `call`
        are the most that it can use.
        """
        values, tokens = _values(call), call.usage.total

        def work(connection: Connection) -> int | None:
            for limit in limits:
                cost, used = connection.execute(
                    _TOTALS_SINCE, (to_microseconds(limit.since), limit.routine, limit.routine)
                ).fetchone()
                if limit.is_money:
                    # one billionth more, as reservations are rounded up
                    is_covered = cost + (call.cost or 0) <= limit.amount + 1
                else:
                    is_covered = used + tokens <= limit.amount
                if not is_covered:
                    return None
            (row_id,) = connection.execute(_RESERVE, values).fetchone()
            return int(row_id)

        return await self._db.write(work)

    def record(self, call: ModelCall, row_id: int | None = None) -> asyncio.Future[None]:
        """Write how a call ended, with whatever is written next.

        `row_id` is what `reserve` returned; None inserts a row.
        """
        values = _values(call)

        def work(connection: Connection) -> None:
            if row_id is None:
                connection.execute(_INSERT, values)
            else:
                # a reserved row keeps time, run, routine, provider and model
                connection.execute(_UPDATE, (*values[5:], row_id))

        return self._db.submit(work, lazily=True)

    async def wait_until_written(self) -> None:
        """Wait until each call that `record` was given is written, or could not be."""
        await self._db.drain()

    async def get_totals(self, since: datetime, routine: str = "") -> tuple[int, int, int, int]:
        """Return cost and tokens of the ended calls since then, then cost and tokens reserved by
        calls under way; of a routine, or of all for an empty name. Costs are billionths of a
        dollar.
        """
        values = (to_microseconds(since), routine, routine)
        oldest = oldest_without_run(self._clock())

        def work(connection: Connection) -> tuple[int, int, int, int]:
            cost, tokens = connection.execute(_TOTALS_SINCE, values).fetchone()
            reserved_cost, reserved_tokens = connection.execute(
                _TOTALS_UNDER_WAY, (*values, oldest)
            ).fetchone()
            return cost - reserved_cost, tokens - reserved_tokens, reserved_cost, reserved_tokens

        return await self._db.read(work)

    async def get_total_of_run(self, run: str) -> tuple[int, int]:
        """Return the cost (billionths of a dollar) and the tokens of a run so far, with those of
        its sub-agents.
        """
        query = (
            "SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM spending"
            " WHERE run_id = ? OR run_id IN"
            " (SELECT run_id FROM slot WHERE routine = 'subagent' AND event >= ? AND event < ?)"
        )

        def work(connection: Connection) -> tuple[int, int]:
            cost, tokens = connection.execute(query, (run, *events_below(run))).fetchone()
            return cost, tokens

        return await self._db.read(work)

    async def get_cost_of_run(self, run: str) -> float | None:
        """Return the cost of a run in dollars; None if it has no calls, or one of unknown price."""
        query = (
            "SELECT sum(cost), count(*) FROM spending WHERE run_id = ?"
            " HAVING count(*) = count(cost)"
        )

        def work(connection: Connection) -> float | None:
            row = connection.execute(query, (run,)).fetchone()
            return row[0] / 1e9 if row and row[1] else None

        return await self._db.read(work)

    async def get_totals_by_routine(self, since: datetime) -> dict[str, tuple[int, int]]:
        """Return the cost (billionths of a dollar) and the tokens of the calls of each routine
        since then.
        """
        query = (
            "SELECT routine, coalesce(sum(cost), 0), sum(input + output) FROM spending"
            " WHERE at >= ? GROUP BY routine"
        )

        def work(connection: Connection) -> dict[str, tuple[int, int]]:
            rows = connection.execute(query, (to_microseconds(since),))
            return {routine: (cost, tokens) for routine, cost, tokens in rows}

        return await self._db.read(work)

    async def find_calls(self, run: str) -> list[ModelCall]:
        """Return the calls of a run in their order, those without an answer too."""

        def query(session: Session) -> list[ModelCall]:
            from daemon.store.queries.spending import find_calls

            return find_calls(session, run)

        return await self._db.query(query)

    async def sum_by_day(self, edges: Sequence[datetime]) -> list[list[SpendingTotal]]:
        """Return, for each day, the totals by routine; a day goes from one of the `edges` until
        before the next one.
        """

        def query(session: Session) -> list[list[SpendingTotal]]:
            from daemon.store.queries.spending import sum_by_day

            return sum_by_day(session, edges)

        return await self._db.query(query)

    async def sum_by(self, by: str, *, since: datetime, zone: ZoneInfo) -> list[SpendingTotal]:
        """Return the totals since then by `routine` or `model`, the dearest first, or by `day` of
        a zone, in their order.
        """

        def query(session: Session) -> list[SpendingTotal]:
            from daemon.store.queries.spending import sum_by

            return sum_by(session, by, since, zone)

        return await self._db.query(query)


def _values(call: ModelCall) -> tuple[object, ...]:
    """Return the values of _COLUMNS."""
    usage = call.usage
    return (
        to_microseconds(call.at), call.run, call.routine,
        call.provider, call.model, call.outcome,
        usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning, call.cost,
    )  # fmt: skip
