"""The two servers that the installation speaks to: a vendor of models and a receiver of
webhooks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.rules import Refusal
from tests.fakes.vendor import FakeVendor


class TurnsByModel:
    """What each model says next; each routine of the fixture asks a model of its own name."""

    def __init__(self, turns: dict[str, list[Any]]) -> None:
        self.turns = turns

    def next(self, body: Any) -> dict[str, Any]:
        """Return the turn for this request."""
        turns = self.turns.get(body["model"])
        if not turns:
            raise Refusal(
                f"the model {body['model']} has nothing more to say", code="script_used_up"
            )
        turn = turns.pop(0)
        return {"text": turn} if isinstance(turn, str) else dict(turn)


def vendor(turns: dict[str, list[Any]]) -> FakeVendor:
    """Return a vendor that answers each model's requests in order."""
    server = FakeVendor()
    server.script = TurnsByModel(turns)  # type: ignore[assignment]
    return server


def requests_of(server: FakeVendor, model: str) -> list[dict[str, Any]]:
    """Return the bodies of all requests for a model."""
    return [
        request.body
        for request in server.requests
        if request.body and request.body.get("model") == model
    ]


class Hook:
    """A receiver of webhooks."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, Any]]] = []
        """The `webhook-id` and the body of each request."""
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Hook]:
        """Listen on a loopback port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:]
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.received.append((headers["webhook-id"], json.loads(body)))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
