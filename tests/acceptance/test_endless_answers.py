"""Model answers without end or far too large fail their run with one sentence and affect no other
run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.story import Home, Vendor
from tests.fakes.flood import MEGABYTE, Flood
from tests.properties import combinations_of

pytestmark = pytest.mark.process

CONFIG = """
[providers.flood]
kind = "{kind}"
model = "gpt-4.1-mini"
base_url = "{flood}/v1"
api_key = "sk-test"
[providers.good]
kind = "open_source"
model = "llama3.2:3b"
base_url = "{vendor}/v1"
"""
ROUTINE = """
[trigger]
cron = "0 0 1 1 *"
[run]
provider = "{provider}"
prompt = "Say good morning."
"""


def peak_memory(pid: int) -> int:
    """Return the most bytes that a process has ever held in memory (VmHWM of proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak
    return int(peak[1]) * 1024


@combinations_of(answer=["chunks", "a text", "packed"], kind=["open_source", "openai"])
async def test_an_endless_model_answer_fails_only_its_run(
    home: Home, kind: str, answer: str
) -> None:
    async with (
        Flood(answer, most=64 * MEGABYTE if answer == "a text" else 250 * MEGABYTE) as flood,
        Vendor(["Good morning.", "Good morning."]) as vendor,
    ):
        home.env["PYTHONUNBUFFERED"] = "1"  # so it is a fresh Python, with its own memory alone
        home.write("config.toml", CONFIG.format(kind=kind, flood=flood.url, vendor=vendor.url))
        home.routine("greedy", ROUTINE.format(provider="flood"))
        home.routine("modest", ROUTINE.format(provider="good"))
        await home.start()
        greedy = (await home.agentctl("run", "greedy", "--detach", "--json")).json["id"]
        modest = await home.agentctl("run", "modest")
        assert modest.code == 0, modest.out + modest.err
        await home.until(greedy, "run_ended")
        run = (await home.agentctl("inspect", greedy, "--json")).json
        assert run["status"] == "failed"
        assert "raise max_answer_mb of [providers.flood]" in run["detail"]
        assert flood.requests == 1, "an answer over the bound is not asked for again"
        assert peak_memory(home.process.pid) < 200 * MEGABYTE
        modest = await home.agentctl("run", "modest")
        assert modest.code == 0, modest.out + modest.err
