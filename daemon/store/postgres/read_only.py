"""Read the journal on a server without a daemon: nothing is written, no table is migrated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar, TypeVar

import psycopg

from daemon.errors import ConfigError, DatabaseAway, Fault
from daemon.store.database import Database, Query, Work
from daemon.store.postgres.connection import explain_refusal, place_of
from daemon.store.postgres.database import ReadConnection, explain

T = TypeVar("T")


class ReadOnlyPostgresDatabase(Database):
    """Reads the database of a URL over a new connection each time; its methods that write do not
    work.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str, path: Path) -> None:
        self.url, self.path = url, path

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a transaction that can only read."""
        return self._over_new_connection(lambda reader: reader.read(work))

    async def query(self, query: Query[T]) -> T:
        """Run `query` in a session and a transaction that can only read."""
        return self._over_new_connection(lambda reader: reader.query(query))

    def _over_new_connection(self, read: Callable[[ReadConnection], T]) -> T:
        server = place_of(self.url)
        try:
            with closing(ReadConnection(self.url)) as reader:
                return read(reader)
        except psycopg.Error as error:
            if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)):
                problem = "holds no journal of this version of agentd"
                hint = "start agentd once, which brings it up to date"
                raise ConfigError(
                    Fault(file=server, key="[store] url", found="", problem=problem, hint=hint)
                ) from None
            if isinstance(error, psycopg.OperationalError) and explain_refusal(error) is None:
                raise DatabaseAway(
                    f"{server} is away ({str(error).splitlines()[0]}); start the server"
                ) from None
            problem = f"cannot be read: {explain(error, server)}"
            raise ConfigError(
                Fault(file=server, key="[store] url", found="", problem=problem)
            ) from None
