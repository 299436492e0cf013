"""Read config.toml, and apply the settings that agents wrote."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemon.definitions.config.config import Config
from daemon.definitions.config.rules import RULES
from daemon.definitions.config.secret_files import refuse_if_shared
from daemon.definitions.config.tables import is_settable
from daemon.definitions.reading import Conflict, as_fault, parse, read_toml
from daemon.definitions.shape import dotted
from daemon.definitions.words import display
from daemon.errors import ConfigError
from daemon.models import Json


def load_config(path: Path, overlay: Path | None = None) -> Config:
    """Return the config of a file. Raises ConfigError with all its faults.

    `overlay` is the file with the settings that agents wrote. They override those of `path`; if the
    result has faults, they are ignored (`Config.overlay_fault`).
    """
    data = read_toml(path)
    config = parse(data, Config, file=path, rules=RULES).at(path)
    if overlay is not None and overlay.exists():
        try:
            config = _with_overlay(data, overlay).at(path)
        except ConfigError as fault:
            config = config.without_overlay(fault)
    for name, provider in config.providers.items():
        if provider.api_key is not None:
            refuse_if_shared(path, display(path), f"providers.{name}.api_key")
    if config.memory.api_key is not None:
        refuse_if_shared(path, display(path), "memory.api_key")
    for name, target in config.targets.items():
        if target.kind in ("mail", "apprise") and target.url is not None:
            refuse_if_shared(path, display(path), f"targets.{name}.url")
    return config


def _with_overlay(data: Json, overlay: Path) -> Config:
    """Return the config with the settings of agents. Raises ConfigError if it has faults, or if
    agents may not write one of them.
    """
    settings = dict(_settings_in(read_toml(overlay)))
    if forbidden_keys := [key for key in settings if not is_settable(".".join(key))]:
        fault = Conflict(dotted(*forbidden_keys[0]), "is no setting that agents may write")
        raise ConfigError(as_fault(fault, display(overlay)))
    merged = copy.deepcopy(data)
    for (*tables, name), value in settings.items():
        table = merged
        for part in tables:
            table = table.setdefault(part, {})
        table[name] = value
    return parse(merged, Config, file=overlay, rules=RULES)


def _settings_in(table: Json, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings_in(value, (*above, key))
        else:
            yield (*above, key), value
