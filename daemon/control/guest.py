"""uvicorn as a guest in our event loop, behind a door of ours."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.control.door import Door, peer
from daemon.control.problems import MEDIA_TYPE

# Seconds an answer under way may take once we stop; streams end by themselves before that.
LAST_WORDS = 3


class PeerProtocol(H11Protocol):
    """HTTP that knows who speaks, and answers nonsense in the API's own form."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        uid, pid = peer(transport.get_extra_info("socket"))
        self.client = (f"uid:{uid}", pid or 0)

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"title": "Bad Request", "status": 400, "detail": msg, "code": "bad_request"}).encode()
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        headers += [(b"connection", b"close"), *self.server_state.default_headers]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Listener:
    """An application on its socket, from the moment it is made until it is stopped."""

    def __init__(self, app: ASGIApp, door: Door, version: str, *, protocol: type[H11Protocol] = PeerProtocol) -> None:
        self._door = door
        self._guest = _Guest(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                headers=[("agentd-version", version)],
                timeout_graceful_shutdown=LAST_WORDS,
            )
        )

    @property
    def path(self) -> Path:
        return self._door.path

    async def serve(self) -> None:
        """Answer requests until `stop`; then the socket's file goes, if it is ours."""
        try:
            await self._guest.serve(sockets=[self._door.socket])
        finally:
            self._door.close()

    async def ready(self) -> None:
        """Return once clients get through."""
        await self._guest.listening.wait()

    def stop(self) -> None:
        """Take no more requests, and finish those under way; safe to repeat."""
        self._guest.should_exit = True
        self._guest.stopping.set()


class _Guest(uvicorn.Server):
    """It neither takes the signals nor wakes ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening, self.stopping = asyncio.Event(), asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)  # once: it sets the headers of every answer
        self.listening.set()

    async def main_loop(self) -> None:
        await self.stopping.wait()
