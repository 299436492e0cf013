"""Which two models are proposed, and what a price reads like."""

from __future__ import annotations

from datetime import date

import pytest

from daemon.app.setup.models import first_line, format_dollars, price_function, propose
from daemon.app.setup.vendors import VENDORS, is_usable
from daemon.providers.base import ListedModel


def model(name: str, created: float = 0.0, **settings: object) -> ListedModel:
    return ListedModel(name=name, created=created, **settings)  # type: ignore[arg-type]


PRICES = {"small": 0.001, "middle": 0.01, "strong": 0.04, "dear": 0.2, "small-2": 0.001}


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ([model("small"), model("middle"), model("strong"), model("dear")], ["small", "strong"]),
        # of the same price the newer one
        ([model("small", 1), model("small-2", 2), model("strong", 3)], ["small-2", "strong"]),
        ([model("small"), model("small-2")], ["small-2"]),
        ([model("dear")], ["dear"]),
        ([model("unknown-9"), model("unknown-10"), model("other", 5)], ["other", "unknown-10"]),
        ([model("small"), model("middle", lifecycle="deprecated")], ["small"]),
        ([model("small"), model("middle", retires=date(2027, 1, 1))], ["small"]),
        ([model("small-embed"), model("tts-1"), model("gpt-realtime"), model("small")], ["small"]),
        (
            [model("gpt-3.5-turbo-instruct"), model("gemini-2.5-flash-live-001"), model("small")],
            ["small"],
        ),
        ([model("gpt-4o-search-preview"), model("o3-deep-research")], []),
        (
            [model("kimi-k2-instruct", 2), model("Qwen3-8B-Instruct", 1)],
            ["kimi-k2-instruct", "Qwen3-8B-Instruct"],
        ),
        ([model("olive-7b", 2), model("research-7b", 1)], ["olive-7b", "research-7b"]),
        ([], []),
    ],
)
def test_the_cheapest_and_the_strongest_affordable_model_are_proposed(
    models: list[ListedModel], names: list[str]
) -> None:
    assert [proposal.name for proposal in propose(models, PRICES.get)] == names


def test_models_that_are_no_longer_new_are_not_proposed() -> None:
    models = [model("small", 1), *(model(f"new-{number}", 2) for number in range(12))]
    proposals = propose(models, lambda name: 0.0001 if name == "small" else 0.02)
    assert [proposal.name for proposal in proposals] == ["new-11"]


def test_the_price_of_a_report_comes_from_the_table_of_prices() -> None:
    price = price_function("claude", "claude", "")
    amount = price("claude-haiku-4-5")
    assert amount is not None and 0.001 < amount < 0.05
    assert price("no-such-model") is None
    assert price_function("open_source", "mine", "http://127.0.0.1:1/v1")("gpt-4.1") is None


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "$0.00"),
        (0.0065, "$0.0065"),
        (0.02, "$0.02"),
        (0.000123, "$0.00012"),
        (1.5, "$1.50"),
        (4e-7, "$0.0000004"),
    ],
)
def test_an_amount_has_two_digits(amount: float, text: str) -> None:
    assert format_dollars(amount) == text


def test_names_that_cannot_be_shown_are_left_out() -> None:
    assert is_usable("qwen3:8b") and is_usable("models/gemini-3")
    assert not any(map(is_usable, ("", "a b", "a\x1b[2J", "a\u202eb", "x" * 201, "a\n")))


def test_every_vendor_can_be_made_a_provider() -> None:
    for vendor in VENDORS.values():
        assert vendor.is_local or price_function(vendor.kind, vendor.name, vendor.base_url)
        assert vendor.is_local == vendor.base_url.startswith("http://127.0.0.1:")


def test_the_first_line_of_an_answer_is_cut() -> None:
    assert first_line("\n\n  Ready.\nMore") == "Ready."
    assert len(first_line("x" * 1000)) == 160
    assert first_line("") == ""
