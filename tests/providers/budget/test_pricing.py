"""What a call costs: as genai-prices reckons, or as the user says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.models import Usage
from daemon.providers.pricing import NANO, Prices, Rates
from tests.properties import scaled_settings

# Vendors people name in config.toml, and where genai-prices knows them by their address.
MODELS = [
    ("claude", None, "claude-opus-5-5"),
    ("claude", None, "claude-haiku-5-5"),
    ("claude", None, "claude-sonnet-4-5"),
    ("openai", None, "gpt-6-astra"),
    ("openai", None, "gpt-5.4-mini"),
    ("minimax", None, "MiniMax-M3"),
    ("open_source", "https://api.deepseek.com/v1", "deepseek-v4-pro"),
    ("open_source", "https://api.moonshot.cn/v1", "kimi-k3"),
    ("open_source", "https://open.bigmodel.cn/api/paas/v4", "glm-5"),
]


def prices(kind: str, url: str | None, model: str, folder: Path, more: str = "") -> Prices:
    lines = [
        "[providers.x]",
        f'kind = "{kind}"',
        f'model = "{model}"',
        f'base_url = "{url}"' if url else "",
        more,
    ]
    file = folder / "config.toml"
    file.write_text("\n".join(lines))
    return Prices(load_config(file))


@pytest.mark.parametrize(("kind", "url", "model"), MODELS)
def test_prices_equal_those_of_genai_prices(
    kind: str, url: str | None, model: str, tmp_path: Path
) -> None:
    """Read once and reckoned here, as the library takes 0.1 ms per call: to the same sum for any
    usage.
    """
    from genai_prices import Usage as Theirs
    from genai_prices.data_snapshot import get_snapshot

    rates = prices(kind, url, model, tmp_path).get("x")
    assert rates is not None
    homes = {"claude": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
    address = url or homes.get(kind, "https://api.minimaxi.com/anthropic")
    _, info = get_snapshot().find_provider_model(model, None, None, address)

    @scaled_settings(40)
    @given(
        input_tokens=st.integers(0, 900_000),
        read_share=st.floats(0, 0.5),
        write_share=st.floats(0, 0.5),
        output=st.integers(0, 128_000),
    )
    def check_price(input_tokens: int, read_share: float, write_share: float, output: int) -> None:
        usage = Usage(
            input=input_tokens,
            cache_read=int(input_tokens * read_share),
            cache_write=int(input_tokens * write_share),
            output=output,
        )
        reference_price = info.get_prices(datetime.now(UTC)).calc_price(
            Theirs(
                input_tokens=usage.input,
                cache_read_tokens=usage.cache_read,
                cache_write_tokens=usage.cache_write,
                output_tokens=usage.output,
            )
        )
        assert rates.cost(usage) == pytest.approx(
            float(reference_price["total_price"] * Decimal(NANO)), abs=2
        )

    check_price()


def test_a_model_of_gemini_has_its_price_under_the_name_that_is_listed(tmp_path: Path) -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/openai"
    price = prices("open_source", url, "models/gemini-2.5-flash", tmp_path)
    assert price.get("x") == price.get("x", "gemini-2.5-flash") is not None


def test_a_configured_price_overrides_the_known_price(tmp_path: Path) -> None:
    more = "[providers.x.price]\ninput = 2\noutput = 10\ncache_read = 0.5"
    rates = prices("claude", None, "claude-opus-5-5", tmp_path, more).get("x")
    assert rates is not None
    usage = Usage(input=1000, cache_read=600, cache_write=100, output=50)
    assert rates.cost(usage) == (300 * 2 + 600 * 0.5 + 100 * 2 + 50 * 10) * 1000


async def test_a_configured_price_is_not_that_of_another_model(tmp_path: Path) -> None:
    more = "[providers.x.price]\ninput = 2\noutput = 10"
    price = prices("claude", None, "claude-haiku-5-5", tmp_path, more)
    dear_model = prices("claude", None, "claude-opus-5-5", tmp_path).get("x")
    assert dear_model is not None
    assert price.get("x", "claude-opus-5-5") == await price.load("x", "claude-opus-5-5")
    assert price.get("x", "claude-opus-5-5") == dear_model != price.get("x")
    # nothing else is known of it
    assert price.get("x", "a-model-of-tomorrow") == price.get("x", "claude-haiku-5-5")


@pytest.mark.parametrize(
    ("kind", "url", "model"),
    [
        ("claude", None, "a-model-of-tomorrow"),
        ("claude", "http://127.0.0.1:4000", "claude-opus-5-5"),  # a gateway has prices of its own
        ("open_source", "http://127.0.0.1:11434/v1", "llama3.3"),
        ("scripted", None, "scripted"),
    ],
)
def test_an_unknown_price_is_not_guessed(
    kind: str, url: str | None, model: str, tmp_path: Path
) -> None:
    price = prices(kind, url, model, tmp_path)
    assert price.get("x") is None
    assert price.get("x", "another") is None


async def test_the_offline_provider_costs_nothing() -> None:
    rates = await Prices(Config()).load("offline")
    assert rates is not None
    assert rates.cost(Usage(input=9, output=9)) == 0


def test_a_sum_is_rounded_up_to_a_billionth() -> None:
    from daemon.definitions.config.tables import PriceConfig

    rates = Rates.from_config(PriceConfig(input=0.0001, output=0))
    assert [rates.cost(Usage(input=tokens)) for tokens in (0, 1, 10, 11)] == [0, 1, 1, 2]
