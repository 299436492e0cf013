"""The page as a Starlette application: access, the route of each view and action, and faults.

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

from daemon.cli.client import ApiError, Client, ConnectionLost, Unreachable
from daemon.web.access import PageAccess
from daemon.web.attention import request_attention
from daemon.web.editing import Refusal, save, show_editor, show_new_routine
from daemon.web.rendering import render
from daemon.web.views import ACTIONS, MENU, VIEWS, Action, PageMoved, View, perform

STATIC = Path(__file__).parent / "static"
OTHER_USER = (
    "another user runs the `agentctl ui` of this page; run it as the user of this browser\n"
)
MAX_FORM_BYTES = 100_000
# Of the text of a routine, three for each byte that is no letter: the daemon says what is too long.
MAX_TEXT_FORM_BYTES = 1_000_000
# Refusals of the daemon that are the browser's affair; any other is a fault behind this server.
FORWARDED_STATUSES = (
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


class DaemonClients:
    """Clients of one daemon, one for each request of the page.

    `is_trusted`: the daemon at `socket_path` may be another user's.
    """

    def __init__(self, socket_path: str, *, is_trusted: bool) -> None:
        self.socket_path, self._is_trusted = socket_path, is_trusted
        self._clients: set[Client] = set()
        self._is_closed = False

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a client for one request; an answer that is under way at the end is ended.

        After `close` it gets no answer any more.
        """
        client = Client(self.socket_path, is_trusted=self._is_trusted)
        self._clients.add(client)
        if self._is_closed:
            client.close()
        try:
            yield client
        finally:
            self._clients.discard(client)
            client.close()

    def close(self) -> None:
        """End all answers under way: views show that no daemon answers, streams of events end."""
        self._is_closed = True
        for client in tuple(self._clients):
            client.close()


class AccessMiddleware:
    """Refuses requests of whoever may not see the page, and passes all others to the app."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refuse(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, request: Request) -> Response | None:
        path = request.scope["path"]
        if reason := self._access.explain_refusal(request.method, request.headers):
            return PlainTextResponse(f"{reason}\n", HTTPStatus.FORBIDDEN)
        if request.client and self._access.is_other_user(request.client.port):
            return PlainTextResponse(OTHER_USER, HTTPStatus.FORBIDDEN)
        if self._access.has_cookie(request.headers):
            return None
        if request.method == "GET":
            if path.startswith("/static/"):
                return None
            status = HTTPStatus.OK if path == "/" else HTTPStatus.FORBIDDEN
            return html_response(render("enter.html", {}), status)
        if path == "/enter":
            return None
        return PlainTextResponse("open the link that `agentctl ui` printed\n", HTTPStatus.FORBIDDEN)


def create_app(daemon: DaemonClients, access: PageAccess) -> Starlette:
    """Return the page of one daemon."""

    async def enter(request: Request) -> Response:
        cookie = access.exchange_token(await read_body(request))
        if cookie is None:
            detail = "This link was used before, or another agentctl ui printed it."
            return PlainTextResponse(detail, HTTPStatus.FORBIDDEN)
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"Set-Cookie": cookie})

    async def stream_events(request: Request) -> Response:
        run = request.query_params.get("run", "")
        path = f"/v1/runs/{run}/events" if run.isalnum() and run.isascii() else "/v1/events"
        return StreamingResponse(event_frames(daemon, path), media_type="text/event-stream")

    def handle_unreachable(request: Request, _error: Exception) -> Response:
        text = (
            f"No daemon answers at {daemon.socket_path}. This page comes back when it is started "
            "again."
        )
        return fault_response(request, HTTPStatus.SERVICE_UNAVAILABLE, "No daemon", text)

    handlers: dict[type[Exception], ExceptionHandler] = {
        PageMoved: handle_page_moved,
        ApiError: handle_problem,
        Unreachable: handle_unreachable,
        ConnectionLost: handle_unreachable,
        HTTPException: handle_http_error,
    }
    app = Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/enter", enter, methods=["POST"]),
            Route("/events", stream_events),
            *(Route(path, view_handler(view, daemon)) for path, view in VIEWS),
            *(
                route
                for path, view in (
                    ("/new", show_new_routine),
                    ("/routines/{name}/edit", show_editor),
                )
                for route in (
                    Route(path, view_handler(view, daemon)),
                    Route(path, editing_handler(daemon), methods=["POST"]),
                )
            ),
            *(
                Route(action.path, action_handler(action, daemon), methods=["POST"])
                for action in ACTIONS
            ),
        ],
        middleware=[Middleware(AccessMiddleware, access=access)],
        exception_handlers=handlers,
    )
    app.router.redirect_slashes = False
    return app


def view_handler(view: View, daemon: DaemonClients) -> Callable[[Request], Response]:
    """Return the handler that shows a view."""

    def handle(request: Request) -> Response:
        with daemon.client() as client:
            template, context = view(client, **request.path_params, query=request.query_params)
            context["attention"] = request_attention(client)
        page = render(template, {"current_path": request.scope["path"], "menu": MENU, **context})
        return html_response(page)

    return handle


def action_handler(
    action: Action, daemon: DaemonClients
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that performs the action of a button."""

    async def handle(request: Request) -> Response:
        form = dict(parse_qsl(await read_body(request), keep_blank_values=True))
        with daemon.client() as client:
            path = await run_in_threadpool(perform, client, action, request.path_params, form)
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    return handle


