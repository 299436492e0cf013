"""Lists of incidents."""

from __future__ import annotations

import json

from sqlmodel import Session, col, select

from daemon.models import Incident
from daemon.store.tables import IncidentRow


def find_incidents(session: Session, *, closed: bool, limit: int) -> list[Incident]:
    """Return the open incidents, the latest first, then with `closed` those that are over."""
    is_closed = col(IncidentRow.closed).is_not(None)
    query = (
        select(IncidentRow)
        .order_by(is_closed, col(IncidentRow.seen).desc(), col(IncidentRow.id).desc())
        .limit(limit)
    )
    if not closed:
        query = query.where(col(IncidentRow.closed).is_(None))
    return [_incident_from(row) for row in session.exec(query)]


def _incident_from(row: IncidentRow) -> Incident:
    assert row.id is not None  # noqa: S101  it was read
    return Incident(
        id=row.id,
        subject=row.subject,
        signature=row.signature,
        detail=row.detail,
        opened=row.opened,
        last_seen=row.seen,
        count=row.count,
        last_alert=row.told,
        targets=tuple(json.loads(row.targets)),
        acked=row.acked,
        closed=row.closed,
        run=row.run_id,
    )
