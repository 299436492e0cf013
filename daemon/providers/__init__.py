"""The models: one port, and a file per vendor behind it.

In this room: what a vendor's wire demands, and how its answers and errors become the values of
`daemon.models` and `daemon.errors`. Not in this room: conversations, tools, money, failover and the
reading of keys; nothing here reads the environment (`daemon.system.http_client` asks it for proxies
and certificates), and importing it loads no SDK.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from daemon.errors import ConfigError, Fault
from daemon.providers.base import DelegatingProvider, LLMProvider

__all__ = ["KINDS", "DelegatingProvider", "LLMProvider", "create_provider"]

# kind → its class; the module is imported when the kind is chosen, and its SDK when it is first
# asked.
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
    max_answer_mb: int | None = None,
    capabilities: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
    replies: Any = None,
    options: Mapping[str, Any] | None = None,
) -> LLMProvider:
    """Build a provider; what is None, or has no meaning for its kind, is left out.

    `kind` is one of KINDS, the name of an entry point of the group `agentd.providers`, or a class
    as `module:Class`, which gets `options` too. Raises ConfigError if the kind is unknown, a
    setting that it needs is missing or one makes no sense.
    """
    settings = {
        key: value
        for key, value in locals().items()
        if key not in ("kind", "options") and value is not None
    }
    cls = _class_of(kind, name)
    taken = {key: value for key, value in settings.items() if key in _taken(cls)}
    try:
        provider = cls(**taken, **(options or {}))
    except ConfigError as error:
        if name is not None:
            raise
        program = f'create_provider("{kind}")'  # called by a program, which has no config.toml
        raise ConfigError(*(replace(fault, file=program) for fault in error.faults)) from None
    except (TypeError, ValueError) as error:
        if kind in KINDS:
            raise
        raise _unusable(kind, name, f"its class does not take these settings: {error}") from error
    provider.name = provider.name or name or kind
    return provider


def _class_of(kind: str, name: str | None) -> type[LLMProvider]:
    """Return the class that a kind stands for; ConfigError if there is none."""
    place = KINDS.get(kind, kind if ":" in kind else None)
    if place is None:
        from importlib.metadata import (
            entry_points,
        )  # not at a start, when the reader of them is not there

        found = entry_points(group="agentd.providers", name=kind)
        if not found:
            known = f'one of {", ".join(KINDS)}, or a class as "module:Class"'
            raise _unusable(kind, name, "no such kind", hint=known)
        place = next(iter(found)).value
    module, _, class_name = place.partition(":")
    try:
        cls = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise _unusable(
            kind, name, f"cannot be imported: {error}", hint="is it installed where agentd is?"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, LLMProvider)):
        raise _unusable(kind, name, "is no class that derives from daemon.providers.LLMProvider")
    return cls


def _unusable(kind: str, name: str | None, problem: str, *, hint: str = "") -> ConfigError:
    file, key = ("config.toml", f"providers.{name}.kind") if name else ("create_provider", "kind")
    return ConfigError(Fault(file=file, key=key, found=repr(kind), problem=problem, hint=hint))


def _taken(provider: type[LLMProvider]) -> set[str]:
    """Return the settings that a class takes, those that it hands on to its bases included."""
    names: set[str] = set()
    for cls in provider.__mro__:
        if "__init__" in vars(cls) and cls is not object:
            parameters = inspect.signature(cls).parameters.values()
            names |= {parameter.name for parameter in parameters}
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
    return names
