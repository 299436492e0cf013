"""The page as a Starlette application: who is let in, which view a path has, and what is shown when
something is wrong.

It asks the daemon over the control socket, as every `agentctl` does. Handlers that wait for the
daemon run in threads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from daemon.cli.client import Client, ConnectionLost, Problem, Unreachable
from daemon.web.access import PageAccess
from daemon.web.rendering import render
from daemon.web.views import ACTIONS, MENU, VIEWS, Action, SeeOther, View, perform

STATIC = Path(__file__).parent / "static"
LONGEST_FORM = 100_000  # bytes
# Refusals of the daemon that are the browser's affair; any other is a fault behind this server.
PASSED_ON = (
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


class DaemonClients:
    """Clients of one daemon, one for each request of the page."""

    def __init__(self, socket_path: str, *, trusted: bool) -> None:
        """`trusted`: the daemon there may be another user's."""
        self.socket_path, self._trusted = socket_path, trusted
        self._in_use: set[Client] = set()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Lend a client to one request; what the request still waits for at its end is given up."""
        client = Client(self.socket_path, named=self._trusted)
        self._in_use.add(client)
        try:
            yield client
        finally:
            self._in_use.discard(client)
            client.close()

    def hang_up(self) -> None:
        """End whatever the page waits for: a view says that no daemon answers, a stream of events
        ends.
        """
        for client in tuple(self._in_use):
            client.close()


class GateMiddleware:
    """Answer whoever may not look at the page; hand on every other request."""

    def __init__(self, app: ASGIApp, gate: PageAccess) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        path, is_reading = request.scope["path"], request.method == "GET"
        if reason := self._gate.refusal(request.method, request.headers):
            return PlainTextResponse(f"{reason}\n", HTTPStatus.FORBIDDEN)
        if self._gate.knows(request.headers) or (
            path.startswith("/static/") if is_reading else path == "/enter"
        ):
            return None
        if is_reading:
            return html(
                render("enter.html", {}), HTTPStatus.OK if path == "/" else HTTPStatus.FORBIDDEN
            )
        return PlainTextResponse("open the link that `agentctl ui` printed\n", HTTPStatus.FORBIDDEN)


def application(daemon: DaemonClients, gate: PageAccess) -> Starlette:
    """Return the page of one daemon."""

    async def enter(request: Request) -> Response:
        cookie = gate.enter(await read_body(request))
        if cookie is None:
            detail = "this link was used before, or is not of this `agentctl ui`\n"
            return PlainTextResponse(detail, HTTPStatus.FORBIDDEN)
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"Set-Cookie": cookie})

    async def events(request: Request) -> Response:
        run = request.query_params.get("run", "")
        target = f"/v1/runs/{run}/events" if run.isalnum() and run.isascii() else "/v1/events"
        return StreamingResponse(event_frames(daemon, target), media_type="text/event-stream")

    def no_daemon(request: Request, _error: Exception) -> Response:
        text = (
            f"No daemon answers at {daemon.socket_path}. This page comes back when it is started "
            "again."
        )
        return fault(request, HTTPStatus.SERVICE_UNAVAILABLE, "No daemon", text)

    handlers: dict[type[Exception], ExceptionHandler] = {
        SeeOther: redirect,
        Problem: of_problem,
        Unreachable: no_daemon,
        ConnectionLost: no_daemon,
        HTTPException: of_http_error,
    }
    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/enter", enter, methods=["POST"]),
            Route("/events", events),
            *(Route(path, show(view, daemon)) for path, view in VIEWS),
            *(Route(action.path, act(action, daemon), methods=["POST"]) for action in ACTIONS),
        ],
        middleware=[Middleware(GateMiddleware, gate=gate)],
        exception_handlers=handlers,
    )
    app.router.redirect_slashes = False
    return app


def show(view: View, daemon: DaemonClients) -> Callable[[Request], Response]:
    """Return the handler of a view."""

    def handle(request: Request) -> Response:
        with daemon.client() as client:
            template, context = view(client, **request.path_params, query=request.query_params)
        return html(render(template, {"here": request.scope["path"], "views": MENU, **context}))

    return handle


def act(action: Action, daemon: DaemonClients) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a button."""

    async def handle(request: Request) -> Response:
        form = dict(parse_qsl(await read_body(request), keep_blank_values=True))
        with daemon.client() as client:
            path = await run_in_threadpool(perform, client, action, request.path_params, form)
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    return handle


async def event_frames(daemon: DaemonClients, target: str) -> AsyncIterator[bytes]:
    """Hand on what happens in one run, or in all, for as long as somebody listens."""
    yield b": here\n\n"
    with (
        daemon.client() as client
    ):  # its end, when the browser has gone, also ends the thread that waits for an event
        events = client.stream(target)
        try:
            while (event := await asyncio.to_thread(next, events, None)) is not None:
                yield b"data: %s\n\n" % json.dumps(event).encode()
        except (Problem, Unreachable, ConnectionLost):
            yield b"event: gone\ndata: {}\n\n"


async def read_body(request: Request) -> str:
    """Return what the browser sends; HTTPException where it is too long, or breaks off."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_FORM:
                raise HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"That is over {LONGEST_FORM:,} bytes."
                )
    except ClientDisconnect:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, "The connection ended before the form was complete."
        ) from None
    return body.decode("utf-8", "replace")


def html(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html")


def fault(request: Request, status: HTTPStatus, title: str, text: str) -> Response:
    """Say what went wrong, with a way back to the view it went wrong in."""
    here = request.scope["path"]
    back = next((entry for entry in MENU[1:] if f"{here}/".startswith(f"{entry.path}/")), MENU[0])
    return html(
        render(
            "fault.html", {"title": title, "text": text, "back": back, "views": MENU, "here": here}
        ),
        status,
    )


def redirect(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SeeOther)  # noqa: S101  # for the type checker alone
    return RedirectResponse(error.path, HTTPStatus.SEE_OTHER)


def of_problem(request: Request, error: Exception) -> Response:
    """Answer for what the daemon refuses."""
    assert isinstance(error, Problem)  # noqa: S101  # for the type checker alone
    status = HTTPStatus(error.status) if error.status in PASSED_ON else HTTPStatus.BAD_GATEWAY
    return fault(request, status, "The daemon says no", str(error))


def of_http_error(request: Request, error: Exception) -> Response:
    """Answer for a path or method that does not exist, and for a form that cannot be read."""
    assert isinstance(error, HTTPException)  # noqa: S101  # for the type checker alone
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND:
        return fault(request, status, "No such page", f"There is no {request.scope['path']}.")
    return fault(request, status, status.phrase, error.detail)
