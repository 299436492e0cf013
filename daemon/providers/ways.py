"""Connections to one server: as many as there are requests under way, each for one at a time.

A single httpx 0.28 pool with a hundred connections spends its time asking every one of them whether it is idle
(encode/httpcore, pull request 1035): 21 ms of CPU per run where a connection each takes 1. Here nobody is asked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from daemon.providers.direct import Direct, Form

# Connections that nobody has used for so long are closed; servers drop idle ones on their own before long.
_IDLE = 30.0


def context() -> ssl.SSLContext:
    """Return whom to trust: the certificates that SSL_CERT_FILE or SSL_CERT_DIR name, else those of certifi."""
    import httpx

    return httpx.create_ssl_context()


class Reply(Protocol):
    """An answer whose head is there."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self, limit: int) -> bytes: ...
    def pieces(self, limit: int) -> AsyncGenerator[bytes, None]: ...
    async def aclose(self) -> None: ...


class Way(Protocol):
    """One connection."""

    async def ask(self, form: Form, body: bytes = b"", *, patience: float | None = None) -> Reply: ...
    async def aclose(self) -> None: ...


class Ways:
    """Connections to one host; the last one used is the next one taken.

    `tls` makes what a connection over https needs; it is asked only where there is one.
    """

    def __init__(self, url: str, *, tls: Callable[[], ssl.SSLContext] = context, idle: float = _IDLE) -> None:
        self._patience = idle
        self._proxy = proxy_for(url)
        # loading the certificates takes 20 ms: once for all, and not at all for plain http
        secure = "https" in (urlsplit(url).scheme, urlsplit(self._proxy or "").scheme)
        self._tls = tls() if secure else None
        self._idle = [self._new()]
        self._fewest_idle = 0
        self._reaper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    @property
    def ticking(self) -> bool:
        """Whether a timer is set: not when nothing is idle."""
        return self._reaper is not None

    async def fetch(self, form: Form, body: bytes = b"", *, patience: float, limit: int) -> tuple[Reply, bytes]:
        """Send a request and return its answer, read to its end; at most `limit` bytes.

        Raises what a connection raises, and BodyTooLarge.
        """
        way = self.take()
        try:
            reply = await way.ask(form, body, patience=patience)
            content = await reply.read(limit)
        except BaseException:
            await way.aclose()
            raise
        await self.give_back(way)
        return reply, content

    def one(self) -> Lent:
        """Lend a connection; one on which something went wrong, a cancellation included, is not lent again."""
        return Lent(self)

    def take(self) -> Way:
        """Hand out a connection, to be given back."""
        if not self._idle:
            return self._new()
        way = self._idle.pop()
        if len(self._idle) < self._fewest_idle:
            self._fewest_idle = len(self._idle)
        return way

    async def give_back(self, way: Way) -> None:
        """Take a connection back whose answer was read, or closed."""
        if self._closed:
            await way.aclose()
            return
        self._idle.append(way)
        if self._reaper is None:
            self._fewest_idle = 0
            self._reaper = asyncio.get_running_loop().call_later(self._patience, self._reap)

    def _new(self) -> Way:
        if self._proxy is None:
            return Direct(self._tls)
        from daemon.providers.proxied import Proxied

        return Proxied(self._proxy, self._tls)

    def _reap(self) -> None:
        """Close what has been idle since the last time, and come again only if something is left."""
        self._reaper = None
        unused, self._idle = self._idle[: self._fewest_idle], self._idle[self._fewest_idle :]
        for way in unused:
            task = asyncio.create_task(way.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._fewest_idle = len(self._idle)
        if self._idle:
            self._reaper = asyncio.get_running_loop().call_later(self._patience, self._reap)

    async def close(self) -> None:
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        ways, self._idle = self._idle, []
        for way in ways:
            await way.aclose()


class Lent:
    """A connection for as long as a block takes."""

    # not by `asynccontextmanager`: a generator and its frame take longer than what is done here, with every request

    def __init__(self, ways: Ways) -> None:
        self._ways = ways

    async def __aenter__(self) -> Way:
        self._way = self._ways.take()
        return self._way

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self._ways.give_back(self._way) if kind is None else self._way.aclose())


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for an address, as httpx's client would."""
    # on Linux there is no other place where one may be named, and to read what looks there takes 2 ms of a start
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"
