"""What happened by routine and day, and what the last runs of routines took."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import case, func
from sqlmodel import Session, col, select

from daemon.models import Status
from daemon.store.records import DayOutcomes
from daemon.store.rows import to_microseconds
from daemon.store.slots import count_slots_within
from daemon.store.tables import RunRow, SlotRecord, SpendingRow


def get_days(session: Session, edges: Sequence[datetime]) -> list[DayOutcomes]:
    """Return what became of each routine between each edge and the next one, where anything did."""
    days: dict[tuple[str, int], DayOutcomes] = {}

    def day_of(routine: str, number: int) -> DayOutcomes:
        return days.setdefault((routine, number), DayOutcomes(routine=routine, day=number))

    for routine, number, status, silent, runs, input_, output in session.exec(_ended_runs(edges)):
        day = day_of(routine, number)
        succeeded_silently = silent and status == Status.SUCCEEDED
        day.outcomes["silent" if succeeded_silently else status] += runs
        day.tokens["input"] += input_
        day.tokens["output"] += output
    not_started = select(SlotRecord).where(
        col(SlotRecord.run_id).is_(None),
        col(SlotRecord.outcome).in_(("missed", "skipped")),
        SlotRecord.last >= edges[0],
        SlotRecord.first < edges[-1],
    )
    for row in session.exec(not_started):
        first_day = max(bisect_right(edges, row.first) - 1, 0)
        last_day = min(bisect_right(edges, row.last) - 1, len(edges) - 2)
        span = to_microseconds(row.first), to_microseconds(row.last), row.count
        for number in range(first_day, last_day + 1):
            begin, end = map(to_microseconds, edges[number : number + 2])
            if slots := count_slots_within(*span, begin, end):
                day_of(row.routine, number).outcomes[row.outcome] += slots
    # a damaged row may hold bytes in place of a text
    return sorted(days.values(), key=lambda day: (str(day.routine), day.day))


def _ended_runs(edges: Sequence[datetime]) -> Any:
    """Return the select of counts and tokens of ended runs by routine, day, status and silence.

    They are summed up in the database: carrying thousands of rows over takes longer than the rest.
    """
    # Ids are in the order of their moments: all runs since the first edge are behind this one.
    last_before = (
        select(RunRow.id)
        .where(RunRow.created < edges[0])
        .order_by(col(RunRow.id).desc())
        .limit(1)
        .scalar_subquery()
    )
    days: list[Any] = [(RunRow.created < edge, number) for number, edge in enumerate(edges[1:])]
    # Materialized, so that the runs of these days are read by their ids, and not all runs in the
    # order of their routines.
    recent = (
        select(
            RunRow.routine,
            case(*days).label("day"),
            RunRow.status,
            RunRow.silent,
            RunRow.input,
            RunRow.output,
        )  # type: ignore[call-overload]
        .where(
            RunRow.id > func.coalesce(last_before, ""),
            RunRow.created >= edges[0],
            RunRow.created < edges[-1],
            col(RunRow.ended).is_not(None),
        )
        .cte("recent")
        .prefix_with("MATERIALIZED")
        .c
    )
    keys: tuple[Any, ...] = (recent.routine, recent.day, recent.status, recent.silent)
    sums: tuple[Any, ...] = (func.count(), func.sum(recent.input), func.sum(recent.output))
    return select(*keys, *sums).group_by(*keys)


def get_usage_of_runs(
    session: Session, routines: Iterable[str], last: int
) -> dict[str, list[tuple[int, float, float]]]:
    """Return (tokens, seconds, dollars) of the last runs of each routine; an unknown price is 0.

    The seconds are those that a run was under way: one of a single attempt from its start to its
    end, others as `active` says.
    """
    cost = (
        select(func.sum(SpendingRow.cost)).where(SpendingRow.run_id == RunRow.id).scalar_subquery()
    )
    tokens_of_run: Any = RunRow.input + RunRow.output
    times: tuple[Any, ...] = (RunRow.attempt, RunRow.active, RunRow.started, RunRow.ended)
    query = (
        select(tokens_of_run, cost, *times)
        .where(col(RunRow.ended).is_not(None), RunRow.status != Status.CANCELLED.value)
        .order_by(col(RunRow.id).desc())
        .limit(last)
    )
    return {
        routine: [
            (
                tokens,
                active if attempt > 1 else (ended - (started or ended)).total_seconds(),
                (billionths or 0) / 1e9,
            )
            for tokens, billionths, attempt, active, started, ended in session.exec(
                query.where(RunRow.routine == routine)
            )
        ]
        for routine in routines
    }
