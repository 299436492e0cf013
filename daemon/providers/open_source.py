"""Servers that speak Chat Completions: vLLM, Ollama, LocalAI, llama.cpp, LM Studio, DeepSeek, GLM,
Kimi, Qwen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from daemon.errors import ProviderError
from daemon.models import LLMResponse
from daemon.providers.vendor import (
    CONNECT_TIMEOUT,
    Incoming,
    RawResponse,
    VendorProvider,
    in_thread,
)
from daemon.providers.wire.base import ChatRequest
from daemon.providers.wire.chat import CHAT
from daemon.system.http_body import ACCEPT_ENCODING, limited, parse_json, read_limited
from daemon.system.http_client import KEEPALIVE, connection_settings

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()


class OpenSourceProvider(VendorProvider):
    """Any model behind a server that is compatible with OpenAI's."""

    kind: ClassVar[str] = "open_source"

    def __init__(self, **settings: Any) -> None:
        super().__init__(wire=CHAT, **settings)
        self._clients: HttpxClients | None = None
        self._opening = asyncio.Lock()
        self._is_another = False
        """It was asked, and is no Ollama."""

    async def warm(self) -> None:
        await self._open()

    async def close(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()

    async def _open(self) -> HttpxClients:
        async with self._opening:
            if self._clients is None:
                self._clients = await in_thread(
                    lambda: HttpxClients(self.base_url, api_key=self._api_key)
                )
            return self._clients

    async def _get(self, path: str) -> RawResponse:
        return await self._answer("GET", self.base_url + path)

    async def _post(self, path: str, body: bytes) -> RawResponse:
        return await self._answer("POST", self.base_url + path, body)

    async def _answer(self, method: str, url: str, body: bytes | None = None) -> RawResponse:
        async with self._response(method, url, body) as response:
            content = await read_limited(response.aiter_raw(), response.headers, self.max_answer)
            return RawResponse(response.status_code, response.headers, content)

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[Incoming]:
        async with self._response("POST", self.base_url + path, body) as response:
            yield Incoming(response.status_code, response.headers, self._pieces(response))

    async def _pieces(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        import httpx

        try:
            async with aclosing(
                limited(response.aiter_raw(), response.headers, self.max_answer)
            ) as pieces:
                async for piece in pieces:
                    yield piece
        except (httpx.RequestError, OSError) as error:
            raise self._broken(error) from error

    @asynccontextmanager
    async def _response(
        self, method: str, url: str, body: bytes | None
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and hold on to its answer, whose head was read."""
        clients = self._clients or await self._open()
        import httpx

        try:
            async with (
                clients.take() as client,
                client.stream(method, url, content=body) as response,
            ):
                yield response
        except (httpx.RequestError, OSError) as error:
            raise self._broken(error) from error

    def _seems_odd(self, response: LLMResponse, question: ChatRequest) -> bool:
        return 0 < response.usage.input < _least(question) > LONG_QUESTION and not self._is_another

    async def _looked_into(self, response: LLMResponse, question: ChatRequest) -> LLMResponse:
        """Note that the server has cut the question to what it holds, as Ollama does without a
        word.

        Its `/v1` takes no size of context, and 4,096 tokens are all it has unless it was started
        with more; what does not fit is dropped from the front (NousResearch/hermes-agent#43900).
        The count of what it read tells of it, but an older one does not count what it still had in
        its cache: so it is asked how much it holds.
        """
        least, holds = _least(question), await self._holds()
        begun = any(message.role == "assistant" for message in question.messages)
        if holds is None and (begun or self._is_another):
            # the rest may have come from its cache; and others say it when a question is too long
            return response
        if holds is not None and holds >= least:
            return response
        read = f"{response.usage.input:,} of at least {least:,} tokens"
        note = f"{self.name} ({self._model}) cut the question without a word: it read {read}"
        if holds is not None:
            note += f", as it holds {holds:,}"
        note += f"; start Ollama with OLLAMA_CONTEXT_LENGTH={_next_size(least)} or more"
        told = {
            "provider": self.name,
            "model": self._model,
            "read": response.usage.input,
            "least": least,
        }
        log.warning("provider.context_cut", **told)
        return replace(response, note=note)

    async def _holds(self) -> int | None:
        """Ask Ollama how many tokens this model's context has; None if it does not say, or is
        another server.
        """
        root = self.base_url.removesuffix("/v1")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                answer = await self._answer("GET", f"{root}/api/ps")
            loaded = parse_json(answer.content)["models"] if answer.status == 200 else None
            self._is_another = not isinstance(loaded, list)
            names = (self._model, f"{self._model}:latest")
            found = [
                each.get("context_length") for each in loaded or () if each.get("model") in names
            ]
            return int(found[0]) if found and found[0] else None
        except (
            ProviderError,
            TimeoutError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ):
            self._is_another = True
            return None


class HttpxClients:
    """Clients of httpx for one server, as many as there are requests at once.

    A client of httpx 0.28 looks at all of its connections for each request (encode/httpcore, pull
    request 1035): with a hundred at once on a shared one, a request takes 15 ms of CPU.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, keepalive: float = KEEPALIVE
    ) -> None:
        import httpx

        try:
            httpx.URL(url)
        except httpx.InvalidURL as error:  # a name that cannot be one
            raise ValueError(f"base_url: {error}") from error
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": "agentd",
        }
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._settings = connection_settings(url) | {
            "headers": headers,
            "timeout": httpx.Timeout(None, connect=CONNECT_TIMEOUT),
            "limits": httpx.Limits(keepalive_expiry=keepalive),
            "follow_redirects": False,
        }
        self._idle: list[tuple[httpx.AsyncClient, float]] = [
            (httpx.AsyncClient(**self._settings), time.monotonic())
        ]
        """Each with the time since when it is idle; the one used last stands last, and is the next
        one taken.
        """
        self._keepalive, self._is_closed = keepalive, False

    @asynccontextmanager
    async def take(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client for one request; one on which something went wrong, a cancellation
        included, is closed.
        """
        import httpx

        client = self._idle.pop()[0] if self._idle else httpx.AsyncClient(**self._settings)
        try:
            yield client
        except BaseException:
            await client.aclose()
            raise
        if self._is_closed:
            await client.aclose()
            return
        now = time.monotonic()
        stale = [each for each, since in self._idle if now - since > self._keepalive]
        # the list is whole again before the first await, as other requests take from it meanwhile
        self._idle = [(each, since) for each, since in self._idle if now - since <= self._keepalive]
        self._idle.append((client, now))
        for unused in stale:
            await unused.aclose()

    async def close(self) -> None:
        """Close what is idle now, and what is under way when it is done."""
        self._is_closed = True
        clients, self._idle = self._idle, []
        for client, _ in clients:
            await client.aclose()


# Shorter questions fit anywhere.
LONG_QUESTION = 1500
# Running text has four or five letters to a token, spaces included; no text worth asking about has
# more than this.
_LETTERS = 8


def _least(question: ChatRequest) -> int:
    """Return how many tokens a question has at the least."""
    return sum([len(message.content) for message in question.messages]) // _LETTERS


def _next_size(tokens: int) -> int:
    """Return a power of two that holds so many tokens, as estimated, and as much again."""
    return 1 << (2 * tokens).bit_length()
