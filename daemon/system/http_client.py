"""How clients of httpx and httpx2 connect: one TLS context for the process, the proxy of the
environment, and a connection for each concurrent request.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

# Seconds that an idle connection is kept. Servers close idle ones on their own before long.
KEEPALIVE = 30.0


@cache
def shared_tls_context() -> ssl.SSLContext:
    """Return the TLS context of every client of this process.

    SSL_CERT_FILE or SSL_CERT_DIR name the authorities to trust. Without them they are those of this
    system and those of certifi, as a slim container has none. To read them takes some 25 ms and 2
    MB: call it in a thread. Raises OSError where SSL_CERT_FILE cannot be read.
    """
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def connection_settings(url: str) -> dict[str, Any]:
    """Return the arguments of `AsyncClient` and `AsyncHTTPTransport` of httpx and httpx2 that say
    how to connect to `url`.

    With these the libraries do not read the environment themselves. They would load the authorities
    again for each client. Where the environment names a proxy that they do not support, they would
    refuse to work at all, even if `no_proxy` excepts this address. Call it in a thread. Raises
    OSError.
    """
    return {"verify": shared_tls_context(), "proxy": proxy_for(url), "trust_env": False}


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for an address, None if there is none."""
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
    except ValueError:  # the client refuses the address
        return None
    # `no_proxy` may name a host, or a host with its port.
    if proxy_bypass(parts.hostname or "") or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class Closable(Protocol):
    """A client or a transport of httpx or httpx2."""

    def aclose(self) -> Awaitable[None]: ...


C = TypeVar("C", bound=Closable)


class ClientPool(Generic[C]):
    """Clients, or transports, for one server: one for each concurrent request.

    httpx and httpx2 check all idle connections of a client when a request begins and when it ends
    (encode/httpcore, pull request 1035). With a hundred concurrent requests on one client that is
    most of their CPU, so each client of a pool has a single connection.
    """

    def __init__(self, build: Callable[[], C], *, keepalive: float = KEEPALIVE) -> None:
        """`build` makes a client; the first is made at once, and raises what is wrong with its
        settings. A client is idle `keepalive` seconds at most.
        """
        self._build, self._keepalive = build, keepalive
        self._idle: list[tuple[C, float]] = [(build(), time.monotonic())]
        """(client, since when it is idle); the client used last is at the end and taken next."""
        self._is_closed = False

    def take(self) -> C:
        """Return a client for one request: an idle one, or a new one."""
        return self._idle.pop()[0] if self._idle else self._build()

    async def give_back(self, client: C) -> None:
        """Keep a client for the next request, and close those that were idle for too long."""
        if self._is_closed:
            await client.aclose()
            return
        now = time.monotonic()
        idle, self._idle = self._idle, []
        expired_clients = []
        for idle_client, idle_since in idle:
            if now - idle_since > self._keepalive:
                expired_clients.append(idle_client)
            else:
                self._idle.append((idle_client, idle_since))
        # The list is complete before the first await, as other requests take from it meanwhile.
        self._idle.append((client, now))
        for expired_client in expired_clients:
            await expired_client.aclose()

    async def close(self) -> None:
        """Close the idle clients now, and each other one when it is given back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for client, _ in idle:
            await client.aclose()


def root_cause(error: BaseException) -> BaseException:
    """Return the exception that an error of a connection began with, usually one of the system."""
    while True:
        if isinstance(error, BaseExceptionGroup):  # one exception for each IP address
            error = error.exceptions[0]
        elif (cause := error.__cause__ or error.__context__) is not None:
            error = cause
        else:
            return error


def describe_connection_error(error: BaseException) -> str:
    """Return why a connection could not be made or broke off, in the words of the system.

    The libraries say "All connection attempts failed" where the system knows more.
    """
    reason = root_cause(error)
    if isinstance(reason, ConnectionRefusedError):
        return f"nothing listens there ({os.strerror(reason.errno or errno.ECONNREFUSED)})"
    if isinstance(reason, socket.gaierror):
        return f"no such host, or no network ({reason.strerror or reason})"
    if isinstance(reason, OSError) and reason.errno and not isinstance(reason, ssl.SSLError):
        return os.strerror(reason.errno)
    return str(reason) or str(error) or type(error).__name__
