"""A provider that records one span per call, by the conventions of OpenTelemetry for generative
AI.
"""

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
    common_attributes,
    request_attributes,
    response_attributes,
    span_id,
    to_nanoseconds,
    trace_and_parent,
)


class CallTracer(Protocol):
    """Where the spans of calls go, and what they may contain."""

    def now(self) -> datetime: ...

    @property
    def with_content(self) -> bool:
        """Whether spans contain prompts and answers."""

    def vendor(self, provider: str) -> str: ...
    def server(self, provider: str) -> Json: ...
    def add(self, span: Span) -> None: ...


class TracedProvider(DelegatingProvider):
    """Records a span of each call of the `inner` provider when the call has ended. A call that a
    cap refused was not made and gets none.
    """

    def __init__(self, inner: LLMProvider, *, tracer: CallTracer, run: Run) -> None:
        super().__init__(inner)
        self._tracer, self._run = tracer, run

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        record = self._begin(messages, functions, temperature, options)
        try:
            response = await self.inner.chat(
                messages, functions, temperature=temperature, **options
            )
        except OverBudget:
            raise
        except BaseException as error:
            record(None, error)
            raise
        record(response, None)
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk]:
        record = self._begin(messages, functions, temperature, options, stream=True)
        response: LLMResponse | None = None
        first_chunk_seconds: float | None = None
        begin = asyncio.get_running_loop().time()
        try:
            async with aclosing(
                self.inner.chat_stream(messages, functions, temperature=temperature, **options)
            ) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if first_chunk_seconds is None:
                        first_chunk_seconds = asyncio.get_running_loop().time() - begin
                    response = chunk.response or response
                    yield chunk
        except OverBudget:
            raise
        except BaseException as error:
            record(response, None if response else error, first_chunk_seconds)
            raise
        record(response, None, first_chunk_seconds)

    def _begin(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        options: Json,
        *,
        stream: bool = False,
    ) -> Callable[..., None]:
        """Return a function that records the span, called at the end of the call with its response
        or error, and the seconds until the first chunk.
        """
        tracer, run, clock = self._tracer, self._run, asyncio.get_running_loop().time
        start, monotonic_start = to_nanoseconds(tracer.now()), clock()
        attributes = common_attributes(run) | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": tracer.vendor(self.name),
            "gen_ai.request.model": self.model_name,
            **tracer.server(self.name),
        }
        for key, value in (
            ("temperature", temperature),
            ("max_tokens", options.get("max_tokens")),
            ("stream", stream),
        ):
            if value not in (None, False):
                attributes[f"gen_ai.request.{key}"] = value
        if tracer.with_content:  # now, as the caller may append to the conversation after the call
            attributes |= request_attributes(messages, functions)

        def record(
            response: LLMResponse | None,
            error: BaseException | None,
            first_chunk_seconds: float | None = None,
        ) -> None:
            end = start + int((clock() - monotonic_start) * 1e9)
            error_text: str | None = None
            if response is not None:
                attributes.update(response_attributes(response, with_content=tracer.with_content))
            if error is not None:
                attributes["error.type"] = type(error).__name__
                error_text = str(error) if tracer.with_content else ""
            if first_chunk_seconds is not None:
                attributes["gen_ai.response.time_to_first_chunk"] = first_chunk_seconds
            trace, _ = trace_and_parent(run)
            tracer.add(
                Span(
                    name=f"chat {self.model_name}",
                    trace=trace,
                    id=secrets.randbits(64) or 1,
                    parent=span_id(run.id),
                    start=start,
                    end=end,
                    attributes=attributes,
                    client=True,
                    error=error_text,
                )
            )

        return record
