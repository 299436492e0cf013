"""Which changes of a config take effect only when the daemon is started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

TABLES = ("listen", "executor", "search", "store")
KEYS = {
    "control": ("group",),
    "hooks": ("group",),
    "memory": (
        "mirror",
        "embedder",
        "model",
        "base_url",
        "model_file",
        "tokenizer_file",
        "api_key",
        "api_key_file",
        "api_key_env",
    ),
}
KEYS_OF_NAMED_TABLES: Mapping[str, tuple[str, ...]] = {
    "chat": ("kind", "token_file", "base_url"),
    "mcp": (
        "command",
        "env",
        "pass_env",
        "cwd",
        "url",
        "api_key_file",
        "api_key_env",
        "timeout",
        "trusted",
    ),
}
"""Of tables that stand several times, under names of the user's choice."""


def find_restart_keys(in_force: Config, config: Config) -> Iterator[str]:
    """Yield the tables and keys in which `config` differs from the one that the daemon was started
    with, and that a reload does not change.
    """
    for kind, start_keys in KEYS_OF_NAMED_TABLES.items():
        old_tables, new_tables = getattr(in_force, kind), getattr(config, kind)
        for name in dict.fromkeys([*new_tables, *old_tables]):
            old, new = old_tables.get(name), new_tables.get(name)
            if old is None or new is None or _differing_keys(old, new, start_keys):
                yield f"{kind}.{name}"
    for table, keys in KEYS.items():
        for key in _differing_keys(getattr(in_force, table), getattr(config, table), keys):
            yield f"{table}.{key}"
    for table in TABLES:
        if getattr(in_force, table) != getattr(config, table):
            yield table


def _differing_keys(old: Any, new: Any, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if getattr(old, key) != getattr(new, key)]


def read_secret_versions(config: Config) -> Mapping[str, str]:
    """Return a hash of each file with a secret that only a start reads, by the key that names it.

    The hash of a file that cannot be read is empty.
    """
    file_names: dict[str, str | None] = {
        f"chat.{name}.token_file": chat.token_file for name, chat in config.chat.items()
    }
    for name, server in config.mcp.items():
        file_names[f"mcp.{name}.api_key_file"] = server.api_key_file
    if config.memory.embedder == "openai_compatible":
        file_names["memory.api_key_file"] = config.memory.api_key_file
    if config.search.kind:
        file_names["search.api_key_file"] = config.search.api_key_file
    file_names["store.url_file"] = config.store.url_file
    return {
        key: _hash_file(config.folder / Path(file_name).expanduser())
        for key, file_name in file_names.items()
        if file_name
    }


def find_changed_secrets(
    in_force: Mapping[str, str], versions: Mapping[str, str], restart_keys: list[str]
) -> list[str]:
    """Return the keys whose files hold another secret than at the start, without those whose table
    is in `restart_keys` already.
    """
    return [
        key
        for key, version in versions.items()
        if in_force.get(key, version) != version
        and not {key, key.rpartition(".")[0]} & set(restart_keys)
    ]


def _hash_file(path: Path) -> str:
    try:
        return sha256(path.read_bytes().strip()).hexdigest()
    except OSError:
        return ""
