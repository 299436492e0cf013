"""The TCP port of `[listen]`: metrics and signed webhooks, never the control API."""

from __future__ import annotations

import socket
from pathlib import Path

from starlette.applications import Starlette

from daemon.api.connections import ConnectionLimits
from daemon.api.context import ApiContext
from daemon.api.embedded_uvicorn import SocketServer
from daemon.api.listener import ListenerSocket
from daemon.api.metrics import metrics_route
from daemon.api.webhooks import Hooks, make_hooks_application
from daemon.errors import ConfigError, Fault


class PublicServer(SocketServer):
    """The TCP port of `[listen]`."""

    def __init__(
        self,
        address: str,
        api: ApiContext,
        *,
        metrics: bool,
        hooks: Hooks | None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        app = make_hooks_application(hooks) if hooks else Starlette()
        if metrics:
            app.router.routes.append(metrics_route(api))
        super().__init__(app, _listen(address), {"agentd-version": api.version}, limits=limits)


def _listen(address: str) -> ListenerSocket:
    """Return a socket that listens at host:port. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(128)
    except OSError as error:
        listener.close()
        fault = Fault(
            file="config.toml",
            key="listen.address",
            found=address,
            problem=error.strerror or str(error),
        )
        raise ConfigError(fault) from error
    return ListenerSocket(socket=listener, path=Path(address), file_id=None)
