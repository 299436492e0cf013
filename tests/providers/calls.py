"""Short ways to have a conversation with a provider in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from daemon.models import Json, LLMMessage, LLMResponse
from daemon.providers import LLMProvider, create_provider
from tests.fakes.vendor import FakeVendor

FUNCTIONS: list[Json] = [
    {
        "name": "shell",
        "description": "Run a program",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "words": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["command"],
        },
    },
    {
        "name": "finish",
        "description": "End the run",
        "parameters": {"type": "object", "properties": {}},
    },
]

# Every way there is to a model: kind, model, what follows the fake's address, further settings.
WAYS: dict[str, tuple[str, str, str, Json]] = {
    "openai responses": ("openai", "gpt-6-astra", "/v1", {"api": "responses"}),
    "openai responses, no reasoning": ("openai", "gpt-4.1", "/v1", {"api": "responses"}),
    "openai chat": ("openai", "gpt-6-astra", "/v1", {}),
    "openai chat, no reasoning": ("openai", "gpt-4.1", "/v1", {}),
    "openai chat, deepseek": ("openai", "deepseek-v4-flash", "/v1", {}),
    "claude opus": ("claude", "claude-opus-5-5", "", {}),
    "claude haiku": ("claude", "claude-haiku-4-5", "", {}),
    "minimax": ("minimax", "MiniMax-M3", "", {}),
    "deepseek": ("open_source", "deepseek-v4-pro", "/v1", {}),
    "glm": ("open_source", "glm-5", "/v1", {}),
    "kimi": ("open_source", "kimi-k2.5", "/v1", {}),
    "qwen": ("open_source", "qwen3-max", "/v1", {}),
    "vllm": ("open_source", "vllm/Qwen3-32B", "/v1", {}),
    "ollama": ("open_source", "ollama/llama3.3", "/v1", {}),
    "llamacpp": ("open_source", "llamacpp/gemma-3", "/v1", {}),
    "lmstudio": ("open_source", "lmstudio/phi-4", "/v1", {}),
}
# One way per transport and language, where a test is about these and not about models.
LANGUAGES = ("openai responses", "openai chat", "claude opus", "minimax", "deepseek")
# One way per transport, where a test is about the way there.
TRANSPORTS = ("openai chat", "claude opus", "deepseek")

KEY = "sk-canary-0123456789abcdef"


Opener = Callable[..., LLMProvider]
"""The fixture `provider_for`: a way, a vendor or its address, settings; closed when the test is
over.
"""


def provider(way: str, vendor: FakeVendor | str, **settings: Any) -> LLMProvider:
    kind, model, path, more = WAYS[way]
    url = vendor if isinstance(vendor, str) else vendor.url
    return create_provider(
        kind, **{"base_url": url + path, "model": model, "api_key": KEY, **more, **settings}
    )


def user(text: str) -> LLMMessage:
    return LLMMessage(role="user", content=text)


@dataclass
class Talk:
    """A conversation that only grows, as a run's does."""

    provider: LLMProvider
    messages: list[LLMMessage] = field(
        default_factory=lambda: [
            LLMMessage(role="system", content="You are agentd."),
            user("Report, please."),
        ]
    )
    functions: Sequence[Json] | None = field(default_factory=lambda: FUNCTIONS)

    async def ask(self, **kw: Any) -> LLMResponse:
        """Ask, and answer every call with a result."""
        response = await self.provider.chat(self.messages, self.functions, **kw)
        self.messages.append(response.as_message())
        for call in response.function_calls:
            text = call.invalid or "up 3 days, 42 °C"
            self.messages.append(
                LLMMessage(
                    role="tool",
                    name=call.name,
                    content=text,
                    tool_call_id=call.id,
                    ok=not call.invalid,
                )
            )
        return response
