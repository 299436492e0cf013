"""Settings that environment variables override, as containers and units set them.

`AGENTD_<TABLE>__<KEY>` stands for a key of a table of config.toml (`AGENTD_LOG__LEVEL` for
`[log] level`, `AGENTD_PROVIDERS__CLAUDE__MODEL` for `[providers.claude] model`), `AGENTD__<KEY>`
for a key above all tables (`AGENTD__PROVIDER`). Names of one underscore only, such as
AGENTD_CONFIG, are no settings.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from daemon.definitions.shape import format_key_path
from daemon.definitions.toml_text import TomlOutOfBounds, parse_toml_text
from daemon.errors import ConfigError, Fault
from daemon.models import Json

_PREFIX, _SEPARATOR = "AGENTD_", "__"


@dataclass(frozen=True, slots=True)
class Override:
    """A key of config.toml, from the outermost table on, and the value that a variable gives it."""

    variable: str
    keys: tuple[str, ...]
    value: Any

    @property
    def key(self) -> str:
        """The key as faults name it: `log.level`."""
        return format_key_path(*self.keys)


def overrides_in(env: Mapping[str, str], data: Json) -> tuple[Override, ...]:
    """Return the settings in the environment, by the names of their variables.

    `data` are the tables of config.toml: a table or key there is meant by its name in any case,
    with `_` for `-`, as variables have neither small letters nor hyphens. An empty variable sets
    nothing, as a variable that a container passes on may be empty.
    """
    return tuple(
        Override(variable, _keys_of(variable, data), _value_of(env[variable]))
        for variable in sorted(env)
        if variable.startswith(_PREFIX)
        # from the last character of the prefix on: AGENTD__KEY has its separator there
        and _SEPARATOR in variable[len(_PREFIX) - 1 :]
        and env[variable]
    )


def apply_overrides(data: Json, overrides: Iterable[Override]) -> Json:
    """Return a copy of the tables of config.toml with the settings of the environment.

    Raises ConfigError where a variable goes through a key that is no table.
    """
    new_data = copy.deepcopy(data)
    for override in overrides:
        *tables, name = override.keys
        table = new_data
        for key in tables:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ConfigError(_fault(override, override.key, f"{key} is no table"))
        table[name] = override.value
    return new_data


def name_variables_in(
    faults: Iterable[Fault], overrides: Collection[Override], data: Json
) -> Iterator[Fault]:
    """Yield the faults, those of a value that a variable gave with the variable as their place.

    `data` are the tables of config.toml without the variables.
    """
    for fault in faults:
        for override in overrides:
            is_inside = fault.key == override.key or fault.key.startswith(
                (f"{override.key}.", f"{override.key}[")
            )
            is_table_of_override = override.key.startswith(f"{fault.key}.") and not _has_key(
                data, override.keys[: fault.key.count(".") + 1]
            )
            if is_inside or is_table_of_override:
                yield _fault(override, fault.key, fault.problem, found=fault.found, hint=fault.hint)
                break
        else:
            yield _fault_of_new_table(fault, overrides, data) or fault


def _fault_of_new_table(fault: Fault, overrides: Iterable[Override], data: Json) -> Fault | None:
    """Return the fault with a variable as its place that makes the table of its key, such as
    `AGENTD_PROVIDERS__NEW__MODEL` where `providers.new.kind` is missing; None if there is none.
    """
    tables = [
        (override.keys[:end], override.variable)
        for override in overrides
        for end in range(1, len(override.keys))
    ]
    # the longest first: [providers] is made by the variables of every provider
    for keys, variable in sorted(tables, key=lambda table: len(table[0]), reverse=True):
        table = format_key_path(*keys)
        if fault.key.startswith(f"{table}.") and not _has_key(data, keys):
            problem = f"config.toml has no [{table}]: {fault.key} {fault.problem}"
            place = "the environment"
            return replace(fault, file=place, key=variable, line=None, problem=problem)
    return None


def _keys_of(variable: str, data: Json) -> tuple[str, ...]:
    """Return the keys that a variable stands for: those of config.toml where they fit, else in
    small letters.
    """
    keys: list[str] = []
    table: Any = data
    # `AGENTD__PROVIDER` has an empty name for the table above all tables
    for part in variable.removeprefix(_PREFIX).removeprefix("_").split(_SEPARATOR):
        key = part.lower()
        names = table if isinstance(table, dict) else ()
        key = next((name for name in names if name.lower().replace("-", "_") == key), key)
        keys.append(key)
        table = table[key] if key in names else None
    return tuple(keys)


def _value_of(text: str) -> Any:
    """Return the value that a text stands for: a value of TOML (`10`, `true`, `["a"]`, `"10"`),
    or else the text itself.
    """
    try:
        values = parse_toml_text(f"value = {text}")
    except (tomllib.TOMLDecodeError, TomlOutOfBounds):
        return text
    return values["value"] if len(values) == 1 else text


def _has_key(data: Json, keys: Iterable[str]) -> bool:
    table: Any = data
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _fault(override: Override, key: str, problem: str, found: str = "", hint: str = "") -> Fault:
    """Return a fault of a key of config.toml whose place is a variable."""
    return Fault(
        file="the environment",
        key=override.variable,
        found=found,
        problem=f"{problem} (it sets {key} of config.toml)",
        hint=hint,
    )
