"""What other processes on the database have done, heard at once: PostgreSQL's NOTIFY, on a
connection of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import structlog

from daemon.models import Json
from daemon.scheduler.cluster.queue import CHANNEL

log = structlog.get_logger()

_AGAIN = 1.0  # seconds between attempts to connect


class NotificationListener:
    """Hands on what is heard; `missed` is told after each silence in which something may have been
    said.
    """

    def __init__(self, url: str, hear: Callable[[Json], None], missed: Callable[[], None]) -> None:
        self._url, self._hear, self._missed = url, hear, missed

    async def run(self) -> None:
        """Listen until cancelled."""
        import psycopg

        away = False
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                if not away:
                    log.warning(
                        "cluster.listen_failed",
                        problem=str(error).splitlines()[0] if str(error) else repr(error),
                    )
                away = True
            await asyncio.sleep(_AGAIN)

    async def _listen(self) -> None:
        import psycopg

        wire = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=5,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        async with wire:
            await wire.execute(f"LISTEN {CHANNEL}")
            self._missed()
            async for said in wire.notifies():
                self._hear(json.loads(said.payload))
