"""Which changes of a config take effect only when the daemon is started again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

TABLES = ("listen", "executor", "store")
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
CHAT_KEYS = ("kind", "token_file", "base_url")


def find_restart_keys(in_force: Config, config: Config) -> Iterator[str]:
    """Yield the tables and keys in which `config` differs from the one that the daemon was started
    with, and that a reload does not change.
    """
    for name in dict.fromkeys([*config.chat, *in_force.chat]):
        old, new = in_force.chat.get(name), config.chat.get(name)
        if old is None or new is None or _differing_keys(old, new, CHAT_KEYS):
            yield f"chat.{name}"
    for table, keys in KEYS.items():
        for key in _differing_keys(getattr(in_force, table), getattr(config, table), keys):
            yield f"{table}.{key}"
    for table in TABLES:
        if getattr(in_force, table) != getattr(config, table):
            yield table


def _differing_keys(old: Any, new: Any, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if getattr(old, key) != getattr(new, key)]
