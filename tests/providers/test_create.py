"""`create_provider`, and what it says of settings that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.errors import ConfigError
from daemon.providers import KINDS, LLMProvider, create_provider
from daemon.providers.capabilities import MODELS, capabilities_of

EVERYTHING: dict[str, Any] = {
    "name": "mine",
    "model": "gpt-6-astra",
    "base_url": "http://127.0.0.1:9/v1",
    "api_key": "sk-x",
    "api": "chat",
    "region": "cn",
    "timeout": 5.0,
    "temperature": 0.5,
    "max_tokens": 100,
    "capabilities": {"images": False},
    "max_concurrency": 3,
    "command": ["llm", "-m", "{model}"],
    "environment": {"HOME": "/nonexistent"},
    "replies": ["hello"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_provider_kind_accepts_every_setting(kind: str) -> None:
    provider = create_provider(kind, **EVERYTHING)
    assert isinstance(provider, LLMProvider)
    assert provider.kind == kind
    assert provider.name == "mine"
    assert provider.model_name == {"offline": "none"}.get(kind, "gpt-6-astra")


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_is_called_after_its_kind_unless_it_has_a_name(kind: str) -> None:
    settings = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "command": ["llm"]}
    assert create_provider(kind, **settings).name == kind


def test_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        create_provider("offline", colour="blue")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("settings", "key", "problem"),
    [
        ({"kind": "gemini", "name": "mine"}, "providers.mine.kind", "one of openai, claude"),
        ({"kind": "claude", "name": "mine"}, "providers.mine.model", "is missing"),
        ({"kind": "open_source", "model": "x"}, "providers.open_source.base_url", "is missing"),
        (
            {"kind": "openai", "model": "m", "base_url": "api.example.com/v1"},
            "providers.openai.base_url",
            "is not an address",
        ),
        (
            {"kind": "openai", "model": "m", "base_url": "http://h:99999"},
            "providers.openai.base_url",
            "is not an address",
        ),
        (
            {"kind": "openai", "model": "m", "base_url": "http://[::1"},
            "providers.openai.base_url",
            "is not an address",
        ),
        (
            {"kind": "open_source", "model": "m", "base_url": "http://me:hunter2@h/v1"},
            "providers.open_source.base_url",
            "holds a password (found http://…@h/v1)",
        ),
        (
            {"kind": "claude", "model": "m", "capabilities": {"imagse": True, "echo": "maybe"}},
            "providers.claude.capabilities.imagse",
            "images",
        ),
        (
            {"kind": "scripted", "replies": [{"txt": "x"}]},
            "providers.scripted.replies[0].txt",
            "unknown key, a reply knows",
        ),
        (
            {"kind": "scripted", "replies": [{"tool_calls": [{"nam": "x"}]}]},
            "providers.scripted.replies[0].tool_calls[0].nam",
            "unknown key, a tool call knows",
        ),
        (
            {"kind": "scripted", "replies": [3]},
            "providers.scripted.replies[0]",
            "a text or a table",
        ),
    ],
)
def test_invalid_settings_are_refused_with_place_and_correction(
    settings: dict[str, Any], key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        create_provider(**settings)
    assert key in [fault.key for fault in error.value.faults]
    assert problem in str(error.value)


def test_all_faults_of_a_capabilities_table_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        capabilities_of("m", {"imagse": True, "echo": "maybe", "temperature": [1]}, provider="mine")
    keys = sorted(fault.key for fault in error.value.faults)
    assert keys == [
        f"providers.mine.capabilities.{key}" for key in ("echo", "imagse", "temperature[1]")
    ]


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("gpt-6-astra", "gpt-6"),
        ("gpt-5-mini", "gpt-5"),
        ("gpt-5.4-mini", "gpt-5."),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("gpt-4.1", "gpt-"),
        ("ft:gpt-4.1-mini-2025-04-14:acme::Bx9", "gpt-"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("o3-mini", "o3"),
        ("ft:o4-mini-2025-04-16:acme:nightly:Bx9", "o4"),
        ("claude-opus-5-5", "claude-"),
        ("claude-opus-4-7", "claude-opus-4-7"),
        ("anthropic/claude-haiku-4-5", "claude-haiku-4"),
        ("MiniMax-M2.5", "minimax-m2"),
        ("MiniMax-M3", "minimax-"),
        ("deepseek-ai/DeepSeek-V4", "deepseek-"),
        ("zai-org/GLM-5", "glm-"),
        ("kimi-k2.5", "kimi-"),
    ],
)
def test_longest_matching_prefix_of_a_model_name_decides(model: str, row: str) -> None:
    assert capabilities_of(model) is MODELS[row]


def test_unknown_model_gets_permissive_capabilities() -> None:
    row = capabilities_of("my-own-finetune")
    assert (row.temperature, row.max_tokens_field, row.tools, row.images) == (
        (0.0, 2.0),
        "max_tokens",
        True,
        False,
    )


def test_configured_capabilities_override_the_known_ones() -> None:
    row = capabilities_of("gpt-6-astra", {"temperature": [0, 1], "extra": {"service_tier": "flex"}})
    assert row.temperature == (0.0, 1.0)
    assert row.extra == {"service_tier": "flex"}
    assert row.max_tokens_field == "max_completion_tokens"  # the rest stays
    assert capabilities_of("local", {"temperature": False}).temperature is False


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-5-5", {"type": "adaptive", "display": "summarized"}),
        ("claude-fable-5-2", {"type": "adaptive", "display": "summarized"}),
        ("claude-sonnet-4-6", {"type": "adaptive"}),
        ("claude-haiku-4-5", {}),
    ],
)
def test_each_claude_model_has_its_thinking_setting(model: str, thinking: dict[str, str]) -> None:
    assert capabilities_of(model).thinking == thinking
