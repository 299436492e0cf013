"""Lists of approval requests and their answers."""

from __future__ import annotations

from sqlmodel import Session, col, select

from daemon.models import Approval, ApprovalRequest, ApprovalStatus, Taint
from daemon.store.tables import ApprovalRow


def find_approvals(
    session: Session,
    run: str | None,
    status: ApprovalStatus | None,
    before: str | None,
    limit: int,
) -> list[Approval]:
    """Return approvals, newest first, starting behind `before`."""
    query = select(ApprovalRow).order_by(col(ApprovalRow.id).desc()).limit(limit)
    if run is not None:
        query = query.where(ApprovalRow.run_id == run)
    if status is not None:
        query = query.where(ApprovalRow.status == status.value)
    if before is not None:
        query = query.where(ApprovalRow.id < before)
    return [_approval_from(row) for row in session.exec(query)]


def _approval_from(row: ApprovalRow) -> Approval:
    return Approval(
        id=row.id,
        run=row.run_id,
        routine=row.routine,
        approval_request=ApprovalRequest(
            call_id=row.call_id,
            tool=row.tool,
            request=row.request,
            digest=row.digest,
            rule=row.rule,
            reason=row.reason,
            taint=Taint(row.taint),
        ),
        status=ApprovalStatus(row.status),
        created=row.created,
        expires=row.expires,
        decided=row.decided,
        by=row.actor,
    )
