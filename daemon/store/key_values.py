"""Small values of the daemon that outlive a restart, by key: when an operator was seen, what a
conversation was about.
"""

from __future__ import annotations

import asyncio

from daemon.store.connection import Connection
from daemon.store.database import Repository
from daemon.store.rows import PUT_VALUE


class KeyValueRepository(Repository):
    """Values by key.

    Table: meta.
    """

    def put(self, key: str, value: str, *, lazily: bool = False) -> asyncio.Future[None]:
        """Insert or replace the value of `key`; with `lazily` it shares the next commit."""

        def work(connection: Connection) -> None:
            connection.execute(PUT_VALUE, (key, value))

        return self._db.submit(work, lazily=lazily)

    async def get(self, key: str) -> str | None:
        """Return the value of `key`; None if it has none."""

        def work(connection: Connection) -> str | None:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)
