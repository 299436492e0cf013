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
            row = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,))
            (text,) = row.fetchone() or ("",)  # the index of a table without rowids has no row
            condition = (text or "").partition(" WHERE ")[2]
            found[f"{table}: {index}"] = (unique, origin, partial, columns, condition)
    return found


def test_the_files_of_a_new_database_are_made_from_the_models() -> None:
    for path, text in schema_files().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m daemon.store.schema"


def test_a_migrated_file_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"  # without the folder of a new database's tables
    folder.mkdir()
    for file in MIGRATIONS.glob("*.sql"):
        shutil.copy(file, folder)
    with (
        closing(open_writer(tmp_path / "migrated.db", folder)) as migrated,
        closing(open_writer(tmp_path / "new.db", MIGRATIONS)) as new,
    ):
        assert shape(migrated) == shape(new)
        versions = "SELECT version, name FROM migration ORDER BY version"
        assert migrated.execute(versions).fetchall() == new.execute(versions).fetchall()


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


def test_a_migrated_server_has_the_tables_of_a_new_one(postgres: Server, postgres_url: str) -> None:
    from daemon.store.postgres import migrations  # an extra
    from daemon.store.postgres.connection import connect

    name = postgres.create()
    with closing(connect(postgres.url(name))) as connection:
        for _, script in migrations.scripts(migrations.MIGRATIONS).values():
            connection.control(script)
    migrated, new = shape_there(postgres.url(name)), shape_there(postgres_url)
    del new["migration"], new["store_writer"]  # made before the first migration
    assert migrated == new
    postgres.drop(name)


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
