"""Servers that speak Chat Completions: vLLM, Ollama, LocalAI, llama.cpp, LM Studio, DeepSeek, GLM, Kimi, Qwen.

httpx does the talking, one small transport per request under way. A single httpx 0.28 pool with a hundred connections
spends its time asking every one of them whether it is idle (encode/httpcore, pull request 1035): 21 ms of CPU per run
where a connection each takes 1. Where no proxy stands between, the transport is our own (`direct.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog

from daemon.errors import ProviderError
from daemon.models import LLMResponse
from daemon.providers.vendor import CONNECT_TIMEOUT, Answer, Incoming, VendorProvider, broken, in_thread
from daemon.providers.wire.base import Question
from daemon.providers.wire.chat import CHAT

if TYPE_CHECKING:
    from httpx import URL, AsyncBaseTransport, Request

log = structlog.get_logger()

# Connections that nobody has used for so long are closed; servers drop idle ones on their own before long.
_IDLE = 30.0


class OpenSourceProvider(VendorProvider):
    """Any model behind a server that is compatible with OpenAI's."""

    kind: ClassVar[str] = "open_source"

    def __init__(self, **settings: Any) -> None:
        super().__init__(wire=CHAT, **settings)
        self._ways: Ways | None = None
        self._opening = asyncio.Lock()
        self._is_another = False
        """It was asked, and is no Ollama."""
        self._urls: dict[str, URL] = {}
        """By path: reading an address takes as long as sending a request to it."""

    async def warm(self) -> None:
        await self._open()

    async def close(self) -> None:
        ways, self._ways = self._ways, None
        if ways is not None:
            await ways.close()

    async def _open(self) -> Ways:
        async with self._opening:
            if self._ways is None:
                self._ways = await in_thread(lambda: Ways(self.base_url))
            return self._ways

    async def _get(self, path: str) -> Answer:
        return await self._answer("GET", path)

    async def _post(self, path: str, body: bytes) -> Answer:
        return await self._answer("POST", path, body)

    async def _answer(self, method: str, path: str, body: bytes | None = None, *, root: str | None = None) -> Answer:
        ways = self._ways or await self._open()
        import httpx

        try:
            async with ways.one() as way:
                response = await way.handle_async_request(self._request(method, path, body, root=root))
                content = await response.aread()
        except httpx.RequestError as error:
            raise broken(error, self._vendor) from error
        return Answer(response.status_code, response.headers, content)

    async def _looked_over(self, response: LLMResponse, question: Question) -> LLMResponse:
        """Note that the server has cut the question to what it holds, as Ollama does without a word.

        Its `/v1` takes no size of context, and 4,096 tokens are all it has unless it was started with more; what does
        not fit is dropped from the front (NousResearch/hermes-agent#43900). The count of what it read tells of it, but
        an older one does not count what it still had in its cache: so it is asked how much it holds.
        """
        least = sum(len(message.content) for message in question.messages) // _LETTERS
        if least <= LONG_QUESTION or not 0 < response.usage.input < least or self._is_another:
            return response
        holds = await self._holds()
        begun = any(message.role == "assistant" for message in question.messages)
        if holds is None and (begun or self._is_another):
            return response  # the rest may have come from its cache; and others say it when a question is too long
        if holds is not None and holds >= least:
            return response
        read = f"{response.usage.input:,} of at least {least:,} tokens"
        note = f"{self.name} ({self._model}) cut the question without a word: it read {read}"
        if holds is not None:
            note += f", as it holds {holds:,}"
        note += f"; start Ollama with OLLAMA_CONTEXT_LENGTH={_next_size(least)} or more"
        told = {"provider": self.name, "model": self._model, "read": response.usage.input, "least": least}
        log.warning("provider.context_cut", **told)
        return replace(response, note=note)

    async def _holds(self) -> int | None:
        """Ask Ollama how many tokens this model's context has; None if it does not say, or is another server."""
        root = self.base_url.removesuffix("/v1")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                answer = await self._answer("GET", "/api/ps", root=root)
            loaded = json.loads(answer.content)["models"] if answer.status == 200 else None
            self._is_another = not isinstance(loaded, list)
            names = (self._model, f"{self._model}:latest")
            found = [each.get("context_length") for each in loaded or () if each.get("model") in names]
            return int(found[0]) if found and found[0] else None
        except (ProviderError, TimeoutError, KeyError, TypeError, ValueError, AttributeError):
            self._is_another = True
            return None

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[Incoming]:
        ways = self._ways or await self._open()
        import httpx

        async with ways.one() as way:
            try:
                response = await way.handle_async_request(self._request("POST", path, body))
            except httpx.RequestError as error:
                raise broken(error, self._vendor) from error

            async def pieces() -> AsyncGenerator[bytes, None]:
                try:
                    async for piece in response.aiter_bytes():
                        yield piece
                except httpx.RequestError as error:
                    raise broken(error, self._vendor) from error

            try:
                yield Incoming(response.status_code, response.headers, pieces())
            finally:
                await response.aclose()

    def _request(self, method: str, path: str, body: bytes | None = None, *, root: str | None = None) -> Request:
        import httpx

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "agentd"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        limits = {"timeout": {"connect": CONNECT_TIMEOUT}}
        if path not in self._urls:
            self._urls[path] = httpx.URL((root or self.base_url) + path)
        return httpx.Request(method, self._urls[path], headers=headers, content=body, extensions=limits)


