"""The memory's tables, as SQLModel classes; see tables.py. The full-text index has no class."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary
from sqlmodel import Field

from daemon.store.tables import Flag, JournalTable, Long, MomentType, Words, column, where


class ItemRow(JournalTable, table=True):
    """A memory item: a text with a key."""

    __tablename__ = "memory_item"
    __table_args__ = (
        Index("memory_item_category", "category", "updated"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Long, primary_key=True, default=None)
    key: str = column(Words, unique=True)
    category: str = column(Words)
    run_id: str | None = column(Words, default=None)
    tainted: bool = column(Flag, "0", default=False)
    pinned: bool = column(Flag, "0", default=False)
    created: datetime = column(MomentType)
    updated: datetime = column(MomentType)
    text: str = column(Words)
    indexed: bool = column(Flag, "1", default=True)


class MemoryRunRow(JournalTable, table=True):
    """An archived run."""

    __tablename__ = "memory_run"
    __table_args__ = (
        Index("memory_run_ended", "ended"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Long, primary_key=True, default=None)
    run_id: str = column(Words, unique=True)
    routine: str = column(Words)
    goal: str = column(Words)
    status: str = column(Words)
    started: datetime = column(MomentType)
    ended: datetime = column(MomentType)


class SegmentRow(JournalTable, table=True):
    """One segment of an archived run, at its anchor.

    `superseded` is the id of the segment that repeats its text: recall finds that one instead.
    """

    __tablename__ = "memory_segment"
    __table_args__ = (
        Index("memory_segment_place", "memory_run", "iteration", "segment", "part", unique=True),
        Index("memory_segment_digest", "digest", **where("superseded IS NULL")),
        Index("memory_segment_superseded", "superseded", **where("superseded IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Long, primary_key=True, default=None)
    memory_run: int = column(Long, foreign_key="memory_run.id", ondelete="CASCADE")
    iteration: int = column(Long)
    segment: int = column(Long)
    part: int = column(Long, "0", default=0)
    type: str = column(Words)
    at: datetime = column(MomentType)
    who: str = column(Words, "''", default="")
    asks: bool = column(Flag, "0", default=False)
    tainted: bool = column(Flag, "0", default=False)
    digest: int = column(Long)
    superseded: int | None = column(
        Long, default=None, foreign_key="memory_segment.id", ondelete="SET NULL"
    )
    text: str = column(Words)


class TemplateRow(JournalTable, table=True):
    """A wording of which several texts of a day differ in numbers only; see memory/folding.py."""

    __tablename__ = "memory_template"

    digest: int = Field(sa_type=Long, primary_key=True, sa_column_kwargs={"autoincrement": False})
    segment: int = column(Long)
    bounds: str = column(Words)


class EmbeddingRow(JournalTable, table=True):
    """The embedding of a text."""

    __tablename__ = "memory_embedding"

    model: str = column(Words, primary_key=True)
    id: int = column(Long, primary_key=True)
    signs: bytes = column(LargeBinary)
    vector: bytes = column(LargeBinary)


class TombstoneRow(JournalTable, table=True):
    """The digest of an erased item or run."""

    __tablename__ = "memory_tombstone"

    id: int | None = column(Long, primary_key=True, default=None)
    at: datetime = column(MomentType)
    kind: str = column(Words)
    run_id: str | None = column(Words, default=None)
    digest: str = column(Words)
