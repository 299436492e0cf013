"""Embed with a server that has `/embeddings`: OpenAI, Ollama, vLLM, llama.cpp, LocalAI."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daemon.memory.embedders.base import Embedder, EmbedderFailed
from daemon.system.http_body import (
    ACCEPT_ENCODING,
    BodyDamaged,
    BodyTooLarge,
    parse_json,
    read_limited,
)
from daemon.system.http_client import connection_settings, describe_connection_error

if TYPE_CHECKING:
    import httpx

# Seconds for a batch of texts on a busy CPU; a question has a shorter timeout
# (memory/embedding_index.py).
_TIMEOUT = 30.0
# Bytes of an answer: the vectors of a batch take some 2 MB.
_MAX_ANSWER = 16_000_000


class OpenAICompatible(Embedder):
    """Request embeddings from a server; the first call imports httpx."""

    def __init__(self, *, base_url: str, model: str, api_key: str | None = None) -> None:
        self.name = model
        self._url, self._key = f"{base_url.rstrip('/')}/embeddings", api_key
        self._client: httpx.AsyncClient | None = None
        self._open_lock = asyncio.Lock()

    async def load(self) -> None:
        await self._open_client()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        import httpx

        client = await self._open_client()
        body = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        try:
            # httpx's timeout is for each chunk of the answer, this one for the whole answer
            async with (
                asyncio.timeout(_TIMEOUT),
                client.stream("POST", self._url, json=body) as answer,
            ):
                content = await read_limited(answer.aiter_raw(), answer.headers, _MAX_ANSWER)
        except TimeoutError:
            raise EmbedderFailed(f"{self._url}: no whole answer within {_TIMEOUT:g} s") from None
        except BodyTooLarge as error:
            problem = f"the answer is too large and was not read to its end: {error}"
            raise EmbedderFailed(f"{self._url}: {problem}") from error
        except (httpx.HTTPError, BodyDamaged) as error:
            raise EmbedderFailed(f"{self._url}: {describe_connection_error(error)}") from error
        if answer.status_code != 200:
            text = content[:1000].decode("utf-8", "replace")
            raise EmbedderFailed(
                f"{self._url} answered {answer.status_code}: {self._redact_key(text[:200])}",
                status=answer.status_code,
            )
        try:
            return await asyncio.to_thread(lambda: _vectors(parse_json(content), len(texts)))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise EmbedderFailed(
                f"{self._url}: the answer is not of the agreed form ({error})"
            ) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _open_client(self) -> httpx.AsyncClient:
        async with self._open_lock:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build_client)
            return self._client

    def _build_client(self) -> httpx.AsyncClient:
        import httpx

        headers = {"Accept-Encoding": ACCEPT_ENCODING}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        limits = httpx.Limits(max_connections=4)
        return httpx.AsyncClient(
            **connection_settings(self._url), headers=headers, timeout=_TIMEOUT, limits=limits
        )

    def _redact_key(self, text: str) -> str:
        return text.replace(self._key, "[redacted]") if self._key else text


def _vectors(body: Any, count: int) -> list[list[float]]:
    """Return the vectors of an answer, in the order of the texts."""
    rows = sorted(body["data"], key=lambda row: row["index"])
    vectors = [[float(value) for value in row["embedding"]] for row in rows]
    if len(vectors) != count:
        raise ValueError(f"{len(vectors)} vectors for {count} texts")
    return vectors
