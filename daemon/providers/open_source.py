"""Servers that speak Chat Completions: vLLM, Ollama, LocalAI, llama.cpp, LM Studio, DeepSeek, GLM, Kimi, Qwen.

They are asked over connections of our own (`ways.py`); httpx does the talking where a proxy stands between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import structlog

from daemon.errors import ProviderError
from daemon.models import LLMResponse
from daemon.providers.direct import Form, address_of, form_of
from daemon.providers.vendor import CONNECT_TIMEOUT, Answer, Incoming, VendorProvider, in_thread
from daemon.providers.ways import Ways
from daemon.providers.wire.base import Question
from daemon.providers.wire.chat import CHAT

log = structlog.get_logger()


class OpenSourceProvider(VendorProvider):
    """Any model behind a server that is compatible with OpenAI's."""

    kind: ClassVar[str] = "open_source"

    def __init__(self, **settings: Any) -> None:
        super().__init__(wire=CHAT, **settings)
        self._ways: Ways | None = None
        self._opening = asyncio.Lock()
        self._is_another = False
        """It was asked, and is no Ollama."""
        self._forms: dict[str, Form] = {}
        """By path: to write one takes as long as to send a request."""

    async def warm(self) -> None:
        await self._open()

    async def close(self) -> None:
        await super().close()
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

    def _post(self, path: str, body: bytes) -> Coroutine[Any, Any, Answer]:
        return self._answer("POST", path, body)

    async def _answer(self, method: str, path: str, body: bytes = b"", *, root: str | None = None) -> Answer:
        ways = self._ways or await self._open()
        form = self._forms.get(path) or self._form(method, path, root)
        try:
            reply, content = await ways.fetch(form, body, patience=CONNECT_TIMEOUT, limit=self.max_answer)
        except OSError as error:
            raise self._broken(error) from error
        return Answer(reply.status, reply.headers, content)

    def _seems_odd(self, response: LLMResponse, question: Question) -> bool:
        return 0 < response.usage.input < _least(question) > LONG_QUESTION and not self._is_another

    async def _looked_into(self, response: LLMResponse, question: Question) -> LLMResponse:
        """Note that the server has cut the question to what it holds, as Ollama does without a word.

        Its `/v1` takes no size of context, and 4,096 tokens are all it has unless it was started with more; what does
        not fit is dropped from the front (NousResearch/hermes-agent#43900). The count of what it read tells of it, but
        an older one does not count what it still had in its cache: so it is asked how much it holds.
        """
        least, holds = _least(question), await self._holds()
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
        async with ways.one() as way:
            try:
                form = self._forms.get(path) or self._form("POST", path)
                reply = await way.ask(form, body, patience=CONNECT_TIMEOUT)
            except OSError as error:
                raise self._broken(error) from error

            async def pieces() -> AsyncGenerator[bytes, None]:
                try:
                    async for piece in reply.pieces(self.max_answer):
                        yield piece
                except OSError as error:
                    raise self._broken(error) from error

            try:
                yield Incoming(reply.status, reply.headers, pieces())
            finally:
                await reply.aclose()

    def _form(self, method: str, path: str, root: str | None = None) -> Form:
        """Write down what the requests to a path have in common."""
        fields = [*_HEADERS, (b"Authorization", f"Bearer {self._api_key}".encode())] if self._api_key else _HEADERS
        form = self._forms[path] = form_of(method, address_of((root or self.base_url) + path), fields)
        return form


_HEADERS = [(b"Content-Type", b"application/json"), (b"Accept", b"application/json"), (b"User-Agent", b"agentd")]

# Shorter questions fit anywhere.
LONG_QUESTION = 1500
# Running text has four or five letters to a token, spaces included; no text worth asking about has more than this.
_LETTERS = 8


def _least(question: Question) -> int:
    """Return how many tokens a question has at the least."""
    return sum([len(message.content) for message in question.messages]) // _LETTERS


def _next_size(tokens: int) -> int:
    """Return a power of two that holds so many tokens, as estimated, and as much again."""
    return 1 << (2 * tokens).bit_length()
