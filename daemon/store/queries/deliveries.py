"""Lists of deliveries."""

from __future__ import annotations

from sqlmodel import Session, col, select

from daemon.models import Delivery, DeliveryStatus, Report, Status, Taint
from daemon.store.incidents import kind_of
from daemon.store.tables import DeliveryRow, RunRow


def find_deliveries(
    session: Session, run: str | None, status: DeliveryStatus | None, limit: int
) -> list[Delivery]:
    """Return deliveries with the reports of their runs, newest first."""
    query = (
        select(DeliveryRow, RunRow)
        .join(RunRow, col(RunRow.id) == DeliveryRow.run_id, isouter=True)
        .order_by(col(DeliveryRow.id).desc())
        .limit(limit)
    )
    if run is not None:
        query = query.where(DeliveryRow.run_id == run)
    if status is not None:
        query = query.where(DeliveryRow.status == status.value)
    return [_delivery_from(row, run_row) for row, run_row in session.exec(query)]


def _delivery_from(row: DeliveryRow, run: RunRow | None) -> Delivery:
    """Return a delivery; one of the daemon's own messages has no run."""
    assert row.id is not None  # noqa: S101  it was read
    routine = "" if run is None else run.routine
    text = None if run is None else run.report
    detail = "" if run is None else run.detail or ""
    return Delivery(
        id=row.id,
        run=row.run_id or "",
        routine=routine,
        target=row.target,
        content=kind_of(row.kind, row.options),
        options=row.options,
        status=DeliveryStatus(row.status),
        attempts=row.attempts,
        created=row.created,
        next_at=row.next_at,
        receipt=row.receipt,
        error=row.error,
        report=Report(
            run=row.run_id or "",
            routine=routine,
            slot=row.created if run is None else run.slot,
            status=Status.SUCCEEDED if run is None else Status(run.status),
            text=detail if text is None else text,
            scheduled_zone=row.zone,
            taint=Taint.NONE if run is None else Taint(run.taint),
        ),
    )
