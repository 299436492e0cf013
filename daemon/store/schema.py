"""The schema of a new database, made from the SQLModel tables.

`python -m daemon.store.schema` writes sql/new/schema.sql and postgres/sql/new/schema.sql, which are
part of the program: a start reads them and imports neither SQLModel nor SQLAlchemy. What SQLModel
has no words for, the full-text index, stands beside them in index.sql. Whoever changes a table
changes tables.py, runs this, and adds a migration for the databases that exist; a test holds the
three equal.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from daemon.store import memory_tables  # noqa: F401  its tables join the journal's
from daemon.store.tables import JournalTable

_HEADER = "-- Made from tables.py and memory_tables.py by `python -m daemon.store.schema`.\n"


def schema_sql(dialect: Dialect) -> str:
    """Return the statements that make all tables and indexes, in the order of their references."""
    statements = []
    for table in JournalTable.metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        statements += [
            str(CreateIndex(index).compile(dialect=dialect))
            for index in sorted(table.indexes, key=lambda index: str(index.name))
        ]
    lines = [f"{statement.strip()};\n" for statement in statements]
    return _HEADER + "".join(lines).replace("\t", "    ").replace(" \n", "\n")


def schema_files() -> dict[Path, str]:
    """Return the text of the file of each database, by its path."""
    folder = Path(__file__).parent
    return {
        folder / "sql/new/schema.sql": schema_sql(sqlite.dialect()),
        folder / "postgres/sql/new/schema.sql": schema_sql(postgresql.dialect()),  # type: ignore[no-untyped-call]
    }


if __name__ == "__main__":
    for path, text in schema_files().items():
        path.write_text(text, encoding="utf-8")
