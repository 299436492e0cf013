"""The webhook socket, opened when the first routine wants one and kept from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pydantic import SecretStr

from daemon import __version__
from daemon.definitions.paths import hooks_socket_for
from daemon.scheduler.engine import RoutineEngine
from daemon.telemetry.redaction import Secrets

if TYPE_CHECKING:
    from daemon.api.webhooks import Hooks, HookServer

log = structlog.get_logger()


class Webhooks:
    """Where strangers may start the routines that say so."""

    def __init__(
        self,
        engine: RoutineEngine,
        control: Path,
        env: Mapping[str, str],
        secrets: Secrets,
        group: int | None,
    ) -> None:
        self._engine, self._control, self._env, self._secrets = engine, control, env, secrets
        self._secret: SecretStr | None = None
        self._group = group
        self._server: HookServer | None = None

    @property
    def path(self) -> Path | None:
        """The socket; None while there is none."""
        return self._server.path if self._server else None

    def sign_with(self, secret: SecretStr | None) -> None:
        """Take only what is signed with this secret, or anything."""
        self._secret = secret
        if secret:
            self._secrets.add(secret.get_secret_value())

    async def open(self, tasks: asyncio.TaskGroup) -> None:
        """Take webhooks, if a routine wants them; ConfigError or SocketBusy where their socket
        cannot be made.
        """
        if self._server or not self._engine.webhook_routines:
            return
        from daemon.api.webhooks import HookServer  # few need it, and all would wait for it

        self._server = HookServer(
            self.touched(), hooks_socket_for(self._control), self._env, group=self._group
        )
        tasks.create_task(self._server.serve(), name="webhook socket")
        await self._server.ready()
        log.info("hooks.opened", socket=str(self._server.path), signed=self._secret is not None)

    def touched(self) -> Hooks:
        """Return what a server of webhooks touches."""
        from daemon.api.webhooks import Hooks

        return Hooks(
            version=__version__,
            start=self._engine.start_by_webhook,
            secret=self._secret_now,
            redact=self._secrets.redact_json,
        )

    def stop(self) -> None:
        """Take no more."""
        if self._server:
            self._server.stop()

    def _secret_now(self) -> str | None:
        return self._secret.get_secret_value() if self._secret else None
