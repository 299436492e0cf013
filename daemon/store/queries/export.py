"""The rows of an export, as the columns hold them: a damaged row is exported like any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Table, and_, func, or_, type_coerce
from sqlalchemy.types import NullType
from sqlmodel import Session, col, select, union

from daemon.store.memory_tables import TombstoneRow
from daemon.store.tables import (
    ApprovalRow,
    AuditRow,
    DefinitionRow,
    DeliveryRow,
    IncidentRow,
    InputRow,
    JournalTable,
    MessageRow,
    MetaRow,
    PolicyRow,
    QuarantineRow,
    RoutineRow,
    RunRow,
    SeenItemRow,
    SeenRow,
    SlotRecord,
    SpendingRow,
    StepRow,
    TextRow,
)

RawRow = dict[str, Any]
_ROWS_AT_ONCE = 500  # that are in memory: an export may be larger than that
_ACTIVE = ("queued", "running", "waiting")
_MEMORY_KEY_PREFIX = "memory."  # of keys of meta that describe the index of this memory


def routine_names(session: Session) -> set[str]:
    """Return the names of the routines that the journal knows."""
    query: Any = union(select(RoutineRow.name), select(RunRow.routine))
    return {name for (name,) in session.exec(query)}


def rows_of_routine(session: Session, routine: str) -> Iterator[tuple[str, RawRow]]:
    """Yield the history of a routine, runs that have ended and what belongs to them, each row with
    the name of its table; parents before children.
    """
    is_ended = and_(col(RunRow.routine) == routine, col(RunRow.status).not_in(_ACTIVE))
    runs = select(RunRow.id).where(is_ended)
    definitions = select(RunRow.definition).where(is_ended)
    queries: list[tuple[type[JournalTable], Any, Sequence[Any]]] = [
        (DefinitionRow, col(DefinitionRow.hash).in_(definitions), ()),
        (RunRow, col(RunRow.id).in_(runs), [RunRow.id]),
        (InputRow, col(InputRow.run_id).in_(runs), ()),
        (StepRow, col(StepRow.run_id).in_(runs), [StepRow.run_id, StepRow.seq]),
        (
            SlotRecord,
            and_(
                col(SlotRecord.routine) == routine,
                or_(col(SlotRecord.run_id).is_(None), col(SlotRecord.run_id).in_(runs)),
            ),
            [SlotRecord.first],
        ),
        (SeenRow, SeenRow.routine == routine, ()),
        (SeenItemRow, SeenItemRow.routine == routine, ()),
        (DeliveryRow, col(DeliveryRow.run_id).in_(runs), [DeliveryRow.id]),
        (MessageRow, col(MessageRow.run_id).in_(runs), [MessageRow.id]),
        (ApprovalRow, col(ApprovalRow.run_id).in_(runs), [ApprovalRow.id]),
        (QuarantineRow, col(QuarantineRow.run_id).in_(runs), [QuarantineRow.id]),
        (SpendingRow, col(SpendingRow.run_id).in_(runs), [SpendingRow.id]),
    ]
    for table, condition, order in queries:
        yield from _rows(session, table, condition, order)


def shared_rows(session: Session) -> Iterator[tuple[str, RawRow]]:
    """Yield the rows that belong to no routine, but for the memory's."""
    is_exported = and_(
        # as long as a restored backup waits to be resumed: not for the database that imports this
        col(MetaRow.key) != "hold",
        func.substr(MetaRow.key, 1, len(_MEMORY_KEY_PREFIX)) != _MEMORY_KEY_PREFIX,
    )
    yield from _rows(session, PolicyRow)
    yield from _rows(session, MetaRow, is_exported)
    yield from _rows(session, IncidentRow, order=[IncidentRow.id])
    yield from _rows(session, AuditRow, order=[AuditRow.seq])
    yield from _rows(session, TombstoneRow, order=[TombstoneRow.id])


def texts_of_prompts(session: Session, digests: Sequence[bytes]) -> Iterator[tuple[str, RawRow]]:
    """Yield the texts of these digests that there are, in the order of the digests."""
    for digest in digests:
        yield from _rows(session, TextRow, TextRow.digest == digest)


def policies(session: Session, hashes: Sequence[str]) -> Iterator[tuple[str, RawRow]]:
    """Yield the policies of these hashes that were kept, in the order of the hashes."""
    for hash_ in hashes:
        yield from _rows(session, PolicyRow, PolicyRow.hash == hash_)


def _rows(
    session: Session, model: type[JournalTable], condition: Any = True, order: Sequence[Any] = ()
) -> Iterator[tuple[str, RawRow]]:
    """Yield the rows of a table that meet a condition, a few in memory at a time."""
    table: Table = model.__table__  # type: ignore[attr-defined]
    # without the types of the columns, which would read the bodies
    columns = [type_coerce(column, NullType()).label(column.name) for column in table.columns]
    query: Any = select(*columns).order_by(*order)
    if condition is not True:
        query = query.where(condition)
    for row in session.exec(query.execution_options(yield_per=_ROWS_AT_ONCE)):
        yield table.name, dict(row._mapping)
