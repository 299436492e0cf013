"""Memory as config.toml wants it: which embedder helps it, and how long it keeps what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.memory.embedding_index import EmbeddingIndex
from daemon.memory.memory import Memory
from daemon.memory.retention import Retention

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.memory.embedders.base import Embedder
    from daemon.store.database import Database
    from daemon.telemetry.redaction import Secrets


def remember(
    database: Database,
    config: Config,
    env: Mapping[str, str],
    secrets: Secrets,
    *,
    clock: Callable[[], datetime],
    zone: Callable[[], tzinfo],
) -> Memory:
    """Return the memory in a database; ConfigError if its embedder lacks something."""
    embedder = _embedder(config, env, secrets)
    return Memory(
        database, clock=clock, zone=zone, meaning=EmbeddingIndex(embedder) if embedder else None
    )


def _embedder(config: Config, env: Mapping[str, str], secrets: Secrets) -> Embedder | None:
    wanted = config.memory
    if wanted.embedder == "openai_compatible":
        from daemon.memory.embedders.openai_compatible import OpenAICompatible

        key = config.memory_secret(env)
        if key is not None:
            secrets.add(key.get_secret_value())
        assert wanted.base_url and wanted.model  # noqa: S101  a rule of config.py
        secret = key.get_secret_value() if key else None
        return OpenAICompatible(base_url=wanted.base_url, model=wanted.model, api_key=secret)
    if wanted.embedder == "onnx":
        from daemon.memory.embedders.onnx import Onnx

        model = config.folder / Path(wanted.model_file or "").expanduser()
        tokenizer = wanted.tokenizer_file
        beside = (
            config.folder / Path(tokenizer).expanduser()
            if tokenizer
            else model.with_name("tokenizer.json")
        )
        return Onnx(model_file=model, tokenizer_file=beside)
    return None


def retention_of(config: Config) -> Retention:
    """Return how long each class of what is remembered stays."""
    wanted = config.memory
    return Retention(
        tools=wanted.keep_tools,
        reasoning=wanted.keep_reasoning,
        runs=wanted.keep_runs,
        daily=wanted.keep_daily,
        conversation=wanted.keep_conversation,
    )
