"""The models of config.toml, and which of them a routine asks, in order."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.definitions.config.config import Config
from daemon.definitions.routines.routine import Routine
from daemon.providers import LLMProvider, create_provider
from daemon.telemetry.redaction import Secrets


class Providers:
    """The models of config.toml, each built when it is first needed."""

    def __init__(self, config: Config, env: Mapping[str, str], secrets: Secrets) -> None:
        self._config, self._env, self._secrets = config, env, secrets
        self._built: dict[tuple[str, str | None], LLMProvider] = {}

    def get(self, name: str, model: str | None = None) -> LLMProvider:
        """Return the provider of that name; ConfigError if it is unknown or its key is missing."""
        if (name, model) not in self._built:
            self._built[name, model] = self._build(name, model)
        return self._built[name, model]

    def _build(self, name: str, model: str | None) -> LLMProvider:
        settings = self._config.provider_config(name)
        key = self._config.secret(name, self._env)
        if key is not None:
            self._secrets.add(key.get_secret_value())
        wanted = settings.settings() | ({"model": model} if model else {})
        return create_provider(
            settings.kind, name=name, api_key=key.get_secret_value() if key else None, **wanted
        )

    def chain(self, routine: Routine) -> list[LLMProvider]:
        """Return the routine's provider and its fallbacks, in order."""
        first = routine.run.provider or self._config.provider
        return [
            self.get(first, routine.run.model),
            *(self.get(name) for name in routine.run.fallback),
        ]

    async def close(self) -> None:
        for provider in self._built.values():
            await provider.close()
