"""Lists of approval requests and their answers."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from daemon.models import Approval, ApprovalStatus
from daemon.store.approval_rows import APPROVAL_COLUMN_NAMES, approval_of
from daemon.store.queries.session import raw_columns
from daemon.store.tables import ApprovalRow


def find_approvals(
    session: Session,
    run: str | None,
    status: ApprovalStatus | None,
    before: str | None,
    limit: int,
) -> list[Approval]:
    """Return approvals, newest first, starting behind `before`."""
    columns = raw_columns(ApprovalRow, APPROVAL_COLUMN_NAMES)
    query: Any = select(*columns).order_by(col(ApprovalRow.id).desc()).limit(limit)
    if run is not None:
        query = query.where(ApprovalRow.run_id == run)
    if status is not None:
        query = query.where(ApprovalRow.status == status.value)
    if before is not None:
        query = query.where(ApprovalRow.id < before)
    return [approval_of(row) for row in session.exec(query)]
