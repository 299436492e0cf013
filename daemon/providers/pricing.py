"""Prices of models: those of config.toml, else those of the package genai-prices for the vendor's
own address.

Amounts are whole billionths of a dollar (nano), so that sums are exact. The package's data are
imported when a price is first needed: 10 MiB and 50 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf
from time import time
from typing import TYPE_CHECKING, Any

from daemon.errors import ConfigError
from daemon.models import Usage
from daemon.providers import create_provider

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.config.tables import PriceConfig, ProviderConfig

NANO = 1_000_000_000
_PER_TOKEN = 1000  # billionths of a dollar per token, at a dollar per million tokens
# Some prices change at an hour of the day, so a minute is often enough.
_VALIDITY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A price in dollars per million tokens, which may depend on the size of the input.

    `tiers` are (size, price), ascending by size: if the input has more than `size` tokens, all its
    tokens have that price.
    """

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, size: int) -> float:
        """Return the price for an input of `size` tokens, in dollars per million tokens."""
        return next((price for start, price in reversed(self.tiers) if size > start), self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """The rates of one model."""

    input: Rate
    output: Rate
    cache_read: Rate
    cache_write: Rate

    @classmethod
    def from_config(cls, price: PriceConfig) -> Rates:
        """Return the rates of config.toml; cached input has the price of input if it has none of
        its own.
        """
        cache_read = price.input if price.cache_read is None else price.cache_read
        cache_write = price.input if price.cache_write is None else price.cache_write
        return cls(
            input=Rate(base=price.input),
            output=Rate(base=price.output),
            cache_read=Rate(base=cache_read),
            cache_write=Rate(base=cache_write),
        )

    def cost(self, usage: Usage) -> int:
        """Return what a call cost in billionths of a dollar, rounded up."""
        size = usage.input
        uncached_tokens = max(0, size - usage.cache_read - usage.cache_write)
        # in millionths of a dollar
        amount = uncached_tokens * self.input.at(size) + usage.output * self.output.at(size)
        amount += usage.cache_read * self.cache_read.at(size)
        amount += usage.cache_write * self.cache_write.at(size)
        # rounded first: a sum such as 3.0000000000000004 is 3, not 4
        return ceil(round(amount * _PER_TOKEN, 6))

    def max_input_token_cost(self, size: int) -> float:
        """Return the most that a token of an input of this size can cost, in billionths: it may
        have to be written to the vendor's cache.
        """
        return max(self.input.at(size), self.cache_write.at(size)) * _PER_TOKEN

    def output_token_cost(self, size: int) -> float:
        """Return what a token of an answer costs, in billionths, by the size of its input."""
        return self.output.at(size) * _PER_TOKEN


class Prices:
    """The prices of the models of one config."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._addresses: dict[str, str | None] = {}
        self._cache: dict[tuple[str, str | None], tuple[float, Rates | None]] = {}
        """By name of the provider and model: the time at which the rates expire, and the rates."""

    def get(self, name: str, model: str | None = None) -> Rates | None:
        """Return the rates of a model of the provider called `name`; None if its price is not
        known. May read the disk.
        """
        valid_until, rates = self._cache.get((name, model), _EXPIRED_ENTRY)
        if time() >= valid_until:
            valid_until, rates = self._look_up(name, model)
            self._cache[name, model] = valid_until, rates
        return rates

    def _look_up(self, name: str, model: str | None) -> tuple[float, Rates | None]:
        """Return (expiry, rates): seconds since 1970, infinite for rates of config.toml."""
        settings = self._config.provider_config(name)
        if settings.price is not None and _is_own_model(settings, model):
            return inf, Rates.from_config(settings.price)
        if settings.kind == "offline":
            return inf, _FREE_RATES
        model = model or settings.model
        now = datetime.now(UTC)
        rates = _find_rates(model, self._address(name), now) if model else None
        if rates is None and settings.price is not None:
            rates = Rates.from_config(settings.price)
        return now.timestamp() + _VALIDITY_SECONDS, rates

    def _address(self, name: str) -> str | None:
        """Return the base URL of a provider; None if it has none, or cannot be made."""
        if name not in self._addresses:
            settings = self._config.provider_config(name)
            try:
                provider = create_provider(
                    settings.kind, name=name, api_key="-", **settings.settings()
                )
                self._addresses[name] = getattr(provider, "base_url", None)
            except ConfigError:
                self._addresses[name] = None
        return self._addresses[name]

    async def load(self, name: str, model: str | None = None) -> Rates | None:
        """Return what `get` returns, importing the package in a thread if that is necessary."""
        valid_until, rates = self._cache.get((name, model), _EXPIRED_ENTRY)
        if time() < valid_until:  # the usual case, before each call of a model
            return rates
        settings = self._config.provider_config(name)
        has_price = settings.price is not None and _is_own_model(settings, model)
        if has_price or settings.kind == "offline" or (name, model) in self._cache:
            return self.get(name, model)
        return await asyncio.to_thread(self.get, name, model)


def _is_own_model(settings: ProviderConfig, model: str | None) -> bool:
    """Tell whether a model is the one of the provider's table, of which its `price` is; a routine
    may name another one.
    """
    return model is None or settings.model in (None, model)


def _find_rates(model: str, address: str | None, now: datetime) -> Rates | None:
    """Return the rates of genai-prices at a moment; None if it does not know the address or the
    model.
    """
    if address is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    model = model.removeprefix("models/")  # as Gemini lists them
    try:
        _, entry = get_snapshot().find_provider_model(model, None, None, address)
    except LookupError:
        return None
    return _convert_prices(vars(entry.get_prices(now)))


def _convert_prices(prices: Mapping[str, Any]) -> Rates | None:
    """Convert the prices of genai-prices; cached input has the price of input if it has none of its
    own.
    """
    input_rate = _convert_price(prices.get("input_mtok"))
    output_rate = _convert_price(prices.get("output_mtok"))
    if input_rate is None or output_rate is None:
        return None
    return Rates(
        input=input_rate,
        output=output_rate,
        cache_read=_convert_price(prices.get("cache_read_mtok")) or input_rate,
        cache_write=_convert_price(prices.get("cache_write_mtok")) or input_rate,
    )


def _convert_price(price: Any) -> Rate | None:
    """Convert one price of genai-prices: a number, or an object with a base and tiers."""
    if price is None:
        return None
    if tiers := getattr(price, "tiers", None):
        return Rate(
            base=float(price.base), tiers=tuple((tier.start, float(tier.price)) for tier in tiers)
        )
    return Rate(base=float(getattr(price, "base", price)))


_EXPIRED_ENTRY = (-inf, None)
_FREE_RATE = Rate(base=0.0)
_FREE_RATES = Rates(
    input=_FREE_RATE, output=_FREE_RATE, cache_read=_FREE_RATE, cache_write=_FREE_RATE
)
