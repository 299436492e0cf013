"""The journal's tables as SQLModel classes: for history queries, exports and other databases.

Importing this costs 20 MiB, so nothing on the daemon's daily path does; there the statements are
plain SQL over sql/001_journal.sql, and a test holds the two declarations equal.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from sqlalchemy import (
    BigInteger,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    text,
)
from sqlalchemy.types import REAL, TypeDecorator
from sqlmodel import Field, SQLModel

from daemon.models import Json
from daemon.store.rows import deflate, encode, moment, stamp
from daemon.store.texts import apart

# SQLite knows one INTEGER; elsewhere microseconds since 1970 need all eight bytes. Texts are
# compared by code point, as SQLite does: ids and ranges of them need it.
Long = BigInteger().with_variant(Integer(), "sqlite")
Words = Text().with_variant(Text(collation="C"), "postgresql")
Real: Any = REAL().with_variant(Double(), "postgresql")

if TYPE_CHECKING:
    _Moments: TypeAlias = TypeDecorator[datetime]
    _Flags: TypeAlias = TypeDecorator[bool]
    _Objects: TypeAlias = TypeDecorator[Json]
else:
    _Moments = _Flags = _Objects = TypeDecorator


class MomentType(_Moments):
    """An instant, kept as microseconds since 1970 in UTC."""

    impl = Long
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else stamp(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else moment(value)


class Flag(_Flags):
    """Yes or no, kept as 1 or 0."""

    impl = Long
    cache_ok = True

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


class OptionsType(_Objects):
    """A small JSON object, kept as text."""

    impl = Words
    cache_ok = True

    def process_bind_param(self, value: Json | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Json | None:
        return None if value is None else json.loads(value)


class Body(_Objects):
    """A JSON body, deflated when long; one that shares texts comes as `texts.apart` has it."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Json | None, dialect: Dialect) -> bytes | None:
        return None if value is None else deflate(encode(value))

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Json | None:
        return None if value is None else apart(value)


def column(type_: Any, written: str | None = None, **more: Any) -> Any:
    """Return a field whose column has this type, and a default `written` in the database."""
    kwargs = {} if written is None else {"server_default": text(written)}
    return Field(sa_type=_EVERYWHERE.get(type_, type_), sa_column_kwargs=kwargs, **more)


_EVERYWHERE: dict[Any, Any] = {Integer: Long, Text: Words, REAL: Real}
_column = column


def where(condition: str) -> dict[str, Any]:
    """Return what makes an index one of some rows."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class JournalTable(SQLModel):
    """What the journal's tables share."""

    metadata: ClassVar[MetaData] = MetaData()


class MetaRow(JournalTable, table=True):
    """Small facts by name."""

    __tablename__ = "meta"

    key: str = _column(Text, primary_key=True)
    value: str = _column(Text)


class DefinitionRow(JournalTable, table=True):
    """What a run was told to do."""

    __tablename__ = "definition"

    hash: str = _column(Text, primary_key=True)
    body: str = _column(Text)


class PolicyRow(JournalTable, table=True):
    """A policy that was in force."""

    __tablename__ = "policy"

    hash: str = _column(Text, primary_key=True)
    body: str = _column(Text)


class RoutineRow(JournalTable, table=True):
    """What is kept of a routine besides its file."""

    __tablename__ = "routine"

    name: str = _column(Text, primary_key=True)
    schedule_key: str = _column(Text)
    baseline: datetime = _column(MomentType)
    paused: bool = _column(Flag, "0", default=False)
    paused_until: datetime | None = _column(MomentType)
    paused_why: str | None = _column(Text)
    forgiven: datetime | None = _column(MomentType)
    paused_since: datetime | None = _column(MomentType, default=None)


class RunRow(JournalTable, table=True):
    """One execution of a routine; see models.Run."""

    __tablename__ = "run"
    __table_args__ = (
        Index("run_routine", "routine", "id"),
        Index("run_status", "status", "id"),
        Index("run_ended", "routine", "ended", **where("ended IS NOT NULL")),
    )

    id: str = _column(Text, primary_key=True)
    routine: str = _column(Text)
    definition: str = _column(Text, foreign_key="definition.hash")
    trigger: str = _column(Text)
    slot: datetime = _column(MomentType)
    event: str | None = _column(Text, default=None)
    status: str = _column(Text)
    attempt: int = _column(Integer, "0", default=0)
    barren: int = _column(Integer, "0", default=0)
    fence: int = _column(Integer, "0", default=0)
    owner: str | None = _column(Text, default=None)
    lease_until: datetime | None = _column(MomentType, default=None)
    created: datetime = _column(MomentType)
    started: datetime | None = _column(MomentType, default=None)
    ended: datetime | None = _column(MomentType, default=None)
    not_before: datetime | None = _column(MomentType, default=None)
    active: float = _column(REAL, "0", default=0.0)
    cancel: bool = _column(Flag, "0", default=False)
    goal: str = _column(Text, "''", default="")
    report: str | None = _column(Text, default=None)
    silent: bool = _column(Flag, "0", default=False)
    detail: str | None = _column(Text, default=None)
    provider: str = _column(Text, "''", default="")
    model: str = _column(Text, "''", default="")
    input: int = _column(Integer, "0", default=0)
    cache_read: int = _column(Integer, "0", default=0)
    cache_write: int = _column(Integer, "0", default=0)
    output: int = _column(Integer, "0", default=0)
    reasoning: int = _column(Integer, "0", default=0)
    iterations: int = _column(Integer, "0", default=0)
    steps: int = _column(Integer, "0", default=0)
    taint: str = _column(Text, "''", default="")
    sandbox: str = _column(Text, "''", default="")
    seal: int | None = _column(Long, "0", default=0)
    waits_since: datetime | None = _column(MomentType, default=None)
    waits_moved: bool = _column(Flag, "0", default=False)


