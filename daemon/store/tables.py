"""The tables of the journal, as SQLModel classes: the one place that declares them.

schema.py makes the statements for a new database from them, and queries for people are SQLModel
selects over them. Importing SQLModel costs 20 MiB, so nothing that a start or a run needs imports
this module.

Some columns and tables of existing databases have a name that is no term of the glossary: what such
a column holds stands below it.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from sqlalchemy import (
    BigInteger,
    Dialect,
    Double,
    Identity,
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
from daemon.store.rows import deflate, encode, from_microseconds, to_microseconds
from daemon.store.texts import decode_references

# SQLite has one type INTEGER; in PostgreSQL microseconds since 1970 need BIGINT. Texts are compared
# by code point, as SQLite does: ids and ranges of ids depend on it.
PORTABLE_INTEGER = BigInteger().with_variant(Integer(), "sqlite")
_PORTABLE_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_PORTABLE_REAL: Any = REAL().with_variant(Double(), "postgresql")

if TYPE_CHECKING:
    _Moments: TypeAlias = TypeDecorator[datetime]
    _Flags: TypeAlias = TypeDecorator[bool]
    _Objects: TypeAlias = TypeDecorator[Json]
else:
    _Moments = _Flags = _Objects = TypeDecorator


class MomentType(_Moments):
    """An instant, kept as microseconds since 1970 in UTC."""

    impl = PORTABLE_INTEGER
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value)


class Flag(_Flags):
    """A bool, kept as 1 or 0."""

    impl = PORTABLE_INTEGER
    cache_ok = True

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> bool | None:
        return None if value is None else bool(value)


class OptionsType(_Objects):
    """A small JSON object, kept as text."""

    impl = _PORTABLE_TEXT
    cache_ok = True

    def process_bind_param(self, value: Json | None, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Json | None:
        return None if value is None else json.loads(value)


class Body(_Objects):
    """A JSON body, compressed when long; a body that shares texts is read with their digests
    instead of them (texts.decode_references).
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Json | None, dialect: Dialect) -> bytes | None:
        return None if value is None else deflate(encode(value))

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Json | None:
        return None if value is None else decode_references(value)


def column(type_: Any, server_default: str | None = None, **options: Any) -> Any:
    """Return a field whose column has this type, and this default (SQL) in the database.

    `options` are those of `sqlmodel.Field`.
    """
    kwargs = {} if server_default is None else {"server_default": text(server_default)}
    if options.get("primary_key") and options.get("default", 0) is None:
        options["sa_column_args"] = (Identity(),)  # of PostgreSQL; SQLite numbers rows by itself
    return Field(sa_type=_PORTABLE_TYPES.get(type_, type_), sa_column_kwargs=kwargs, **options)


_PORTABLE_TYPES: dict[Any, Any] = {
    Integer: PORTABLE_INTEGER,
    Text: _PORTABLE_TEXT,
    REAL: _PORTABLE_REAL,
}


