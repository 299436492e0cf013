"""Requests of one provider differ only in body and cookies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.vendor import FakeVendor
from tests.providers.calls import TRANSPORTS, Opener, user

_ANSWER = json.dumps(
    {
        "id": "1",
        "choices": [
            {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
        ],
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
    }
)


@asynccontextmanager
async def setting_cookies(*cookies: str) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """Serve answers that set one cookie each; yield the address, and the headers of the requests as
    they come.
    """
    heads: list[dict[str, str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for cookie in cookies:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[1:-1]
                fields = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in lines)
                }
                heads.append(fields)
                await reader.readexactly(int(fields["content-length"]))
                head = f"HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nContent-Length: {len(_ANSWER)}\r\n\r\n"  # noqa: E501
                writer.write((head + _ANSWER).encode())
                await writer.drain()
        finally:
            writer.close()

    http_server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with http_server:
        yield f"http://127.0.0.1:{http_server.sockets[0].getsockname()[1]}", heads


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_all_requests_differ_only_in_their_body(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["one", "two", "three"]) as vendor:
        provider = provider_for(way, vendor)
        for text in ("a", "a longer question", "b"):
            await provider.chat([user(text)])
    first, *later_requests = vendor.requests
    varying_names = {"content-length"}
    for request in later_requests:
        assert request.path == first.path
        assert {k: v for k, v in request.headers.items() if k not in varying_names} == {
            k: v for k, v in first.headers.items() if k not in varying_names
        }
    assert [json.dumps(request.body).count("longer") for request in vendor.requests] == [0, 1, 0]


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_cookies_of_a_gateway_are_sent_back(way: str, provider_for: Opener) -> None:
    async with setting_cookies("door=1; Path=/", "door=2; Path=/", "x=y; Path=/") as (url, heads):
        provider = provider_for(way, url)
        for _ in range(3):
            assert (await provider.chat([user("hi")])).content == "hello"
        await provider.close()
    assert [head.get("cookie") for head in heads] == [None, "door=1", "door=2"]
