"""Lists of runs."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from daemon.models import Run, Status
from daemon.store.queries.session import raw_columns
from daemon.store.rows import RUN_COLUMN_NAMES, read_intact_rows, run_of
from daemon.store.tables import RunRow


def find_runs(
    session: Session, routine: str | None, status: Status | None, before: str | None, limit: int
) -> list[Run]:
    """Return runs, the newest first; with `before`, only those older than that run."""
    columns = raw_columns(RunRow, RUN_COLUMN_NAMES)
    query: Any = select(*columns).order_by(col(RunRow.id).desc()).limit(limit)
    if routine is not None:
        query = query.where(RunRow.routine == routine)
    if status is not None:
        query = query.where(RunRow.status == status.value)
    if before is not None:
        query = query.where(RunRow.id < before)
    return read_intact_rows(run_of, session.exec(query), "run")
