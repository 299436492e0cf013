"""Ask the vendors in use which models they have: whether the key is good, the model there, and for
how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from daemon.errors import ConfigError, ProviderError

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.providers import LLMProvider

# A doctor who makes people wait is not asked again.
_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorFacts:
    """What a vendor said of its models."""

    fault: str = ""
    """Why it said nothing."""
    transient: bool = False
    """The fault may pass by itself."""
    known: tuple[str, ...] = ()
    """The models it has; empty if it does not tell."""
    lifecycle: str = ""
    retires: date | None = None
    """Of the model in use."""


def ask(config: Config, env: Mapping[str, str], names: Collection[str]) -> dict[str, VendorFacts]:
    """Ask the vendors of these providers, all at once; to be called outside of an event loop."""
    return asyncio.run(_ask(config, env, names))


async def _ask(
    config: Config, env: Mapping[str, str], names: Collection[str]
) -> dict[str, VendorFacts]:
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
    facts = await asyncio.gather(*(_facts(provider) for provider in providers.values()))
    return dict(zip(providers, facts, strict=True))


async def _facts(provider: LLMProvider) -> VendorFacts:
    from daemon.errors import Retryable

    try:
        models = await provider.list_models()
    except ProviderError as error:
        return VendorFacts(fault=str(error), transient=isinstance(error, Retryable))
    finally:
        await provider.close()
    own = next((model for model in models if model.name == provider.model_name), None)
    return VendorFacts(
        known=tuple(model.name for model in models),
        lifecycle=own.lifecycle if own else "",
        retires=own.retires if own else None,
    )
