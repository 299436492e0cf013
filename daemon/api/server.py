"""The API on its socket: who may speak, and uvicorn inside our own event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.api.binding import endpoint
from daemon.api.connections import ConnectionLimits
from daemon.api.context import Access, ApiContext
from daemon.api.embedded_uvicorn import Listener
from daemon.api.events import frames
from daemon.api.listener import ListenerSocket
from daemon.api.openapi import streams
from daemon.api.problems import (
    InvalidRequest,
    of_bad_request,
    of_daemon_error,
    of_http_error,
    of_our_fault,
    problem,
)
from daemon.api.routes import ROUTES
from daemon.api.schemas import encoded
from daemon.errors import DaemonError


class _Guard:
    """Let in who is on the list, and no browser: a page must not reach us through a proxy it
    found.
    """

    def __init__(self, app: ASGIApp, access: Callable[[], Access]) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "raw_path" in scope:
            # undone name by name in `Endpoint.read`: a name that holds a slash is a name that
            # nothing has, not a path
            scope["path"] = scope["raw_path"].decode("latin-1")
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        who, access = (scope.get("client") or ("an unknown user",))[0], self._access()
        if who not in {f"uid:{uid}" for uid in access.operators | access.readers}:
            names = ", ".join(f"uid:{uid}" for uid in sorted(access.operators))
            return problem(
                HTTPStatus.FORBIDDEN, f"this daemon works for {names} and not for {who}", "foreign"
            )
        if scope["method"] != "GET" and who not in {f"uid:{uid}" for uid in access.operators}:
            detail = f"{who} may look and change nothing (control.readers in the daemon's config)"
            return problem(HTTPStatus.FORBIDDEN, detail, "read_only")
        if any(
            name in (b"origin", b"referer") or name.startswith(b"sec-fetch-")
            for name, _ in scope["headers"]
        ):
            return problem(
                HTTPStatus.FORBIDDEN, "requests of web pages are not answered here", "browser"
            )
        return None


class _Late(BaseRoute):
    """A route that is made when a path is asked for that may be its own.

    What sixty handlers take is read from their signatures, and their paths are compiled: 5 ms
    before the first answer, for routes of which most are never asked for.
    """

    def __init__(self, path: str, make: Callable[[], Route]) -> None:
        self._begins, variable, _ = path.partition("{")
        self._whole, self._make = not variable, make

    @cached_property
    def _route(self) -> Route:
        return self._make()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        if path == self._begins if self._whole else path.startswith(self._begins):
            return self._route.matches(scope)
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle(scope, receive, send)


def application(api: ApiContext) -> Starlette:
    """Return the API as an ASGI application."""

    def metrics() -> Route:
        from daemon.api.public import metrics_route

        return metrics_route(api)

    app = Starlette(
        routes=[
            *(_Late(row[1], partial(_route, row, api)) for row in ROUTES),
            _Late("/metrics", metrics),
        ],
        exception_handlers={
            DaemonError: of_daemon_error,
            InvalidRequest: of_bad_request,
            HTTPException: of_http_error,  # type: ignore[dict-item]
            Exception: of_our_fault,
        },
    )
    app.router.redirect_slashes = False
    app.add_middleware(_Guard, access=api.access)
    return app


def _route(told: tuple[str, str, Callable[..., Any]], api: ApiContext) -> Route:
    row = endpoint(*told)
    act, streaming = row.method == "POST", streams(row)

    async def answer(request: Request) -> Response:
        given = await row.read(request)
        if act:
            await api.journal.remember("operator_seen", api.clock().isoformat())
        result = await row.handler(api, **given)
        if streaming:
            return StreamingResponse(
                frames(result),
                media_type="text/event-stream",
                headers={"cache-control": "no-store"},
            )
        return Response(encoded(result), media_type="application/json")

    route = Route(row.path, answer, methods=[row.method])
    route.methods = {row.method}  # not HEAD: there is nothing here that a HEAD would spare
    return route


class ApiServer(Listener):
    """The control API on its socket."""

    def __init__(
        self,
        api: ApiContext,
        listener: ListenerSocket,
        *,
        limits: ConnectionLimits | None = None,
    ) -> None:
        super().__init__(application(api), listener, {"agentd-version": api.version}, limits=limits)
        self._events = api.events

    def stop(self) -> None:
        """End the streams, take no more requests, and finish those under way; safe to repeat."""
        self._events.close()
        super().stop()
