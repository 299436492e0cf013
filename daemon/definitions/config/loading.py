"""config.toml read from its file, with what agents wrote above it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemon.definitions.config.config import Config
from daemon.definitions.config.rules import RULES
from daemon.definitions.config.secret_files import refuse_if_open
from daemon.definitions.config.tables import is_settable
from daemon.definitions.reading import Conflict, as_fault, parse, read_toml
from daemon.definitions.shape import dotted
from daemon.definitions.words import display
from daemon.errors import ConfigError
from daemon.models import Json


def load_config(path: Path, overlay: Path | None = None) -> Config:
    """Return the config of this file; ConfigError with all its faults.

    What agents wrote into `overlay` stands above it, as long as the two go together: else the file
    counts alone.
    """
    data = read_toml(path)
    config = parse(data, Config, file=path, rules=RULES).at(path)
    if overlay is not None and overlay.exists():
        try:
            config = _overlaid(data, overlay).at(path)
        except ConfigError as fault:
            config = config.without_overlay(fault)
    for name, provider in config.providers.items():
        if provider.api_key is not None:
            refuse_if_open(path, display(path), f"providers.{name}.api_key")
    if config.memory.api_key is not None:
        refuse_if_open(path, display(path), "memory.api_key")
    for name, target in config.targets.items():
        if target.kind in ("mail", "apprise") and target.url is not None:
            refuse_if_open(path, display(path), f"targets.{name}.url")
    return config


def _overlaid(data: Json, overlay: Path) -> Config:
    """Return the config with what agents wrote; ConfigError if that cannot be, or is not theirs to
    write.
    """
    written = dict(_leaves(read_toml(overlay)))
    if strange := [key for key in written if not is_settable(".".join(key))]:
        fault = Conflict(dotted(*strange[0]), "is no setting that agents may write")
        raise ConfigError(as_fault(fault, display(overlay)))
    merged = copy.deepcopy(data)
    for (*tables, last), value in written.items():
        table = merged
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
    return parse(merged, Config, file=overlay, rules=RULES)


def _leaves(table: Json, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value
