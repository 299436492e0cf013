"""What models cost: as the user says, else as the data of genai-prices say for the vendor's own
address.

Amounts are whole billionths of a dollar (nano), so that sums are exact. The data are imported when
a price is first asked for: 10 MiB and 50 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from time import time
from typing import TYPE_CHECKING, Any

from daemon.errors import ConfigError
from daemon.models import Usage
from daemon.providers import create_provider

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.config.tables import PriceConfig

NANO = 1_000_000_000
# A dollar per million tokens is so many billionths per token.
_PER_TOKEN = 1000
# Prices change at an hour of the day at the finest.
_FRESH = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Dollars per million tokens; from so many tokens of input on, another rate for all of them."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, size: int) -> float:
        return next((price for start, price in reversed(self.tiers) if size > start), self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What one model costs."""

    input: Rate
    output: Rate
    cache_read: Rate
    cache_write: Rate

    @classmethod
    def given(cls, price: PriceConfig) -> Rates:
        """Return the rates that the user names; what is cached costs as any input, unless said
        otherwise.
        """
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        return cls(
            input=Rate(base=price.input),
            output=Rate(base=price.output),
            cache_read=Rate(base=read),
            cache_write=Rate(base=write),
        )

    def cost(self, usage: Usage) -> int:
        """Return what a call cost, rounded up."""
        size = usage.input
        plain = max(0, size - usage.cache_read - usage.cache_write)
        dollars = plain * self.input.at(size) + usage.output * self.output.at(size)
        dollars += usage.cache_read * self.cache_read.at(
            size
        ) + usage.cache_write * self.cache_write.at(size)
        return -int(-round(dollars * _PER_TOKEN, 6) // 1)

    def dearest(self, size: int) -> float:
        """Return the most that a token of such an input can cost, in billionths: all may be written
        to a cache.
        """
        return max(self.input.at(size), self.cache_write.at(size)) * _PER_TOKEN

    def output_token(self, size: int) -> float:
        """Return what a token of the answer costs, in billionths."""
        return self.output.at(size) * _PER_TOKEN


class Prices:
    """The prices of the models of one config."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._addresses: dict[str, str | None] = {}
        self._known: dict[tuple[str, str | None], tuple[float, Rates | None]] = {}
        """By name and model: until when the rates hold, and the rates."""

    def of(self, name: str, model: str | None = None) -> Rates | None:
        """Return what a model of the provider called `name` costs, None if nobody has said; may
        read the disk.
        """
        until, rates = self._known.get((name, model), _NEVER)
        if time() >= until:
            until, rates = self._said(name, model)
            self._known[name, model] = until, rates
        return rates

    def _said(self, name: str, model: str | None) -> tuple[float, Rates | None]:
        """Return until when a price holds, and the price."""
        settings = self._config.provider_config(name)
        if settings.price is not None:
            return inf, Rates.given(settings.price)
        if settings.kind == "offline":
            return inf, _FREE
        model = model or settings.model
        now = datetime.now(UTC)
        return now.timestamp() + _FRESH, _data(model, self._address(name), now) if model else None

    def _address(self, name: str) -> str | None:
        """Return where a provider is reached: its vendor's own address, unless the config names
        another.
        """
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

    async def soon(self, name: str, model: str | None = None) -> Rates | None:
        """Return the same, off the event loop where the data have to be loaded."""
        until, rates = self._known.get((name, model), _NEVER)
        if time() < until:  # each call to a model asks
            return rates
        settings = self._config.provider_config(name)
        if settings.price is not None or settings.kind == "offline" or (name, model) in self._known:
            return self.of(name, model)
        return await asyncio.to_thread(self.of, name, model)


def _data(model: str, address: str | None, now: datetime) -> Rates | None:
    if address is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, None, address)
    except LookupError:
        return None
    return _rates(vars(found.get_prices(now)))


def _rates(prices: Mapping[str, Any]) -> Rates | None:
    """Read the prices per million tokens of genai-prices; what is cached at no price of its own is
    plain input.
    """
    plain, made = _rate(prices.get("input_mtok")), _rate(prices.get("output_mtok"))
    if plain is None or made is None:
        return None
    return Rates(
        input=plain,
        output=made,
        cache_read=_rate(prices.get("cache_read_mtok")) or plain,
        cache_write=_rate(prices.get("cache_write_mtok")) or plain,
    )


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    if tiers := getattr(price, "tiers", None):
        return Rate(
            base=float(price.base), tiers=tuple((tier.start, float(tier.price)) for tier in tiers)
        )
    return Rate(base=float(getattr(price, "base", price)))


_NEVER = (-inf, None)
_NOTHING = Rate(base=0.0)
_FREE = Rates(input=_NOTHING, output=_NOTHING, cache_read=_NOTHING, cache_write=_NOTHING)
