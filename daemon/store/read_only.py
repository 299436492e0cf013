"""A journal read from outside, while a daemon may be writing it, or while none can be started."""

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
    """Reads the file, each time with a connection of its own; can write nothing."""

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
            if (
                getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR
            ):  # a table or column is not there
                raise ConfigError(_unreadable(self.path, f"cannot be read: {error}")) from None
            hint = "start agentd once, which brings it up to date"
            problem = "was written by another version of agentd"
            raise ConfigError(
                Fault(file=str(self.path), key="", found="", problem=problem, hint=hint)
            ) from None
        except sqlite3.Error as error:
            raise ConfigError(_unreadable(self.path, f"cannot be read: {error}")) from None


def journal_at(state: Path, url: str = "") -> Journal:
    """Return the journal of a state folder, or at the URL of a server, to be read; ConfigError if
    there is none.
    """
    return Journal(onlooker_at(state, url), clock=lambda: datetime.now(UTC))


def onlooker_at(state: Path, url: str = "") -> Database:
    """Return the database of a state folder, or at the URL of a server, to be read only;
    ConfigError likewise.
    """
    path = state / "agentd.db"
    if url:
        refuse_without_extra()
        from daemon.store.postgres.read_only import ServerOnlooker

        return ServerOnlooker(url, path)
    if not path.is_file():
        raise ConfigError(_unreadable(path, "is not there: no run has been recorded"))
    return ReadOnlyDatabase(path)


def _unreadable(path: Path, problem: str) -> Fault:
    hint = "name the daemon's state folder with --state, as the user it runs as"
    return Fault(file=str(path), key="", found="", problem=problem, hint=hint)
