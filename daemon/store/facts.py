"""Small facts that outlive a restart, by name."""

from __future__ import annotations

import asyncio

from daemon.store.repository import Repository
from daemon.store.rows import KEEP_FACT
from daemon.store.statements import Connection


class FactRepository(Repository):
    """Small facts.

    Table: meta.
    """

    def remember(self, key: str, value: str, *, lazily: bool = False) -> asyncio.Future[None]:
        """Keep a small fact over restarts; `lazily`, with whatever is written next."""

        def work(connection: Connection) -> None:
            connection.execute(KEEP_FACT, (key, value))

        return self._db.submit(work, lazily=lazily)

    async def recall(self, key: str) -> str | None:
        """Return a fact that was kept."""

        def work(connection: Connection) -> str | None:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)
