"""Memory's tables as SQLModel classes: for exports and other databases.

Importing this costs 20 MiB, so nothing on the daemon's daily path does; there the statements are plain SQL over
store/sql/002_memory.sql, and a test holds the two declarations equal. The index has no class: it is derived.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Index, Integer, LargeBinary, MetaData, Text, text
from sqlmodel import Field, SQLModel

from daemon.store.tables import Flag, Moment

_Digest = BigInteger().with_variant(Integer(), "sqlite")


def _column(type_: Any, written: str | None = None, **more: Any) -> Any:
    """Return a field whose column has this type, and a default `written` in the database."""
    kwargs = {} if written is None else {"server_default": text(written)}
    return Field(sa_type=type_, sa_column_kwargs=kwargs, **more)


class Table(SQLModel):
    """What memory's tables share."""

    metadata: ClassVar[MetaData] = MetaData()


class ItemRow(Table, table=True):
    """A text kept under a key."""

    __tablename__ = "memory_item"
    __table_args__ = (Index("memory_item_category", "category", "updated"), {"sqlite_autoincrement": True})

    id: int | None = _column(Integer, primary_key=True, default=None)
    key: str = _column(Text, unique=True)
    category: str = _column(Text)
    run_id: str | None = _column(Text, default=None)
    tainted: bool = _column(Flag, "0", default=False)
    pinned: bool = _column(Flag, "0", default=False)
    created: datetime = _column(Moment)
    updated: datetime = _column(Moment)
    text: str = _column(Text)
    indexed: bool = _column(Flag, "1", default=True)


class MemoryRunRow(Table, table=True):
    """An archived run."""

    __tablename__ = "memory_run"
    __table_args__ = (
        Index("memory_run_ended", "ended"),
        Index("memory_run_routine", "routine"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Integer, primary_key=True, default=None)
    run_id: str = _column(Text, unique=True)
    routine: str = _column(Text)
    goal: str = _column(Text)
    status: str = _column(Text)
    started: datetime = _column(Moment)
    ended: datetime = _column(Moment)


class SegmentRow(Table, table=True):
    """One piece of an archived run, at its anchor."""

    __tablename__ = "memory_segment"
    __table_args__ = (
        Index("memory_segment_place", "memory_run", "iteration", "segment", "part", unique=True),
        Index("memory_segment_digest", "digest", sqlite_where=text("superseded IS NULL")),
        Index("memory_segment_superseded", "superseded", sqlite_where=text("superseded IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Integer, primary_key=True, default=None)
    memory_run: int = _column(Integer, foreign_key="memory_run.id", ondelete="CASCADE")
    iteration: int = _column(Integer)
    segment: int = _column(Integer)
    part: int = _column(Integer, "0", default=0)
    type: str = _column(Text)
    at: datetime = _column(Moment)
    who: str = _column(Text, "''", default="")
    asks: bool = _column(Flag, "0", default=False)
    tainted: bool = _column(Flag, "0", default=False)
    digest: int = _column(_Digest)
    superseded: int | None = _column(Integer, default=None, foreign_key="memory_segment.id", ondelete="SET NULL")
    text: str = _column(Text)


class EmbeddingRow(Table, table=True):
    """What a text means to an embedder."""

    __tablename__ = "memory_embedding"

    model: str = _column(Text, primary_key=True)
    id: int = _column(Integer, primary_key=True)
    signs: bytes = _column(LargeBinary)
    vector: bytes = _column(LargeBinary)


class TombstoneRow(Table, table=True):
    """That something was forgotten."""

    __tablename__ = "memory_tombstone"

    id: int | None = _column(Integer, primary_key=True, default=None)
    at: datetime = _column(Moment)
    kind: str = _column(Text)
    run_id: str | None = _column(Text, default=None)
    digest: str = _column(Text)
