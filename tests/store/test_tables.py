"""The tables are declared twice, in SQL and as SQLModel; these tests hold the two equal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, inspect
from sqlmodel import Session, select

from daemon.memory import tables as memory
from daemon.models import Status, Step, StepKind
from daemon.store import tables
from daemon.store.database import MIGRATIONS, Database
from tests.postgres import Server
from tests.store.conftest import Ledger


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """Return everything about a schema that SQLite tells: columns, keys and indexes of each
    table.
    """
    found: dict[str, object] = {}
    named = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    ).fetchall()
    for table, sql in named:
        found[table] = {
            "columns": connection.execute(f"PRAGMA table_info({table})").fetchall(),
            "foreign": sorted(
                row[2:7] for row in connection.execute(f"PRAGMA foreign_key_list({table})")
            ),
            "autoincrement": "AUTOINCREMENT" in sql,
        }
        for _, index, unique, origin, partial in connection.execute(
            f"PRAGMA index_list({table})"
        ).fetchall():
            columns = [name for _, _, name in connection.execute(f"PRAGMA index_info({index})")]
            (text,) = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (index,)
            ).fetchone()
            condition = (text or "").partition(" WHERE ")[2]
            found[f"{table}: {index}"] = (unique, origin, partial, columns, condition)
    return found


def test_the_checked_in_sql_and_the_models_declare_the_same_tables() -> None:
    by_hand = sqlite3.connect(":memory:")
    for file in sorted(MIGRATIONS.glob("*.sql")):
        if not file.name.endswith("_memory.sql"):  # memory declares its own
            by_hand.executescript(file.read_text())
    engine = create_engine("sqlite://")
    tables.JournalTable.metadata.create_all(engine)
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        by_model = shape(raw)
    engine.dispose()
    assert shape(by_hand) == by_model
    by_hand.close()


def there(url: str) -> Engine:
    psycopg = pytest.importorskip("psycopg")
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))


def shape_there(url: str) -> dict[str, object]:
    """Return the same of a PostgreSQL schema."""
    engine = there(url)
    seen = inspect(engine)
    found: dict[str, object] = {}
    for table in seen.get_table_names():
        columns = {each["name"]: each for each in seen.get_columns(table)}
        found[table] = {
            "columns": {
                name: (str(each["type"]), each["nullable"], str(each["default"]).partition("::")[0])
                for name, each in columns.items()
                if name not in ("id", "seq")
            },
            "counted": [
                name
                for name, each in columns.items()
                if each.get("identity") or "nextval" in str(each["default"])
            ],
            "key": seen.get_pk_constraint(table)["constrained_columns"],
            "unique": [each["column_names"] for each in seen.get_unique_constraints(table)],
            "foreign": sorted(
                (
                    each["constrained_columns"],
                    each["referred_table"],
                    each["referred_columns"],
                    each["options"],
                )
                for each in seen.get_foreign_keys(table)
            ),
            "indexes": sorted(
                (
                    each["name"],
                    each["unique"],
                    each["column_names"],
                    each.get("dialect_options", {}).get("postgresql_where", ""),
                )
                for each in seen.get_indexes(table)
            ),
        }
    engine.dispose()
    return found


def test_the_tables_on_a_server_are_those_of_the_models(
    postgres: Server, postgres_url: str
) -> None:
    by_hand = shape_there(postgres_url)
    # what is ours alone: which migrations ran, who writes, the index, and what was embedded last
    for name in (
        "migration",
        "store_writer",
        "memory_fts",
        "memory_fts_size",
        "memory_embedding_news",
    ):
        del by_hand[name]
    name = postgres.create()
    engine = there(postgres.url(name))
    tables.JournalTable.metadata.create_all(engine)
    memory.MemoryTable.metadata.create_all(engine)
    engine.dispose()
    by_model = shape_there(postgres.url(name))
    postgres.drop(name)
    assert by_hand == by_model


async def test_what_the_journal_writes_the_models_read(
    db: Database, ledger: Ledger, tmp_path: Path
) -> None:
    run = await ledger.running()
    await ledger.journal.runs.append(
        run, Step(kind=StepKind.LLM, iteration=1, body={"text": "中" * 9_000})
    )
    ended = await ledger.journal.runs.end(
        run.to(Status.SUCCEEDED, report="done"), [("file", {"path": "a.md"})]
    )

    if url := getattr(db, "url", ""):
        engine = there(url)
    else:
        engine = create_engine(f"sqlite:///{db.path}")
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only = ON"))
    with Session(engine) as session:
        row = session.exec(select(tables.RunRow)).one()
        assert (row.status, row.ended, row.slot, row.silent) == (
            "succeeded",
            ended.ended,
            run.slot,
            False,
        )
        assert session.exec(select(tables.StepRow)).one().body == {"text": "中" * 9_000}
        assert session.exec(select(tables.DeliveryRow)).one().options == {"path": "a.md"}
        assert session.exec(select(tables.SlotRecord)).one().first == run.slot
    engine.dispose()
