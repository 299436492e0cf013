"""A connection to a server, with nothing but asyncio between: for open servers, and below the SDKs.

The usual way there (httpx on httpcore on anyio) yields to the event loop some twenty times and looks up what kind of
loop it is for each request: two requests take 0.9 ms of CPU by it, 0.15 by this one. It keeps no pool (`ways.py` does)
and knows no proxy.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from daemon.http_body import limited, read_limited
from daemon.providers.http1 import Answer, Malformed

# Like httpx and browsers: where a name has several addresses, the next one is tried beside a silent one.
_HAPPY_EYEBALLS = 0.25
# What stands in an address as it is; everything else is encoded.
_SAFE = "!#$%&'()*+,/:;=?@[]~"
# Bytes of a body that may wait for whoever reads it; then the server has to wait.
_MOST_UNTAKEN = 256 * 1024


class Unreachable(OSError):
    """There is no connection: nothing was said."""


class BrokenOff(OSError):
    """The connection ended before the answer, or what came is no answer."""


class Address(NamedTuple):
    """Where a request goes."""

    secure: bool
    host: str
    port: int
    target: bytes
    """What is asked for there: the path and what follows it."""
    name: bytes
    """The server as the request names it."""


def address_of(url: str) -> Address:
    """Read an address; ValueError."""
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    usual = 443 if secure else 80
    port = parts.port or usual
    named = f"[{host}]" if ":" in host else host.encode("idna").decode()
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    name = named if port == usual else f"{named}:{port}"
    return Address(secure, host, port, target.encode(), name.encode())


class Form(NamedTuple):
    """All of a request but its body: those that a provider sends to one path differ in nothing else."""

    method: str
    address: Address
    fields: Sequence[tuple[bytes, bytes]]
    """The headers besides Host and Content-Length."""
    head: bytes
    """The same as it travels, up to the length of the body."""


def form_of(method: str, address: Address, fields: Sequence[tuple[bytes, bytes]] = ()) -> Form:
    """Write down once what requests have in common; the headers are those besides Host and Content-Length."""
    lines = [b"%s %s HTTP/1.1\r\nHost: %s\r\n" % (method.encode(), address.target, address.name)]
    lines += [b"%s: %s\r\n" % field for field in fields]
    return Form(method, address, fields, b"".join(lines))


class Reply:
    """An answer whose head is there, and whose body may still be coming."""

    def __init__(self, wire: _Wire) -> None:
        self._wire, self.answer = wire, wire.answer
        self.status, self.headers = self.answer.status, self.answer.headers

    async def read(self, limit: int) -> bytes:
        """Wait for all of the body, and be done with it; raises BrokenOff, and what `http_body.limited` raises."""
        body = await read_limited(self.raw(), self.headers, limit)
        if not self.answer.reusable:
            self._wire.close()
        return body

    def pieces(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; raises BrokenOff, and what `http_body.limited` raises."""
        return limited(self.raw(), self.headers, limit)

    async def raw(self) -> AsyncIterator[bytes]:
        """Yield the body as it came; raises BrokenOff."""
        while True:
            if piece := self.answer.take():
                yield piece
            elif self.answer.complete:
                return
            else:
                await self._wire.more()

    async def aclose(self) -> None:
        """Be done with it: what is still to come would be taken for the answer to the next request."""
        if not self.answer.reusable:
            self._wire.close()


class Direct:
    """One connection, for one request at a time; a broken or closed one is replaced with the next request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._wire: _Wire | None = None
        self._to: tuple[bool, str, int] | None = None

    async def ask(self, form: Form, body: bytes = b"", *, patience: float | None = None) -> Reply:
        """Send a request and wait for the head of its answer.

        Raises Unreachable if there is no connection within `patience` seconds, BrokenOff if there is one and no answer.
        """
        wire, to = self._wire, form.address[:3]
        if wire is None or self._to != to or not wire.idle:
            await self.aclose()
            wire = self._wire = await self._connected(form.address, patience)
            self._to = to
        length = b"Content-Length: %d\r\n\r\n" % len(body) if body else b"\r\n"
        wire.send(b"".join((form.head, length, body)))
        while not wire.answer.head:
            await wire.more()
        return Reply(wire)

    async def _connected(self, address: Address, patience: float | None) -> _Wire:
        secure: dict[str, Any] = {"ssl": self._tls or True, "server_hostname": address.host} if address.secure else {}
        try:
            async with asyncio.timeout(patience):
                _, wire = await asyncio.get_running_loop().create_connection(
                    _Wire, address.host, address.port, happy_eyeballs_delay=_HAPPY_EYEBALLS, **secure
                )
        except TimeoutError:
            raise Unreachable(f"no answer within {patience:g} s") from None
        except OSError as error:
            raise Unreachable(str(error)) from error
        return wire

    async def aclose(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


class _Wire(asyncio.Protocol):
    """What comes in goes to the answer under way, and whoever waits for it is woken."""

    def __init__(self) -> None:
        self.answer = Answer()
        self._transport: asyncio.Transport | None = None
        self._unread = select.poll()
        self._fresh, self._lost, self._paused = True, False, False
        self._fault: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether a request may be sent: servers close idle connections, some with a parting word (408)."""
        if self._lost or not (self._fresh or self.answer.reusable):
            return False
        return not self._unread.poll(0)  # of what has come the loop may not have told us yet

    def send(self, request: bytes) -> None:
        assert self._transport  # noqa: S101  connected
        self.answer, self._fresh = Answer(), False
        self._resume()
        self._transport.write(request)

    async def more(self) -> None:
        """Wait until more of the answer has come, or its end; raises BrokenOff."""
        if self._fault is not None:
            raise BrokenOff(str(self._fault) or type(self._fault).__name__) from self._fault
        self._resume()
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    def _resume(self) -> None:
        if self._paused and self._transport:
            self._paused = False
            self._transport.resume_reading()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  of a stream
        self._transport = transport
        self._unread.register(transport.get_extra_info("socket"), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        try:
            self.answer.feed(data)
        except Malformed as error:
            self._fault = error
            self.close()
        if self.answer.untaken > _MOST_UNTAKEN and self._transport and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        try:
            if exc is None:
                self.answer.end()
        except Malformed as error:
            exc = error
        self._fault = self._fault or exc or ConnectionResetError("closed")
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)
