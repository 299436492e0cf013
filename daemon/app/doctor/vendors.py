"""Ask the vendors in use for their models: it shows whether the API key is valid, whether the model
exists, and when it retires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from daemon.errors import ConfigError, ProviderError
from daemon.providers.base import is_listed

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.providers import LLMProvider

# Seconds per vendor: `agentd doctor` answers while a person waits.
_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorAnswer:
    """What a vendor answered when asked for its models."""

    fault: str = ""
    """Why there is no answer; empty if there is one."""
    transient: bool = False
    """Whether the fault may pass by itself."""
    models: tuple[str, ...] = ()
    """The names of the vendor's models; empty if it lists none."""
    lifecycle: str = ""
    """State of the model in use: `deprecated`, `retired`, …; empty if the vendor does not say."""
    retires: date | None = None
    """The day on which the model in use retires; None if the vendor does not say."""


def ask_vendors(
    config: Config, env: Mapping[str, str], names: Collection[str]
) -> dict[str, VendorAnswer]:
    """Ask the vendors of the providers `names` at once, and return their answers by provider.

    A provider without a usable key or configuration is left out. Runs an event loop of its own, so
    call it outside of one.
    """
    return asyncio.run(_ask_all(config, env, names))


async def _ask_all(
    config: Config, env: Mapping[str, str], names: Collection[str]
) -> dict[str, VendorAnswer]:
    from daemon.providers import create_provider

    providers = {}
    for name in names:
        settings = config.provider_config(name)
        try:
            key = config.secret(name, env)
            options = settings.settings() | {"timeout": _TIMEOUT_SECONDS}
            secret = key.get_secret_value() if key else None
            providers[name] = create_provider(settings.kind, name=name, api_key=secret, **options)
        except ConfigError:
            continue  # check_providers reports it
    answers = await asyncio.gather(*(_ask(provider) for provider in providers.values()))
    return dict(zip(providers, answers, strict=True))


async def _ask(provider: LLMProvider) -> VendorAnswer:
    from daemon.errors import Retryable

    try:
        models = await provider.list_models()
    except ProviderError as error:
        return VendorAnswer(fault=str(error), transient=isinstance(error, Retryable))
    finally:
        await provider.close()
    own_models = [model for model in models if is_listed(provider.model_name, model.name)]
    own_model = min(own_models, key=lambda model: len(model.name), default=None)
    return VendorAnswer(
        models=tuple(model.name for model in models),
        lifecycle=own_model.lifecycle if own_model else "",
        retires=own_model.retires if own_model else None,
    )
