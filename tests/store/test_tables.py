"""The tables are declared twice, in SQL and as SQLModel; these tests hold the two equal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import create_engine, event
from sqlmodel import Session, select

from daemon.models import Status, Step, StepKind
from daemon.store import tables
from daemon.store.database import MIGRATIONS, Database
from tests.store.conftest import Ledger


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """Return everything about a schema that SQLite tells: columns, keys and indexes of each table."""
    found: dict[str, object] = {}
    named = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    for table, sql in named:
        found[table] = {
            "columns": connection.execute(f"PRAGMA table_info({table})").fetchall(),
            "foreign": sorted(row[2:7] for row in connection.execute(f"PRAGMA foreign_key_list({table})")),
            "autoincrement": "AUTOINCREMENT" in sql,
        }
        for _, index, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            columns = [name for _, _, name in connection.execute(f"PRAGMA index_info({index})")]
            (text,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()
            condition = (text or "").partition(" WHERE ")[2]
            found[f"{table}: {index}"] = (unique, origin, partial, columns, condition)
    return found


def test_the_checked_in_sql_and_the_models_declare_the_same_tables() -> None:
    by_hand = sqlite3.connect(":memory:")
    for file in sorted(MIGRATIONS.glob("*.sql")):
        if not file.name.endswith("_memory.sql"):  # memory declares its own
            by_hand.executescript(file.read_text())
    engine = create_engine("sqlite://")
    tables.Table.metadata.create_all(engine)
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        by_model = shape(raw)
    engine.dispose()
    assert shape(by_hand) == by_model
    by_hand.close()


async def test_what_the_journal_writes_the_models_read(db: Database, ledger: Ledger, tmp_path: Path) -> None:
    run = await ledger.running()
    await ledger.journal.append(run, Step(kind=StepKind.LLM, iteration=1, body={"text": "中" * 9_000}))
    ended = await ledger.journal.end(run.to(Status.SUCCEEDED, report="done"), [("file", {"path": "a.md"})])

    engine = create_engine(f"sqlite:///{db.path}")
    event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only = ON"))
    with Session(engine) as session:
        row = session.exec(select(tables.RunRow)).one()
        assert (row.status, row.ended, row.slot, row.silent) == ("succeeded", ended.ended, run.slot, False)
        assert session.exec(select(tables.StepRow)).one().body == {"text": "中" * 9_000}
        assert session.exec(select(tables.DeliveryRow)).one().options == {"path": "a.md"}
        assert session.exec(select(tables.SlotRecord)).one().first == run.slot
    engine.dispose()
