"""What the SDKs' clients send their requests over: connections of our own, below their httpx2.

The SDK builds the request and reads the status; what it costs to get the bytes there and back is a fourth of what
httpx2's own connections take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from daemon.providers.direct import Address, BrokenOff, Reply, Unreachable
from daemon.providers.ways import Way, Ways, proxy_for

_OURS = (b"host", b"content-length")


def transport_to(url: str) -> httpx2.AsyncBaseTransport | None:
    """Return the way to a server; None where a proxy stands between, which httpx2 knows how to speak to."""
    return None if proxy_for(url) else _Transport(Ways(url, tls=httpx2.create_ssl_context))


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, ways: Ways) -> None:
        self._ways = ways

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        secure = url.scheme == "https"
        address = Address(
            secure, url.host, url.port or (443 if secure else 80), url.raw_path, request.headers["host"].encode()
        )
        fields = [(name, value) for name, value in request.headers.raw if name.lower() not in _OURS]
        body, way = await request.aread(), self._ways.take()
        try:
            reply = await way.ask(
                request.method, address, fields, body, patience=request.extensions["timeout"]["connect"]
            )
        except Unreachable as error:
            await way.aclose()
            raise httpx2.ConnectError(str(error), request=request) from error
        except BrokenOff as error:
            await way.aclose()
            raise httpx2.ReadError(str(error), request=request) from error
        except BaseException:
            await way.aclose()
            raise
        assert isinstance(reply, Reply)  # noqa: S101  there is no proxy
        return httpx2.Response(
            reply.status, headers=reply.answer.fields, stream=_Body(reply, way, self._ways), request=request
        )

    async def aclose(self) -> None:
        await self._ways.close()


class _Body(httpx2.AsyncByteStream):
    """The rest of an answer, as it comes."""

    def __init__(self, reply: Reply, way: Way, ways: Ways) -> None:
        self._reply, self._way, self._ways = reply, way, ways
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._reply.raw():
                yield piece
        except BrokenOff as error:
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        if not self._closed:  # twice is allowed, but a connection is given back once
            self._closed = True
            await self._reply.aclose()
            await self._ways.give_back(self._way)
