"""What may be reached over TCP, if `[listen]` says so: metrics and signed webhooks.

Never control.
"""

from __future__ import annotations

import socket
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.api.connections import ConnectionLimits
from daemon.api.context import ApiContext
from daemon.api.embedded_uvicorn import Listener
from daemon.api.listener import ListenerSocket
from daemon.api.problems import problem
from daemon.api.schedule import names_of, state_of
from daemon.api.webhooks import Hooks
from daemon.api.webhooks import application as hooks_application
from daemon.errors import ConfigError, Fault
from daemon.telemetry.metrics import JournalMetrics

# As Prometheus asks for it
# (https://prometheus.io/docs/instrumenting/exposition_formats/#basic-info).
TYPE = "text/plain; version=0.0.4"


async def metrics_text(api: ApiContext) -> str:
    """Return everything that is measured, as Prometheus text."""
    from collections import Counter
    from datetime import datetime

    measured = await api.journal.history.measure()
    found = JournalMetrics(
        version=api.version,
        started=datetime.fromisoformat(api.process()["started"]).timestamp(),
        runs=measured.runs,
        outbox=measured.outbox,
        incidents=measured.incidents,
        routines=Counter(state_of(api, name) for name in names_of(api)),
        successes=measured.successes,
        tokens=measured.tokens,
        cost=measured.cost,
        size=measured.size,
    )
    return api.metrics.text(found)


def metrics_route(api: ApiContext) -> Route:
    """Return the route of `/metrics`."""

    async def answer(request: Request) -> Response:
        if any(
            name in ("origin", "referer") or name.startswith("sec-fetch-")
            for name in request.headers
        ):
            return problem(
                HTTPStatus.FORBIDDEN, "requests of web pages are not answered here", "browser"
            )
        return PlainTextResponse(await metrics_text(api), media_type=TYPE)

    route = Route("/metrics", answer, methods=["GET"])
    route.methods = {"GET"}
    return route


class PublicServer(Listener):
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
        app = hooks_application(hooks) if hooks else Starlette()
        if metrics:
            app.router.routes.append(metrics_route(api))
        super().__init__(app, _door(address), {"agentd-version": api.version}, limits=limits)


def _door(address: str) -> ListenerSocket:
    """Listen at host:port; ConfigError where that cannot be."""
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
    return ListenerSocket(socket=listener, path=Path(address), ours=None)
