"""What an SDK reads through its client has a limited size, and is read as UTF-8."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from daemon.system.httpx2_transports import LimitedTransport


@asynccontextmanager
async def serve(content_type: str, body: bytes) -> AsyncIterator[str]:
    """Run a server that answers each request with `body`, and yield its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\n{content_type}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("Content-Type: application/json; charset=punycode\r\n", b"a" * 1_000_000),
        ("Content-Type: text/event-stream; charset=unicode_escape\r\n", rb"\u0041"),
        ("Content-Type: text/event-stream;charset=utf-7\r\n", b"+ADw-"),
        ("Content-Type: text/plain; charset=iso-8859-1\r\n", "schön".encode()),
        ("Content-Type: application/json\r\n", "schön".encode()),
        ("", "schön".encode()),
    ],
)
async def test_a_response_is_read_as_utf_8_whatever_charset_its_server_names(
    content_type: str, body: bytes
) -> None:
    transport = LimitedTransport(httpx2.AsyncHTTPTransport(), 2_000_000)
    async with (
        serve(content_type, body) as url,
        httpx2.AsyncClient(transport=transport, trust_env=False) as client,
    ):
        response = await client.get(url)
        assert response.text == body.decode()
        async with client.stream("GET", url) as response:
            assert "".join([text async for text in response.aiter_text()]) == body.decode()
        assert response.headers.get("content-type", "").partition(";")[0] in content_type
