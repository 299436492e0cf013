"""Lists of incidents."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session, col, select

from daemon.models import Incident
from daemon.store.queries.session import raw_columns
from daemon.store.rows import INCIDENT_COLUMN_NAMES, incident_of, read_intact_rows
from daemon.store.tables import IncidentRow


def find_incidents(session: Session, *, closed: bool, limit: int) -> list[Incident]:
    """Return the open incidents, the latest first, then with `closed` those that are over."""
    is_closed = col(IncidentRow.closed).is_not(None)
    query: Any = (
        select(*raw_columns(IncidentRow, INCIDENT_COLUMN_NAMES))
        .order_by(is_closed, col(IncidentRow.seen).desc(), col(IncidentRow.id).desc())
        .limit(limit)
    )
    if not closed:
        query = query.where(col(IncidentRow.closed).is_(None))
    return read_intact_rows(incident_of, session.exec(query), "incident")
