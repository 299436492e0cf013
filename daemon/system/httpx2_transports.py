"""Transports for the httpx2 clients through which SDKs send requests: what a response may cost, and
a connection for each concurrent request.

Responses that this program reads itself are limited by http_body.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2

from daemon.system.http_body import limit_body
from daemon.system.http_client import ClientPool


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Send requests through another transport, and let at most `limit` bytes of each response be
    read, packed or unpacked.

    A reader of more gets the errors of `http_body.limit_body`. The bodies of error responses, which
    SDKs read too, are limited in the same way.

    All texts are read as UTF-8, as JSON and server-sent events are. httpx2 would take any codec of
    Python that a server names, and some take the square of the length of a text (punycode).
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._transport, self._limit = transport, limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if "content-type" in response.headers:
            kind = response.headers["content-type"].partition(";")[0]
            response.headers["content-type"] = f"{kind}; charset=utf-8"
        headers = response.headers.copy()
        # _LimitedStream unpacks the body
        for name in ("content-encoding", "content-length"):
            headers.pop(name, None)
        return httpx2.Response(
            status_code=response.status_code,
            headers=headers,
            stream=_LimitedStream(response, self._limit),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._transport.aclose()


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, limit: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  of an asynchronous client
        self._stream, self._headers, self._limit = response.stream, response.headers, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(limit_body(self._stream, self._headers, self._limit)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class PooledTransport(httpx2.AsyncBaseTransport):
    """Send each request through a transport of a pool, which is given back with the end of the
    response.
    """

    def __init__(self, pool: ClientPool[httpx2.AsyncHTTPTransport]) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        transport = self._pool.take()
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            await transport.aclose()
            raise
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=_PooledStream(response, transport, self._pool),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.close()


class _PooledStream(httpx2.AsyncByteStream):
    def __init__(
        self,
        response: httpx2.Response,
        transport: httpx2.AsyncHTTPTransport,
        pool: ClientPool[httpx2.AsyncHTTPTransport],
    ) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  of an asynchronous client
        self._stream, self._transport, self._pool = response.stream, transport, pool
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._stream.aclose()
        except BaseException:
            await self._transport.aclose()
            raise
        await self._pool.give_back(self._transport)