def where(condition: str) -> dict[str, Any]:
    """Return the arguments that make an index partial: of the rows that meet a condition."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class JournalTable(SQLModel):
    """The base class of the tables."""

    metadata: ClassVar[MetaData] = MetaData()


class MetaRow(JournalTable, table=True):
    """Small values of the daemon by key."""

    __tablename__ = "meta"

    key: str = column(Text, primary_key=True)
    value: str = column(Text)


class DefinitionRow(JournalTable, table=True):
    """The definition of a routine as runs began it, as JSON text."""

    __tablename__ = "definition"

    hash: str = column(Text, primary_key=True)
    body: str = column(Text)


class PolicyRow(JournalTable, table=True):
    """A policy that was in force."""

    __tablename__ = "policy"

    hash: str = column(Text, primary_key=True)
    body: str = column(Text)


class RoutineRow(JournalTable, table=True):
    """The state of a routine besides its file; see routines.RoutineState."""

    __tablename__ = "routine"

    name: str = column(Text, primary_key=True)
    schedule_key: str = column(Text)
    baseline: datetime = column(MomentType)
    paused: bool = column(Flag, "0", default=False)
    paused_until: datetime | None = column(MomentType)
    paused_why: str | None = column(Text)
    forgiven: datetime | None = column(MomentType)
    """`RoutineState.failures_reset`."""
    paused_since: datetime | None = column(MomentType, default=None)


class RunRow(JournalTable, table=True):
    """One execution of a routine; see models.Run."""

    __tablename__ = "run"
    __table_args__ = (
        Index("run_routine", "routine", "id"),
        Index("run_status", "status", "id"),
        Index("run_ended", "routine", "ended", **where("ended IS NOT NULL")),
    )

    id: str = column(Text, primary_key=True)
    routine: str = column(Text)
    definition: str = column(Text, foreign_key="definition.hash")
    trigger: str = column(Text)
    slot: datetime = column(MomentType)
    event: str | None = column(Text, default=None)
    status: str = column(Text)
    attempt: int = column(Integer, "0", default=0)
    barren: int = column(Integer, "0", default=0)
    """`Run.fruitless_attempts`."""
    fence: int = column(Integer, "0", default=0)
    owner: str | None = column(Text, default=None)
    lease_until: datetime | None = column(MomentType, default=None)
    created: datetime = column(MomentType)
    started: datetime | None = column(MomentType, default=None)
    ended: datetime | None = column(MomentType, default=None)
    not_before: datetime | None = column(MomentType, default=None)
    active: float = column(REAL, "0", default=0.0)
    cancel: bool = column(Flag, "0", default=False)
    goal: str = column(Text, "''", default="")
    report: str | None = column(Text, default=None)
    silent: bool = column(Flag, "0", default=False)
    detail: str | None = column(Text, default=None)
    provider: str = column(Text, "''", default="")
    model: str = column(Text, "''", default="")
    input: int = column(Integer, "0", default=0)
    cache_read: int = column(Integer, "0", default=0)
    cache_write: int = column(Integer, "0", default=0)
    output: int = column(Integer, "0", default=0)
    reasoning: int = column(Integer, "0", default=0)
    iterations: int = column(Integer, "0", default=0)
    steps: int = column(Integer, "0", default=0)
    taint: str = column(Text, "''", default="")
    sandbox: str = column(Text, "''", default="")
    seal: int | None = column(Integer, "0", default=0)
    """The sum of the checksums of the run's steps (rows.checksum); None: they are not checked."""
    waits_since: datetime | None = column(MomentType, default=None)
    waits_moved: bool = column(Flag, "0", default=False)


class SlotRecord(JournalTable, table=True):
    """The outcome of a slot, or of several in a row that were not started; see slots.SlotRow."""

    __tablename__ = "slot"
    __table_args__ = (
        Index("slot_scheduled", "routine", "first", unique=True, **where("event IS NULL")),
        Index("slot_event", "routine", "event", unique=True, **where("event IS NOT NULL")),
        Index("slot_routine", "routine", "last"),
        Index("slot_last", "last"),
        Index("slot_run", "run_id"),
    )

    id: int | None = column(Integer, primary_key=True, default=None)
    routine: str = column(Text)
    first: datetime = column(MomentType)
    last: datetime = column(MomentType)
    count: int = column(Integer, "1", default=1)
    event: str | None = column(Text, default=None)
    outcome: str = column(Text)
    reason: str | None = column(Text, default=None)
    run_id: str | None = column(Text, default=None, foreign_key="run.id", ondelete="SET NULL")
    lateness: float = column(REAL, "0", default=0.0)
    rule: str | None = column(Text, default=None)
    ahead: int = column(Integer, "0", default=0)
    """1 for a slot that lay in the future when the clock was put back; see slots.py."""


