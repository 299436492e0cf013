"""The audit and the quarantined texts, as people read them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, and_, func, or_, type_coerce
from sqlmodel import Session, col, select

from daemon.store.connection import AFTER_EVERY_ID, Row
from daemon.store.records import AuditEntry, QuarantinedResult
from daemon.store.tables import AuditRow, QuarantineRow


def find_entries(
    session: Session, run: str | None, before: int | None, limit: int
) -> list[AuditEntry]:
    """Return rows of the audit, newest first, starting behind the row `before`."""
    query = select(AuditRow).order_by(col(AuditRow.seq).desc()).limit(limit)
    if run is not None:
        query = query.where(AuditRow.run_id == run)
    if before is not None:
        query = query.where(col(AuditRow.seq) < before)
    return [_entry_from(row) for row in session.exec(query)]


def get_chain_part(session: Session, after: int, limit: int) -> list[Row]:
    """Return rows of the audit behind the row `after`, in their order: the stored values of all
    columns as `audit.add_entry` hashed them, with the hash at the end.
    """
    query: Any = (
        select(  # type: ignore[call-overload]
            AuditRow.seq,
            type_coerce(AuditRow.at, BigInteger),  # the hash covers the number
            AuditRow.kind,
            AuditRow.run_id,
            AuditRow.routine,
            AuditRow.call_id,
            AuditRow.tool,
            AuditRow.actor,
            AuditRow.body,
            AuditRow.hash,
        )
        .where(col(AuditRow.seq) > after)
        .order_by(AuditRow.seq)
        .limit(limit)
    )
    return [tuple(row) for row in session.exec(query)]


def find_quarantined(session: Session, before: str | None, limit: int) -> list[QuarantinedResult]:
    """Return the texts kept from the models, newest first, starting behind the text `before`."""
    query = select(QuarantineRow).order_by(col(QuarantineRow.id).desc()).limit(limit)
    if before is not None:
        query = query.where(QuarantineRow.id < before)
    return [_quarantined_from(row) for row in session.exec(query)]


def find_quarantined_by_part(session: Session, part: str, limit: int) -> list[QuarantinedResult]:
    """Return the texts whose id begins or ends with `part`, newest first."""
    id_ = col(QuarantineRow.id)
    begins = and_(id_ >= part, id_ < part + AFTER_EVERY_ID)
    ends = func.substr(id_, func.length(id_) - len(part) + 1) == part
    query = select(QuarantineRow).where(or_(begins, ends)).order_by(id_.desc()).limit(limit)
    return [_quarantined_from(row) for row in session.exec(query)]


def _entry_from(row: AuditRow) -> AuditEntry:
    assert row.seq is not None  # noqa: S101  it was read
    return AuditEntry(
        seq=row.seq,
        at=row.at,
        kind=row.kind,
        run=row.run_id,
        routine=row.routine,
        call_id=row.call_id,
        tool=row.tool,
        actor=row.actor,
        body=json.loads(row.body),
        hash=row.hash,
    )


def _quarantined_from(row: QuarantineRow) -> QuarantinedResult:
    return QuarantinedResult(
        id=row.id,
        run=row.run_id,
        routine=row.routine,
        call_id=row.call_id,
        tool=row.tool,
        reason=row.reason,
        at=row.at,
        text=str(row.body["text"]),
    )
