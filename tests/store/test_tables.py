"""The SQLModel classes declare the tables; new databases and migrated ones have just these."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, inspect
from sqlmodel import Session, select

from daemon.models import Status, Step, StepKind
from daemon.store import tables
from daemon.store.connection import open_writer
from daemon.store.database import MIGRATIONS, Database
from daemon.store.schema import schema_files
from tests.postgres import Server
from tests.store.conftest import Ledger


def shape(connection: sqlite3.Connection) -> dict[str, object]:
    """Return everything about a schema that SQLite tells: columns, keys and indexes of each
    table.
    """
    tables_by_name: dict[str, object] = {}
    tables = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    ).fetchall()
    for table, sql in tables:
        tables_by_name[table] = {
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
            row = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,))
            (text,) = row.fetchone() or ("",)  # the index of a table without rowids has no row
            condition = (text or "").partition(" WHERE ")[2]
            tables_by_name[f"{table}: {index}"] = (unique, origin, partial, columns, condition)
    return tables_by_name


def test_the_schema_files_are_generated_from_the_models() -> None:
    for path, text in schema_files().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m daemon.store.schema"


def test_a_migrated_sqlite_file_has_the_tables_of_a_new_file(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"  # without the folder of a new database's tables
    folder.mkdir()
    for file in MIGRATIONS.glob("*.sql"):
        shutil.copy(file, folder)
    with (
        closing(open_writer(tmp_path / "migrated.db", folder)) as migrated_database,
        closing(open_writer(tmp_path / "new.db", MIGRATIONS)) as new,
    ):
        assert shape(migrated_database) == shape(new)
        versions = "SELECT version, name FROM migration ORDER BY version"
        assert migrated_database.execute(versions).fetchall() == new.execute(versions).fetchall()


def there(url: str) -> Engine:
    psycopg = pytest.importorskip("psycopg")
    return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))


def shape_there(url: str) -> dict[str, object]:
    """Return the same of a PostgreSQL schema."""
    engine = there(url)
    inspector = inspect(engine)
    tables_by_name: dict[str, object] = {}
    for table in inspector.get_table_names():
        columns = {column["name"]: column for column in inspector.get_columns(table)}
        tables_by_name[table] = {
            "columns": {
                name: (
                    str(column["type"]),
                    column["nullable"],
                    str(column["default"]).partition("::")[0],
                )
                for name, column in columns.items()
                if name not in ("id", "seq")
            },
            "counted": [
                name
                for name, column in columns.items()
                if column.get("identity") or "nextval" in str(column["default"])
            ],
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": [
                constraint["column_names"] for constraint in inspector.get_unique_constraints(table)
            ],
            "foreign": sorted(
                (
                    key["constrained_columns"],
                    key["referred_table"],
                    key["referred_columns"],
                    key["options"],
                )
                for key in inspector.get_foreign_keys(table)
            ),
            "indexes": sorted(
                (
                    index["name"],
                    index["unique"],
                    index["column_names"],
                    index.get("dialect_options", {}).get("postgresql_where", ""),
                )
                for index in inspector.get_indexes(table)
            ),
        }
    engine.dispose()
    return tables_by_name


def test_a_migrated_postgres_database_has_the_tables_of_a_new_database(
    postgres: Server, postgres_url: str
) -> None:
    from daemon.store.postgres import migrations  # an extra
    from daemon.store.postgres.connection import connect

    name = postgres.create()
    with closing(connect(postgres.url(name))) as connection:
        for _, script in migrations.scripts(migrations.MIGRATIONS).values():
            connection.control(script)
    migrated_shape, new = shape_there(postgres.url(name)), shape_there(postgres_url)
    del new["migration"], new["store_writer"]  # made before the first migration
    assert migrated_shape == new
    postgres.drop(name)


async def test_models_read_the_rows_of_the_journal(
    db: Database, ledger: Ledger, tmp_path: Path
) -> None:
    run = await ledger.start_run()
    await ledger.journal.runs.append(
        run, Step(kind=StepKind.LLM, iteration=1, body={"text": "中" * 9_000})
    )
    ended_run = await ledger.journal.runs.end(
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
            ended_run.ended,
            run.slot,
            False,
        )
        assert session.exec(select(tables.StepRow)).one().body == {"text": "中" * 9_000}
        assert session.exec(select(tables.DeliveryRow)).one().options == {"path": "a.md"}
        assert session.exec(select(tables.SlotRecord)).one().first == run.slot
    engine.dispose()
