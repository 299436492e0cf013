"""Open the database without a daemon, for commands that export, import or examine it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.errors import DatabaseAway, Refused
from daemon.store.connection import open_reader, open_writer
from daemon.store.database import MIGRATIONS
from daemon.store.readable import explain_read_error, require_database_file

if TYPE_CHECKING:
    from sqlmodel import Session

    from daemon.store.connection import Connection, SqliteConnection


class Snapshot(NamedTuple):
    """The database at one moment: session and connection read in the same transaction."""

    session: Session
    connection: Connection


@contextmanager
def read_snapshot(path: Path, url: str) -> Iterator[Snapshot]:
    """Open the server's database of `url`, or SQLite's file at `path` for an empty URL, to read it
    as it is at one moment.

    Raises ConfigError if the file is not there or cannot be read.
    """
    from daemon.store.queries.session import open_session

    with (
        _server(url) if url else _open_file(path) as connection,
        open_session(connection.engine) as session,
    ):
        session.connection()  # begins the transaction
        yield Snapshot(session, connection)


@contextmanager
def _open_file(path: Path) -> Iterator[SqliteConnection]:
    require_database_file(path, "there is no history to export")
    try:
        with closing(open_reader(path)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise explain_read_error(path, error) from None


@contextmanager
def open_for_writing(path: Path, url: str) -> Iterator[Any]:
    """Open the same database to write in one transaction, which is committed at the end; its
    tables are migrated first.

    Raises Refused with the error of the database; nothing is written then.
    """
    if url:
        from daemon.store.postgres.migrations import LOCKED, migrate

        with _server(url) as connection:
            migrate(connection, url)
            connection.control(f"BEGIN; {LOCKED}")
            yield connection
            connection.control("COMMIT")
        return
    with closing(open_writer(path, MIGRATIONS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise Refused(f"the database did not take it: {error}") from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


class DatabaseServer(NamedTuple):
    """The properties of a server that the doctor checks."""

    place: str
    """The URL of the server without user and password."""
    version: str
    """The version of PostgreSQL."""
    schema: int
    """The newest migration of the tables; 0 where there are none yet."""
    newest: int
    """The newest migration that this program knows."""
    ahead: float
    """Seconds by which the server's clock is ahead of ours; negative if it is behind."""
    reads_only: bool
    """Whether the server is a standby."""


def probe(url: str) -> DatabaseServer:
    """Return the properties of the server of a URL; changes nothing.

    Raises ConfigError, Refused or DatabaseAway.
    """
    try:
        from daemon.store.postgres import migrations
        from daemon.store.postgres.connection import place_of
    except ImportError as error:
        raise Refused(
            f"{error}: the extra postgres is missing (pip install 'agentd-routines[postgres]')"
        ) from error

    with _server(url) as connection:
        connection.control("BEGIN READ ONLY")
        version, reads_only, now, tables = connection.control(
            "SELECT current_setting('server_version'), pg_is_in_recovery(),"
            " extract(epoch FROM clock_timestamp()), to_regclass('migration') IS NOT NULL"
        ).fetchone()
        ahead = float(now) - time.time()
        (schema,) = (
            connection.control("SELECT max(version) FROM migration").fetchone() if tables else (0,)
        )
        return DatabaseServer(
            place_of(url),
            version.split()[0],
            schema or 0,
            max(migrations.scripts(migrations.MIGRATIONS)),
            ahead,
            reads_only,
        )


@contextmanager
def _server(url: str) -> Iterator[Any]:
    import psycopg

    from daemon.store.postgres.connection import connect, explain_refusal, place_of

    try:
        with closing(connect(url)) as connection:
            connection.control("SET idle_in_transaction_session_timeout = '10min'")
            yield connection
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError) and explain_refusal(error) is None:
            raise DatabaseAway(
                f"{place_of(url)} is away ({str(error).splitlines()[0]}); start the server"
            ) from error
        raise Refused(
            f"{place_of(url)} did not take it: {(str(error) or repr(error)).splitlines()[0]}"
        ) from error
