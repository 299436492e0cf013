"""Memory's tables are declared twice, in SQL and as SQLModel; this holds the two equal."""

from __future__ import annotations

import sqlite3

from sqlalchemy import create_engine
from sqlmodel import Session, select

from daemon.memory import tables
from daemon.store.database import MIGRATIONS
from tests.memory.conftest import Library, in_a_file


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """Return what SQLite tells of each table and index, the full-text index and its shadow tables
    aside.
    """
    found: dict[str, object] = {}
    named = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'memory_fts%'"
    ).fetchall()
    for table, sql in named:
        found[table] = (
            connection.execute(f"PRAGMA table_info({table})").fetchall(),
            sorted(row[2:7] for row in connection.execute(f"PRAGMA foreign_key_list({table})")),
            "AUTOINCREMENT" in (sql or ""),
        )
        for _, index, unique, _, partial in connection.execute(
            f"PRAGMA index_list({table})"
        ).fetchall():
            columns = [name for _, _, name in connection.execute(f"PRAGMA index_info({index})")]
            (text,) = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (index,)
            ).fetchone()
            found[f"{table}: {index}"] = (
                unique,
                partial,
                columns,
                (text or "").partition(" WHERE ")[2],
            )
    return found


def test_the_checked_in_sql_and_the_models_declare_the_same_tables() -> None:
    by_hand = sqlite3.connect(":memory:")
    for name in ("002_memory.sql", "010_memory.sql", "020_memory.sql"):
        by_hand.executescript((MIGRATIONS / name).read_text(encoding="utf-8"))
    engine = create_engine("sqlite://")
    tables.MemoryTable.metadata.create_all(engine)
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        by_model = shape(raw)
    engine.dispose()
    assert shape(by_hand) == by_model
    by_hand.close()


@in_a_file
async def test_what_memory_writes_the_models_read(library: Library) -> None:
    await library.memory.store("colour", "green", run="r1", tainted=True)
    await library.run("r1", ("person", "which colour?"), ("agent", "green"))

    engine = create_engine(f"sqlite:///{library.db.path}")
    with Session(engine) as session:
        item = session.exec(select(tables.ItemRow)).one()
        assert (item.key, item.text, item.tainted, item.created) == (
            "colour",
            "green",
            True,
            library.clock.now(),
        )
        rows = session.exec(select(tables.SegmentRow)).all()
        assert [(row.who, row.asks) for row in rows] == [("person", True), ("agent", False)]
    engine.dispose()
