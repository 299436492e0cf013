"""The port behind which every model stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from daemon.models import Chunk, Json, LLMMessage, LLMResponse


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedModel:
    """A model as its vendor lists it."""

    name: str
    lifecycle: str = ""
    """active, deprecated or retired, where the vendor says so."""
    retires: date | None = None
    """When it can be asked no more, where the vendor says so."""


class LLMProvider(ABC):
    """A model that can be asked: `chat`, `chat_stream`, `supports_function_calling` and
    `model_name`.

    A provider keeps no conversation: what it needs from an earlier turn travels in
    `provider_extras`. It makes one attempt per call (`retry.ask` repeats) and raises nothing but
    `daemon.errors.ProviderError`.

    How an answer ends is data, how an attempt fails is an exception. A 200 whose model declined
    comes back with `finish_reason` "refusal" or "content_filter", since its tokens were spent and
    its words may explain; a request that a vendor's filter turned away before any model saw it
    raises `ModelRefused`. A tool call that the token limit cut short comes back with
    `finish_reason` "length" and its call marked `invalid`, so that it is answered, never run.
    """

    kind: ClassVar[str] = ""
    """What `create_provider` calls it."""
    name: str = ""
    """What the configuration calls this one: `[providers.NAME]`."""

    @abstractmethod
    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        *,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        """Ask once.

        `functions` are `{"name", "description", "parameters"}`. `kw` may hold `max_tokens` and
        `routine` (a stable key for the vendor's prompt cache); a provider ignores what it has no
        use for. A provider may take `temperature` in its `**kw`, as it is handed on by name.
        """

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> AsyncIterator[Chunk]:
        """Ask once and yield the answer in pieces; the last piece carries the whole response."""
        response = await self.chat(messages, functions, temperature=temperature, **kw)
        yield Chunk(delta=response.content, thinking=response.reasoning, response=response)

    @abstractmethod
    def supports_function_calling(self) -> bool:
        """Tell whether the model can be offered tools."""

    @property
    def max_tokens(self) -> int | None:
        """How long an answer may be where the caller does not say; None if nobody has."""
        return None

    def longer(self, max_tokens: int | None) -> int | None:
        """Return what an answer that was cut at `max_tokens` may be asked for again with; None if
        with no more.

        Where `max_tokens` is None, nobody has said: what is sent then counts.
        """
        return None

    @property
    def sees(self) -> bool:
        """Whether the model can be shown pictures."""
        return False

    @property
    @abstractmethod
    def model_name(self) -> str:
        """Name the model as its vendor does."""

    async def models(self) -> Sequence[ListedModel]:
        """Ask the vendor which models there are; empty if this kind cannot be asked.

        Raises ProviderError.
        """
        return ()

    async def warm(self) -> None:  # noqa: B027 - nothing to load is a fine answer
        """Load now what the first call would have to load; safe to repeat."""

    async def close(self) -> None:  # noqa: B027 - so is nothing to let go of
        """Let go of connections; safe to repeat, and a later call opens them again."""


class DelegatingProvider(LLMProvider):
    """A provider that stands before another: whatever it does not change is that of the other."""

    def __init__(self, inner: LLMProvider) -> None:
        self.inner, self.name, self._model_name = inner, inner.name, inner.model_name
        self.kind = inner.kind  # type: ignore[misc]  # of this one, as of the one it stands before

    @property
    def model_name(self) -> str:
        return self._model_name

    @property
    def max_tokens(self) -> int | None:
        return self.inner.max_tokens

    def longer(self, max_tokens: int | None) -> int | None:
        return self.inner.longer(max_tokens)

    @property
    def sees(self) -> bool:
        return self.inner.sees

    def supports_function_calling(self) -> bool:
        return self.inner.supports_function_calling()

    async def warm(self) -> None:
        await self.inner.warm()

    async def close(self) -> None:
        await self.inner.close()
