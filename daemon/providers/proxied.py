"""The way to a server through a proxy: httpx knows them all, and is only loaded where there is one."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import httpx

from daemon.http_body import limited, read_limited
from daemon.providers.direct import BrokenOff, Form, Unreachable

_NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.PoolTimeout)


class Proxied:
    """One connection through a proxy, for one request at a time."""

    def __init__(self, proxy: str, tls: ssl.SSLContext | None) -> None:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._transport = httpx.AsyncHTTPTransport(verify=tls or False, limits=limits, proxy=proxy)

    async def ask(self, form: Form, body: bytes = b"", *, patience: float | None = None) -> _Reply:
        """Send a request and wait for the head of its answer; raises Unreachable or BrokenOff."""
        scheme = "https" if form.address.secure else "http"
        url = f"{scheme}://{form.address.name.decode()}{form.address.target.decode()}"
        request = httpx.Request(
            form.method, url, headers=list(form.fields), content=body, extensions={"timeout": {"connect": patience}}
        )
        try:
            return _Reply(await self._transport.handle_async_request(request))
        except _NO_CONNECTION as error:
            raise Unreachable(str(error)) from error
        except httpx.RequestError as error:
            raise BrokenOff(str(error)) from error

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Reply:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self, limit: int) -> bytes:
        return await read_limited(self._raw(), self.headers, limit)

    def pieces(self, limit: int) -> AsyncGenerator[bytes, None]:
        return limited(self._raw(), self.headers, limit)

    async def _raw(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.aiter_raw():
                yield piece
        except httpx.RequestError as error:
            raise BrokenOff(str(error)) from error

    async def aclose(self) -> None:
        await self._response.aclose()
