"""A provider that takes its replies from a list: for tests, and to try a routine without a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, TypeAlias

from daemon.definitions.config.scripted_replies import find_reply_fault
from daemon.definitions.shape import format_key_path
from daemon.definitions.words import show_value
from daemon.errors import BadRequest, ConfigError, Fault, ProviderError
from daemon.models import FunctionCall, Json, LLMMessage, LLMResponse, Usage
from daemon.providers.base import LLMProvider

# A text, a table such as `{text = "…", tool_calls = [{name = "shell", arguments = {command =
# "uptime"}}]}`, a response, or the error that the call is to raise.
ScriptedReply: TypeAlias = str | Json | LLMResponse | ProviderError


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedCall:
    """The arguments of one call of a scripted provider."""

    messages: tuple[LLMMessage, ...]
    functions: Sequence[Json]
    temperature: float | None
    options: Json = field(default_factory=dict)


class ScriptedProvider(LLMProvider):
    """Answers from a list, one reply per call, and raises BadRequest once the list is used up."""

    kind: ClassVar[str] = "scripted"

    def __init__(
        self,
        replies: Iterable[ScriptedReply] = (),
        *,
        model: str = "scripted",
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.calls: list[ScriptedCall] = []
        self._model = model
        self._ids = count(1)
        self._replies: deque[ScriptedReply] = deque()
        self._replies_used = 0
        self.enqueue(*replies)

    def enqueue(self, *replies: ScriptedReply) -> None:
        """Add replies to the end of the list."""
        self._replies.extend(
            _check_reply(reply, self.name, index) for index, reply in enumerate(replies)
        )

    @property
    def remaining(self) -> int:
        return len(self._replies)

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return True

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        self.calls.append(
            ScriptedCall(
                messages=tuple(messages),
                functions=functions or (),
                temperature=temperature,
                options=options,
            )
        )
        if not self._replies:
            text = (
                f"the script of provider {self.name!r} is used up after {self._replies_used} "
                f"repl{'y' if self._replies_used == 1 else 'ies'}; add to its `replies`"
            )
            raise BadRequest(text)
        reply = self._replies.popleft()
        self._replies_used += 1
        if isinstance(reply, ProviderError):
            raise reply
        return reply if isinstance(reply, LLMResponse) else self._response(reply, messages)

    def _response(self, reply: str | Json, messages: Sequence[LLMMessage]) -> LLMResponse:
        table: Json = {"text": reply} if isinstance(reply, str) else reply
        calls = tuple(
            FunctionCall(
                name=call["name"],
                arguments=call.get("arguments", {}) if "invalid" not in call else {},
                id=call.get("id") or f"call_{next(self._ids)}",
                invalid=call.get("invalid"),
            )
            for call in table.get("tool_calls", ())
        )
        text = table.get("text", "")
        # English text has about four characters per token.
        usage = Usage(
            input=sum(len(message.content) for message in messages) // 4,
            output=len(text) // 4 + len(calls),
        )
        return LLMResponse(
            content=text,
            function_calls=calls,
            finish_reason=table.get("finish_reason", "tool_calls" if calls else "stop"),
            reasoning=table.get("reasoning", ""),
            usage=Usage(**table["usage"]) if "usage" in table else usage,
            model=self._model,
        )


def _check_reply(reply: ScriptedReply, name: str, index: int) -> ScriptedReply:
    """Return the reply, which is the one of this index, or raise ConfigError if it has no valid
    form.
    """
    if isinstance(reply, LLMResponse | ProviderError):
        return reply
    if fault := find_reply_fault(reply):
        path, problem, value = fault
        raise ConfigError(
            Fault(
                file="config",
                key=format_key_path("providers", name, "replies", index, *path),
                found="" if value is None else show_value(value),
                problem=problem,
            )
        )
    return reply
