"""Send one request to a server, without following a redirect.

The server's name is looked up once, each of its addresses is checked, and the connection is made to
one of these addresses, while the Host header and the certificate go by the name. So a name server
gains nothing by answering a later lookup with another address (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeAlias

import httpcore

from daemon.errors import ToolFailed
from daemon.policy.web import Target
from daemon.system.http_body import begins_part
from daemon.system.http_client import describe_connection_error
from daemon.tools.builtin.http_request.addresses import Address, Network, explain_refusal

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
_CONNECT_TIMEOUT = 10.0  # seconds for one address
_MAX_ADDRESSES = 4  # a name with more is tried no further
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpResponse:
    """What a server said."""

    status: int
    phrase: str
    headers: dict[str, str]
    """By names in lower case; of several of one name the first."""
    body: bytes
    """Decoded, and no longer than was asked for."""
    is_cut: bool


async def resolve_host(host: str, port: int) -> Sequence[Address]:
    """Ask the system for the addresses of a name, once."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(answer[4][0]) for answer in answers))


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to none but addresses that a request may go to."""

    def __init__(self, networks: Sequence[Network], resolve: Resolve) -> None:
        self._networks, self._resolve = networks, resolve
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            transient = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
            raise ToolFailed(
                f"{host} was not found: {error.strerror or error}", transient=transient
            ) from None
        for address in addresses:
            if reason := explain_refusal(address, self._networks):
                raise ToolFailed(
                    f"{host} is at {address}, {reason}; not asked, unless a rule's `networks` "
                    "names it"
                )
        last_error: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(
                    str(address), port, _CONNECT_TIMEOUT, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last_error = error
        raise last_error


async def send_request(
    target: Target,
    *,
    headers: dict[str, str],
    body: bytes | None,
    max_bytes: int,
    networks: Sequence[Network],
    resolve: Resolve,
    tls: ssl.SSLContext,
) -> HttpResponse:
    """Send one request; ToolFailed if there is no answer. Of the body `max_bytes` bytes are
    read.
    """
    pool = httpcore.AsyncConnectionPool(
        ssl_context=tls,
        network_backend=_CheckedBackend(networks, resolve),
        max_keepalive_connections=0,
    )
    # composed here: httpcore leaves out what follows a `;` in a path, and the brackets of `[::1]`
    url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    authority = target.origin.removeprefix(f"{target.scheme}://")
    raw_headers = [
        (name.encode(), value.encode("latin-1", "replace"))
        for name, value in ({"host": authority} | headers).items()
    ]
    if body is None and target.method in _METHODS_WITH_BODY:
        body = b""  # some servers refuse such a request without a length
    try:
        async with (
            pool,
            pool.stream(target.method, url, headers=raw_headers, content=body) as response,
        ):
            response_headers: dict[str, str] = {}
            for name, value in response.headers:
                response_headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
            data, is_cut = await _read_body(
                response.aiter_stream(), response_headers.get("content-encoding", ""), max_bytes
            )
            phrase = response.extensions.get("reason_phrase", b"").decode("latin-1")
            return HttpResponse(
                status=response.status,
                phrase=phrase,
                headers=response_headers,
                body=data,
                is_cut=is_cut,
            )
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        problem = describe_connection_error(error)
        raise ToolFailed(f"{target.origin} gave no answer: {problem}", transient=True) from None
    except zlib.error as error:
        raise ToolFailed(f"{target.origin} sent what cannot be unpacked: {error}") from None


async def _read_body(
    stream: AsyncIterator[bytes], encoding: str, max_bytes: int
) -> tuple[bytes, bool]:
    """Return the beginning of a body, unpacked, and whether there is more of it.

    Unpacked bit by bit: a small answer can hold more than the memory. Raises ToolFailed for a
    packed body that ends in its middle.
    """
    encoding = encoding.lower()
    decompressor = (
        zlib.decompressobj(zlib.MAX_WBITS | 32)
        if encoding in ("gzip", "x-gzip", "deflate")
        else None
    )
    if decompressor is None and encoding not in ("", "identity"):
        raise ToolFailed(f"the answer is packed as {encoding!r:.40}, which was not asked for")
    data = b""
    async for chunk in stream:
        while chunk and len(data) <= max_bytes:
            if decompressor is None:
                data, chunk = data + chunk, b""
                continue
            if decompressor.eof:
                if not begins_part(chunk):
                    break
                decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)
            data += decompressor.decompress(chunk, max_bytes + 1 - len(data))
            chunk = decompressor.unused_data
        if len(data) > max_bytes:
            return data[:max_bytes], True
    if decompressor is not None and data and not decompressor.eof:
        raise ToolFailed("the answer broke off in the middle of its packed body", transient=True)
    return data, False
