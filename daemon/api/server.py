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

from daemon.api.application import make_application, refuse_browser, route_of
from daemon.api.binding import RouteRow, make_endpoint
from daemon.api.connections import ConnectionLimits
from daemon.api.context import ApiContext, LiveAccess
from daemon.api.embedded_uvicorn import SocketServer
from daemon.api.events import encode_frames
from daemon.api.listener import ListenerSocket
from daemon.api.openapi import is_stream
from daemon.api.problems import make_problem
from daemon.api.routes import ROUTES
from daemon.api.schemas import encode_json
from daemon.scheduler.skip_reasons import OPERATOR_SEEN


class _AccessMiddleware:
    """Refuses requests of users who are neither operators nor readers, and of web pages."""

    def __init__(self, app: ASGIApp, access: LiveAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "raw_path" in scope:
            # Names in the path are unquoted one by one in `Endpoint.read_arguments`: a quoted slash
            # is a part of a name, and does not begin another part of the path.
            scope["path"] = scope["raw_path"].decode("latin-1")
        refusal = self._refuse(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        caller = (scope.get("client") or ("an unknown user",))[0]
        operator_ids = sorted(self._access.operators)
        operators = {f"uid:{uid}" for uid in operator_ids}
        readers = {f"uid:{uid}" for uid in self._access.readers}
        if caller not in operators | readers:
            names = ", ".join(f"uid:{uid}" for uid in operator_ids)
            return make_problem(
                HTTPStatus.FORBIDDEN,
                f"this daemon works for {names} and not for {caller}",
                "foreign",
            )
        if scope["method"] != "GET" and caller not in operators:
            detail = (
                f"{caller} may look and change nothing (control.readers in the daemon's config)"
            )
            return make_problem(HTTPStatus.FORBIDDEN, detail, "read_only")
        return refuse_browser(scope["headers"])


class _LazyRoute(BaseRoute):
    """A route that is made with the first request whose path may be its own.

    To read the models of sixty handlers from their signatures, and to compile their paths, would
    take milliseconds at each start, for routes of which most are never requested.
    """

    def __init__(self, path: str, make: Callable[[], Route]) -> None:
        self._prefix, variable, _ = path.partition("{")
        self._has_variable, self._make = bool(variable), make

    @cached_property
    def _route(self) -> Route:
        return self._make()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        if path == self._prefix or (self._has_variable and path.startswith(self._prefix)):
            return self._route.matches(scope)
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._route.handle(scope, receive, send)


def make_control_application(api: ApiContext) -> Starlette:
    """Return the control API as an ASGI application."""

    def make_metrics_route() -> Route:
        from daemon.api.metrics import metrics_route

        return metrics_route(api)

    routes = [_LazyRoute(row[1], partial(_make_route, row, api)) for row in ROUTES]
    app = make_application([*routes, _LazyRoute("/metrics", make_metrics_route)])
    app.add_middleware(_AccessMiddleware, access=api.access)
    return app


def _make_route(row: RouteRow, api: ApiContext) -> Route:
    endpoint = make_endpoint(*row)
    answers_with_stream = is_stream(endpoint)

    async def answer(request: Request) -> Response:
        arguments = await endpoint.read_arguments(request)
        if endpoint.method != "GET":  # an act of the operator: the gate key `idle` asks for it
            await api.journal.key_values.put(OPERATOR_SEEN, api.clock.now().isoformat())
        result = await endpoint.handler(api, **arguments)
        if answers_with_stream:
            return StreamingResponse(
                encode_frames(result),
                media_type="text/event-stream",
                headers={"cache-control": "no-store"},
            )
        return Response(encode_json(result), media_type="application/json")

    return route_of(endpoint.method, endpoint.path, answer)


class ApiServer(SocketServer):
    """The control API on its socket."""

    def __init__(
        self, api: ApiContext, listener: ListenerSocket, *, limits: ConnectionLimits | None = None
    ) -> None:
        super().__init__(
            make_control_application(api),
            listener,
            {"agentd-version": api.version},
            limits=limits,
        )
        self._events = api.events

    def stop(self) -> None:
        """End the streams, take no more requests, and finish those under way; safe to repeat."""
        self._events.close()
        super().stop()
