"""The checks of doctor on vendors: models are listed over a socket, answers judged from values."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.app.doctor.check import Check
from daemon.app.doctor.checks import ProviderFacts, Survey, judge
from daemon.app.doctor.survey import survey
from daemon.app.doctor.vendors import VendorAnswer, ask_vendors
from daemon.definitions.config.loading import load_config
from daemon.errors import BadKey
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import TRANSPORTS, provider

LISTS: dict[str, list[dict[str, Any]]] = {
    "openai chat": [
        {
            "id": "gpt-6-astra",
            "object": "model",
            "created": 1,
            "owned_by": "openai",
            "shutdown_date": "2027-01-14",
        },
        {
            "id": "gpt-4.1",
            "object": "model",
            "created": 1,
            "owned_by": "openai",
            "shutdown_date": None,
        },
    ],
    "claude opus": [
        {
            "type": "model",
            "id": "claude-opus-5-5",
            "lifecycle": "deprecated",
            "retires_at": "2027-01-14T00:00:00Z",
        },
        {"type": "model", "id": "claude-haiku-5-5", "lifecycle": "active", "retires_at": None},
    ],
    "deepseek": [
        {"id": "deepseek-v4-pro", "object": "model"},
        {"id": "deepseek-v4-flash", "object": "model"},
    ],
}


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_models_of_a_vendor_are_listed(way: str) -> None:
    async with FakeVendor([]) as vendor:
        vendor.models = LISTS[way]
        vendor_provider, refused_provider = (
            provider(way, vendor),
            provider(way, vendor, api_key="wrong"),
        )
        first, second = await vendor_provider.list_models()
        with pytest.raises(BadKey):
            await refused_provider.list_models()
        await vendor_provider.close()
        await refused_provider.close()
    assert [first.name, second.name] == [model["id"] for model in LISTS[way]]
    assert first.retires == (None if way == "deepseek" else date(2027, 1, 14))
    assert first.lifecycle == ("deprecated" if way == "claude opus" else "")
    assert second.retires is None


def check_of_model(vendor: VendorAnswer, model: str = "m-1") -> Check:
    facts = ProviderFacts(
        name="mine", kind="claude", model=model, used=True, key="a file", vendor=vendor
    )
    survey_facts = Survey(providers=(facts,), now=datetime(2026, 11, 20, tzinfo=UTC))
    return next(row for row in judge(survey_facts) if row.name == "vendor of mine")


@pytest.mark.parametrize(
    ("vendor", "state", "expected", "fix"),
    [
        (VendorAnswer(models=("m-1", "m-2")), "ok", "has m-1", ""),
        (VendorAnswer(models=("m-1:latest",)), "ok", "has m-1", ""),
        (VendorAnswer(models=("m-1-20251001", "m-2")), "ok", "has m-1", ""),  # Anthropic
        (VendorAnswer(models=("models/m-1", "models/m-2")), "ok", "has m-1", ""),  # Gemini
        (VendorAnswer(models=("m-1-mini", "m-2")), "fail", "it has no model 'm-1'", "such as m-2"),
        (VendorAnswer(), "ok", "lists no models", ""),
        (VendorAnswer(models=("m-2", "x")), "fail", "it has no model 'm-1'", "such as m-2"),
        (
            VendorAnswer(fault="no connection to h", transient=True),
            "warn",
            "no connection",
            "look at the network",
        ),
        (VendorAnswer(fault="the key was refused"), "fail", "refused", "look at the key"),
        (
            VendorAnswer(models=("m-1",), retires=date(2026, 12, 11)),
            "warn",
            "m-1 retires on 2026-12-11, in 21 days",
            "before then",
        ),
        (
            VendorAnswer(models=("m-1",), lifecycle="deprecated"),
            "warn",
            "m-1 retires",
            "before then",
        ),
        (
            VendorAnswer(models=("m-1",), retires=date(2026, 11, 19)),
            "fail",
            "was retired on 2026-11-19",
            "another",
        ),
        (VendorAnswer(models=("m-1",), lifecycle="retired"), "fail", "was retired", "another"),
        (
            # Anthropic: "retirement is overdue, not that it has occurred"
            VendorAnswer(models=("m-1",), lifecycle="deprecated", retires=date(2026, 11, 19)),
            "warn",
            "m-1 retires any day, as of 2026-11-19",
            "now",
        ),
    ],
)
def test_doctor_judges_the_answer_of_a_vendor(
    vendor: VendorAnswer, state: str, expected: str, fix: str
) -> None:
    row = check_of_model(vendor)
    assert row.state == state
    assert expected in row.found
    assert fix in row.fix


def test_a_server_of_one_model_may_answer_by_another_name() -> None:
    """As a server of llama.cpp does, whatever model it was started with."""
    vendor = VendorAnswer(models=("tiny.gguf",))
    facts = ProviderFacts(
        name="mine", kind="open_source", model="m-1", used=True, key="none needed", vendor=vendor
    )
    rows = judge(Survey(providers=(facts,), now=datetime(2026, 11, 20, tzinfo=UTC)))
    row = next(row for row in rows if row.name == "vendor of mine")
    assert row.state == "warn"
    assert "lists only tiny.gguf" in row.found
    assert check_of_model(vendor).state == "fail"  # a vendor that has one model for this key


CONFIG = """
provider = "retiring"
[providers.retiring]
kind = "claude"
model = "claude-opus-5-5"
base_url = "{url}"
api_key = "k"
[providers.gone]
kind = "open_source"
model = "gone"
base_url = "{url}/v1"
[providers.away]
kind = "open_source"
model = "away"
base_url = "http://{unused_address}/v1"
[providers.unused]
kind = "open_source"
model = "m"
base_url = "http://127.0.0.1:9/v1"
"""


async def test_doctor_contacts_only_providers_in_use(tmp_path: Path, unused_address: str) -> None:
    (tmp_path / "policy.toml").write_text("version = 1")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines" / "r.toml").write_text(
        '[run]\nprompt = "x"\nfallback = ["gone", "away", "offline"]'
    )
    async with FakeVendor([]) as vendor:
        vendor.models = LISTS["claude opus"]
        file = tmp_path / "config.toml"
        file.write_text(CONFIG.format(url=vendor.url, unused_address=unused_address))
        file.chmod(0o600)
        facts = await asyncio.to_thread(
            survey, file, tmp_path / "state", tmp_path / "agentd.sock", {}
        )
    vendor_answers = {
        provider_survey.name: provider_survey.vendor for provider_survey in facts.providers
    }
    assert vendor_answers["unused"] is None
    assert vendor_answers["offline"] is None
    assert vendor_answers["retiring"] == VendorAnswer(
        models=("claude-opus-5-5", "claude-haiku-5-5"),
        lifecycle="deprecated",
        retires=date(2027, 1, 14),
    )
    assert vendor_answers["gone"] == VendorAnswer(models=("claude-opus-5-5", "claude-haiku-5-5"))
    assert vendor_answers["away"] is not None
    assert vendor_answers["away"].transient
    assert f"no connection to {unused_address}" in vendor_answers["away"].fault


def test_doctor_does_not_contact_a_provider_without_a_key(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers.x]\nkind = "claude"\nmodel = "m"\n[providers.s]\nkind = "scripted"')
    assert ask_vendors(load_config(file), {}, ["x", "s"]) == {"s": VendorAnswer()}
