"""Servers with the Chat Completions API: vLLM, Ollama, LocalAI, llama.cpp, LM Studio, DeepSeek,
GLM, Kimi, Qwen. Requests are sent with httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from daemon.errors import ProviderError
from daemon.models import LLMResponse
from daemon.providers.vendor import (
    CONNECT_TIMEOUT,
    RawResponse,
    StreamedResponse,
    VendorProvider,
    build_in_thread,
)
from daemon.providers.wire.base import ChatRequest
from daemon.providers.wire.chat import CHAT
from daemon.system.http_body import ACCEPT_ENCODING, limit_body, parse_json, read_limited
from daemon.system.http_client import KEEPALIVE, ClientPool, connection_settings

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()

# Tokens. A shorter prompt fits into any context.
LONG_PROMPT = 1500
# Prose has four or five characters per token, spaces included; no other text has more than this.
MAX_CHARACTERS_PER_TOKEN = 8


class OpenSourceProvider(VendorProvider):
    """A model of any server that is compatible with OpenAI's Chat Completions."""

    kind: ClassVar[str] = "open_source"

    def __init__(self, **settings: Any) -> None:
        super().__init__(wire=CHAT, **settings)
        self._clients: ClientPool[httpx.AsyncClient] | None = None
        self._open_lock = asyncio.Lock()
        self._is_ollama: bool | None = None
        """Whether the server is Ollama; None until it has said so or not."""

    async def load(self) -> None:
        await self._open_clients()

    async def close(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()

    async def _open_clients(self) -> ClientPool[httpx.AsyncClient]:
        async with self._open_lock:
            if self._clients is None:
                self._clients = await build_in_thread(self._build_clients)
            return self._clients

    def _build_clients(self) -> ClientPool[httpx.AsyncClient]:
        """Import httpx, read the certificates, and return the clients; runs in a thread."""
        import httpx

        try:
            httpx.URL(self.base_url)
        except httpx.InvalidURL as error:  # such as an impossible host name
            raise ValueError(f"base_url: {error}") from error
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": ACCEPT_ENCODING,
            "User-Agent": "agentd",
        }
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        settings = connection_settings(self.base_url) | {
            "headers": headers,
            "timeout": httpx.Timeout(None, connect=CONNECT_TIMEOUT),
            "limits": httpx.Limits(keepalive_expiry=KEEPALIVE),
            "follow_redirects": False,
        }
        return ClientPool(lambda: httpx.AsyncClient(**settings))

    async def _get(self, path: str) -> RawResponse:
        return await self._request("GET", self.base_url + path)

    async def _post(self, path: str, body: bytes) -> RawResponse:
        return await self._request("POST", self.base_url + path, body)

    async def _request(self, method: str, url: str, body: bytes | None = None) -> RawResponse:
        async with self._response(method, url, body) as response:
            content = await read_limited(response.aiter_raw(), response.headers, self.max_answer)
            return RawResponse(response.status_code, response.headers, content)

    @asynccontextmanager
    async def _stream(self, path: str, body: bytes) -> AsyncIterator[StreamedResponse]:
        async with self._response("POST", self.base_url + path, body) as response:
            yield StreamedResponse(response.status_code, response.headers, self._chunks(response))

    async def _chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        import httpx

        try:
            async with aclosing(
                limit_body(response.aiter_raw(), response.headers, self.max_answer)
            ) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (httpx.RequestError, OSError) as error:
            raise self._connection_error(error) from error

    @asynccontextmanager
    async def _response(
        self, method: str, url: str, body: bytes | None
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and yield its response before its body is read."""
        clients = self._clients or await self._open_clients()
        import httpx

        client = clients.take()
        try:
            async with client.stream(method, url, content=body) as response:
                yield response
        except BaseException as error:
            await client.aclose()
            if isinstance(error, (httpx.RequestError, OSError)):
                raise self._connection_error(error) from error
            raise
        await clients.give_back(client)

    async def _note_cut_prompt(self, response: LLMResponse, request: ChatRequest) -> LLMResponse:
        """Add a note if the server has cut the prompt to its context, which Ollama does silently.

        Ollama's `/v1` has no parameter for the size of the context. That is 4,096 tokens unless the
        server was started with more, and what does not fit is dropped from the front
        (NousResearch/hermes-agent#43900). The count of input tokens in the answer reveals it: it is
        lower than the prompt can have. But older versions leave cached tokens out of the count, so
        the server is asked for its context as well.
        """
        tokens_read = response.usage.input
        min_tokens = sum(len(message.content) for message in request.messages) // (
            MAX_CHARACTERS_PER_TOKEN
        )
        # A count of 0: the server does not count. A short prompt fits into any context.
        if not 0 < tokens_read < min_tokens or min_tokens <= LONG_PROMPT:
            return response
        if self._is_ollama is False:  # other servers report a prompt that is too long
            return response
        context = await self._ask_context()
        if context is not None and context >= min_tokens:
            return response  # all of it did fit: the missing tokens were cached
        if context is None:
            has_answer = any(message.role == "assistant" for message in request.messages)
            if has_answer or not self._is_ollama:  # a prompt that grows is cached
                return response
        note = (
            f"{self.name} ({self._model}) cut the question without a word: it read "
            f"{tokens_read:,} of at least {min_tokens:,} tokens"
        )
        if context is not None:
            note += f", as it holds {context:,}"
        # A power of two that is at least twice the tokens of the prompt.
        suggestion = 1 << (2 * min_tokens).bit_length()
        note += f"; start Ollama with OLLAMA_CONTEXT_LENGTH={suggestion} or more"
        log.warning(
            "provider.context_cut",
            provider=self.name,
            model=self._model,
            read=tokens_read,
            least=min_tokens,
        )
        return replace(response, note=note)

    async def _ask_context(self) -> int | None:
        """Ask Ollama how many tokens the context of this model has.

        Returns None if the model is not loaded, if the server is not Ollama, or if it does not
        answer now. `_is_ollama` says which, and stays as it was without an answer.
        """
        root = self.base_url.removesuffix("/v1")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                answer = await self._request("GET", f"{root}/api/ps")
        except (ProviderError, TimeoutError):
            return None
        if answer.status == 429 or answer.status >= 500:
            return None
        try:
            models = parse_json(answer.content)["models"] if answer.status == 200 else None
            self._is_ollama = isinstance(models, list)
            names = (self._model, f"{self._model}:latest")
            contexts = [
                model.get("context_length") for model in models or () if model.get("model") in names
            ]
            return int(contexts[0]) if contexts and contexts[0] else None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self._is_ollama = False
            return None
