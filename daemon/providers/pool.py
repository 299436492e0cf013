"""The providers of config.toml, and the order in which a routine asks them."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.definitions.config.config import Config
from daemon.definitions.routines.routine import Routine
from daemon.providers import LLMProvider, create_provider
from daemon.telemetry.redaction import Secrets


class Providers:
    """The providers of config.toml, each made when it is first needed."""

    def __init__(self, config: Config, env: Mapping[str, str], secrets: Secrets) -> None:
        self._config, self._env, self._secrets = config, env, secrets
        self._built: dict[tuple[str, str | None], LLMProvider] = {}

    def get(self, name: str, model: str | None = None) -> LLMProvider:
        """Return the provider of a name, with another `model` than that of config.toml if given.

        Raises ConfigError if the name is unknown or its key is missing.
        """
        if (name, model) not in self._built:
            self._built[name, model] = self._build(name, model)
        return self._built[name, model]

    def _build(self, name: str, model: str | None) -> LLMProvider:
        settings = self._config.provider_config(name)
        key = self._config.secret(name, self._env)
        if key is not None:
            self._secrets.add(key.get_secret_value())
        options = settings.settings() | ({"model": model} if model else {})
        return create_provider(
            settings.kind, name=name, api_key=key.get_secret_value() if key else None, **options
        )

    def chain(self, routine: Routine) -> list[LLMProvider]:
        """Return a routine's provider, then its fallbacks in order."""
        primary = routine.run.provider or self._config.provider
        return [
            self.get(primary, routine.run.model),
            *(self.get(name) for name in routine.run.fallback),
        ]

    async def close(self) -> None:
        for provider in self._built.values():
            await provider.close()
