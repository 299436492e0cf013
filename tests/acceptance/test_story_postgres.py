"""The daemon with journal and memory on PostgreSQL: started, killed, resumed, searched and
erased.
"""

import re

import pytest

from tests.acceptance.story import Vendor
from tests.acceptance.test_story import AGENT, EFFECT, POLICY, config, effects

STORE = """
[store]
url = "{url}"
"""


@pytest.mark.process
async def test_a_daemon_on_postgres_recovers_its_runs_and_memory_after_kill_9(home, postgres_url):
    home.routine("work", AGENT.replace('mode = "agent"', 'mode = "agent"\nmemory = "recall+store"'))
    home.write("policy.toml", POLICY)
    async with Vendor(
        [EFFECT, {"text": "never arrives", "hang": True}, "The walrus line is there."]
    ) as vendor:
        home.write("config.toml", config(vendor, STORE.format(url=postgres_url)))
        await home.start()
        run = (await home.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(2)
        await home.kill()
        await home.start()
        event = await home.until(run, "run_ended")
        assert (event["status"], event["report"]) == ("succeeded", "The walrus line is there.")
        assert effects(home) == ["once"], (await home.agentctl("inspect", run)).out
        assert vendor.requests[1].body["messages"] == vendor.requests[2].body["messages"], (
            "nothing is asked anew"
        )
    await home.wait_for_log("delivery.arrived", run=run)
    assert not (home.state / "agentd.db").exists()

    listing = (await home.agentctl("list", "--json")).json
    assert [item["name"] for item in listing["items"]] == ["work"]
    inspection = await home.agentctl("inspect", run)
    assert "tee -a effects.txt" in inspection.out
    assert "succeeded" in inspection.out
    assert "postgresql://" in (await home.agentctl("memory", "show", "agentd:database")).out
    assert "walrus" in (await home.agentctl("memory", "search", "where is the walrus?")).out
    assert "each follows from the one before it" in (await home.agentctl("audit", "--verify")).out

    forget_result = await home.agentctl("memory", "forget", "--run", run, "--yes")
    assert forget_result.code == 0, forget_result.err
    assert "walrus" not in (await home.agentctl("memory", "search", "walrus")).out
    assert "walrus" not in (await home.agentctl("inspect", run)).out
    assert await home.stop() == 0
    assert "Traceback" not in home.complaints


async def test_replay_and_policy_commands_read_postgres_without_a_daemon(home, postgres_url):
    home.routine("work", AGENT)
    home.write("policy.toml", POLICY)
    async with Vendor([EFFECT, "The walrus line is there."]) as vendor:
        home.write("config.toml", config(vendor, STORE.format(url=postgres_url)))
        result = await home.agentd("once", "work")
        assert result.code == 0, result.err
    run = re.search(r"\b01[0-9A-Z]{24}\b", (home.state / "logs" / "agentd.jsonl").read_text())[0]
    replay = await home.agentd("replay", run)
    assert (replay.code, "identical" in replay.out) == (0, True), replay.err
    comparison = await home.agentd("policy", "backtest", "policy.toml")
    assert "1 of 1 call in 1 run since 30d: no difference" in comparison.out, comparison.err
    assert '"tee"' in (await home.agentd("policy", "suggest", "work")).out


async def test_backup_of_postgres_is_refused_with_a_hint_to_pg_dump(home):
    home.write("config.toml", '[store]\nurl = "postgresql://me@127.0.0.1:1/agentd"\n')
    result = await home.agentd("backup", "copy.db")
    assert result.code == 5
    assert "pg_dump" in result.err
