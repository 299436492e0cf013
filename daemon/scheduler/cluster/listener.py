"""Receive the notifications of other processes on the same database (PostgreSQL's NOTIFY), on a
connection of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress

import structlog

from daemon.models import Json
from daemon.scheduler.cluster.queue import CHANNEL

log = structlog.get_logger()

_RETRY = 1.0  # seconds between attempts to connect


class NotificationListener:
    """Call `on_notification` with the JSON object of each notification.

    `on_connect` is called whenever the connection is made, as notifications may have been lost
    before.
    """

    def __init__(
        self,
        url: str,
        on_notification: Callable[[Json], None],
        on_connect: Callable[[], None],
    ) -> None:
        self._url, self._on_notification, self._on_connect = url, on_notification, on_connect

    async def run(self) -> None:
        """Listen until cancelled; connect again whenever the connection breaks."""
        import psycopg

        was_logged = False
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                if not was_logged:
                    problem = str(error).splitlines()[0] if str(error) else repr(error)
                    log.warning("cluster.listen_failed", problem=problem)
                was_logged = True
            await asyncio.sleep(_RETRY)

    async def _listen(self) -> None:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=5,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        async with connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            self._on_connect()
            async for notification in connection.notifies():
                # whoever may connect to the database may notify, of anything
                with suppress(ValueError):
                    if isinstance(message := json.loads(notification.payload), dict):
                        self._on_notification(message)
