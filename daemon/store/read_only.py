"""Read the journal of another process: a daemon may be writing it, or none may be able to start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from daemon.errors import ConfigError, Fault
from daemon.store.connection import open_reader
from daemon.store.database import Database, Query, Work, run_in_session
from daemon.store.journal import Journal
from daemon.store.opening import refuse_without_extra

T = TypeVar("T")


class ReadOnlyDatabase(Database):
    """Reads SQLite's file over a new connection each time; its methods that write do not work."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a connection that can only read."""
        return self._on_new_connection(work)

    async def query(self, query: Query[T]) -> T:
        """Run `query` in a session over a connection that can only read."""
        return self._on_new_connection(lambda connection: run_in_session(connection, query))

    def _on_new_connection(self, work: Work[T]) -> T:
        try:
            with closing(open_reader(self.path)) as connection:
                return work(connection)
        except sqlite3.OperationalError as error:
            # SQLITE_ERROR: a table or column is missing
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise ConfigError(_unreadable(self.path, f"cannot be read: {error}")) from None
            hint = "start agentd once, which brings it up to date"
            problem = "was written by another version of agentd"
            raise ConfigError(
                Fault(file=str(self.path), key="", found="", problem=problem, hint=hint)
            ) from None
        except sqlite3.Error as error:
            raise ConfigError(_unreadable(self.path, f"cannot be read: {error}")) from None


def open_journal_read_only(state: Path, url: str = "") -> Journal:
    """Return the journal of a state folder, or of a server's `url`, for reading.

    Raises ConfigError if there is none.
    """
    return Journal(open_database_read_only(state, url), clock=lambda: datetime.now(UTC))


def open_database_read_only(state: Path, url: str = "") -> Database:
    """Return the database of a state folder, or of a server's `url`, for reading.

    Raises ConfigError if there is none.
    """
    path = state / "agentd.db"
    if url:
        refuse_without_extra()
        from daemon.store.postgres.read_only import ReadOnlyPostgresDatabase

        return ReadOnlyPostgresDatabase(url, path)
    if not path.is_file():
        raise ConfigError(_unreadable(path, "is not there: no run has been recorded"))
    return ReadOnlyDatabase(path)


def _unreadable(path: Path, problem: str) -> Fault:
    hint = "name the daemon's state folder with --state, as the user it runs as"
    return Fault(file=str(path), key="", found="", problem=problem, hint=hint)
