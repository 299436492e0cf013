"""A provider whose calls are timed: one span for each, whoever makes it and however it ends."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Protocol

from daemon.errors import OverBudget
from daemon.models import Chunk, Json, LLMMessage, LLMResponse, Run
from daemon.providers import DelegatingProvider, LLMProvider
from daemon.telemetry.spans import (
    Span,
    about,
    answer_of,
    nanoseconds,
    place_of,
    request_of,
    span_id,
)


class CallTraces(Protocol):
    """Where the spans of calls go, and what is told of a call."""

    now: Callable[[], datetime]

    @property
    def content(self) -> bool:
        """Whether prompts and answers are told, too."""

    def vendor(self, provider: str) -> str: ...
    def server(self, provider: str) -> Json: ...
    def add(self, span: Span) -> None: ...


class Traced(DelegatingProvider):
    """Stands before a provider and tells of each call when it has ended; a call that a cap forbade
    is none.
    """

    def __init__(self, inner: LLMProvider, *, traces: CallTraces, run: Run) -> None:
        super().__init__(inner)
        self._traces, self._run = traces, run

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        tell = self._begin(messages, functions, temperature, kw)
        try:
            response = await self.inner.chat(messages, functions, temperature=temperature, **kw)
        except OverBudget:
            raise
        except BaseException as error:
            tell(None, error)
            raise
        tell(response, None)
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> AsyncIterator[Chunk]:
        tell = self._begin(messages, functions, temperature, kw, stream=True)
        response: LLMResponse | None = None
        first: float | None = None
        begin = asyncio.get_running_loop().time()
        try:
            async with aclosing(
                self.inner.chat_stream(messages, functions, temperature=temperature, **kw)
            ) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if first is None:
                        first = asyncio.get_running_loop().time() - begin
                    response = chunk.response or response
                    yield chunk
        except OverBudget:
            raise
        except BaseException as error:
            tell(response, None if response else error, first)
            raise
        tell(response, None, first)

    def _begin(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        kw: Json,
        *,
        stream: bool = False,
    ) -> Callable[..., None]:
        """Return what tells of the call: with its response or its error, and how long its first
        piece took.
        """
        traces, run, clock = self._traces, self._run, asyncio.get_running_loop().time
        start, begin = nanoseconds(traces.now()), clock()
        attributes = about(run) | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": traces.vendor(self.name),
            "gen_ai.request.model": self.model_name,
            **traces.server(self.name),
        }
        for key, value in (
            ("temperature", temperature),
            ("max_tokens", kw.get("max_tokens")),
            ("stream", stream),
        ):
            if value not in (None, False):
                attributes[f"gen_ai.request.{key}"] = value
        if traces.content:  # at once: the conversation grows, and is not this call's any more
            attributes |= request_of(messages, functions)

        def tell(
            response: LLMResponse | None, error: BaseException | None, first: float | None = None
        ) -> None:
            end, said = start + int((clock() - begin) * 1e9), None
            if response is not None:
                attributes.update(answer_of(response, content=traces.content))
            if error is not None:
                attributes["error.type"] = type(error).__name__
                said = str(error) if traces.content else ""
            if first is not None:
                attributes["gen_ai.response.time_to_first_chunk"] = first
            trace, _ = place_of(run)
            traces.add(
                Span(
                    name=f"chat {self.model_name}",
                    trace=trace,
                    id=secrets.randbits(64) or 1,
                    parent=span_id(run.id),
                    start=start,
                    end=end,
                    attributes=attributes,
                    client=True,
                    error=said,
                )
            )

        return tell
