"""The effort of reasoning goes to the vendor as it wants it, and only where the model has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.folder import load_folder
from daemon.models import Json
from daemon.scheduler.routine_checks import routine_checks
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import FUNCTIONS, WAYS, Opener, user


@pytest.mark.parametrize(
    ("way", "effort", "field"),
    [
        ("openai responses", "xhigh", {"reasoning": {"effort": "xhigh"}}),
        ("openai chat", "low", {"reasoning_effort": "low"}),
        ("claude opus", "max", {"output_config": {"effort": "max"}}),
        ("deepseek", "max", {"reasoning_effort": "max"}),
    ],
)
async def test_each_vendor_is_sent_the_effort_in_its_own_field(
    way: str, effort: str, field: Json, provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.chat([user("hi")], None if "chat" in way else FUNCTIONS, effort=effort)
        await provider.chat([user("hi")])
    with_effort, without = (request.body for request in vendor.requests)
    assert field.items() <= with_effort.items()
    assert not field.keys() & without.keys()
    assert vendor.refusals == []


@pytest.mark.parametrize("way", ["openai chat, no reasoning", "claude haiku", "kimi", "minimax"])
async def test_a_model_without_levels_is_sent_none_and_the_log_says_so_once(
    way: str, log_lines: list[Json], provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor)
        for _ in range(2):
            await provider.chat([user("hi")], effort="high")
    assert vendor.refusals == []
    (warning,) = [line for line in log_lines if line["log_level"] == "warning"]
    assert (warning["event"], warning["param"]) == ("provider.param_dropped", "effort")
    assert warning["model"] == WAYS[way][1]


CONFIG = """
provider = "astra"
[providers.astra]
kind = "openai"
model = "gpt-6-astra"
[providers.haiku]
kind = "claude"
model = "claude-haiku-4-5"
[providers.local]
kind = "open_source"
base_url = "http://127.0.0.1:9/v1"
model = "qwen3"
[providers.taught]
kind = "open_source"
base_url = "http://127.0.0.1:9/v1"
model = "qwen3"
capabilities = { effort = ["low", "high"] }
[providers.program]
kind = "command"
command = ["llm"]
[providers.mine]
kind = "tests.providers.test_kinds:Echo"
"""


def faults(folder: Path, run: str) -> str:
    (folder / "config.toml").write_text(CONFIG)
    (folder / "routines").mkdir()
    (folder / "routines/think.toml").write_text(f'[run]\nprompt = "Think."\n{run}\n')
    config = load_config(folder / "config.toml", env={})
    contents = load_folder(config.routines_path, checks=routine_checks(config))
    return "\n".join(str(error) for error in contents.faults.values())


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ('effort = "xhigh"', ""),
        ('effort = "high"\nprovider = "taught"', ""),
        ('effort = "max"\nprovider = "mine"', ""),
        ('effort = "high"\nfallback = ["local"]', ""),
        ('effort = "much"', "run.effort"),
        (
            'effort = "max"',
            "is none of the levels of gpt-6-astra: none, low, medium, high, xhigh",
        ),
        (
            'effort = "high"\nprovider = "haiku"',
            "no levels of effort are known of claude-haiku-4-5",
        ),
        (
            'effort = "high"\nprovider = "local"',
            'if it has more, name them: providers.local.capabilities.effort = ["high"]',
        ),
        ('effort = "minimal"\nmodel = "gpt-5"', ""),
        (
            'effort = "high"\nprovider = "program"',
            "kind command has none",
        ),
        (
            'effort = "high"\nprovider = "offline"',
            "kind offline has none",
        ),
    ],
)
def test_an_effort_that_the_model_does_not_have_is_refused_when_the_routine_is_loaded(
    tmp_path: Path, run: str, problem: str
) -> None:
    text = faults(tmp_path, run)
    assert bool(text) == bool(problem), text
    assert problem in text
