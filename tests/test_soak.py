"""For as long as one likes: `pytest -m soak --soak-seconds 600`. These run by name only; `.ci/run` runs them shortly.

The daemon is killed again and again at moments drawn by lot while runs with a side effect come and go. At the end every
run has ended, no side effect happened twice, and no more was asked of the vendor than the kills can explain.
"""

import asyncio
import random
import time

import pytest

from tests.story import Home
from tests.test_story import AGENT, EFFECT, POLICY, config, effects

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
ROUTINES = 4


@pytest.fixture
def seconds(request):
    return request.config.getoption("--soak-seconds")


async def test_kill_9_at_any_moment_loses_nothing_and_repeats_no_side_effect(home: Home, seconds):
    from tests.fakes.vendor import VendorProcess

    lot = random.Random(time.time_ns())
    log = home.folder / "requests.jsonl"
    for number in range(ROUTINES):
        # so often killed before its first step, a run would be given up as one that kills the daemon
        home.routine(f"work-{number}", f"{AGENT}\n[run.retry]\nattempts = 1000\n")
    home.write("policy.toml", POLICY)
    with VendorProcess([EFFECT, "Done."], by="conversation", latency=0.05, log=log) as vendor:
        home.write("config.toml", config(vendor))
        runs, kills = set(), 0
        end = time.monotonic() + seconds
        await home.start()
        while time.monotonic() < end:
            asked = await asyncio.gather(
                *(home.agentctl("run", f"work-{number}", "--detach") for number in range(ROUTINES))
            )
            runs |= {each.out.strip() for each in asked if each.code == 0}
            await asyncio.sleep(lot.uniform(0, 0.4))
            await home.kill()
            kills += 1
            await home.start()
        ended = [await home.until(run, "run_ended") for run in sorted(runs)]
        assert {event["status"] for event in ended} == {"succeeded"}
        results = [
            step["body"]
            for run in sorted(runs)
            for step in (await home.agentctl("inspect", run, "--json")).json["steps"]
            if step["kind"] == "result"
        ]
        done = sum(body["ok"] for body in results)
        unknown = sum("outcome unknown" in body["text"] for body in results)
        assert len(results) == len(runs) == done + unknown
        assert done <= len(effects(home)) <= done + unknown, "a side effect happened twice, or got lost"
        assert len(vendor.requests()) <= 2 * len(runs) + kills * ROUTINES
    assert kills > 3
