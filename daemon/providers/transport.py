"""What the SDKs' clients send their requests over: connections of our own, below their httpx2.

The SDK says what a request looks like: it builds the first one to each path, and signs it. Those that follow differ in
nothing but their bodies and go out as that one did; what it costs to get them there and back is a tenth of what the SDK
and httpx2 take for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import httpx2

from daemon.http_body import ACCEPT_ENCODING, limited
from daemon.providers.direct import Address, BrokenOff, Form, Reply, Unreachable, form_of
from daemon.providers.vendor import Answer
from daemon.providers.ways import Way, Ways, proxy_for

_OURS = (b"host", b"content-length")
_OF_ONE = (b"content-length", b"cookie")


def client_to(url: str, *, limit: int, usual: Callable[..., httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """Return what an SDK is to send its requests with; the `usual` where a proxy stands between, which httpx2 knows.

    Of a body at most `limit` bytes are read; more is a BodyTooLarge.
    """
    if not proxy_for(url):
        return _Client(url, limit)

    async def limit_answer(response: httpx2.Response) -> None:
        limit_body(response, limit)

    return usual(
        follow_redirects=False,
        headers={"Accept-Encoding": ACCEPT_ENCODING},
        event_hooks={"response": [limit_answer]},
    )


def limit_body(response: httpx2.Response, limit: int) -> None:
    """Let at most `limit` bytes of an answer's body be read, packed or unpacked, by whatever reads it then.

    SDKs read the bodies of errors themselves; so the limit belongs to the body and not to its reader.
    """
    response.stream = _LimitedStream(response, limit)
    # it comes unpacked from there
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, limit: int) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  of an asynchronous client
        self._raw, self._headers, self._limit = response.stream, response.headers.copy(), limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(limited(self._raw, self._headers, self._limit)) as pieces:
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        await self._raw.aclose()


class _Pattern(NamedTuple):
    """All of the requests to one path but their bodies."""

    options: Any
    """What the SDK makes of the arguments of a call."""
    method: str
    url: httpx2.URL
    headers: httpx2.Headers
    extensions: dict[str, Any]
    form: Form
    """The same as we send it."""


class OnlyBodiesDiffer:
    """Stands before an SDK's client whose requests differ in their bodies only: all else is worked out once for a path.

    For each of them the SDK makes a pydantic model of its options, takes two addresses apart and merges four tables of
    headers: twice what it takes to send it and to read the answer.
    """

    _client: httpx2.AsyncClient

    def __init__(self, **settings: Any) -> None:
        self._patterns: dict[str, _Pattern] = {}
        super().__init__(**settings)

    async def post_bytes(self, path: str, body: bytes) -> Answer:
        """Send a body and return what came back; raises what the SDK raises, and OSError."""
        pattern, client = self._patterns.get(path), self._client
        if pattern is not None and isinstance(client, _Client):
            return await client.post_another(pattern, body)
        response = await self._by_sdk(path, body, stream=False)
        return Answer(response.status_code, response.headers, response.content)

    async def stream_bytes(self, path: str, body: bytes) -> httpx2.Response:
        """Send a body and return what is coming back, its head read; raises what the SDK raises."""
        return await self._by_sdk(path, body, stream=True)

    async def _by_sdk(self, path: str, body: bytes, *, stream: bool) -> httpx2.Response:
        sdk: Any = super()
        pattern = self._patterns.get(path)
        if pattern is None:
            asked = sdk.post(path, cast_to=httpx2.Response, content=body, stream=stream)
        else:
            options = pattern.options.model_copy(update={"content": body})
            asked = sdk.request(httpx2.Response, options, stream=stream)
        answer: httpx2.Response = await asked
        return answer

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        if options.content is None or options.url not in self._patterns:
            sdk: Any = super()
            request: httpx2.Request = sdk._build_request(options, retries_taken=retries_taken)
            if options.content is not None:
                self._patterns[options.url] = _pattern(options, request)
            return request
        like = self._patterns[options.url]
        cookies, extensions = self._client.cookies, like.extensions
        return httpx2.Request(
            like.method, like.url, headers=like.headers, cookies=cookies, content=options.content, extensions=extensions
        )


def _pattern(options: Any, request: httpx2.Request) -> _Pattern:
    options = options.model_copy(update={"content": None, "idempotency_key": None})
    headers = httpx2.Headers([field for field in request.headers.raw if field[0].lower() not in _OF_ONE])
    form = form_of(request.method, _address(request), _fields(headers))
    return _Pattern(options, request.method, request.url, headers, request.extensions, form)


def _address(request: httpx2.Request) -> Address:
    url = request.url
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    return Address(secure, url.host, port, url.raw_path, request.headers["host"].encode())


def _fields(headers: httpx2.Headers) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers.raw if name.lower() not in _OURS]


class _Client(httpx2.AsyncClient):
    """A client without redirects, proxies and ways to sign in: its requests go straight to the server."""

    def __init__(self, url: str, limit: int) -> None:
        self._limit = limit
        self._ways = Ways(url, tls=httpx2.create_ssl_context)
        self._straight = _Transport(self._ways)
        self._has_cookies = False
        super().__init__(transport=self._straight, follow_redirects=False, headers={"Accept-Encoding": ACCEPT_ENCODING})

    async def post_another(self, pattern: _Pattern, body: bytes) -> Answer:
        """Send a request like an earlier one; raises OSError."""
        form, patience = pattern.form, pattern.extensions["timeout"]["connect"]
        if self._has_cookies:
            request = httpx2.Request(form.method, pattern.url, cookies=self.cookies)
            own = (field for field in request.headers.raw if field[0].lower() == b"cookie")
            form = form_of(form.method, form.address, [*form.fields, *own])
        reply, content = await self._ways.fetch(form, body, patience=patience, limit=self._limit)
        if "set-cookie" in reply.headers:
            assert isinstance(reply, Reply)  # noqa: S101  there is no proxy
            request = httpx2.Request(form.method, pattern.url)
            self._keep_cookies(httpx2.Response(reply.status, headers=reply.answer.fields, request=request))
        return Answer(reply.status, reply.headers, content)

    def _keep_cookies(self, response: httpx2.Response) -> None:
        self.cookies.extract_cookies(response)
        self._has_cookies = True

    async def send(self, request: httpx2.Request, *, stream: bool = False, **settings: Any) -> httpx2.Response:
        if settings or self.is_closed:
            return await super().send(request, stream=stream, **settings)
        response = await self._straight.handle_async_request(request)
        limit_body(response, self._limit)
        if "set-cookie" in response.headers:
            self._keep_cookies(response)
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, ways: Ways) -> None:
        self._ways = ways

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        form = form_of(request.method, _address(request), _fields(request.headers))
        body, way = await request.aread(), self._ways.take()
        try:
            reply = await way.ask(form, body, patience=request.extensions["timeout"]["connect"])
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