# Shorter questions fit anywhere.
LONG_QUESTION = 1500
# Running text has four or five letters to a token, spaces included; no text worth asking about has more than this.
_LETTERS = 8


def _next_size(tokens: int) -> int:
    """Return a power of two that holds so many tokens, as estimated, and as much again."""
    return 1 << (2 * tokens).bit_length()


class Ways:
    """Transports to one host, each for one request at a time; the last one used is the next one taken."""

    def __init__(self, url: str, *, idle: float = _IDLE) -> None:
        import httpx

        self._patience = idle
        parts = urlsplit(url)
        self._proxy = None if proxy_bypass(parts.hostname or "") else _proxy(parts.scheme)
        # loading the certificates takes 20 ms: once for all, and not at all for plain http
        self._tls = (
            httpx.create_ssl_context() if "https" in (parts.scheme, urlsplit(self._proxy or "").scheme) else False
        )
        self._limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        self._idle = [self._new()]
        self._fewest_idle = 0
        self._reaper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle(self) -> int:
        """How many transports wait for a request."""
        return len(self._idle)

    @property
    def ticking(self) -> bool:
        """Whether a timer is set: not when nothing is idle."""
        return self._reaper is not None

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AsyncBaseTransport]:
        """Lend a transport; one on which something went wrong, a cancellation included, is not lent again."""
        way = self._take()
        sound = False
        try:
            yield way
            sound = not self._closed
        finally:
            if sound:
                self._keep(way)
            else:
                await way.aclose()

    def _take(self) -> AsyncBaseTransport:
        way = self._idle.pop() if self._idle else self._new()
        self._fewest_idle = min(self._fewest_idle, len(self._idle))
        return way

    def _new(self) -> AsyncBaseTransport:
        if self._proxy is None:
            from daemon.providers.direct import DirectTransport

            return DirectTransport(self._tls)
        import httpx

        return httpx.AsyncHTTPTransport(verify=self._tls, limits=self._limits, proxy=self._proxy)

    def _keep(self, way: AsyncBaseTransport) -> None:
        self._idle.append(way)
        if self._reaper is None:
            self._fewest_idle = 0
            self._reaper = asyncio.get_running_loop().call_later(self._patience, self._reap)

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


def _proxy(scheme: str) -> str | None:
    """Return the proxy that the environment names for a scheme, as httpx's client would."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"
