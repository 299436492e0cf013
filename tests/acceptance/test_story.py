"""The daemon as a user sees it: a real process on a real socket, driven by agentctl."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.story import Vendor

AGENT = """
description = "Works"
[run]
mode = "agent"
prompt = "Append one line."
tools = ["shell"]
timeout = "1m"
[[deliver]]
to = "file"
path = "reports/{routine}.md"
"""

# `tee -a` counts its own runs: a line in the file for each
POLICY = """
version = 1
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
[[rule]]
tool = "shell"
argv = ["tee", "-a", "effects.txt"]
effect = "allow"
[[rule]]
tool = "shell"
argv = ["sleep", "600"]
effect = "allow"
[[rule]]
tool = "finish"
effect = "allow"
"""

EFFECT = {
    "tool_calls": [{"name": "shell", "arguments": {"command": "echo once | tee -a effects.txt"}}]
}


def config(vendor, extra=""):
    return f"""
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{vendor.url}/v1"
model = "local"
{extra}
"""


@pytest.fixture
def working(home):
    """A home with an agent that may append a line to a file."""
    home.routine("work", AGENT)
    home.write("policy.toml", POLICY)
    return home


def effects(home):
    path = home.workspace / "effects.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.process
async def test_the_shipped_daily_report_describes_this_machine(shipped_home):
    await shipped_home.start()
    assert "daily-report" in shipped_home.output
    assert "heartbeat" in shipped_home.output
    (first,) = (await shipped_home.agentctl_process("runs", "daily-report", "--json")).json["items"]
    await shipped_home.until(first["id"], "run_ended")
    result = await shipped_home.agentctl_process("inspect", first["id"], "--json")
    assert result.json["status"] == "succeeded"
    await shipped_home.wait_for_log("delivery.arrived", run=first["id"])
    (report,) = (shipped_home.workspace / "reports" / "daily-report").glob("*.md")
    assert os.uname().nodename in report.read_text()


@pytest.mark.process
async def test_run_streams_its_steps_and_prints_the_report(shipped_home):
    await shipped_home.start()
    (first,) = (await shipped_home.agentctl_process("runs", "daily-report", "--json")).json["items"]
    await shipped_home.until(first["id"], "run_ended")
    result = await shipped_home.agentctl_process("run", "daily-report")
    assert result.code == 0, result.err
    assert "sysinfo" in result.err
    assert "Disks" in result.out
    inspection = await shipped_home.agentctl_process(
        "inspect", (await shipped_home.agentctl_process("runs", "--json")).json["items"][0]["id"]
    )
    assert inspection.code == 0
    for word in ("daily-report", "sysinfo", "allow", "succeeded", "tokens"):
        assert word in inspection.out, word


@pytest.mark.slow
async def test_list_shows_the_shipped_routines(shipped_home):
    await shipped_home.start()
    result = await shipped_home.agentctl("list")
    assert result.code == 0
    assert "daily-report" in result.out
    assert "heartbeat" in result.out


@pytest.mark.process
async def test_kill_9_after_a_side_effect_repeats_no_call_and_the_run_continues(working):
    async with Vendor(
        [EFFECT, {"text": "never arrives", "hang": True}, "The line is there."]
    ) as vendor:
        working.write("config.toml", config(vendor))
        await working.start()
        result = await working.agentctl("run", "work", "--detach")
        await vendor.wait_for_requests(2)
        await working.kill()
        await working.start()
        run = result.out.strip()
        event = await working.until(run, "run_ended")
        assert (event["status"], event["report"]) == ("succeeded", "The line is there.")
        assert effects(working) == ["once"]
        assert len(vendor.requests) == 3
        first, second, third = (request.body["messages"] for request in vendor.requests)
        assert second == third, "the same conversation was sent again, byte for byte"
        assert len(first) < len(second)


@pytest.mark.process
async def test_kill_9_during_a_side_effect_is_reported_to_the_model_and_not_repeated(working):
    slow = {
        "tool_calls": [
            {
                "name": "shell",
                "arguments": {"command": "echo once | tee -a effects.txt && sleep 600"},
            }
        ]
    }
    async with Vendor([slow, "I looked."]) as vendor:
        working.write("config.toml", config(vendor))
        await working.start()
        run = (await working.agentctl("run", "work", "--detach")).out.strip()
        await working.until(run, "tool_started")
        await working.kill()
        await working.start()
        assert (await working.until(run, "run_ended"))["status"] == "succeeded"
        tool_result = vendor.requests[-1].body["messages"][-1]["content"]
        assert "interrupted: outcome unknown; check before retrying" in tool_result
        assert len(effects(working)) <= 1


@pytest.mark.process
async def test_sigterm_suspends_a_run_and_the_next_start_continues_the_run(working):
    async with Vendor([EFFECT, {"text": "never arrives", "hang": True}, "Done."]) as vendor:
        working.write("config.toml", config(vendor, '[daemon]\ngrace = "1s"\n'))
        await working.start()
        run = (await working.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(2)
        assert await working.stop() == 0
        await working.start()
        assert (await working.until(run, "run_ended"))["report"] == "Done."
        assert effects(working) == ["once"]


@pytest.mark.process
async def test_ctrl_c_stops_the_daemon_cleanly(working):
    async with Vendor([]) as vendor:
        working.write("config.toml", config(vendor))
        await working.start()
        assert await working.stop(signal.SIGINT) == 0
        assert "Traceback" not in working.complaints
        assert not working.socket.exists()


async def test_cancelling_a_run_stops_its_tool(working):
    slow = {"tool_calls": [{"name": "shell", "arguments": {"command": "sleep 600"}}]}
    async with Vendor([slow]) as vendor:
        working.write("config.toml", config(vendor))
        await working.start()
        run = (await working.agentctl("run", "work", "--detach")).out.strip()
        await working.until(run, "tool_started")
        assert (await working.agentctl("cancel", run)).code == 0
        assert (await working.until(run, "run_ended"))["status"] == "cancelled"
        lines = (
            await working.agentctl("logs", "--run", run, "--routine", "work", "--json")
        ).out.splitlines()
        assert any('"run.finished"' in line and '"cancelled"' in line for line in lines), (
            "it is named on every line"
        )
        assert (await working.agentctl("list")).code == 0


async def test_a_second_daemon_on_the_same_state_names_the_first(shipped_home):
    await shipped_home.start()
    second = await shipped_home.agentd()
    assert second.code == 75
    assert str(shipped_home.pid) in second.err
    assert second.err.count("\n") == 1


async def test_once_hands_its_run_to_the_daemon_that_holds_the_state(home):
    home.routine(
        "hello", 'description = "Hi"\n[run]\nprompt = "Say hello."\n[[deliver]]\nto = "log"\n'
    )
    await home.start()
    result = await home.agentd("once", "hello")
    assert result.code == 0, result.err
    assert (await home.agentctl("runs", "hello", "--json")).json["items"][0][
        "status"
    ] == "succeeded"


async def test_once_finds_the_daemon_that_was_started_in_another_environment(home):
    """As from cron, which sets no XDG_RUNTIME_DIR, beside a daemon that listens there."""
    home.routine("hello", '[run]\nprompt = "Say hello."\n[[deliver]]\nto = "log"\n')
    await home.start()
    home.env |= {"XDG_RUNTIME_DIR": str(home.folder), "AGENTD_STATE": str(home.state)}
    config = home.folder / "config.toml"
    result = await home.run("agentd", "once", "hello", "--config", config)
    assert result.code == 0, result.err
    runs = await home.agentctl("runs", "hello", "--json")
    assert [run["status"] for run in runs.json["items"]] == ["succeeded"]


async def test_once_runs_a_routine_without_a_daemon(home):
    home.routine(
        "hello", '[run]\nprompt = "Say hello."\n[[deliver]]\nto = "file"\npath = "hello.md"\n'
    )
    result = await home.agentd("once", "hello")
    assert result.code == 0, result.err
    assert result.out.strip()
    assert (home.workspace / "hello.md").exists()


async def test_once_of_an_unknown_routine_is_refused_with_its_name(home):
    result = await home.agentd("once", "nothing")
    assert result.code == 4
    assert "nothing" in result.err


async def test_all_config_faults_are_named_at_once_with_the_permanent_exit_code(
    home,
):
    home.write("config.toml", 'provder = "x"\n[agent]\nlanguage = "xx"\n')
    result = await home.agentd()
    assert result.code == 78
    assert "provder" in result.err
    assert "provider" in result.err
    assert "agent.language" in result.err


async def test_a_missing_api_key_stops_the_start_and_names_its_setting(home):
    home.write(
        "config.toml", 'provider = "claude"\n[providers.claude]\nkind = "claude"\nmodel = "m"\n'
    )
    result = await home.agentd()
    assert result.code == 78
    assert "api_key_file" in result.err


async def test_one_broken_routine_is_listed_while_the_others_run(home):
    home.routine("good", '[run]\nprompt = "Say hello."\n')
    home.routine("bad", "[run\n")
    await home.start()
    result = await home.agentctl("list", "--json")
    assert {item["name"]: item["state"] for item in result.json["items"]} == {
        "good": "on",
        "bad": "invalid",
    }
    assert (await home.agentctl("run", "good")).code == 0
    run_result = await home.agentctl("run", "bad")
    assert run_result.code == 5


async def test_reload_loads_edited_routines_and_keeps_the_last_valid_config(
    home,
):
    home.routine("hello", '[run]\nprompt = "Say hello."\n')
    await home.start()
    home.routine("bye", '[run]\nprompt = "Say bye."\n')
    assert (await home.agentctl("reload")).code == 0
    assert "bye" in (await home.agentctl("list")).out
    home.write("config.toml", "nonsense = 1\n")
    assert (await home.agentctl("reload")).code == 5
    assert "nonsense" in (await home.agentctl("status", "--json")).json["fault"]
    assert (await home.agentctl("run", "bye")).code == 0


@pytest.mark.process
async def test_an_api_key_appears_in_no_file_log_or_output(working):
    canary = "canary-7f3a9c51e2d84b60"
    leak = {"tool_calls": [{"name": "shell", "arguments": {"command": f"echo {canary}"}}]}
    async with Vendor([leak, f"The key is {canary}."]) as vendor:
        working.write("config.toml", config(vendor, 'api_key_env = "CANARY"'))
        working.env["CANARY"] = canary
        await working.start()
        result = await working.agentctl("run", "work")
        inspection = await working.agentctl(
            "inspect", "--full", (await working.agentctl("runs", "--json")).json["items"][0]["id"]
        )
        await working.stop()
        outputs = result.out + result.err + inspection.out + working.output + working.complaints
        assert canary not in outputs
        results = json.dumps([request.body["messages"][-1] for request in vendor.requests[1:]])
        assert canary not in results
        for path in working.state.rglob("*"):
            if path.is_file():
                assert canary.encode() not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.process
async def test_an_idle_daemon_has_loaded_no_sdk(home):
    home.routine("hello", '[trigger]\ncron = "0 5 * * *"\n[run]\nprompt = "Say hello."\n')
    home.env["PYTHONPROFILEIMPORTTIME"] = "1"
    await home.start()
    await home.agentctl("list")
    await home.agentctl("status")
    await home.stop()
    modules = {
        line.rpartition("|")[2].strip() for line in home.complaints.splitlines() if "|" in line
    }
    assert "pydantic" in modules
    assert modules & {"openai", "anthropic", "httpx", "httpx2", "sqlmodel", "sqlalchemy"} == set()


async def test_agentctl_without_a_daemon_names_the_socket_it_tried(home):
    result = await home.agentctl("list")
    assert result.code == 3
    assert str(home.socket) in result.err
    assert "agentd" in result.err


SAFE_METHODS = """
[run]
prompt = "look"
[[gather]]
name = "who"
tool = "shell"
args = { command = "id -u" }
"""
MAY_LOOK = """
version = 1
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
argv = ["id"]
"""


async def test_status_inspect_and_steps_name_the_sandbox_of_programs(home):
    home.write("policy.toml", MAY_LOOK)
    home.routine("look", SAFE_METHODS)
    await home.start()
    result = await home.agentctl("run", "look", "--json")
    run = (await home.agentctl("inspect", result.json["id"], "--json")).json
    level = run["sandbox"]
    assert level in ("bubblewrap", "landlock", "profiles")
    assert (await home.agentctl("status", "--json")).json["sandbox"] == level
    calls = [step["body"] for step in run["steps"] if step["kind"] == "call"]
    assert calls[0].get("sandbox", level) == level
    output = (await home.agentctl("inspect", result.json["id"])).out
    assert level in output or "none on this machine" in output


@pytest.mark.process
async def test_other_processes_of_the_user_cannot_read_the_daemons_environment(home):
    home.env["CANARY"] = "canary-in-the-environment"
    await home.start()
    about = Path(f"/proc/{home.process.pid}/environ").stat()
    assert about.st_uid == 0  # the kernel's way of saying that nobody but root may look


@pytest.mark.root
async def test_a_daemon_run_by_root_warns_and_runs_no_program_as_root(home):
    home.write("policy.toml", MAY_LOOK)
    home.routine("look", SAFE_METHODS)
    await home.start()
    assert "this daemon is root's" in home.output
    owner = home.workspace.stat().st_uid
    assert owner != 0
    result = await home.agentctl("run", "look", "--json")
    steps = (await home.agentctl("inspect", result.json["id"], "--json")).json["steps"]
    tool_result = next(step["body"]["text"] for step in steps if step["kind"] == "result")
    assert tool_result.strip() == str(owner)
    assert home.state.stat().st_mode & 0o777 == 0o711
    paths = [path for path in home.state.iterdir() if path.name != "workspace"]
    assert not [path for path in paths if path.stat().st_mode & 0o077]
