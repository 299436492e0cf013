"""Which models a vendor has, which two to propose, and whether one answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from daemon.app.setup.vendors import ANY_MODEL, is_usable
from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import ProviderConfig
from daemon.errors import BadRequest, ProviderError
from daemon.models import LLMMessage, LLMResponse, Usage
from daemon.providers import create_provider
from daemon.providers.base import ListedModel
from daemon.providers.pricing import NANO, Prices, Rates

# What the shipped daily-report takes: its prompt and task (some 530 tokens, as `agentctl preview`
# says), the facts of a machine (some 2,500), and a report of a page.
REPORT_USAGE = Usage(input=3000, output=700)
# Dollars: a model whose report costs more is for those who name it.
_MAX_REPORT_PRICE = 0.05
# Of a vendor's list the newest are looked at: older ones may cost less, and are worth less.
_NEWEST = 12
# Prices are looked up for so many models at most: a router lists thousands.
_MAX_PRICED = 300
_LIST_TIMEOUT = 15.0  # seconds
_CALL_TIMEOUT = 90.0  # seconds: a local server may have to load the model first
# Tokens of the answer to the test call, with what a model thinks before it.
_MAX_ANSWER = 2000
_MAX_LINE = 160  # characters of the answer that are shown
_QUESTION = "Say in one short sentence that you are ready to write reports."
# Names of models that write no reports.
_OTHER_USES = re.compile(
    r"embed|tts|audio|image|realtime|moderation|whisper|dall-e|transcri|codex|computer-use|"
    r"translate|rerank|guard|vision|ocr|video|sora|veo|imagen|davinci|babbage|"
    # Many chat models have "instruct" in their names, too; these are none.
    r"turbo-instruct|instructor|"
    # Deep research takes tools that runs do not offer. The whole words: not "research" or "olive".
    r"deep-research|(?<![a-z])(?:search|live)(?![a-z])",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedModel:
    """A model, with the price of a report."""

    name: str
    price: float | None = None
    """Dollars for a report of the usual length; None if it is not known."""

    @property
    def description(self) -> str:
        return "" if self.price is None else f"about {format_dollars(self.price)} a report"


def format_dollars(amount: float) -> str:
    """Return an amount with two digits that say something: `$0.0065`, `$0.02`, `$1.50`."""
    if amount >= 0.1 or amount == 0:
        return f"${amount:.2f}"
    return f"${Decimal(f'{amount:.2g}'):f}"


def provider_config(kind: str, *, model: str, base_url: str) -> ProviderConfig:
    """Return the settings of a provider without its key."""
    settings: dict[str, Any] = {"kind": kind, "model": model}
    if base_url:
        settings["base_url"] = base_url
    return ProviderConfig.model_validate(settings)


def list_models(kind: str, name: str, base_url: str, key: str | None) -> list[ListedModel]:
    """Ask a vendor for its models; empty if it lists none.

    Models with a name that cannot be shown are left out. Raises ProviderError.
    """

    async def ask() -> Sequence[ListedModel]:
        settings = provider_config(kind, model=ANY_MODEL, base_url=base_url).settings()
        settings["timeout"] = _LIST_TIMEOUT
        provider = create_provider(kind, name=name, api_key=key, **settings)
        try:
            return await provider.list_models()
        except BadRequest:
            # A server without such a list, unless the address lacks its path: the error says so.
            path = urlsplit(base_url).path.strip("/")
            if kind in ("openai", "open_source") and base_url and not path:
                raise
            return []
        finally:
            await provider.close()

    return [model for model in asyncio.run(ask()) if is_usable(model.name)]


def price_function(kind: str, name: str, base_url: str) -> Callable[[str], float | None]:
    """Return a function that returns the price of a report by a model's name."""
    config = Config(providers={name: provider_config(kind, model=ANY_MODEL, base_url=base_url)})
    prices = Prices(config)

    def price(model: str) -> float | None:
        rates: Rates | None = prices.get(name, model)
        return None if rates is None else rates.cost(REPORT_USAGE) / NANO

    return price


def call_price(kind: str, name: str, base_url: str, model: str, usage: Usage) -> float | None:
    """Return what a call cost in dollars; None if the price of the model is not known."""
    config = Config(providers={name: provider_config(kind, model=model, base_url=base_url)})
    rates = Prices(config).get(name, model)
    return None if rates is None else rates.cost(usage) / NANO


def propose(
    models: Sequence[ListedModel], price: Callable[[str], float | None]
) -> list[PricedModel]:
    """Return up to two models for reports: the cheapest one, and the strongest that is not dear.

    Of models whose price is not known, as on a server of one's own, the two newest.
    """
    suitable_models = [
        model
        for model in models
        if model.lifecycle not in ("deprecated", "retired")
        and model.retires is None
        and not _OTHER_USES.search(model.name)
    ]
    # The newest first; by name where the vendor gives no date, a later version before an earlier.
    suitable_models.sort(key=lambda model: _natural(model.name), reverse=True)
    suitable_models.sort(key=lambda model: model.created, reverse=True)
    priced_models = [
        PricedModel(name=model.name, price=price(model.name))
        for model in suitable_models[:_MAX_PRICED]
    ]
    affordable_models = [model for model in priced_models if model.price is not None][:_NEWEST]
    affordable_models = [
        model for model in affordable_models if (model.price or 0) <= _MAX_REPORT_PRICE
    ]
    if not affordable_models:
        return priced_models[:2]
    # Of the same price the first, which is newer.
    cheapest = min(affordable_models, key=lambda model: model.price or 0)
    strongest = max(affordable_models, key=lambda model: model.price or 0)
    return [cheapest] if strongest.price == cheapest.price else [cheapest, strongest]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `x-10` behind `x-9`."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", name.lower())
    ]


def try_model(kind: str, name: str, base_url: str, key: str | None, model: str) -> LLMResponse:
    """Ask a model one short question, through the provider that runs would use.

    Raises ProviderError.
    """

    async def ask() -> LLMResponse:
        settings = provider_config(kind, model=model, base_url=base_url).settings()
        settings["timeout"] = _CALL_TIMEOUT
        provider = create_provider(kind, name=name, api_key=key, **settings)
        try:
            await provider.load()
            async with asyncio.timeout(_CALL_TIMEOUT):
                return await provider.chat(
                    [LLMMessage(role="user", content=_QUESTION)], max_tokens=_MAX_ANSWER
                )
        except TimeoutError:
            raise ProviderError(f"{name} ({model}): no answer within {_CALL_TIMEOUT:g} s") from None
        finally:
            await provider.close()

    return asyncio.run(ask())


def first_line(answer: str) -> str:
    """Return the first line of an answer, cut to what a terminal shows."""
    line = next((line.strip() for line in answer.splitlines() if line.strip()), "")
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…"
