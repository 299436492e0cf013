"""Providers of models: one interface (base.py), a module per vendor, the wire formats they share
(wire/), retries, prices and budgets.

Not here: conversations, tools, and the choice of a fallback, which are the agent's. Nothing here
reads the environment (`daemon.system.http_client` does so for proxies and certificates; config.toml
names the keys), and importing this package loads no SDK.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from daemon.errors import ConfigError, Fault
from daemon.providers.base import DelegatingProvider, LLMProvider

__all__ = ["KINDS", "DelegatingProvider", "LLMProvider", "create_provider"]

# The class of each kind. Its module is imported when the kind is chosen, its SDK at the first call.
KINDS: Mapping[str, str] = {
    "openai": "daemon.providers.openai:OpenAIProvider",
    "claude": "daemon.providers.claude:ClaudeProvider",
    "minimax": "daemon.providers.minimax:MiniMaxProvider",
    "open_source": "daemon.providers.open_source:OpenSourceProvider",
    "command": "daemon.providers.command:CommandProvider",
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
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    replies: Any = None,
    options: Mapping[str, Any] | None = None,
) -> LLMProvider:
    """Return a provider. Settings that are None, or that its class does not have, are left out.

    `kind` is one of KINDS, the name of an entry point of the group `agentd.providers`, or a class
    as `module:Class`; a class of either of the latter also gets `options`. `environment`
    are all variables of the program of kind command. Raises ConfigError if the kind is unknown, or
    a setting is missing or invalid.
    """
    settings = {
        key: value
        for key, value in locals().items()
        if key not in ("kind", "options") and value is not None
    }
    cls = _class_of(kind, name)
    accepted_settings = {
        key: value for key, value in settings.items() if key in _accepted_settings(cls)
    }
    try:
        provider = cls(**accepted_settings, **(options or {}))
    except ConfigError as error:
        if name is not None:
            raise
        program = f'create_provider("{kind}")'  # called by a program, which has no config.toml
        raise ConfigError(*(replace(fault, file=program) for fault in error.faults)) from None
    except (TypeError, ValueError) as error:
        if kind in KINDS:
            raise
        raise _kind_error(kind, name, f"its class does not take these settings: {error}") from error
    provider.name = provider.name or name or kind
    return provider


def _class_of(kind: str, name: str | None) -> type[LLMProvider]:
    """Return the class of a kind. Raises ConfigError if there is none."""
    class_path = KINDS.get(kind, kind if ":" in kind else None)
    if class_path is None:
        from importlib.metadata import entry_points  # imports some 50 modules

        class_entries = entry_points(group="agentd.providers", name=kind)
        if not class_entries:
            choices = f'one of {", ".join(KINDS)}, or a class as "module:Class"'
            raise _kind_error(kind, name, "no such kind", hint=choices)
        class_path = next(iter(class_entries)).value
    module, _, class_name = class_path.partition(":")
    try:
        cls = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise _kind_error(
            kind, name, f"cannot be imported: {error}", hint="is it installed where agentd is?"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, LLMProvider)):
        raise _kind_error(kind, name, "is no class that derives from daemon.providers.LLMProvider")
    return cls


def _kind_error(kind: str, name: str | None, problem: str, *, hint: str = "") -> ConfigError:
    file, key = ("config.toml", f"providers.{name}.kind") if name else ("create_provider", "kind")
    return ConfigError(Fault(file=file, key=key, found=repr(kind), problem=problem, hint=hint))


def _accepted_settings(provider: type[LLMProvider]) -> set[str]:
    """Return the names of the settings that a class accepts, with those that it passes to its base
    classes.
    """
    names: set[str] = set()
    for cls in provider.__mro__:
        if "__init__" in vars(cls) and cls is not object:
            parameters = inspect.signature(cls).parameters.values()
            names |= {parameter.name for parameter in parameters}
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
    return names
