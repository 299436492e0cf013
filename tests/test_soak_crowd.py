"""A thousand runs at once, for each provider: none fails, and the memory goes back to where it
was.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.vendor import VendorProcess
from tests.replaying import ReplayedApp

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

RUNS = 1000
WAYS = {
    "open_source": ("open_source", "m", "/v1"),
    "openai": ("openai", "gpt-4.1", "/v1"),
    "claude": ("claude", "claude-opus-5-5", ""),
}
CONFIG = """
provider = "p"
[providers.p]
kind = "{kind}"
model = "{model}"
base_url = "{url}{path}"
api_key = "k"
[daemon]
max_concurrent = {runs}
"""
ROUTINE = (
    '[run]\nmode = "agent"\nprompt = "Look, then report."\ntools = ["self_info"]\nmemory = "none"\n'
)
POLICY = 'version = 1\n[[rule]]\ntool = "self_info"\neffect = "allow"\n'
TURNS = [{"tool_calls": [{"name": "self_info", "arguments": {}}]}, "All is well."]


def resident() -> float:
    """Return the megabytes that this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@pytest.mark.parametrize("way", WAYS)
async def test_a_thousand_concurrent_runs_leave_no_memory_behind(way: str, tmp_path: Path) -> None:
    kind, model, path = WAYS[way]
    app = ReplayedApp(tmp_path)
    app.write("policy.toml", POLICY)
    for number in range(RUNS):
        app.write_routine(f"r{number}", ROUTINE)
    with VendorProcess(TURNS, by="conversation", latency=0.2, strict=False) as vendor:
        app.write(
            "config.toml",
            CONFIG.format(kind=kind, model=model, url=vendor.url, path=path, runs=RUNS),
        )
        async with app:
            memory = []
            for _ in range(3):
                runs = await asyncio.gather(*(app.run(f"r{number}") for number in range(RUNS)))
                assert Counter(run.status.value for run in runs) == {"succeeded": RUNS}
                del runs
                memory.append(resident())
            assert not app.daemon.runs.queue.running
            rows = await app.spending("outcome")
    # each call was answered once; a few connections may have been slow to open on a busy machine,
    # and were opened again
    assert Counter(rows)["answered",] == 2 * RUNS * len(memory)
    assert len(rows) < 2.2 * RUNS * len(memory)
    # what a crowd needed at most stays with the allocator; one crowd more needs no more
    assert memory[2] < memory[1] * 1.05, f"the memory grows: {memory}"
