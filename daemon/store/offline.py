"""The database without a daemon, for commands that look at all of it or take much in at once."""

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

if TYPE_CHECKING:
    from sqlmodel import Session

    from daemon.store.statements import Connection


class Snapshot(NamedTuple):
    """The database at one moment: both read in the same transaction."""

    session: Session
    connection: Connection


@contextmanager
def read_snapshot(path: Path, url: str) -> Iterator[Snapshot]:
    """Read the database of a URL, or SQLite's file, as it is at one moment."""
    from daemon.store.queries.session import open_session

    with (
        _server(url) if url else closing(open_reader(path)) as connection,
        open_session(connection) as session,
    ):
        session.connection()  # begins the transaction
        yield Snapshot(session, connection)


@contextmanager
def writing(path: Path, url: str) -> Iterator[Any]:
    """Write to it in one transaction, its tables brought up to date; Refused says what it did not
    take.
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
    """What there is to see of a server."""

    place: str
    version: str
    schema: int
    """Of its tables; 0 where there are none yet."""
    newest: int
    """That this program knows."""
    ahead: float
    """By how many seconds its clock is ahead of ours."""
    reads_only: bool


def probe(url: str) -> DatabaseServer:
    """Look at the server of a URL and change nothing; ConfigError, Refused or DatabaseAway says why
    it cannot be.
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

    from daemon.store.postgres.connection import connect, place_of, refusal

    try:
        with closing(connect(url)) as connection:
            connection.control("SET idle_in_transaction_session_timeout = '10min'")
            yield connection
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError) and refusal(error) is None:
            raise DatabaseAway(
                f"{place_of(url)} is away ({str(error).splitlines()[0]}); start the server"
            ) from error
        raise Refused(
            f"{place_of(url)} did not take it: {(str(error) or repr(error)).splitlines()[0]}"
        ) from error
