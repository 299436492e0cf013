"""Ask a model only for a run that is still ours: where several machines share the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from daemon.models import Chunk, Json, LLMMessage, LLMResponse
from daemon.providers import DelegatingProvider, LLMProvider


class LeasedProvider(DelegatingProvider):
    """A provider whose calls begin only while the lease of their run holds.

    A process that stood still for longer than the lease does not know whether another one has taken
    its run, asked the same question and recorded the answer. Raises Fenced then.
    """

    def __init__(self, inner: LLMProvider, *, confirm_lease: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._confirm_lease = confirm_lease

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        await self._confirm_lease()
        return await self.inner.chat(messages, functions, temperature=temperature, **options)

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk]:
        await self._confirm_lease()
        async with aclosing(
            self.inner.chat_stream(messages, functions, temperature=temperature, **options)
        ) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                yield chunk
