"""Lists of deliveries."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from daemon.models import Delivery, DeliveryStatus
from daemon.store.queries.session import raw_columns
from daemon.store.rows import (
    DELIVERED_RUN_COLUMN_NAMES,
    DELIVERY_COLUMN_NAMES,
    delivery_of,
    read_intact_rows,
)
from daemon.store.tables import DeliveryRow, RunRow


def find_deliveries(
    session: Session, run: str | None, status: DeliveryStatus | None, limit: int
) -> list[Delivery]:
    """Return deliveries with the reports of their runs, newest first."""
    columns = [
        *raw_columns(DeliveryRow, DELIVERY_COLUMN_NAMES),
        *raw_columns(RunRow, DELIVERED_RUN_COLUMN_NAMES),
    ]
    query: Any = (
        select(*columns)
        .select_from(DeliveryRow)
        .join(RunRow, col(RunRow.id) == DeliveryRow.run_id, isouter=True)
        .order_by(col(DeliveryRow.id).desc())
        .limit(limit)
    )
    if run is not None:
        query = query.where(DeliveryRow.run_id == run)
    if status is not None:
        query = query.where(DeliveryRow.status == status.value)
    return read_intact_rows(delivery_of, session.exec(query), "delivery")
