"""A model that reads its answers from a list: for tests, and for trying a routine without a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, TypeAlias

from daemon.errors import BadRequest, ConfigError, Fault, ProviderError
from daemon.models import FunctionCall, Json, LLMMessage, LLMResponse, Usage
from daemon.providers.base import LLMProvider

# A text, a table such as `{text = "…", tool_calls = [{name = "shell", arguments = {command =
# "uptime"}}]}`, a response, or the error that the attempt is to end with.
Line: TypeAlias = str | Json | LLMResponse | ProviderError


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call as the scripted model received it."""

    messages: tuple[LLMMessage, ...]
    functions: Sequence[Json]
    temperature: float | None
    options: Json = field(default_factory=dict)


class ScriptedProvider(LLMProvider):
    """Answer from a list, one line per call, and refuse once it is used up."""

    kind: ClassVar[str] = "scripted"

    def __init__(
        self, replies: Iterable[Line] = (), *, model: str = "scripted", name: str = "scripted"
    ) -> None:
        self.name = name
        self.asked: list[Asked] = []
        self._model = model
        self._ids = count(1)
        self._lines: deque[Line] = deque()
        self.enqueue(*replies)

    def enqueue(self, *replies: Line) -> None:
        """Add lines to the end of the script."""
        self._lines.extend(_checked(line, self.name) for line in replies)

    @property
    def left(self) -> int:
        return len(self._lines)

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
        **kw: Any,
    ) -> LLMResponse:
        self.asked.append(
            Asked(
                messages=tuple(messages),
                functions=functions or (),
                temperature=temperature,
                options=kw,
            )
        )
        if not self._lines:
            used = len(self.asked) - 1
            text = (
                f"the script of provider {self.name!r} is used up after {used} replies; add to its "
                "`replies`"
            )
            raise BadRequest(text)
        line = self._lines.popleft()
        if isinstance(line, ProviderError):
            raise line
        return line if isinstance(line, LLMResponse) else self._response(line, messages)

    def _response(self, line: str | Json, messages: Sequence[LLMMessage]) -> LLMResponse:
        table: Json = {"text": line} if isinstance(line, str) else line
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
        # A quarter of a token per character is what tokenizers come to on English text: enough for
        # a rehearsal.
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


_KEYS = frozenset({"text", "tool_calls", "finish_reason", "reasoning", "usage"})
_CALL_KEYS = frozenset({"name", "arguments", "id", "invalid"})


def _checked(line: Line, name: str) -> Line:
    """Return the line, or raise ConfigError: a user's script is read from a file and mistakes
    belong to its start.
    """
    if isinstance(line, str | LLMResponse | ProviderError):
        return line
    problem = _problem(line)
    if problem:
        raise ConfigError(
            Fault(
                file="config",
                key=f"providers.{name}.replies",
                found=f"{line!r:.80}",
                problem=problem,
            )
        )
    return line


def _problem(line: object) -> str:
    if not isinstance(line, dict):
        return "a reply is a text or a table"
    if unknown := set(line) - _KEYS:
        return f"unknown key {min(unknown)!r}, a reply knows {', '.join(sorted(_KEYS))}"
    for call in line.get("tool_calls", ()):
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return "a tool call needs a name"
        if unknown := set(call) - _CALL_KEYS:
            return (
                f"unknown key {min(unknown)!r}, a tool call knows {', '.join(sorted(_CALL_KEYS))}"
            )
        if not isinstance(call.get("arguments", {}), dict):
            return "the arguments of a tool call are a table"
    return ""