class InputRow(JournalTable, table=True):
    """The JSON value that an event brought along for its run."""

    __tablename__ = "input"

    run_id: str = column(Text, primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    body: Json = column(Body)


class SeenRow(JournalTable, table=True):
    """A version of a watched file that a run was started for."""

    __tablename__ = "seen"

    routine: str = column(Text, primary_key=True)
    path: str = column(Text, primary_key=True)
    version: str = column(Text, primary_key=True)
    at: datetime = column(MomentType)


class SeenItemRow(JournalTable, table=True):
    """An item that a routine with [dedupe] has reported."""

    __tablename__ = "novelty"
    __table_args__ = (Index("novelty_last", "routine", "last"), Index("novelty_run", "run_id"))

    routine: str = column(Text, primary_key=True)
    digest: str = column(Text, primary_key=True)
    key: str = column(Text)
    title: str = column(Text, "''", default="")
    first: datetime = column(MomentType)
    last: datetime = column(MomentType)
    times: int = column(Integer, "1", default=1)
    run_id: str = column(Text)


class StepRow(JournalTable, table=True):
    """One step of a run; see models.Step."""

    __tablename__ = "step"

    run_id: str = column(Text, primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    seq: int = column(Integer, primary_key=True)
    kind: str = column(Text)
    iteration: int = column(Integer)
    call_id: str | None = column(Text, default=None)
    fence: int = column(Integer)
    at: datetime = column(MomentType)
    body: Json = column(Body)


class TextRow(JournalTable, table=True):
    """A text that the prompts of several runs share; see texts.py."""

    __tablename__ = "text"

    digest: bytes = column(LargeBinary, primary_key=True)
    used: int = column(Integer)
    body: bytes = column(LargeBinary)


class SpendingRow(JournalTable, table=True):
    """One call to a model; see records.ModelCall."""

    __tablename__ = "spending"
    __table_args__ = (Index("spending_at", "at"), Index("spending_run", "run_id"))

    id: int | None = column(Integer, primary_key=True, default=None)
    at: datetime = column(MomentType)
    run_id: str = column(Text)
    routine: str = column(Text)
    provider: str = column(Text)
    model: str = column(Text)
    outcome: str = column(Text)
    input: int = column(Integer, "0", default=0)
    cache_read: int = column(Integer, "0", default=0)
    cache_write: int = column(Integer, "0", default=0)
    output: int = column(Integer, "0", default=0)
    reasoning: int = column(Integer, "0", default=0)
    cost: int | None = column(Integer, default=None)


class DeliveryRow(JournalTable, table=True):
    """One report on its way to one target; see models.Delivery."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("outbox_due", "status", "next_at"),
        Index("outbox_run", "run_id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Integer, primary_key=True, default=None)
    run_id: str | None = column(Text, default=None, foreign_key="run.id", ondelete="CASCADE")
    target: str = column(Text)
    options: Json = column(OptionsType)
    zone: str = column(Text)
    status: str = column(Text)
    attempts: int = column(Integer, "0", default=0)
    created: datetime = column(MomentType)
    next_at: datetime | None = column(MomentType, default=None)
    receipt: str | None = column(Text, default=None)
    error: str | None = column(Text, default=None)
    waits_since: datetime | None = column(MomentType, default=None)
    """When the wait until `next_at` began; of a delivery that was given up, when that was."""
    kind: str | None = column(Text, default=None)


class IncidentRow(JournalTable, table=True):
    """An incident; see models.Incident."""

    __tablename__ = "incident"
    __table_args__ = (
        Index("incident_open", "subject", "signature", unique=True, **where("closed IS NULL")),
        Index("incident_closed", "closed", "seen"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Integer, primary_key=True, default=None)
    subject: str = column(Text)
    signature: str = column(Text)
    detail: str = column(Text)
    opened: datetime = column(MomentType)
    seen: datetime = column(MomentType)
    """`Incident.last_seen`."""
    count: int = column(Integer, "1", default=1)
    told: datetime | None = column(MomentType, default=None)
    """`Incident.last_alert`."""
    targets: str = column(Text, "'[]'", default="[]")
    acked: datetime | None = column(MomentType, default=None)
    closed: datetime | None = column(MomentType, default=None)
    run_id: str | None = column(Text, default=None, foreign_key="run.id", ondelete="SET NULL")


class ApprovalRow(JournalTable, table=True):
    """A call that waits, or waited, for a person's answer; see models.Approval."""

    __tablename__ = "approval"
    __table_args__ = (
        Index("approval_run", "run_id", "call_id"),
        Index("approval_status", "status", "expires"),
    )

    id: str = column(Text, primary_key=True)
    run_id: str = column(Text, foreign_key="run.id", ondelete="CASCADE")
    routine: str = column(Text)
    call_id: str = column(Text)
    tool: str = column(Text)
    request: Json = column(Body)
    digest: str = column(Text)
    rule: str = column(Text)
    reason: str = column(Text, "''", default="")
    taint: str = column(Text, "''", default="")
    status: str = column(Text)
    created: datetime = column(MomentType)
    expires: datetime = column(MomentType)
    decided: datetime | None = column(MomentType, default=None)
    actor: str = column(Text, "''", default="")
    remind_at: datetime | None = column(MomentType, default=None)


class MessageRow(JournalTable, table=True):
    """A message of a person to a run; see runs.RunMessage."""

    __tablename__ = "told"
    __table_args__ = (Index("told_event", "run_id", "event", unique=True),)

    id: int | None = column(Integer, primary_key=True, default=None)
    run_id: str = column(Text, foreign_key="run.id", ondelete="CASCADE")
    event: str = column(Text)
    text: str = column(Text)
    at: datetime = column(MomentType)


class QuarantineRow(JournalTable, table=True):
    """A result that the injection check withheld from the model."""

    __tablename__ = "quarantine"
    __table_args__ = (Index("quarantine_run", "run_id"),)

    id: str = column(Text, primary_key=True)
    run_id: str = column(Text)
    routine: str = column(Text)
    call_id: str = column(Text)
    tool: str = column(Text)
    reason: str = column(Text)
    at: datetime = column(MomentType)
    body: Json = column(Body)


class AuditRow(JournalTable, table=True):
    """One call, its end, or an act of a person; each row's hash covers the one before."""

    __tablename__ = "audit"
    __table_args__ = (Index("audit_run", "run_id"),)

    seq: int | None = column(Integer, primary_key=True, default=None)
    at: datetime = column(MomentType)
    kind: str = column(Text)
    run_id: str = column(Text, "''", default="")
    routine: str = column(Text, "''", default="")
    call_id: str = column(Text, "''", default="")
    tool: str = column(Text, "''", default="")
    actor: str = column(Text, "''", default="")
    body: str = column(Text)
    hash: str = column(Text)


class WorkerRow(JournalTable, table=True):
    """A process that shares the database; see workers.Worker."""

    __tablename__ = "worker"

    id: str = column(Text, primary_key=True)
    kind: str = column(Text)
    host: str = column(Text)
    pid: int = column(Integer)
    version: str = column(Text)
    started: datetime = column(MomentType)
    seen: datetime = column(MomentType)
    running: int = column(Integer, "0", default=0)
    capacity: int = column(Integer, "0", default=0)
    leads: int = column(Integer, "0", default=0)
    """Until when the process is the leader, in microseconds since 1970; 0: it never was."""
    has: str = column(Text, "'{}'", default="{}")
    """`Worker.capabilities` as JSON."""


class ChatMessageRow(JournalTable, table=True):
    """A message that a chat has taken from the daemon; see chat_messages.ChatMessageRepository."""

    __tablename__ = "chat_message"
    __table_args__ = (
        Index("chat_message_run", "run_id"),
        Index("chat_message_delivery", "delivery_id"),
    )

    chat: str = column(Text, primary_key=True)
    conversation: str = column(Text, primary_key=True)
    message: str = column(Text, primary_key=True)
    run_id: str | None = column(Text, foreign_key="run.id", ondelete="CASCADE", default=None)
    delivery_id: int | None = column(
        Integer, foreign_key="outbox.id", ondelete="CASCADE", default=None
    )
    part: int = column(Integer, "0", default=0)
    at: datetime = column(MomentType)
