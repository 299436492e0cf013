"""The tables on a server, brought up to date by the files sql/NNN_name.sql.

The numbers are the same as SQLite's (store/sql), so that a version of the program knows the same
schema by the same number wherever the journal is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from daemon.store.postgres.connection import PostgresConnection, make_unusable_error

MIGRATIONS = Path(__file__).parent / "sql"
# A writer holds this lock until its commit. The number is SQLite's application_id: "agtd".
LOCK = 0x61677464
LOCKED = f"SELECT pg_advisory_xact_lock({LOCK})"

# Which writers there are, and the last batch that each of them committed: see database.py.
_WRITER_TABLES = """
CREATE TABLE IF NOT EXISTS migration (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, applied BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS store_writer (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY, batch BIGINT NOT NULL, seen TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 20);
-- The clock by which daemons and workers that share a database measure leases: microseconds since 1970, as all moments.
CREATE OR REPLACE FUNCTION agentd_now() RETURNS BIGINT LANGUAGE SQL VOLATILE
    AS $$ SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) $$
"""  # noqa: E501


def migrate(connection: PostgresConnection, url: str) -> None:
    """Make the tables of a new database, or run the migrations that an older one has not seen.

    In one transaction that only one process is in at a time.
    """
    migrations = scripts(MIGRATIONS)
    with connection.driver.transaction():
        connection.control(LOCKED)
        _claim(connection, url)
        applied_versions = {
            version for (version,) in connection.control("SELECT version FROM migration")
        }
        if newer := applied_versions - set(migrations):
            raise make_unusable_error(
                url,
                (
                    f"was written by a newer version of agentd (schema {max(newer)}, this one knows "  # noqa: E501
                    f"{max(migrations)})"
                ),
                "install that version on this machine as well",
            )
        if not applied_versions:
            for file in ("schema.sql", "index.sql"):
                connection.control((MIGRATIONS / "new" / file).read_text(encoding="utf-8"))
        for version in sorted(set(migrations) - applied_versions):
            name, script = migrations[version]
            if applied_versions:
                connection.control(script)
            now = int(datetime.now(UTC).timestamp() * 1_000_000)
            connection.execute("INSERT INTO migration VALUES (?, ?, ?)", (version, name, now))


def scripts(folder: Path) -> dict[int, tuple[str, str]]:
    """Return name and text of each migration in a folder, the files `NNN_name.sql`, by number."""
    return {
        int(file.name[:3]): (file.stem[4:], file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("[0-9][0-9][0-9]_*.sql"))
    }


def _claim(connection: PostgresConnection, url: str) -> None:
    """Make the tables of the writer in an empty schema; ConfigError if it has other tables."""
    query = (
        "SELECT to_regclass('migration') IS NOT NULL, to_regclass('store_writer') IS NOT NULL, "
        "count(*) FROM"
    )
    has_migrations, has_writers, tables = connection.control(
        f"{query} pg_tables WHERE schemaname = current_schema() AND tablename NOT LIKE "
        "'procrastinate%'"
    ).fetchone()
    if tables and not (has_migrations and has_writers):
        raise make_unusable_error(
            url,
            "holds the tables of another program",
            "choose an empty database: createdb agentd, or CREATE DATABASE",
        )
    if not has_migrations:
        connection.control(_WRITER_TABLES)