def editing_handler(daemon: DaemonClients) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that writes the file of a routine."""

    def write(request: Request, form: dict[str, str]) -> Response:
        with daemon.client() as client:
            result = save(client, request.path_params, form)
            if not isinstance(result, Refusal):
                return RedirectResponse(result, HTTPStatus.SEE_OTHER)
            attention = request_attention(client)
        page = render("edit.html", {"menu": MENU, "attention": attention, **result.context})
        return html_response(page, result.status)

    async def handle(request: Request) -> Response:
        body = await read_body(request, MAX_TEXT_FORM_BYTES)
        form = dict(parse_qsl(body, keep_blank_values=True))
        return await run_in_threadpool(write, request, form)

    return handle


async def event_frames(daemon: DaemonClients, path: str) -> AsyncIterator[bytes]:
    """Yield the events of one run, or of all, as server-sent events until the daemon stops.

    The first one, `following`, says that no event is missed from then on. The last one is `gone`
    where no daemon answers any more, or `refused` where asking again would not help.
    """
    # when the browser has gone, the end of this block also ends the thread that waits for an event
    with daemon.client() as client:
        try:
            events = await asyncio.to_thread(client.stream, path)
            yield b"event: following\ndata: {}\n\n"
            while (event := await asyncio.to_thread(next, events, None)) is not None:
                yield b"data: %s\n\n" % json.dumps(event).encode()
        except (ApiError, Unreachable, ConnectionLost) as error:
            if isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                detail = json.dumps({"detail": str(error)})
                yield b"event: refused\ndata: %s\n\n" % detail.encode()
            else:
                yield b"event: gone\ndata: {}\n\n"


async def read_body(request: Request, limit: int = MAX_FORM_BYTES) -> str:
    """Return the body of a request; raise HTTPException if it is too long, or breaks off."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"That is over {limit:,} bytes."
                )
    except ClientDisconnect:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, "The connection ended before the form was complete."
        ) from None
    return body.decode("utf-8", "replace")


def html_response(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(text.encode("utf-8", "replace"), status, media_type="text/html")


def fault_response(request: Request, status: HTTPStatus, title: str, text: str) -> Response:
    """Return a page with a fault, and a link back to the view it occurred in."""
    path = request.scope["path"]
    back = next((entry for entry in MENU[1:] if f"{path}/".startswith(f"{entry.path}/")), MENU[0])
    context = {"title": title, "text": text, "back": back, "menu": MENU, "current_path": path}
    return html_response(render("fault.html", context), status)


def handle_page_moved(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PageMoved)  # noqa: S101  # for the type checker alone
    return RedirectResponse(error.path, HTTPStatus.SEE_OTHER)


def handle_problem(request: Request, error: Exception) -> Response:
    """Return the page for what the daemon refuses."""
    assert isinstance(error, ApiError)  # noqa: S101  # for the type checker alone
    status = HTTPStatus.BAD_GATEWAY
    if error.status in FORWARDED_STATUSES:
        status = HTTPStatus(error.status)
    return fault_response(request, status, "The daemon says no", str(error))


def handle_http_error(request: Request, error: Exception) -> Response:
    """Return the page for an unknown path or method, and for a form that cannot be read."""
    assert isinstance(error, HTTPException)  # noqa: S101  # for the type checker alone
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND:
        path = request.scope["path"]
        return fault_response(request, status, "No such page", f"There is no {path}.")
    return fault_response(request, status, status.phrase, error.detail)
