"""Settings that agents wrote: a file of the state folder that stands above config.toml; and what
may be read.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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

# Tables that hold neither keys nor addresses that may carry one; of the others only what stands
# here.
_READABLE = ("agent", "ask", "budget", "daemon", "digest", "incidents", "keep", "log", "tools")
_OF_PROVIDERS = (
    *(
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
    ),
)
_OF_MEMORY = (
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
    """Reads and writes settings for agents."""

    file: Path
    settings: LiveConfig
    reload: Callable[[], Awaitable[None]]
    """Go over to what the files say now; ConfigError, and nothing is changed."""

    def show(self, key: str) -> object:
        """Return a setting, a table or all of them; ToolFailed if it is none that may be read."""
        found: Any = readable(self.settings.config)
        for part in key.split(".") if key else ():
            if not isinstance(found, Mapping) or part not in found:
                raise ToolFailed(f"{key} is not set, or not for agents to read")
            found = found[part]
        return found

    async def set(self, key: str, value: str | float | bool) -> Json:
        """Write a setting; ToolFailed, and nothing is changed, if the daemon cannot go on with
        it.
        """
        if not is_settable(key):
            raise ToolFailed(f"no agent may write {key}")
        data = self._data()
        table = data
        *tables, last = key.split(".")
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
        await self._change(data)
        return {"set": key, "to": value}

    async def reset(self, key: str) -> Json:
        """Take a setting back that an agent wrote: the person's own counts again."""
        data = self._data()
        table: Any = data
        *tables, last = key.split(".")
        for part in tables:
            table = table.get(part, {})
        if last not in table:
            raise ToolFailed(f"no agent has written {key}")
        del table[last]
        await self._change(data)
        return {"reset": key, "to": self.show(key) if self._has(key) else None}

    def _has(self, key: str) -> bool:
        try:
            self.show(key)
        except ToolFailed:
            return False
        return True

    def _data(self) -> Json:
        try:
            return read_toml(self.file) if self.file.exists() else {}
        except ConfigError:
            return {}  # it was ignored as it is

    async def _change(self, data: Json) -> None:
        """Go over to other settings, or back to those before."""
        before = self.file.read_bytes() if self.file.exists() else None
        _write(self.file, tomli_w.dumps(data).encode())
        try:
            fault = load_config(self.settings.config.file, self.file).overlay_fault
            if fault is None:
                await self.reload()
        except ConfigError as error:
            fault = error
        if fault is None:
            return
        if before is None:
            self.file.unlink()
        else:
            _write(self.file, before)
        problems = [
            f"{each.key}: {each.problem}" + (f"; {each.hint}" if each.hint else "")
            for each in fault.faults
        ]
        raise ToolFailed(f"nothing was changed: {'; '.join(problems)}")


def _write(file: Path, text: bytes) -> None:
    hidden = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    hidden.replace(file)


def readable(config: Config) -> Json:
    """Return what of the settings is no secret and could not hold one."""
    whole = config.model_dump(mode="json", exclude_none=True)
    shown = {
        key: value
        for key, value in whole.items()
        if not isinstance(value, dict) or key in _READABLE
    }
    shown["memory"] = {key: whole["memory"][key] for key in _OF_MEMORY if key in whole["memory"]}
    shown["providers"] = {
        name: {key: table[key] for key in _OF_PROVIDERS if key in table}
        for name, table in whole["providers"].items()
    }
    shown["targets"] = {name: {"kind": table["kind"]} for name, table in whole["targets"].items()}
    shown["mcp"] = sorted(whole["mcp"])
    shown["search"] = {"kind": whole["search"].get("kind")}
    return shown
