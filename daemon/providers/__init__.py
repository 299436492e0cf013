"""The models: one port, and a file per vendor behind it.

In this room: what a vendor's wire demands, and how its answers and errors become the values of `daemon.models` and
`daemon.errors`. Not in this room: conversations, tools, money, failover and configuration files; nothing here reads the
environment or a key file, and importing it loads no SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from daemon.errors import ConfigError, Fault
from daemon.providers.base import LLMProvider

__all__ = ["KINDS", "LLMProvider", "create_provider"]

# kind → where its class is; imported when chosen.
KINDS: Mapping[str, str] = {
    "scripted": "daemon.providers.scripted:ScriptedProvider",
}


def create_provider(kind: str, **settings: Any) -> LLMProvider:
    """Build the provider of that kind; settings that it does not know, or lacks, raise ConfigError."""
    if kind not in KINDS:
        fault = Fault(
            file="config", key="kind", found=repr(kind), problem="no such provider", hint=f"one of {', '.join(KINDS)}"
        )
        raise ConfigError(fault)
    module, _, name = KINDS[kind].partition(":")
    provider: LLMProvider = getattr(import_module(module), name)(**settings)
    return provider
