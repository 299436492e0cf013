"""Memory as config.toml sets it up: its embedder, and how long each class of items stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.memory.embedding_index import EmbeddingIndex
from daemon.memory.memory import Memory
from daemon.memory.retention import MemoryRetention

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.definitions.config.config import Config
    from daemon.definitions.config.live import LiveConfig
    from daemon.memory.embedders.base import Embedder
    from daemon.store.database import Database
    from daemon.system.clock import Clock
    from daemon.telemetry.redaction import Secrets


async def open_memory(
    database: Database,
    config: Config,
    installation: Installation,
    *,
    clock: Clock,
    settings: LiveConfig,
) -> Memory:
    """Open the memory in a database; ConfigError if its embedder lacks something."""
    embedder = _embedder(config, installation.env, installation.secrets)
    memory = Memory(
        database,
        clock=clock.now,
        settings=settings,
        embedding_index=EmbeddingIndex(embedder) if embedder else None,
    )
    await memory.open()
    return memory


def _embedder(config: Config, env: Mapping[str, str], secrets: Secrets) -> Embedder | None:
    memory = config.memory
    if memory.embedder == "openai_compatible":
        from daemon.memory.embedders.openai_compatible import OpenAICompatible

        key = config.memory_secret(env)
        if key is not None:
            secrets.add(key.get_secret_value())
        assert memory.base_url and memory.model  # noqa: S101  a rule of config.py
        secret = key.get_secret_value() if key else None
        return OpenAICompatible(base_url=memory.base_url, model=memory.model, api_key=secret)
    if memory.embedder == "onnx":
        from daemon.memory.embedders.onnx import Onnx

        model = config.folder / Path(memory.model_file or "").expanduser()
        tokenizer = model.with_name("tokenizer.json")
        if memory.tokenizer_file:
            tokenizer = config.folder / Path(memory.tokenizer_file).expanduser()
        return Onnx(model_file=model, tokenizer_file=tokenizer)
    return None


def retention_of(config: Config) -> MemoryRetention:
    """Return how long each class of items and texts in memory stays."""
    memory = config.memory
    return MemoryRetention(
        tools=memory.keep_tools,
        reasoning=memory.keep_reasoning,
        runs=memory.keep_runs,
        daily=memory.keep_daily,
        conversation=memory.keep_conversation,
    )
