"""The way to a vendor through its official SDK, as transport and nothing else.

The SDKs' typed calls cost two to three times the CPU of the request itself: they walk every tool
schema and build a model of every answer. So prepared bytes go through the SDK's raw `post`; retries
are ours (`retry.ask`), and what the SDK would say about this machine or pick up from the
environment does not leave it.
"""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from daemon.providers.vendor import (
    CONNECT_TIMEOUT,
    Incoming,
    RawResponse,
    VendorProvider,
    in_thread,
)
from daemon.system.http_body import ACCEPT_ENCODING
from daemon.system.http_client import KEEPALIVE, connection_settings

if TYPE_CHECKING:
    import httpx2


class SdkProvider(VendorProvider):
    """A model behind an SDK, which is imported when it is first needed, in a thread."""

    sdk: ClassVar[str]
    """The SDK's package: `openai` and `anthropic` have the same shape."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._client: Any = None
        """The SDK's client; not typed, as its overloads of `post` know no stream of raw bytes."""
        self._opening = asyncio.Lock()

    async def warm(self) -> None:
        await self._open()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                # 0.3 to 0.7 s of CPU for the import and 20 ms for the certificates: not on the
                # event loop
                self._client = await in_thread(self._build)
            return self._client

    @abstractmethod
    def _build(self) -> Any:
        """Import the SDK and return a client; runs in a thread."""

    def _settings(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments that the clients of both SDKs take; `headers` go with each request
        besides the usual.
        """
        import httpx2

        try:
            httpx2.URL(self.base_url)
        except httpx2.InvalidURL as error:  # a name that cannot be one
            raise ValueError(f"base_url: {error}") from error
        return {
            "api_key": self._api_key or "none",  # the SDK insists on a key; local servers ignore it
            "base_url": self.base_url,
            "max_retries": 0,
            "timeout": httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
            "http_client": self._http_client(headers),
        }

    def _http_client(self, headers: Mapping[str, str]) -> httpx2.AsyncClient:
        """Return a client that sends the headers we want and no others, and bounds the answers."""
        import httpx2

        from daemon.system.http_limit import limit_response

        headers = {
            "Authorization": f"Bearer {self._api_key or 'none'}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": "agentd",
            **headers,
        }

        async def set_headers(request: httpx2.Request) -> None:
            # The SDK's own describe this machine, and hold what OPENAI_CUSTOM_HEADERS,
            # OPENAI_ORG_ID, ANTHROPIC_CUSTOM_HEADERS and others say.
            request.headers = httpx2.Headers(
                {"Host": request.url.netloc.decode("ascii"), **headers}
            )
            if request.content:
                request.headers["Content-Length"] = str(len(request.content))
            if client.cookies:
                client.cookies.set_cookie_header(request)

        async def limit_answer(response: httpx2.Response) -> None:
            limit_response(response, self.max_answer)

        client = httpx2.AsyncClient(
            **connection_settings(self.base_url),
            limits=httpx2.Limits(keepalive_expiry=KEEPALIVE),
            follow_redirects=False,
            event_hooks={"request": [set_headers], "response": [limit_answer]},
        )
        return client

    async def _get(self, path: str) -> RawResponse:
        client = self._client or await self._open()
        response = await self._response(client.get(path, cast_to=_raw_response()))
        return RawResponse(response.status_code, response.headers, response.content)

    async def _post(self, path: str, body: bytes) -> RawResponse:
        client = self._client or await self._open()
        response = await self._response(client.post(path, content=body, cast_to=_raw_response()))
        return RawResponse(response.status_code, response.headers, response.content)

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[Incoming]:
        client = self._client or await self._open()
        response = await self._response(
            client.post(path, content=body, cast_to=_raw_response(), stream=True)
        )
        try:
            yield Incoming(response.status_code, response.headers, self._pieces(response))
        finally:
            await response.aclose()

    async def _pieces(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        import httpx2

        try:
            async for piece in response.aiter_bytes():
                yield piece
        except (httpx2.RequestError, OSError) as error:
            raise self._broken(error) from error

    async def _response(self, request: Any) -> httpx2.Response:
        """Wait for the answer to a request of the SDK, whatever its status; one of an error was
        read to its end.
        """
        sdk = sys.modules[self.sdk]
        try:
            response: httpx2.Response = await request
        except sdk.APIStatusError as error:
            response = error.response
        except (sdk.APIConnectionError, OSError) as error:
            raise self._broken(error) from error
        return response


def _raw_response() -> type:
    """Return what the SDKs call an answer that they leave alone."""
    import httpx2

    return httpx2.Response
