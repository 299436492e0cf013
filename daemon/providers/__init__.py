"""The models: one port, and a file per vendor behind it.

In this room: what a vendor's wire demands, and how its answers and errors become the values of `daemon.models` and
`daemon.errors`. Not in this room: conversations, tools, money, failover and the reading of keys; nothing here reads the
environment but for proxies, and importing it loads no SDK.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from daemon.errors import ConfigError, Fault
from daemon.providers.base import LLMProvider

__all__ = ["KINDS", "LLMProvider", "create_provider"]

# kind → its class; the module is imported when the kind is chosen, and its SDK when it is first asked.
KINDS: Mapping[str, str] = {
    "openai": "daemon.providers.openai:OpenAIProvider",
    "claude": "daemon.providers.claude:ClaudeProvider",
    "minimax": "daemon.providers.minimax:MiniMaxProvider",
    "open_source": "daemon.providers.open_source:OpenSourceProvider",
    "offline": "daemon.providers.offline:OfflineProvider",
    "scripted": "daemon.providers.scripted:ScriptedProvider",
}


def create_provider(
    kind: str,
    *,
    name: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    api: str | None = None,
    region: str | None = None,
    timeout: float | None = None,
    stall: float | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    capabilities: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
    replies: Any = None,
) -> LLMProvider:
    """Build a provider; what is None, or has no meaning for its kind, is left out.

    Raises ConfigError if the kind is unknown, a setting that it needs is missing or one makes no sense.
    """
    settings = {key: value for key, value in locals().items() if key != "kind" and value is not None}
    if kind not in KINDS:
        known = f"one of {', '.join(KINDS)}"
        key = f"providers.{name}.kind" if name else "kind"
        raise ConfigError(Fault(file="config.toml", key=key, found=repr(kind), problem="no such kind", hint=known))
    module, _, class_name = KINDS[kind].partition(":")
    provider = getattr(import_module(module), class_name)
    return provider(**{key: value for key, value in settings.items() if key in _taken(provider)})  # type: ignore[no-any-return]


def _taken(provider: type[LLMProvider]) -> set[str]:
    """Return the settings that a class takes, those that it hands on to its bases included."""
    names: set[str] = set()
    for cls in provider.__mro__:
        if "__init__" in vars(cls):
            parameters = inspect.signature(cls).parameters.values()
            names |= {parameter.name for parameter in parameters}
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
    return names
