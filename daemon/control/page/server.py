"""HTTP for the page: a loopback port, a thread per request, and an end with the command that started it."""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from daemon.control.client import Client, Lost, Problem, Unreachable
from daemon.control.page.gate import HEADERS, Gate
from daemon.control.page.rendering import render
from daemon.control.page.views import VIEWS, Redirect, act, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STATIC = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
LONGEST_FORM = 100_000  # bytes
PATIENCE = 30.0  # seconds for a browser to say what it wants


class PageServer(ThreadingHTTPServer):
    """The page of one daemon; `url` is the link to it, good for one browser."""

    daemon_threads = True
    block_on_close = False  # a live tail would keep the command from ending

    def __init__(self, socket: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.gate = Gate(self.server_port)
        self.socket_path = socket

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/#{self.gate.token}"

    def handle_error(self, request: object, client_address: object) -> None:
        # a browser that goes away in the middle is no fault of anybody's
        if not isinstance(sys.exception() if sys.version_info >= (3, 11) else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    """One request of a browser."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "agentctl", ""
    timeout = PATIENCE
    disable_nagle_algorithm = True  # else a body waits 40 ms for word that its head has arrived
    server: PageServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if refusal := self.server.gate.refusal("GET", self._headers):
            return self._text(HTTPStatus.FORBIDDEN, refusal)
        if parts.path.startswith("/static/"):
            return self._static(parts.path.removeprefix("/static/"))
        if not self.server.gate.knows(self._headers):
            return self._html(HTTPStatus.OK if parts.path == "/" else HTTPStatus.FORBIDDEN, render("enter.html", {}))
        query = dict(parse_qsl(parts.query))
        if parts.path == "/events":
            return self._events(query.get("run"))
        return self._page(parts.path, query)

    def do_POST(self) -> None:
        if refusal := self.server.gate.refusal("POST", self._headers):
            return self._text(HTTPStatus.FORBIDDEN, refusal)
        body = self._body()
        if body is None:
            return self._text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too long")
        path = urlsplit(self.path).path
        if path == "/enter":
            cookie = self.server.gate.enter(body.decode("utf-8", "replace"))
            if cookie is None:
                return self._text(HTTPStatus.FORBIDDEN, "this link was used before, or is not of this `agentctl ui`")
            return self._answer(HTTPStatus.NO_CONTENT, b"", "text/plain", {"Set-Cookie": cookie})
        if not self.server.gate.knows(self._headers):
            return self._text(HTTPStatus.FORBIDDEN, "open the link that `agentctl ui` printed")
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        return self._guarded(lambda: self._redirect(act(self._client(), path, form)))

    def _page(self, path: str, query: Mapping[str, str]) -> None:
        found = view_of(path)
        if found is None:
            return self._fault(HTTPStatus.NOT_FOUND, "No such page", f"There is no {path}.")
        view, given = found

        def show() -> None:
            try:
                template, context = view(self._client(), **given, query=query)
            except Redirect as elsewhere:
                return self._redirect(elsewhere.path)
            return self._html(HTTPStatus.OK, render(template, {"here": path, "views": VIEWS, **context}))

        return self._guarded(show)

    def _guarded(self, work: object) -> None:
        """Do the work; what the daemon refuses, or that it is not there, is a page too."""
        assert callable(work)  # noqa: S101  # for the type checker alone
        try:
            work()
        except Problem as error:
            status = HTTPStatus(error.status) if error.status in (403, 404, 409, 422) else HTTPStatus.BAD_GATEWAY
            self._fault(status, "The daemon says no", str(error))
        except (Unreachable, Lost):
            text = f"No daemon answers at {self.server.socket_path}. This page comes back when it is started again."
            self._fault(HTTPStatus.SERVICE_UNAVAILABLE, "No daemon", text)

    def _fault(self, status: HTTPStatus, title: str, text: str) -> None:
        """Say what went wrong, with a way back to the view it went wrong in."""
        here = urlsplit(self.path).path
        back = next((view for view in VIEWS[1:] if f"{here}/".startswith(f"{view.path}/")), VIEWS[0])
        context = {"title": title, "text": text, "back": back, "views": VIEWS, "here": here}
        self._html(status, render("fault.html", context))

    def _events(self, run: str | None) -> None:
        """Hand on what happens in one run, or in all, for as long as somebody listens."""
        self.close_connection = True
        target = f"/v1/runs/{run}/events" if run and run.isalnum() else "/v1/events"
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
        self.wfile.write(b": here\n\n")
        try:
            # a comment now and then: else nobody would notice that the browser has gone
            for event in self._client().stream(target, lambda: self._write(b": still here\n\n")):
                self._write(b"data: %s\n\n" % json.dumps(event).encode())
        except (Problem, Unreachable, Lost):
            self._write(b"event: gone\ndata: {}\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _client(self) -> Client:
        return Client(self.server.socket_path)

    @property
    def _headers(self) -> Mapping[str, str]:
        return self.headers  # type: ignore[return-value]  # a Message, which has the `get` that is wanted

    def _body(self) -> bytes | None:
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            length = LONGEST_FORM + 1
        if not 0 <= length <= LONGEST_FORM:
            self.close_connection = True
            return None
        return self.rfile.read(length)

    def _static(self, name: str) -> None:
        path = STATIC / name
        if path.parent != STATIC or path.suffix not in TYPES or not path.is_file():
            return self._text(HTTPStatus.NOT_FOUND, "there is no such file")
        return self._answer(HTTPStatus.OK, path.read_bytes(), TYPES[path.suffix])

    def _html(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, text.encode("utf-8", "replace"), "text/html; charset=utf-8")

    def _text(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

    def _redirect(self, path: str) -> None:
        self._answer(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": path})

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing: the terminal belongs to the person, and the log to the daemon."""
