"""An MCP server over HTTP that answers whatever a test says, byte by byte.

It lives in the loop of the test. What is no answer of MCP cannot be said by the SDK's server, which
is in web.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, Self

OBJECT = {"type": "object"}


class Request(NamedTuple):
    """What the server was sent."""

    verb: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def method(self) -> str:
        """The method of MCP, or the verb of a request that has none."""
        return str(self.body.get("method", self.verb))


# A dictionary is the result of a request, or its error if it holds a code; bytes are the whole
# answer; of more pieces, each is sent as the peer takes it.
Pieces = Iterable[bytes] | AsyncGenerator[bytes, None]
Answer = dict[str, Any] | bytes | Pieces


def respond(
    body: bytes, *, status: str = "200 OK", kind: str = "application/json", headers: str = ""
) -> bytes:
    """Return the bytes of a whole answer; `headers` ends each of its lines with CR LF."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}"
    return head.encode() + b"\r\n" + body


def result(request: Request, answer: dict[str, Any]) -> bytes:
    """Return the JSON of an answer to a request."""
    kind = "error" if "code" in answer else "result"
    return json.dumps({"jsonrpc": "2.0", "id": request.body.get("id"), kind: answer}).encode()


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


# The head of a stream that ends with its connection.
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class HostileWeb:
    """`answers` says by the method of MCP, or by the verb, what is answered."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: dict[str, Callable[[Request], Answer]] = {
            "initialize": lambda request: {
                "protocolVersion": request.body["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            },
            "ping": lambda _request: {},
            "tools/list": lambda _request: {"tools": [{"name": "t", "inputSchema": OBJECT}]},
            "tools/call": lambda _request: {"content": [{"type": "text", "text": "fine"}]},
        }
        self._connections = set[asyncio.Task[None]]()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def config(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp", "timeout": "20s"}

    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # where it is cancelled it ends, too: asyncio would log that
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(await _read(reader), writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection goes on."""
        self.requests.append(request)
        if request.method in self.answers:
            answer = self.answers[request.method](request)
        elif "id" in request.body and "method" in request.body:
            answer = {"code": -32601, "message": "Method not found"}
        else:
            is_accepted = request.verb == "POST"
            answer = respond(b"", status="202 Accepted" if is_accepted else "405 Not Allowed")
        if isinstance(answer, dict):
            answer = respond(result(request, answer))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return True
        if isinstance(answer, AsyncGenerator):
            async with aclosing(answer):
                async for piece in answer:
                    writer.write(piece)
                    await writer.drain()
        else:
            for piece in answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)  # it drains at once for as long as there is room
        return False


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    verb, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(verb, path, headers, json.loads(body or b"{}"))
