"""What the SDKs' clients send their requests over: connections of our own, below their httpx2.

The SDK says what a request looks like and reads the status; what it costs to get the bytes there and back is a fourth
of what httpx2's own connections take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import httpx2

from daemon.providers.direct import Address, BrokenOff, Reply, Unreachable
from daemon.providers.ways import Way, Ways, proxy_for

_OURS = (b"host", b"content-length")
_OF_ONE = (b"content-length", b"cookie")


def client_to(url: str, *, usual: Callable[..., httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """Return what an SDK is to send its requests with; the `usual` where a proxy stands between, which httpx2 knows."""
    return usual(follow_redirects=False) if proxy_for(url) else _Client(url)


class _Form(NamedTuple):
    """All of the requests to one path but their bodies."""

    options: Any
    """What the SDK makes of the arguments of a call."""
    method: str
    url: httpx2.URL
    headers: httpx2.Headers
    extensions: dict[str, Any]


class OnlyBodiesDiffer:
    """Stands before an SDK's client whose requests differ in their bodies only: all else is worked out once for a path.

    For each of them the SDK makes a pydantic model of its options, takes two addresses apart and merges four tables of
    headers: twice what it takes to send it and to read the answer.
    """

    _client: httpx2.AsyncClient

    def __init__(self, **settings: Any) -> None:
        self._forms: dict[str, _Form] = {}
        super().__init__(**settings)

    async def post_bytes(self, path: str, body: bytes, *, stream: bool = False) -> httpx2.Response:
        """Send a body, and return the answer as it is; raises what the SDK raises."""
        sdk: Any = super()
        form = self._forms.get(path)
        if form is None:
            asked = sdk.post(path, cast_to=httpx2.Response, content=body, stream=stream)
        else:
            options = form.options.model_copy(update={"content": body})
            asked = sdk.request(httpx2.Response, options, stream=stream)
        answer: httpx2.Response = await asked
        return answer

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        if options.content is None or options.url not in self._forms:
            sdk: Any = super()
            request: httpx2.Request = sdk._build_request(options, retries_taken=retries_taken)
            if options.content is not None:
                self._forms[options.url] = _form(options, request)
            return request
        _, method, url, headers, extensions = self._forms[options.url]
        cookies = self._client.cookies
        return httpx2.Request(
            method, url, headers=headers, cookies=cookies, content=options.content, extensions=extensions
        )


def _form(options: Any, request: httpx2.Request) -> _Form:
    options = options.model_copy(update={"content": None, "idempotency_key": None})
    headers = httpx2.Headers([field for field in request.headers.raw if field[0].lower() not in _OF_ONE])
    return _Form(options, request.method, request.url, headers, request.extensions)


class _Client(httpx2.AsyncClient):
    """A client without redirects, proxies and ways to sign in: its requests go straight to the server."""

    def __init__(self, url: str) -> None:
        self._straight = _Transport(Ways(url, tls=httpx2.create_ssl_context))
        super().__init__(transport=self._straight, follow_redirects=False)

    async def send(self, request: httpx2.Request, *, stream: bool = False, **settings: Any) -> httpx2.Response:
        if settings or self.is_closed:
            return await super().send(request, stream=stream, **settings)
        response = await self._straight.handle_async_request(request)
        if "set-cookie" in response.headers:
            self.cookies.extract_cookies(response)
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
