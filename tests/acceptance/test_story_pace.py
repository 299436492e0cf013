"""A routine says itself when to come again, as a user has it set up; kill -9 changes nothing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from tests.acceptance.story import Vendor

WATCH = """
[trigger]
pace = "{pace}"
[run]
mode = "agent"
prompt = "Look at the queue."
"""
CONFIG = """
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{url}/v1"
model = "gpt-5-mini"
api_key = "right"
"""


def ends(text, **arguments):
    return {"tool_calls": [{"name": "finish", "arguments": {"report": text, **arguments}}]}


async def starts_of(home, name="watch"):
    items = (await home.agentctl("next", name, "--json")).json["items"]
    return [datetime.fromisoformat(item["at"]) for item in items]


@pytest.mark.process
async def test_a_run_says_when_to_come_again_and_kill_9_does_not_start_it_twice(home):
    turns = [ends("Busy.", next="1s"), ends("Quiet.", next="5h"), "Never asked for."]
    async with Vendor(turns) as vendor:
        home.write("config.toml", CONFIG.format(url=vendor.url))
        home.routine("watch", WATCH.format(pace="1s..6h"))
        assert (await home.agentd("validate")).code == 0
        await home.start()
        await home.wait_for_log("run.finished", times=2)
        await home.kill()
        await home.start()
        runs = (await home.agentctl("runs", "--json")).json["items"]
        assert [(run["trigger"], run["status"]) for run in runs] == [("pace", "succeeded")] * 2
        newest, oldest = runs
        inspection = (await home.agentctl("inspect", newest["id"], "--json")).json
        assert inspection["event"] == f"pace {oldest['id']}"
        ended_at = datetime.fromisoformat(newest["ended"])
        (start,) = await starts_of(home)
        assert abs(start - ended_at - timedelta(hours=5)) < timedelta(seconds=1)
        why = (await home.agentctl("why", "watch")).out
        assert "was started by its pace (pace)" in why
        assert "By its pace it starts next at" in why
        assert (
            "1 second to 6 hours after each run, as the run says"
            in (await home.agentctl("show", "watch")).out
        )
        inspection = (await home.agentctl("inspect", "last")).out
        assert "trigger pace" in inspection
        assert "comes again after 5h" in inspection
        forecast = (await home.agentctl("forecast", "--days", "1")).out
        assert "watch starts between 4 and" in forecast
        assert len(vendor.requests) == 2
        assert vendor.refusals == []
        tools = json.dumps(vendor.requests[0].body["tools"])
        assert "a duration from 1s to 6h" in tools


async def test_what_a_run_asks_for_out_of_the_bounds_is_brought_within_and_it_is_told(home):
    turns = [ends("Busy.", next="soon"), ends("Busy.", next="2s")]
    async with Vendor(turns) as vendor:
        home.write("config.toml", CONFIG.format(url=vendor.url))
        home.routine("watch", WATCH.format(pace="3h..6h"))
        await home.start()
        assert (await home.agentctl("run", "watch")).code == 0
        again = json.dumps(vendor.requests[1].body["messages"])
        assert "next: expected a duration like" in again
        run = (await home.agentctl("inspect", "last", "--json")).json
        (start,) = await starts_of(home)
        ended_at = datetime.fromisoformat(run["ended"])
        assert abs(start - ended_at - timedelta(hours=3)) < timedelta(seconds=1)
        assert "comes again after 3h: 3h to 6h are the bounds" in json.dumps(run["steps"])
        output = (await home.agentctl("list")).out
        assert "watch" in output
