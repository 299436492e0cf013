"""An agent makes and changes routines and settings; people list, pause, adopt and remove these
routines.
"""

import json
import tomllib
from datetime import UTC, datetime, timedelta

from tests.acceptance.story import Vendor

POLICY = """
version = 1
[[rule]]
tool = "routine"
effect = "allow"
[[rule]]
tool = "config"
effect = "allow"
argv = [["set", "reset"], ["agent.language", "provider"]]
[[rule]]
tool = "config"
effect = "allow"
argv = ["show"]
"""
PLANNER = """
[run]
mode = "agent"
prompt = "Plan."
tools = ["routine", "config"]
max_iterations = 20
timeout = "1m"
"""
CONFIG = """# mine
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{url}/v1"
model = "local"
api_key_env = "HOME"
[agent]
name = "Ada"
"""


def calling(tool, **arguments):
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def last_tool_result(vendor):
    """Return what the model was told of its last call."""
    return [
        message["content"]
        for message in vendor.requests[-1].body["messages"]
        if message["role"] == "tool"
    ][-1]


async def run_call(home, vendor, tool, **arguments):
    """Have a run make one call; return what it was told."""
    vendor.script.turns.extend([calling(tool, **arguments), {"text": "Done."}])
    result = await home.agentctl("run", "planner")
    is_denied = "it could do nothing, as its calls were denied" in result.err
    assert result.code == int(is_denied), result.err + result.out
    return last_tool_result(vendor)


async def list_by_name(home):
    return {
        routine["name"]: routine
        for routine in (await home.agentctl("list", "--json")).json["items"]
    }


async def test_people_can_list_pause_adopt_and_remove_a_routine_made_by_an_agent(home):
    home.write("policy.toml", POLICY)
    home.routine("planner", PLANNER)
    async with Vendor([]) as vendor:
        home.write("config.toml", CONFIG.format(url=vendor.url))
        await home.start()
        answer = await run_call(
            home,
            vendor,
            "routine",
            action="create",
            name="tea",
            when="daily at 16:00",
            prompt="Say: tea time.",
        )
        assert "at 16:00" in answer
        assert (await list_by_name(home))["tea"]["made_by"] == "planner"
        assert "made by planner" in (await home.agentctl("list")).out
        assert "2040" in await run_call(
            home, vendor, "routine", action="pause", name="tea", until="2040-01-01T00:00:00Z"
        )
        assert (await list_by_name(home))["tea"]["state"] == "paused"
        assert "tea is paused" in await run_call(home, vendor, "routine", action="run", name="tea")
        assert "resumed" in await run_call(home, vendor, "routine", action="resume", name="tea")
        hers = {"text": "Tea time.", "when": "Say: tea time."}
        turns = [hers, calling("routine", action="run", name="tea"), {"text": "Done."}]
        vendor.script.turns.extend(turns)
        assert (await home.agentctl("run", "planner")).code == 0
        await vendor.wait_for_requests(11)
        (run,) = (await home.agentctl("runs", "tea", "--json")).json["items"]
        assert run["trigger"] == "agent"

        assert (await home.agentctl("adopt", "planner")).code == 5
        adoption = await home.agentctl("adopt", "tea")
        assert adoption.code == 0 and "tea is yours now" in adoption.out
        definition = tomllib.loads((home.folder / "routines" / "tea.toml").read_text())
        assert "origin" not in definition and definition["run"]["prompt"] == "Say: tea time."
        assert not (home.state / "routines.d" / "tea.toml").exists()
        assert (await list_by_name(home))["tea"]["made_by"] is None

        await run_call(
            home,
            vendor,
            "routine",
            action="create",
            name="nap",
            when="daily at 13:00",
            prompt="Say: nap.",
        )
        await home.stop()
        await home.start()
        assert (await list_by_name(home))["nap"]["made_by"] == "planner"
        result = await home.agentctl("rename", "planner", "boss")
        assert result.code == 5 and "made nap" in result.err
        assert (await home.agentctl("remove", "nap")).code == 0
        assert (await home.agentctl("remove", "planner")).code == 5
        assert (await home.agentctl("remove", "nap")).code == 4
        assert set(await list_by_name(home)) == {"planner", "tea"}


async def test_an_agent_overrides_only_the_settings_that_the_policy_names(home):
    home.write("policy.toml", POLICY)
    home.routine("planner", PLANNER)
    async with Vendor([]) as vendor:
        home.write("config.toml", CONFIG.format(url=vendor.url))
        await home.start()
        settings = json.loads(await run_call(home, vendor, "config", action="show"))
        local = {"kind": "open_source", "model": "local", "timeout": "5m", "stall": "1m"}
        assert settings["agent"]["name"] == "Ada" and settings["providers"]["local"] == local
        assert "zh" in await run_call(
            home, vendor, "config", action="set", key="agent.language", value="zh"
        )
        assert await run_call(home, vendor, "config", action="show", key="agent.language") == "zh"
        assert home.folder.joinpath("config.toml").read_text() == CONFIG.format(url=vendor.url)
        reply = await run_call(home, vendor, "config", action="set", key="agent.name", value="Eve")
        assert "denied" in reply or "拒绝" in reply
        answer = await run_call(
            home, vendor, "config", action="set", key="provider", value="nobody"
        )
        assert "nothing was changed" in answer and "no such provider" in answer
        assert await run_call(home, vendor, "config", action="show", key="provider") == "local"
        await home.stop()
        await home.start()
        assert await run_call(home, vendor, "config", action="show", key="agent.language") == "zh"
        assert '"en"' in await run_call(
            home, vendor, "config", action="reset", key="agent.language"
        )
        await home.stop()
        (home.state / "overlay.toml").write_text('policy = "/tmp/evil.toml"\n')
        await home.start()
        status = await home.agentctl("status")
        assert "policy: is no setting that agents may write" in status.out
        assert await run_call(home, vendor, "config", action="show", key="policy") == "policy.toml"


async def test_an_agent_pauses_a_routine_for_a_duration_or_until_a_moment(home):
    home.write("policy.toml", POLICY)
    home.routine("planner", PLANNER)
    home.routine("disks", '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n')
    async with Vendor([]) as vendor:
        home.write("config.toml", CONFIG.format(url=vendor.url))
        await home.start()

        async def pause(until):
            return await run_call(
                home, vendor, "routine", action="pause", name="disks", until=until
            )

        for text, problem in (
            ("soon", "is no moment; write it like 2026-12-01T09:00:00Z, or 2h for so long"),
            ("0s", "has passed already"),
            ("2020-01-01T00:00:00Z", "has passed already"),
            ("9999 days", "is no moment"),
        ):
            assert problem in await pause(text)
        assert (await list_by_name(home))["disks"]["state"] == "on"
        before = datetime.now(UTC)
        assert '"paused": "disks"' in await pause("1 day and 2 hours")
        paused_until = datetime.fromisoformat((await list_by_name(home))["disks"]["paused_until"])
        assert before + timedelta(hours=26) <= paused_until.replace(microsecond=999_999)
        assert paused_until <= datetime.now(UTC) + timedelta(hours=26)
