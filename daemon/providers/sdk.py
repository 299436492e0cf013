"""The way to a vendor through its official SDK, as transport and nothing else.

The SDKs' typed calls cost two to three times the CPU of the request itself: they walk every tool schema and build a
model of every answer. So prepared bytes go through the SDK's raw client, which says where to, with which headers and
signed how (`transport.py`); retries are ours (`retry.ask`), and what the SDK would pick up from the environment is
disarmed.
"""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from daemon.providers.vendor import Answer, Incoming, VendorProvider, in_thread


class SdkProvider(VendorProvider):
    """A model behind an SDK, which is imported when it is first needed, in a thread."""

    sdk: ClassVar[str]
    """The SDK's package: `openai` and `anthropic` have the same shape."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def warm(self) -> None:
        await self._open()

    async def close(self) -> None:
        await super().close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                # 0.3 to 0.7 s of CPU for the import and 20 ms for the certificates: not on the event loop
                self._client = await in_thread(self._build)
            return self._client

    @abstractmethod
    def _build(self) -> Any:
        """Import the SDK and return a client; runs in a thread."""

    async def _get(self, path: str) -> Answer:
        client = self._client or await self._open()

        async def get() -> Answer:
            response = await client.get(path, cast_to=_response())
            return Answer(response.status_code, response.headers, response.content)

        return await self._answered(get())

    async def _post(self, path: str, body: bytes) -> Answer:
        client = self._client or await self._open()
        return await self._answered(client.post_bytes(path, body))

    async def _answered(self, asked: Awaitable[Answer]) -> Answer:
        sdk = sys.modules[self.sdk]
        try:
            return await asked
        except sdk.APIStatusError as error:
            return Answer(error.response.status_code, error.response.headers, error.response.content)
        except (sdk.APIConnectionError, OSError) as error:
            raise self._broken(error) from error

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[Incoming]:
        client = self._client or await self._open()
        import httpx2

        sdk = sys.modules[self.sdk]
        try:
            response = await client.stream_bytes(path, body)
        except sdk.APIStatusError as error:
            response = error.response  # read to its end
        except (sdk.APIConnectionError, OSError) as error:
            raise self._broken(error) from error

        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                async for piece in response.aiter_bytes():
                    yield piece
            except (httpx2.RequestError, OSError) as error:
                raise self._broken(error) from error

        try:
            yield Incoming(response.status_code, response.headers, pieces())
        finally:
            await response.aclose()


def _response() -> type:
    """Return what the SDKs call an answer that they leave alone."""
    import httpx2

    return httpx2.Response
