"""What calls to models cost, by call, routine, model and day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import BigInteger, case, func, literal_column, type_coerce
from sqlmodel import Session, col, select

from daemon.models import Usage
from daemon.store.records import CallOutcome, ModelCall, SpendingTotal
from daemon.store.rows import from_microseconds
from daemon.store.tables import SpendingRow

# Microseconds of a quarter of an hour. Days are those of a zone, which a database does not know; a
# quarter of an hour is of one day in every zone.
_QUARTER_HOUR = 900_000_000
_KEYS: dict[str, Any] = {
    "routine": col(SpendingRow.routine),
    "model": col(SpendingRow.model),
    "day": type_coerce(SpendingRow.at, BigInteger)
    // literal_column(str(_QUARTER_HOUR), BigInteger),
}
_NO_ANSWER = (CallOutcome.FAILED.value, CallOutcome.UNKNOWN.value, CallOutcome.ASKED.value)
_SUMS: tuple[Any, ...] = (
    func.count(),
    func.count(case((col(SpendingRow.outcome).in_(_NO_ANSWER), 1))),
    func.sum(SpendingRow.input),
    func.sum(SpendingRow.cache_read),
    func.sum(SpendingRow.cache_write),
    func.sum(SpendingRow.output),
    func.sum(SpendingRow.reasoning),
    func.sum(SpendingRow.cost),
    func.count() - func.count(col(SpendingRow.cost)),
)


def find_calls(session: Session, run: str) -> list[ModelCall]:
    """Return the calls of a run in their order, those without an answer too."""
    query = select(SpendingRow).where(SpendingRow.run_id == run).order_by(col(SpendingRow.id))
    return [_call_from(row) for row in session.exec(query)]


def sum_by(session: Session, by: str, since: datetime, zone: ZoneInfo) -> list[SpendingTotal]:
    """Return the totals from `since` on by `routine` or `model`, the most expensive first, or by
    `day` in the order of days, which are those of `zone`.
    """
    key = _KEYS[by]
    query: Any = select(key, *_SUMS).where(SpendingRow.at >= since).group_by(key)
    totals = [_total_from(*row) for row in session.exec(query)]
    if by != "day":
        return sorted(totals, key=lambda total: (-total.cost, -total.usage.total, total.key))
    days: dict[str, list[SpendingTotal]] = {}
    for total in totals:
        moment = from_microseconds(int(total.key) * _QUARTER_HOUR)
        days.setdefault(moment.astimezone(zone).date().isoformat(), []).append(total)
    return [SpendingTotal.of(day, days[day]) for day in sorted(days)]


def sum_by_day(session: Session, edges: Sequence[datetime]) -> list[list[SpendingTotal]]:
    """Return, for each day between two of the `edges`, the totals by routine."""
    query: Any = select(SpendingRow.routine, *_SUMS).group_by(SpendingRow.routine)
    return [
        [
            _total_from(*row)
            for row in session.exec(query.where(SpendingRow.at >= start, SpendingRow.at < end))
        ]
        for start, end in pairwise(edges)
    ]


def _call_from(row: SpendingRow) -> ModelCall:
    return ModelCall(
        at=row.at,
        run=row.run_id,
        routine=row.routine,
        provider=row.provider,
        model=row.model,
        outcome=CallOutcome(row.outcome),
        usage=Usage(
            input=row.input,
            cache_read=row.cache_read,
            cache_write=row.cache_write,
            output=row.output,
            reasoning=row.reasoning,
        ),
        cost=row.cost,
    )


def _total_from(
    key: object, calls: int, failed: int, input_: int, cache_read: int, cache_write: int,
    output: int, reasoning: int, cost: int | None, unpriced: int,
) -> SpendingTotal:  # fmt: skip
    return SpendingTotal(
        key=str(key),
        calls=calls,
        failed=failed,
        usage=Usage(
            input=input_,
            cache_read=cache_read,
            cache_write=cache_write,
            output=output,
            reasoning=reasoning,
        ),
        cost=cost or 0,
        unpriced=unpriced,
    )
