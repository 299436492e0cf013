"""The control API on its socket, and who may speak to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.api.application import application_with, refuse_browser
from daemon.api.binding import RouteRow, endpoint
from daemon.api.connections import ConnectionLimits
from daemon.api.context import ApiContext, LiveAccess
from daemon.api.embedded_uvicorn import Listener
from daemon.api.events import frames
from daemon.api.listener import ListenerSocket
from daemon.api.openapi import streams
from daemon.api.problems import problem
from daemon.api.routes import ROUTES
from daemon.api.schemas import encoded


class _AccessGuard:
    """Let in operators and readers by their uid, and no web pages."""

    def __init__(self, app: ASGIApp, access: LiveAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "raw_path" in scope:
            # unquoted name by name in `Endpoint.read_arguments`: a name that holds a slash is a
            # name that nothing has, not a path
            scope["path"] = scope["raw_path"].decode("latin-1")
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        caller = (scope.get("client") or ("an unknown user",))[0]
        allowed = sorted(self._access.operators)
        operators = {f"uid:{uid}" for uid in allowed}
        readers = {f"uid:{uid}" for uid in self._access.readers}
        if caller not in operators | readers:
            names = ", ".join(f"uid:{uid}" for uid in allowed)
            return problem(
                HTTPStatus.FORBIDDEN,
                f"this daemon works for {names} and not for {caller}",
                "foreign",
            )
        if scope["method"] != "GET" and caller not in operators:
            detail = (
                f"{caller} may look and change nothing (control.readers in the daemon's config)"
            )
            return problem(HTTPStatus.FORBIDDEN, detail, "read_only")
        return refuse_browser(scope["headers"])


class _LazyRoute(BaseRoute):
    """A route that is made when the first path is asked for that may be its own.

    The models of sixty handlers are read from their signatures, and their paths are compiled: that
    would take milliseconds at each start, for routes of which most are never asked for.
    """

    def __init__(self, path: str, make: Callable[[], Route]) -> None:
        self._prefix, variable, _ = path.partition("{")
        self._is_fixed, self._make = not variable, make

    @cached_property
    def _route(self) -> Route:
        return self._make()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        if path == self._prefix if self._is_fixed else path.startswith(self._prefix):
            return self._route.matches(scope)
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle(scope, receive, send)


def application(api: ApiContext) -> Starlette:
    """Return the control API as an ASGI application."""

    def metrics() -> Route:
        from daemon.api.metrics import metrics_route

        return metrics_route(api)

    routes = [_LazyRoute(row[1], partial(_route, row, api)) for row in ROUTES]
    app = application_with([*routes, _LazyRoute("/metrics", metrics)])
    app.add_middleware(_AccessGuard, access=api.access)
    return app


def _route(row: RouteRow, api: ApiContext) -> Route:
    target = endpoint(*row)
    is_act, is_stream = target.method == "POST", streams(target)

    async def answer(request: Request) -> Response:
        arguments = await target.read_arguments(request)
        if is_act:
            await api.journal.facts.remember("operator_seen", api.clock.now().isoformat())
        result = await target.handler(api, **arguments)
        if is_stream:
            return StreamingResponse(
                frames(result),
                media_type="text/event-stream",
                headers={"cache-control": "no-store"},
            )
        return Response(encoded(result), media_type="application/json")

    route = Route(target.path, answer, methods=[target.method])
    route.methods = {target.method}  # not HEAD: there is nothing here that a HEAD would spare
    return route


class ApiServer(Listener):
    """The control API on its socket."""

    def __init__(
        self, api: ApiContext, listener: ListenerSocket, *, limits: ConnectionLimits | None = None
    ) -> None:
        super().__init__(application(api), listener, {"agentd-version": api.version}, limits=limits)
        self._events = api.events

    def stop(self) -> None:
        """End the streams, take no more requests, and finish those under way; safe to repeat."""
        self._events.close()
        super().stop()
