"""The settings that agents wrote with the tool `config`: a file in the state folder whose keys
override those of config.toml; and which settings agents may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from daemon.definitions.config.config import Config
from daemon.definitions.config.live import LiveConfig
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import is_settable
from daemon.definitions.reading import read_toml
from daemon.errors import ConfigError, ToolFailed
from daemon.models import Json
from daemon.system.replace_file import replace_file

# Agents may read these tables whole, as they hold neither API keys nor addresses, which may contain
# one. Of other tables they may read only the keys listed below.
_READABLE_TABLES = (
    "agent",
    "ask",
    "budget",
    "daemon",
    "digest",
    "incidents",
    "keep",
    "log",
    "tools",
)
_READABLE_PROVIDER_KEYS = (
    "kind",
    "model",
    "api",
    "region",
    "timeout",
    "stall",
    "max_concurrency",
    "temperature",
    "max_tokens",
    "price",
)
_READABLE_MEMORY_KEYS = (
    "keep_tools",
    "keep_reasoning",
    "keep_runs",
    "keep_daily",
    "keep_conversation",
    "summarise",
    "mirror",
)


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Read and write settings for agents."""

    file: Path
    settings: LiveConfig
    reload: Callable[[], Awaitable[None]]
    """Apply the files as they are now. Raises ConfigError, and then nothing is changed."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held from before the file is read until a change is applied or taken back: else a change that
    is taken back would take one of another run with it.
    """

    def show(self, key: str) -> object:
        """Return a setting, a table, or all settings for an empty key.

        Raises ToolFailed for a key that is not set or that agents may not read.
        """
        value: Any = readable_settings(self.settings.config)
        for part in key.split(".") if key else ():
            if not isinstance(value, Mapping) or part not in value:
                raise ToolFailed(f"{key} is not set, or not for agents to read")
            value = value[part]
        return value

    async def set(self, key: str, value: str | float | bool) -> Json:
        """Write a setting and apply it.

        Raises ToolFailed, and then nothing is changed, if agents may not write it or the resulting
        configuration has faults.
        """
        if not is_settable(key):
            raise ToolFailed(f"no agent may write {key}")
        for override in self.settings.config.overrides:
            if override.key == key:
                raise ToolFailed(f"{key} is set by the environment variable {override.variable}")
        async with self._lock:
            data = self._read()
            table = data
            *tables, name = key.split(".")
            for part in tables:
                table = table.setdefault(part, {})
            table[name] = value
            await self._change(data)
        return {"set": key, "to": value}

    async def reset(self, key: str) -> Json:
        """Remove a setting that an agent wrote, so that config.toml decides again."""
        async with self._lock:
            data = self._read()
            table: Any = data
            *tables, name = key.split(".")
            for part in tables:
                table = table.get(part) if isinstance(table, dict) else None
            if not isinstance(table, dict) or name not in table:
                raise ToolFailed(f"no agent has written {key}")
            del table[name]
            await self._change(data)
        return {"reset": key, "to": self.show(key) if self._has(key) else None}

    def _has(self, key: str) -> bool:
        try:
            self.show(key)
        except ToolFailed:
            return False
        return True

    def _read(self) -> Json:
        try:
            return read_toml(self.file) if self.file.exists() else {}
        except ConfigError:
            return {}  # a file with faults is ignored, so replacing it loses nothing

    async def _change(self, data: Json) -> None:
        """Write and apply settings. Raises ToolFailed after restoring the old ones if they have
        faults.
        """
        old_text = self.file.read_bytes() if self.file.exists() else None
        replace_file(self.file, tomli_w.dumps(data).encode())
        try:
            config_error = load_config(self.settings.config.file, self.file).overlay_error
            if config_error is None:
                await self.reload()
        except ConfigError as error:
            config_error = error
        if config_error is None:
            return
        if old_text is None:
            self.file.unlink()
        else:
            replace_file(self.file, old_text)
        problems = [
            f"{fault.key}: {fault.problem}" + (f"; {fault.hint}" if fault.hint else "")
            for fault in config_error.faults
        ]
        raise ToolFailed(f"nothing was changed: {'; '.join(problems)}")


def readable_settings(config: Config) -> Json:
    """Return the settings that are no secret and could not contain one."""
    settings = config.model_dump(mode="json", exclude_none=True)
    readable = {
        key: value
        for key, value in settings.items()
        if not isinstance(value, dict) or key in _READABLE_TABLES
    }
    readable["memory"] = {
        key: settings["memory"][key] for key in _READABLE_MEMORY_KEYS if key in settings["memory"]
    }
    readable["providers"] = {
        name: {key: table[key] for key in _READABLE_PROVIDER_KEYS if key in table}
        for name, table in settings["providers"].items()
    }
    readable["targets"] = {
        name: {"kind": table["kind"]} for name, table in settings["targets"].items()
    }
    readable["mcp"] = sorted(settings["mcp"])
    readable["search"] = {"kind": settings["search"].get("kind")}
    return readable
