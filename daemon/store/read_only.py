"""Read the journal of another process: a daemon may be writing it, or none may be able to start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from daemon.store.connection import open_reader
from daemon.store.database import Database, Query, Work, run_in_session
from daemon.store.journal import Journal
from daemon.store.opening import refuse_without_extra
from daemon.store.readable import explain_read_error, require_database_file

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
        except sqlite3.Error as error:
            raise explain_read_error(self.path, error) from None


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
    require_database_file(path, "no run has been recorded")
    return ReadOnlyDatabase(path)
