"""The memory's tables, as SQLModel classes; see tables.py. The full-text index has no class."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Integer, LargeBinary, Text
from sqlmodel import Field

from daemon.store.tables import PORTABLE_INTEGER, Flag, JournalTable, MomentType, column, where


class ItemRow(JournalTable, table=True):
    """A memory item: a text with a key."""

    __tablename__ = "memory_item"
    __table_args__ = (
        Index("memory_item_category", "category", "updated"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Integer, primary_key=True, default=None)
    key: str = column(Text, unique=True)
    category: str = column(Text)
    run_id: str | None = column(Text, default=None)
    tainted: bool = column(Flag, "0", default=False)
    pinned: bool = column(Flag, "0", default=False)
    created: datetime = column(MomentType)
    updated: datetime = column(MomentType)
    text: str = column(Text)
    indexed: bool = column(Flag, "1", default=True)


class MemoryRunRow(JournalTable, table=True):
    """An archived run."""

    __tablename__ = "memory_run"
    __table_args__ = (
        Index("memory_run_ended", "ended"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = column(Integer, primary_key=True, default=None)
    run_id: str = column(Text, unique=True)
    routine: str = column(Text)
    goal: str = column(Text)
    status: str = column(Text)
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

    id: int | None = column(Integer, primary_key=True, default=None)
    memory_run: int = column(Integer, foreign_key="memory_run.id", ondelete="CASCADE")
    iteration: int = column(Integer)
    segment: int = column(Integer)
    part: int = column(Integer, "0", default=0)
    type: str = column(Text)
    at: datetime = column(MomentType)
    who: str = column(Text, "''", default="")
    """The speaker."""
    asks: bool = column(Flag, "0", default=False)
    """Whether the text is a question."""
    tainted: bool = column(Flag, "0", default=False)
    digest: int = column(Integer)
    superseded: int | None = column(
        Integer, default=None, foreign_key="memory_segment.id", ondelete="SET NULL"
    )
    text: str = column(Text)


class TemplateRow(JournalTable, table=True):
    """A wording of which several texts of a day differ in numbers only; see memory/folding.py."""

    __tablename__ = "memory_template"

    digest: int = Field(
        sa_type=PORTABLE_INTEGER, primary_key=True, sa_column_kwargs={"autoincrement": False}
    )
    segment: int = column(Integer)
    bounds: str = column(Text)


class EmbeddingRow(JournalTable, table=True):
    """The embedding of a text."""

    __tablename__ = "memory_embedding"

    model: str = column(Text, primary_key=True)
    id: int = column(Integer, primary_key=True)
    signs: bytes = column(LargeBinary)
    vector: bytes = column(LargeBinary)


class TombstoneRow(JournalTable, table=True):
    """The digest of an erased item or run."""

    __tablename__ = "memory_tombstone"

    id: int | None = column(Integer, primary_key=True, default=None)
    at: datetime = column(MomentType)
    kind: str = column(Text)
    run_id: str | None = column(Text, default=None)
    digest: str = column(Text)
