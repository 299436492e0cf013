"""Read config.toml, and apply the settings that agents wrote and those of the environment."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daemon.definitions.config.checks import CONFIG_CHECKS
from daemon.definitions.config.config import Config
from daemon.definitions.config.environment import (
    Override,
    apply_overrides,
    name_variables_in,
    overrides_in,
)
from daemon.definitions.config.secret_files import refuse_if_shared
from daemon.definitions.config.tables import KINDS_WITH_PASSWORD, SENDMAIL_SCHEME, is_settable
from daemon.definitions.reading import Conflict, as_fault, parse, parse_toml, read_text, read_toml
from daemon.definitions.shape import format_key_path
from daemon.definitions.words import display
from daemon.errors import ConfigError
from daemon.models import Json


def load_config(
    path: Path, overlay: Path | None = None, *, env: Mapping[str, str] = os.environ
) -> Config:
    """Return the config of a file. Raises ConfigError with all its faults.

    `overlay` is the file with the settings that agents wrote. They override those of `path`; if the
    result has faults, they are ignored (`Config.overlay_error`). Variables of `env` override both
    (see `environment`).
    """
    text = read_text(path)
    data = parse_toml(text, path)
    overrides = overrides_in(env, data)
    config = _parse(data, overrides, path, text).at(path)
    # os.path.exists is False in a folder that is not ours to enter; `lock_state` says so
    if overlay is not None and os.path.exists(overlay):  # noqa: PTH110
        try:
            config = _parse(_with_overlay(data, overlay), overrides, overlay).at(path)
        except ConfigError as error:
            config = config.without_overlay(error)
    secrets_of_environment = {override.key for override in overrides}
    for key in _secrets_in(config):
        if key not in secrets_of_environment:
            refuse_if_shared(path, display(path), key)
    return config.overridden_by(overrides)


def _parse(data: Json, overrides: Sequence[Override], file: Path, text: str = "") -> Config:
    """Return the config of tables and the environment's settings. Raises ConfigError, in which each
    fault names the file, with its line in `text`, or the variable that it is in.
    """
    try:
        settings = apply_overrides(data, overrides)
        return parse(settings, Config, file=file, checks=CONFIG_CHECKS, text=text)
    except ConfigError as error:
        raise ConfigError(*name_variables_in(error.faults, overrides, data)) from None


def _secrets_in(config: Config) -> Iterator[str]:
    """Yield the keys of the secrets that stand in the config itself."""
    for name, provider in config.providers.items():
        if provider.api_key is not None:
            yield f"providers.{name}.api_key"
    if config.memory.api_key is not None:
        yield "memory.api_key"
    for name, target in config.targets.items():
        if (
            target.kind in KINDS_WITH_PASSWORD
            and target.url is not None
            and not target.url.get_secret_value().startswith(SENDMAIL_SCHEME)
        ):
            yield f"targets.{name}.url"


def _with_overlay(data: Json, overlay: Path) -> Json:
    """Return the tables with the settings of agents. Raises ConfigError if the overlay cannot be
    read, or if agents may not write one of its settings.
    """
    settings = dict(_settings_in(read_toml(overlay)))
    if forbidden_keys := [key for key in settings if not is_settable(".".join(key))]:
        fault = Conflict(format_key_path(*forbidden_keys[0]), "is no setting that agents may write")
        raise ConfigError(as_fault(fault, display(overlay)))
    new_data = copy.deepcopy(data)
    for (*tables, name), value in settings.items():
        table = new_data
        for part in tables:
            table = table.setdefault(part, {})
        table[name] = value
    return new_data


def _settings_in(
    table: Json, parent_keys: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings_in(value, (*parent_keys, key))
        else:
            yield (*parent_keys, key), value
