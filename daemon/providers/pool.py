"""The providers of config.toml, and the order in which a routine asks them."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from daemon.definitions.config.config import Config
from daemon.definitions.routines.routine import Routine
from daemon.errors import ConfigError
from daemon.providers import LLMProvider, create_provider
from daemon.telemetry.redaction import Secrets

log = structlog.get_logger()


class Providers:
    """The providers of config.toml, each made when it is first needed."""

    def __init__(self, config: Config, env: Mapping[str, str], secrets: Secrets) -> None:
        self._config, self._env, self._secrets = config, env, secrets
        self._providers: dict[tuple[str, str | None], LLMProvider] = {}
        self.keys = {name: self._find_key(name) for name in config.providers}
        """The API key of each provider, as it was found when this was made."""

    def _find_key(self, name: str) -> str | None:
        """Return the API key of a provider; None where it needs none, or where it is missing."""
        try:
            secret = self._config.secret(name, self._env)
        except ConfigError:
            return None
        return secret.get_secret_value() if secret else None

    def get(self, name: str, model: str | None = None) -> LLMProvider:
        """Return the provider of a name, with another `model` than that of config.toml if given.

        Raises ConfigError if the name is unknown or its key is missing.
        """
        if (name, model) not in self._providers:
            self._providers[name, model] = self._build(name, model)
        return self._providers[name, model]

    def _build(self, name: str, model: str | None) -> LLMProvider:
        config = self._config.provider_config(name)
        settings = config.settings()
        if model:
            settings["model"] = model
        secret = self._config.secret(name, self._env)
        api_key = secret.get_secret_value() if secret else None
        if api_key is not None:
            self._secrets.add(api_key)
        if config.kind == "command":
            settings["environment"] = config.program_environment(self._env)
        return create_provider(config.kind, name=name, api_key=api_key, **settings)

    def chain(self, routine: Routine) -> list[LLMProvider]:
        """Return a routine's provider, then its fallbacks in order.

        A fallback without its key is left out, and logged: the others may answer without it.
        Raises ConfigError if the key of the routine's own provider is missing.
        """
        primary = routine.run.provider or self._config.provider
        providers = [self.get(primary, routine.run.model)]
        for name in routine.run.fallback:
            try:
                providers.append(self.get(name))
            except ConfigError as error:
                log.warning("provider.fallback_left_out", provider=name, fault=str(error))
        return providers

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
