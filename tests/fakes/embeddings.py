"""A server of embeddings on a real loopback socket: `/embeddings` as OpenAI, Ollama and vLLM speak
it.

    async with FakeEmbeddings() as server:
        OpenAICompatible(base_url=f"{server.url}/v1", model="m", api_key="key")
        server.texts                                  # the texts, in the order they came

A text means what its words are synonyms of (`MEANINGS`): texts without a common word may be near
each other. Set `server.mode` to "ok", "hang" (no answer), "error" (a 503), "nonsense" (a 200 that
is no answer) or "reset"; the key "wrong" is refused, and so is a text longer than `max_characters`,
by `refusal`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any, Self

MEANINGS = {
    word: number
    for number, words in enumerate(
        [
            "car automobile vehicle 汽车 轿车",
            "doctor physician 医生",
            "fire blaze 着火",
            "dog puppy hound 狗",
            "cold chilly",
        ]
    )
    for word in words.split()
}
DIMENSIONS = 64


def vector(text: str) -> list[float]:
    """Return what a text means: one dimension per meaning, a little of everything else from its
    other words.
    """
    numbers = [0.0] * DIMENSIONS
    for word in text.lower().replace("?", " ").replace(".", " ").split():
        if word in MEANINGS:
            numbers[MEANINGS[word]] += 1.0
        else:
            numbers[
                8 + hashlib.blake2b(word.encode(), digest_size=2).digest()[0] % (DIMENSIONS - 8)
            ] += 0.1
    return numbers


class FakeEmbeddings:
    """The server, living in the event loop of its test."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.max_characters = 10_000
        self.refusal = "400 Bad Request"
        self.texts: list[str] = []
        self.requests = 0
        self.keys: list[str | None] = []
        self.url = ""
        self._port = 0
        self._arrival = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._writers: set[asyncio.StreamWriter] = set()

    async def close(self) -> None:
        """Go away; `open` comes back at the same address."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def until_asked(self, requests: int) -> None:
        """Wait until so many requests have come."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: self.requests >= requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines)
                }
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
                async with self._arrival:
                    self.requests += 1
                    self._arrival.notify_all()
                if not await self._answer(writer, headers, body):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _answer(
        self, writer: asyncio.StreamWriter, headers: dict[str, str], body: Any
    ) -> bool:
        """Answer one request; tell whether the connection goes on."""
        key = headers.get("authorization", "").removeprefix("Bearer ") or None
        self.keys.append(key)
        texts = body["input"]
        self.texts += texts
        if self.mode == "hang":
            return True
        if self.mode == "reset":
            writer.transport.abort()
            return False
        status, answer = (
            "200 OK",
            json.dumps({"data": [_row(n, text) for n, text in enumerate(texts)][::-1]}),
        )
        if self.mode == "error" or key == "wrong":
            status = "401 Unauthorized" if key == "wrong" else "503 Service Unavailable"
            answer = json.dumps({"error": {"message": f"no, not with {key}"}})
        if any(len(text) > self.max_characters for text in texts):
            status, answer = self.refusal, '{"error": "input is too long"}'
        if self.mode == "nonsense":
            answer = "<html>welcome</html>"
        data = answer.encode()
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return True


def _row(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "object": "embedding", "embedding": vector(text)}
