"""The webhook socket, opened once a routine can be started by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon import __version__
from daemon.definitions.paths import hooks_socket_for

if TYPE_CHECKING:
    from daemon.api.webhooks import Hooks, HookServer
    from daemon.app.installation import Installation
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine

log = structlog.get_logger()


class Webhooks:
    """Serve webhooks on their own socket, from the first routine on that says `webhook = true`."""

    def __init__(
        self,
        engine: RoutineEngine,
        installation: Installation,
        settings: LiveSettings,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._engine, self._installation, self._settings = engine, installation, settings
        self._group = installation.config.hooks.group
        self._tasks = tasks
        self._server: HookServer | None = None

    @property
    def path(self) -> Path | None:
        """The socket; None while there is none."""
        return self._server.path if self._server else None

    async def open(self) -> None:
        """Open the socket if a routine needs it. Raises ConfigError or SocketBusy if that fails."""
        if self._server or not self._engine.webhook_routines:
            return
        from daemon.api.webhooks import HookServer  # here, as few daemons need it

        installation = self._installation
        self._server = HookServer(
            self.context(),
            hooks_socket_for(installation.socket),
            installation.env,
            group=self._group,
        )
        self._tasks.create_task(self._server.serve(), name="webhook socket")
        await self._server.ready()
        log.info(
            "hooks.opened",
            socket=str(self._server.path),
            signed=self._settings.webhook_secret is not None,
        )

    def context(self) -> Hooks:
        """Return what a server of webhooks needs of the daemon."""
        from daemon.api.webhooks import Hooks

        return Hooks(
            version=__version__,
            start=self._engine.start_by_webhook,
            sender_of=self._engine.webhook_sender_of,
            settings=self._settings,
            secrets=self._installation.secrets,
        )

    def stop(self) -> None:
        """Take no more webhooks."""
        if self._server:
            self._server.stop()
