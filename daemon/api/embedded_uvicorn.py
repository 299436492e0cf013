"""uvicorn in the event loop of the daemon, on a socket that the daemon opened.

uvicorn documents no way to time the head and body of a request, to leave signals alone, or to wait
for an event instead of waking ten times a second, so this file overrides methods of its server and
protocol. tests/api/test_uvicorn_contract.py names each of them, and what is expected of it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from math import ceil
from pathlib import Path
from typing import Any, Literal

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.api.connections import ConnectionLimits, Connections, limits_of_this_process, peer_of
from daemon.api.listener import ListenerSocket
from daemon.api.problems import MEDIA_TYPE, make_problem

# Seconds that an answer under way may take after `stop`; streams end by themselves before that.
SHUTDOWN_TIMEOUT = 3
# Connections that asyncio accepts at a time, before the first of them is counted. Where no
# descriptor is left, it logs each attempt and repeats it a second later: with hundreds, that takes
# a core and fills the log.
ACCEPTED_AT_ONCE = 1
# Connections that wait in the kernel to be accepted, at most net.core.somaxconn.
KERNEL_BACKLOG = 4096


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that knows which user or address its peer is, limits the time of each stage of a
    request, and answers malformed requests as problem+json.

    uvicorn limits the time of an idle connection only until its next byte, and that of a head or
    body not at all. So `_set_deadline` is called after whatever may have advanced a request, and
    times the stage that it has reached.
    """

    def __init__(self, *arguments: Any, connections: Connections, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.peer = ""
        self._connections, self._limits = connections, connections.limits
        self._stage: Literal["", "head", "body", "answer", "idle", "closing"] = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        try:
            self.peer, pid_or_port = peer_of(transport.get_extra_info("socket"))
        except OSError:  # the other end is gone
            transport.abort()
            return
        # uvicorn knows addresses, but not users
        self.client = self.client or (self.peer, pid_or_port)
        if self._connections.admit(self):
            self._set_deadline()
        else:
            detail = "there are too many connections; close some, or try again soon"
            self._answer_and_close(HTTPStatus.SERVICE_UNAVAILABLE, detail, "too_many_connections")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._connections.release(self)
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close the connection, which waits for a request, to make room for a new one."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._answer_and_close(HTTPStatus.BAD_REQUEST, msg, "bad_request")

    def _set_deadline(self) -> None:
        """Start the timer of the stage that the connection is in, once for each stage."""
        stage: Literal["head", "body", "answer", "idle", "closing"]
        if self.transport.is_closing():
            stage = "closing"
        elif self.conn.their_state is h11.IDLE:
            stage = "head" if self.cycle is None or self.conn.trailing_data[0] else "idle"
        elif self.conn.their_state is h11.SEND_BODY:
            stage = "body"
        else:
            stage = "answer"
        if stage == self._stage:
            return
        self._stage = stage
        self._connections.set_waiting(self, waiting=stage in ("head", "idle"))
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
        if stage != "answer":
            limits = self._limits
            seconds = {
                "head": limits.head,
                "body": limits.body,
                "idle": limits.idle,
                "closing": limits.idle,
            }[stage]
            self._deadline = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """End a connection whose time is over, with 408 where a request has begun."""
        if self._stage == "body" or (self._stage == "head" and self.conn.trailing_data[0]):
            seconds = self._limits.body if self._stage == "body" else self._limits.head
            detail = f"the {self._stage} of the request was not complete within {seconds:g} s"
            self._answer_and_close(HTTPStatus.REQUEST_TIMEOUT, detail, "timeout")
        else:
            # also what the client does not read of an answer that is complete
            self.transport.abort()

    def _answer_and_close(self, status: HTTPStatus, detail: str, code: str) -> None:
        """Answer with a problem and close; an answer that has begun already is cut instead."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = json.dumps(
            {"title": status.phrase, "status": status.value, "detail": detail, "code": code}
        ).encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        headers += [(b"connection", b"close"), *self.server_state.default_headers]
        response = h11.Response(
            status_code=status.value, headers=headers, reason=status.phrase.encode()
        )
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            # so that the application does not answer as well before `connection_lost`
            self.cycle.disconnected = True
        self.transport.close()
        self._set_deadline()


def _refuse_two_lengths(app: ASGIApp) -> ASGIApp:
    """Return the application with a refusal of requests that have both content-length and
    transfer-encoding.

    A proxy may go by the other one, and so take what is a second request here for a part of the
    body. The connection is closed (RFC 9112, section 6.1), so nothing behind it is read.
    """

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            detail = "a request has either content-length or transfer-encoding"
            problem = make_problem(
                HTTPStatus.BAD_REQUEST, detail, "bad_request", headers={"connection": "close"}
            )
            await problem(scope, receive, send)
        else:
            await app(scope, receive, send)

    return check


class SocketServer:
    """A server of one ASGI application on one socket, until it is stopped."""

    def __init__(
        self,
        app: ASGIApp,
        listener_socket: ListenerSocket,
        headers: Mapping[str, str],
        *,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """`headers` are added to every answer."""
        self._listener_socket = listener_socket
        self.connections = Connections(
            str(listener_socket.path), limits or limits_of_this_process()
        )
        self._uvicorn = EmbeddedUvicorn(
            uvicorn.Config(
                _refuse_two_lengths(app),
                http=partial(PeerProtocol, connections=self.connections),  # type: ignore[arg-type]  # it is only called
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                headers=list(headers.items()),
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
                timeout_keep_alive=ceil(self.connections.limits.idle),
                backlog=ACCEPTED_AT_ONCE,
            )
        )

    @property
    def path(self) -> Path:
        return self._listener_socket.path

    async def serve(self) -> None:
        """Answer requests until `stop`, then remove the socket's file, if this process made it."""
        try:
            await self._uvicorn.serve(sockets=[self._listener_socket.socket])
        finally:
            self._listener_socket.close()

    async def ready(self) -> None:
        """Return once the server accepts connections."""
        await self._uvicorn.listening.wait()

    def stop(self) -> None:
        """Take no more requests, and finish those under way; safe to repeat."""
        self._uvicorn.should_exit = True
        self._uvicorn.stopping.set()


class EmbeddedUvicorn(uvicorn.Server):
    """A uvicorn server that handles no signals and wakes only for connections and `stop`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening, self.stopping = asyncio.Event(), asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening_socket in sockets or ():
            # asyncio has given the kernel ACCEPTED_AT_ONCE as backlog
            listening_socket.listen(KERNEL_BACKLOG)
        await self.on_tick(0)  # once: it sets the headers of every answer
        self.listening.set()

    async def main_loop(self) -> None:
        await self.stopping.wait()
