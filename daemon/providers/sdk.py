"""Send requests through a vendor's official SDK, which is used as transport only.

The SDKs' typed calls cost two to three times the CPU of the request itself: they walk every tool
schema and build a pydantic model of every answer. So prepared bytes go through the SDK's `post`.
Retries are ours (`retry.ask`). The headers with which an SDK describes this machine, or which it
takes from the environment, are not sent.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from daemon.providers.vendor import (
    CONNECT_TIMEOUT,
    RawResponse,
    StreamedResponse,
    VendorProvider,
    build_in_thread,
)
from daemon.system.http_body import ACCEPT_ENCODING
from daemon.system.http_client import KEEPALIVE, ClientPool, connection_settings

if TYPE_CHECKING:
    import httpx2


class SdkProvider(VendorProvider):
    """A model behind an SDK, which is imported in a thread at the first call."""

    sdk: ClassVar[str]
    """The SDK's package: `openai` or `anthropic`, whose clients are alike."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._client: Any = None
        """The SDK's client. Not typed, as the overloads of its `post` have no stream of bytes."""
        self._open_lock = asyncio.Lock()

    async def load(self) -> None:
        await self._open_client()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open_client(self) -> Any:
        async with self._open_lock:
            if self._client is None:
                # The import takes 0.3 to 0.7 s of CPU, certificates take 20 ms: too long for the
                # event loop.
                self._client = await build_in_thread(self._build_client)
            return self._client

    @abstractmethod
    def _build_client(self) -> Any:
        """Import the SDK and return a client; runs in a thread."""

    def _client_settings(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments for the client of either SDK; `headers` are sent with each request
        besides the usual ones.
        """
        import httpx2

        try:
            httpx2.URL(self.base_url)
        except httpx2.InvalidURL as error:  # such as an impossible host name
            raise ValueError(f"base_url: {error}") from error
        return {
            "api_key": self._api_key or "none",  # the SDK demands one; local servers ignore it
            "base_url": self.base_url,
            "max_retries": 0,
            "timeout": httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            "http_client": self._http_client(headers),
        }

    def _http_client(self, headers: Mapping[str, str]) -> httpx2.AsyncClient:
        """Return a client that sends our headers only, and limits the size of answers."""
        import httpx2

        from daemon.system.httpx2_transports import LimitedTransport, PooledTransport

        headers = {
            "Authorization": f"Bearer {self._api_key or 'none'}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": "agentd",
            **headers,
        }

        async def set_headers(request: httpx2.Request) -> None:
            # The SDK's own headers describe this machine, and contain the values of
            # OPENAI_CUSTOM_HEADERS, OPENAI_ORG_ID, ANTHROPIC_CUSTOM_HEADERS and others.
            request.headers = httpx2.Headers(
                {"Host": request.url.netloc.decode("ascii"), **headers}
            )
            if request.content:
                request.headers["Content-Length"] = str(len(request.content))
            if client.cookies:
                client.cookies.set_cookie_header(request)

        settings = connection_settings(self.base_url) | {
            "limits": httpx2.Limits(keepalive_expiry=KEEPALIVE)
        }
        pool = ClientPool(lambda: httpx2.AsyncHTTPTransport(**settings))
        client = httpx2.AsyncClient(
            transport=LimitedTransport(PooledTransport(pool), self.max_answer),
            trust_env=False,
            follow_redirects=False,
            event_hooks={"request": [set_headers]},
        )
        return client

    async def _get(self, path: str) -> RawResponse:
        client = self._client or await self._open_client()
        response = await self._response(client.get(path, cast_to=_raw_response()))
        return RawResponse(response.status_code, response.headers, response.content)

    async def _post(self, path: str, body: bytes) -> RawResponse:
        client = self._client or await self._open_client()
        response = await self._response(client.post(path, content=body, cast_to=_raw_response()))
        return RawResponse(response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[StreamedResponse]:
        client = self._client or await self._open_client()
        response = await self._response(
            client.post(path, content=body, cast_to=_raw_response(), stream=True)
        )
        try:
            yield StreamedResponse(response.status_code, response.headers, self._chunks(response))
        finally:
            await response.aclose()

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except (httpx2.RequestError, OSError) as error:
            raise self._connection_error(error) from error

    async def _response(self, request: Any) -> httpx2.Response:
        """Await a request of the SDK and return its response, also one with the status of an error,
        whose body was read.
        """
        sdk = import_module(self.sdk)  # it is imported already, by the client
        try:
            response: httpx2.Response = await request
        except sdk.APIStatusError as error:
            response = error.response
        except (sdk.APIConnectionError, OSError) as error:
            raise self._connection_error(error) from error
        return response


def _raw_response() -> type:
    """Return the type with which the SDKs leave a response as it is."""
    import httpx2

    return httpx2.Response
