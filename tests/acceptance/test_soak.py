"""For as long as one likes: `pytest -m soak --soak-seconds 600`.

These run by name only; `.ci/run` runs them shortly.

The daemon is killed again and again at moments drawn by lot while runs with a side effect come and
go. At the end every run has ended, no side effect happened twice, and no more was asked of the
vendor than the kills can explain. The same with files that land: each was told to one run, and each
run that ended well was followed by one.
"""

import asyncio
import random
import time
from typing import Any

import pytest

from tests.acceptance.story import Home
from tests.acceptance.test_story import AGENT, EFFECT, POLICY, config, effects

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(3600)]
ROUTINES = 4


@pytest.fixture
def seconds(request):
    return request.config.getoption("--soak-seconds")


async def test_kill_9_at_any_moment_loses_no_run_and_repeats_no_side_effect(home: Home, seconds):
    from tests.fakes.vendor import VendorProcess

    lot = random.Random(time.time_ns())
    log = home.folder / "requests.jsonl"
    for number in range(ROUTINES):
        home.routine(f"work-{number}", f"{AGENT}\n{ATTEMPTS}")
    # what a program printed is in the report that the next run is shown, which would ask before it
    # changes anything
    trust = "".join(
        f'[routine.work-{number}]\ntainted_tools = ["shell"]\n' for number in range(ROUTINES)
    )
    home.write("policy.toml", POLICY + trust)
    with VendorProcess([EFFECT, "Done."], by="conversation", latency=0.05, log=log) as vendor:
        home.write("config.toml", config(vendor))
        runs, kills = set(), 0
        end = time.monotonic() + seconds
        await home.start()
        while time.monotonic() < end or kills < 4:
            results_of_starts = await asyncio.gather(
                *(home.agentctl("run", f"work-{number}", "--detach") for number in range(ROUTINES))
            )
            runs |= {result.out.strip() for result in results_of_starts if result.code == 0}
            await asyncio.sleep(lot.uniform(0, 0.4))
            await home.kill()
            kills += 1
            await home.start()
        async with asyncio.timeout(120):
            ended_runs = [await home.until(run, "run_ended") for run in sorted(runs)]
        assert {event["status"] for event in ended_runs} == {"succeeded"}
        results = [
            step["body"]
            for run in sorted(runs)
            for step in (await home.agentctl("inspect", run, "--json")).json["steps"]
            if step["kind"] == "result"
        ]
        success_count = sum(body["ok"] for body in results)
        unknown = sum("outcome unknown" in body["text"] for body in results)
        assert len(results) == len(runs) == success_count + unknown
        assert success_count <= len(effects(home)) <= success_count + unknown, (
            "a side effect happened twice, or got lost"
        )
        assert len(vendor.requests()) <= 2 * len(runs) + kills * ROUTINES


# so often killed before its first step, a run would be given up as one that kills the daemon
ATTEMPTS = "[run.retry]\nattempts = 1000\n"
INBOX = f"""
[trigger]
watch = ["inbox/**/*.csv"]
settle = "0.1s"
[run]
prompt = "What landed?"
{ATTEMPTS}"""
AFTER = f"""
[trigger]
after = ["inbox"]
[run]
prompt = "Say so."
overlap = "queue_one"
{ATTEMPTS}"""


async def test_kill_9_at_any_moment_loses_no_watched_file_and_no_chained_run(home: Home, seconds):
    home.routine("inbox", INBOX)
    home.routine("next", AFTER)
    lot, files, kills = random.Random(time.time_ns()), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or kills < 4:
        await home.start()
        for _ in range(lot.randint(1, 5)):
            folder = home.workspace / "inbox" / lot.choice(["", "a", "a/b", f"new-{kills}"])
            folder.mkdir(parents=True, exist_ok=True)
            for _ in range(lot.randint(1, 30)):
                (folder / f"{files}.csv").write_text("x")
                files += 1
            await asyncio.sleep(lot.uniform(0, 0.3))
        await asyncio.sleep(lot.uniform(0, 0.4))
        await home.kill()
        kills += 1
    await home.start()
    inputs: dict[str, dict[str, Any]] = {}
    async with asyncio.timeout(600):
        while len(reported_files := await _reported_files(home, inputs)) < files:
            await asyncio.sleep(0.2)
        while not await _all_answered(home):
            await asyncio.sleep(0.2)
    assert len(reported_files) == len(set(reported_files)) == files, "a file was told twice"


async def _reported_files(home: Home, inputs: dict[str, dict[str, Any]]) -> list[str]:
    """Return the files that runs were started for. `inputs` keeps what was read before, by run."""
    runs = (await home.agentctl("runs", "inbox", "--json", "--limit", "1000")).json["items"]
    for run in runs:
        if run["id"] not in inputs:
            result = await home.agentctl("inspect", run["id"], "--json")
            inputs[run["id"]] = result.json["input"]
    return [path for input_ in inputs.values() for path in input_["paths"]]


async def _all_answered(home: Home) -> bool:
    runs = (await home.agentctl("runs", "--json", "--limit", "1000")).json["items"]
    parents = {
        run["id"] for run in runs if run["routine"] == "inbox" and run["status"] == "succeeded"
    }
    slots = (await home.agentctl("slots", "next", "--json", "--limit", "1000")).json["items"]
    events = [
        (await home.agentctl("inspect", slot["run"], "--json")).json["event"]
        for slot in slots
        if slot["run"]
    ]
    assert len(events) == len(set(events)), "an end was answered twice"
    assert not [run for run in runs if run["status"] == "failed"], "no run may fail"
    return parents <= set(events) and all(run["status"] in ("succeeded", "skipped") for run in runs)
