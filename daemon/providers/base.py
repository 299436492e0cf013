"""The interface of all providers."""

from __future__ import annotations

import re
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
    """When it is shut down, where the vendor says so."""
    created: float = 0.0
    """When it came out, in seconds since 1970, where the vendor says so; else 0."""


def is_listed(model: str, listed_name: str) -> bool:
    """Tell whether a vendor's list means a model by a name. Ollama lists `llama3.3` as
    `llama3.3:latest`, Anthropic `claude-haiku-4-5` with the date of its version behind it, and
    Gemini each model with `models/` before it.
    """
    name = re.escape(model)
    return bool(re.fullmatch(rf"(?:models/)?{name}(?::latest|-\d{{8}})?", listed_name))


class LLMProvider(ABC):
    """One model of one vendor.

    A provider keeps no conversation: what it needs from an earlier turn is in that turn's
    `provider_extras`. It makes one attempt per call (`retry.ask` repeats) and raises only
    `daemon.errors.ProviderError`.

    How an answer ends is data, how an attempt fails is an exception. An answer with status 200 in
    which the model declined has the `finish_reason` "refusal" or "content_filter", since its tokens
    were spent and its text may explain; a request that a vendor's filter refused before it reached
    a model raises `ModelRefused`. An answer that the token limit cut off within a tool call has the
    `finish_reason` "length", and the call is marked `invalid`, so that it is answered but never
    run.
    """

    kind: ClassVar[str] = ""
    """The `kind` of `create_provider` and of config.toml."""
    name: str = ""
    """The NAME of its table `[providers.NAME]`."""

    @abstractmethod
    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        *,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Call the model once and return its answer.

        `functions` are `{"name", "description", "parameters"}`. `options` may have `max_tokens`,
        `effort` (of reasoning, a level of the vendor) and `routine` (a stable key for the vendor's
        prompt cache); a provider ignores keys that it does not know. `temperature` is always passed
        by name, so a provider may take it in its `**options`.
        """

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk]:
        """Call the model once and yield its answer in chunks; the last chunk has the whole
        response.
        """
        response = await self.chat(messages, functions, temperature=temperature, **options)
        yield Chunk(delta=response.content, thinking=response.reasoning, response=response)

    @abstractmethod
    def supports_function_calling(self) -> bool:
        """Return whether tools can be offered to the model."""

    @property
    def max_tokens(self) -> int | None:
        """The configured limit on an answer, in tokens; None if none is set."""
        return None

    def larger_max_tokens(self, max_tokens: int | None) -> int | None:
        """Return a larger limit with which to repeat a request whose answer was cut off at
        `max_tokens`; None if there is none.

        If `max_tokens` is None, the answer was cut off at the limit that the provider sends then.
        """
        return None

    @property
    def accepts_images(self) -> bool:
        """Whether images can be sent to the model."""
        return False

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The vendor's name of the model."""

    async def list_models(self) -> Sequence[ListedModel]:
        """Return the models that the vendor lists; empty if this kind of provider has no such list.

        Raises ProviderError.
        """
        return ()

    async def load(self) -> None:  # noqa: B027 - a provider may have nothing to load
        """Load what the first call would have to load. May be called again."""

    async def close(self) -> None:  # noqa: B027 - a provider may have nothing to close
        """Close connections. May be called again; a later call of the model opens new ones."""


class DelegatingProvider(LLMProvider):
    """A provider that adds something to another one: what a subclass does not override is done by
    `inner`.
    """

    def __init__(self, inner: LLMProvider) -> None:
        self.inner = inner
        self.name = inner.name
        self._model_name = inner.model_name
        self.kind = inner.kind  # type: ignore[misc]  # of the instance, not of the class

    @property
    def model_name(self) -> str:
        return self._model_name

    @property
    def max_tokens(self) -> int | None:
        return self.inner.max_tokens

    def larger_max_tokens(self, max_tokens: int | None) -> int | None:
        return self.inner.larger_max_tokens(max_tokens)

    @property
    def accepts_images(self) -> bool:
        return self.inner.accepts_images

    def supports_function_calling(self) -> bool:
        return self.inner.supports_function_calling()

    async def load(self) -> None:
        await self.inner.load()

    async def close(self) -> None:
        await self.inner.close()
