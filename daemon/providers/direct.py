"""A connection that httpx can send a request over: h11 on asyncio, and nothing between.

httpx's own way there (httpcore on anyio) yields to the event loop some twenty times and looks up what kind of loop it
is for each request: two requests take 0.9 ms of CPU by it, 0.3 by this one. It keeps no pool and knows no proxy.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import AsyncIterator
from typing import Any

import h11
import httpx

# Like httpx and browsers: where a name has several addresses, the next one is tried beside a silent one.
_HAPPY_EYEBALLS = 0.25


class DirectTransport(httpx.AsyncBaseTransport):
    """One connection, for one request at a time; a broken or closed one is replaced with the next request."""

    def __init__(self, verify: ssl.SSLContext | bool) -> None:
        self._tls = verify if isinstance(verify, ssl.SSLContext) else None
        self._wire: _Wire | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        wire = self._wire
        if wire is None or not wire.idle:
            await self.aclose()
            wire = self._wire = await self._connected(request)
        wire.send(request)
        head = await wire.head()
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=_Body(wire), request=request)

    async def _connected(self, request: httpx.Request) -> _Wire:
        url, patience = request.url, request.extensions.get("timeout", {}).get("connect")
        secure = url.scheme == "https"
        where: dict[str, Any] = {"ssl": self._tls, "server_hostname": url.host} if secure else {}
        port = url.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(patience):
                _, wire = await asyncio.get_running_loop().create_connection(
                    _Wire, url.host, port, happy_eyeballs_delay=_HAPPY_EYEBALLS, **where
                )
        except TimeoutError:
            raise httpx.ConnectTimeout(f"no answer within {patience:g} s", request=request) from None
        except OSError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        return wire

    async def aclose(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


class _Wire(asyncio.Protocol):
    """What comes in goes to h11, and whoever waits for it is woken."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._fault: BaseException | None = None
        self._lost = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether a request may be sent: servers close idle connections, some with a parting word (408)."""
        states = {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}
        if self._lost or self._http.states != states or self._http.trailing_data != (b"", False):
            return False
        unread = select.poll()  # what has come, and the loop has not told us yet
        unread.register(self._transport.get_extra_info("socket"), select.POLLIN)  # type: ignore[union-attr]  # connected
        return not unread.poll(0)

    def send(self, request: httpx.Request) -> None:
        assert self._transport  # noqa: S101  connected
        http = self._http
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        try:
            parts = [http.send(head), http.send(h11.Data(data=request.content)), http.send(h11.EndOfMessage())]
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error), request=request) from error
        self._transport.write(b"".join(part for part in parts if part))

    async def head(self) -> h11.Response:
        """Wait for the status and the headers of the answer."""
        while True:
            event = await self.event()
            if isinstance(event, h11.Response):  # and not one of 1xx, that more will follow
                return event

    async def event(self) -> Any:
        """Wait for the next part of the answer."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                if self._lost:
                    raise httpx.ReadError(str(self._fault or "closed")) from self._fault
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        return event

    def done(self) -> None:
        """Be ready for the next request, or closed if the server wants no other."""
        if self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
        else:
            self.close()

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  of a stream
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._wake()

    def eof_received(self) -> None:
        self._http.receive_data(b"")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost, self._fault = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)


class _Body(httpx.AsyncByteStream):
    """The rest of an answer, as it comes."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._wire.event(), h11.Data):
            yield bytes(event.data)
        self._ended = True
        self._wire.done()

    async def aclose(self) -> None:
        if not self._ended:  # what is still to come would be taken for the answer to the next request
            self._wire.close()
