"""Memory's tables as SQLModel classes: for exports and other databases.

Importing this costs 20 MiB, so nothing on the daemon's daily path does; there the statements are
plain SQL over store/sql/002_memory.sql, and a test holds the two declarations equal. The index has
no class: it is derived.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from sqlalchemy import Index, LargeBinary, MetaData
from sqlmodel import SQLModel

from daemon.store.tables import Flag, Long, MomentType, Words, where
from daemon.store.tables import column as _column


class MemoryTable(SQLModel):
    """The base class of memory's tables."""

    metadata: ClassVar[MetaData] = MetaData()


class ItemRow(MemoryTable, table=True):
    """A memory item: a text with a key."""

    __tablename__ = "memory_item"
    __table_args__ = (
        Index("memory_item_category", "category", "updated"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Long, primary_key=True, default=None)
    key: str = _column(Words, unique=True)
    category: str = _column(Words)
    run_id: str | None = _column(Words, default=None)
    tainted: bool = _column(Flag, "0", default=False)
    pinned: bool = _column(Flag, "0", default=False)
    created: datetime = _column(MomentType)
    updated: datetime = _column(MomentType)
    text: str = _column(Words)
    indexed: bool = _column(Flag, "1", default=True)


class MemoryRunRow(MemoryTable, table=True):
    """An archived run."""

    __tablename__ = "memory_run"
    __table_args__ = (
        Index("memory_run_ended", "ended"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Long, primary_key=True, default=None)
    run_id: str = _column(Words, unique=True)
    routine: str = _column(Words)
    goal: str = _column(Words)
    status: str = _column(Words)
    started: datetime = _column(MomentType)
    ended: datetime = _column(MomentType)


class SegmentRow(MemoryTable, table=True):
    """One segment of an archived run, at its anchor."""

    __tablename__ = "memory_segment"
    __table_args__ = (
        Index("memory_segment_place", "memory_run", "iteration", "segment", "part", unique=True),
        Index("memory_segment_digest", "digest", **where("superseded IS NULL")),
        Index("memory_segment_superseded", "superseded", **where("superseded IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _column(Long, primary_key=True, default=None)
    memory_run: int = _column(Long, foreign_key="memory_run.id", ondelete="CASCADE")
    iteration: int = _column(Long)
    segment: int = _column(Long)
    part: int = _column(Long, "0", default=0)
    type: str = _column(Words)
    at: datetime = _column(MomentType)
    who: str = _column(Words, "''", default="")
    asks: bool = _column(Flag, "0", default=False)
    tainted: bool = _column(Flag, "0", default=False)
    digest: int = _column(Long)
    superseded: int | None = _column(
        Long, default=None, foreign_key="memory_segment.id", ondelete="SET NULL"
    )
    text: str = _column(Words)


class EmbeddingRow(MemoryTable, table=True):
    """The embedding of a text."""

    __tablename__ = "memory_embedding"

    model: str = _column(Words, primary_key=True)
    id: int = _column(Long, primary_key=True)
    signs: bytes = _column(LargeBinary)
    vector: bytes = _column(LargeBinary)


class TombstoneRow(MemoryTable, table=True):
    """The digest of an erased item or run."""

    __tablename__ = "memory_tombstone"

    id: int | None = _column(Long, primary_key=True, default=None)
    at: datetime = _column(MomentType)
    kind: str = _column(Words)
    run_id: str | None = _column(Words, default=None)
    digest: str = _column(Words)
