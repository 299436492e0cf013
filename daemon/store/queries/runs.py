"""Lists of runs."""

from __future__ import annotations

from sqlmodel import Session, col, select

from daemon.models import Run, Status, Taint, Usage
from daemon.store.tables import RunRow


def find_runs(
    session: Session, routine: str | None, status: Status | None, before: str | None, limit: int
) -> list[Run]:
    """Return runs, newest first, starting behind the run `before`."""
    query = select(RunRow).order_by(col(RunRow.id).desc()).limit(limit)
    if routine is not None:
        query = query.where(RunRow.routine == routine)
    if status is not None:
        query = query.where(RunRow.status == status.value)
    if before is not None:
        query = query.where(RunRow.id < before)
    return [run_from(row) for row in session.exec(query)]


def run_from(row: RunRow) -> Run:
    """Return the run that a row holds."""
    return Run(
        id=row.id,
        routine=row.routine,
        definition=row.definition,
        trigger=row.trigger,
        slot=row.slot,
        event=row.event,
        status=Status(row.status),
        attempt=row.attempt,
        fruitless_attempts=row.barren,
        fence=row.fence,
        created=row.created,
        started=row.started,
        ended=row.ended,
        not_before=row.not_before,
        active=float(row.active),
        cancel=row.cancel,
        goal=row.goal,
        report=row.report,
        silent=row.silent,
        detail=row.detail,
        provider=row.provider,
        model=row.model,
        usage=Usage(
            input=row.input,
            cache_read=row.cache_read,
            cache_write=row.cache_write,
            output=row.output,
            reasoning=row.reasoning,
        ),
        iterations=row.iterations,
        taint=Taint(row.taint),
        sandbox=row.sandbox,
        waits_moved=row.waits_moved,
    )