class SlotRecord(JournalTable, table=True):
    """What became of a slot, or of several in a row that were not started; see accounts.SlotRow."""

    __tablename__ = "slot"
    __table_args__ = (
        Index("slot_scheduled", "routine", "first", unique=True, **where("event IS NULL")),
        Index("slot_event", "routine", "event", unique=True, **where("event IS NOT NULL")),
        Index("slot_routine", "routine", "last"),
        Index("slot_last", "last"),
        Index("slot_run", "run_id"),
    )

    id: int | None = _column(Integer, primary_key=True, default=None)
    routine: str = _column(Text)
    first: datetime = _column(MomentType)
    last: datetime = _column(MomentType)
    count: int = _column(Integer, "1", default=1)
    event: str | None = _column(Text, default=None)
    outcome: str = _column(Text)
    reason: str | None = _column(Text, default=None)
    run_id: str | None = _column(Text, default=None, foreign_key="run.id", ondelete="SET NULL")
    lateness: float = _column(REAL, "0", default=0.0)
    rule: str | None = _column(Text, default=None)
    ahead: int = _column(Integer, "0", default=0)


class InputRow(JournalTable, table=True):
    """What an event brought along for its run."""

    __tablename__ = "input"

    run_id: str = _column(Text, primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    body: Json = _column(Body)


class SeenRow(JournalTable, table=True):
    """A version of a watched file that a run was given."""

    __tablename__ = "seen"

    routine: str = _column(Text, primary_key=True)
    path: str = _column(Text, primary_key=True)
    version: str = _column(Text, primary_key=True)
    at: datetime = _column(MomentType)


class SeenItemRow(JournalTable, table=True):
    """An item that a routine with [dedupe] has reported."""

    __tablename__ = "novelty"
    __table_args__ = (Index("novelty_last", "routine", "last"), Index("novelty_run", "run_id"))

    routine: str = _column(Text, primary_key=True)
    digest: str = _column(Text, primary_key=True)
    key: str = _column(Text)
    title: str = _column(Text, "''", default="")
    first: datetime = _column(MomentType)
    last: datetime = _column(MomentType)
    times: int = _column(Integer, "1", default=1)
    run_id: str = _column(Text)


class StepRow(JournalTable, table=True):
    """One journalled fact of a run; see models.Step."""

    __tablename__ = "step"

    run_id: str = _column(Text, primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    seq: int = _column(Integer, primary_key=True)
    kind: str = _column(Text)
    iteration: int = _column(Integer)
    call_id: str | None = _column(Text, default=None)
    fence: int = _column(Integer)
    at: datetime = _column(MomentType)
    body: Json = _column(Body)


class TextRow(JournalTable, table=True):
    """What the prompts of several runs say; see texts.py."""

    __tablename__ = "text"

    digest: bytes = _column(LargeBinary, primary_key=True)
    used: int = _column(Integer)
    body: bytes = _column(LargeBinary)


class SpendingRow(JournalTable, table=True):
    """One call to a model; see spending.Spent."""

    __tablename__ = "spending"
    __table_args__ = (Index("spending_at", "at"), Index("spending_run", "run_id"))

    id: int | None = _column(Integer, primary_key=True, default=None)
    at: datetime = _column(MomentType)
    run_id: str = _column(Text)
    routine: str = _column(Text)
    provider: str = _column(Text)
    model: str = _column(Text)
    outcome: str = _column(Text)
    input: int = _column(Integer, "0", default=0)
    cache_read: int = _column(Integer, "0", default=0)
    cache_write: int = _column(Integer, "0", default=0)
    output: int = _column(Integer, "0", default=0)
    reasoning: int = _column(Integer, "0", default=0)
    cost: int | None = _column(Integer, default=None)


class DeliveryRow(JournalTable, table=True):
    """One report on its way to one target; see models.Delivery."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("outbox_due", "status", "next_at"),
        Index("outbox_run", "run_id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Integer, primary_key=True, default=None)
    run_id: str | None = _column(Text, default=None, foreign_key="run.id", ondelete="CASCADE")
    target: str = _column(Text)
    options: Json = _column(OptionsType)
    zone: str = _column(Text)
    status: str = _column(Text)
    attempts: int = _column(Integer, "0", default=0)
    created: datetime = _column(MomentType)
    next_at: datetime | None = _column(MomentType, default=None)
    receipt: str | None = _column(Text, default=None)
    error: str | None = _column(Text, default=None)
    waits_since: datetime | None = _column(MomentType, default=None)
    kind: str | None = _column(Text, default=None)


class IncidentRow(JournalTable, table=True):
    """Something that is wrong; see models.Incident."""

    __tablename__ = "incident"
    __table_args__ = (
        Index("incident_open", "subject", "signature", unique=True, **where("closed IS NULL")),
        Index("incident_closed", "closed", "seen"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Integer, primary_key=True, default=None)
    subject: str = _column(Text)
    signature: str = _column(Text)
    detail: str = _column(Text)
    opened: datetime = _column(MomentType)
    seen: datetime = _column(MomentType)
    count: int = _column(Integer, "1", default=1)
    told: datetime | None = _column(MomentType, default=None)
    targets: str = _column(Text, "'[]'", default="[]")
    acked: datetime | None = _column(MomentType, default=None)
    closed: datetime | None = _column(MomentType, default=None)
    run_id: str | None = _column(Text, default=None, foreign_key="run.id", ondelete="SET NULL")


class ApprovalRow(JournalTable, table=True):
    """A call that waits, or waited, for a person's word; see models.Approval."""

    __tablename__ = "approval"
    __table_args__ = (
        Index("approval_run", "run_id", "call_id"),
        Index("approval_status", "status", "expires"),
    )

    id: str = _column(Text, primary_key=True)
    run_id: str = _column(Text, foreign_key="run.id", ondelete="CASCADE")
    routine: str = _column(Text)
    call_id: str = _column(Text)
    tool: str = _column(Text)
    request: Json = _column(Body)
    digest: str = _column(Text)
    rule: str = _column(Text)
    reason: str = _column(Text, "''", default="")
    taint: str = _column(Text, "''", default="")
    status: str = _column(Text)
    created: datetime = _column(MomentType)
    expires: datetime = _column(MomentType)
    decided: datetime | None = _column(MomentType, default=None)
    actor: str = _column(Text, "''", default="")


class MessageRow(JournalTable, table=True):
    """What a person told a run that was under way."""

    __tablename__ = "told"
    __table_args__ = (Index("told_event", "run_id", "event", unique=True),)

    id: int | None = _column(Integer, primary_key=True, default=None)
    run_id: str = _column(Text, foreign_key="run.id", ondelete="CASCADE")
    event: str = _column(Text)
    text: str = _column(Text)
    at: datetime = _column(MomentType)


class QuarantineRow(JournalTable, table=True):
    """What the injection check kept from the models."""

    __tablename__ = "quarantine"
    __table_args__ = (Index("quarantine_run", "run_id"),)

    id: str = _column(Text, primary_key=True)
    run_id: str = _column(Text)
    routine: str = _column(Text)
    call_id: str = _column(Text)
    tool: str = _column(Text)
    reason: str = _column(Text)
    at: datetime = _column(MomentType)
    body: Json = _column(Body)


class AuditRow(JournalTable, table=True):
    """One call, its end, or an act of a person; each row's hash covers the one before."""

    __tablename__ = "audit"
    __table_args__ = (Index("audit_run", "run_id"),)

    seq: int | None = _column(Integer, primary_key=True, default=None)
    at: datetime = _column(MomentType)
    kind: str = _column(Text)
    run_id: str = _column(Text, "''", default="")
    routine: str = _column(Text, "''", default="")
    call_id: str = _column(Text, "''", default="")
    tool: str = _column(Text, "''", default="")
    actor: str = _column(Text, "''", default="")
    body: str = _column(Text)
    hash: str = _column(Text)


class WorkerRow(JournalTable, table=True):
    """A process that shares the store; see leases.Worker."""

    __tablename__ = "worker"

    id: str = _column(Text, primary_key=True)
    kind: str = _column(Text)
    host: str = _column(Text)
    pid: int = _column(Long)
    version: str = _column(Text)
    started: datetime = _column(MomentType)
    seen: datetime = _column(MomentType)
    running: int = _column(Long, "0", default=0)
    capacity: int = _column(Long, "0", default=0)
    leads: int = _column(Long, "0", default=0)
    has: str = _column(Text, "'{}'", default="{}")
