"""Bad input of every kind gets one clear line, and the real daemon keeps running and loses nothing.

Each kind of bad input is tested in its own room too, in all its variants; here it comes in by the
front door.
"""

import asyncio
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.acceptance.story import READY, ROOT, InProcessHome, Vendor
from tests.app.setup.terminal import terminal

HELLO = (
    '[run]\nprompt = "Say hello."\n[run.retry]\nattempts = 1\n[[deliver]]\nto = "file"\npath = '
    '"hello.md"\n'
)
AGENT = (
    '[run]\nmode = "agent"\nprompt = "Look around."\ntools = ["shell", '
    '"file_read"]\n[run.retry]\nattempts = 1\n'
)
POLICY = 'version = 1\n[[rule]]\ntool = "shell"\nargv = ["head"]\neffect = "allow"\n'


def config(vendor):
    return (
        'provider = "local"\n[providers.local]\nkind = "open_source"\nbase_url = '
        f'"{vendor.url}/v1"\nmodel = "m"\n'
    )


def one_line(text):
    """Return the only line of a text."""
    (line,) = text.splitlines()
    assert "Traceback" not in line
    return line


async def alive(home):
    """Say whether the daemon still answers, in the version it is."""
    return (await home.agentctl("status", "--json")).json["pid"] == home.pid


# --- definitions


@pytest.mark.parametrize("name", ["config.toml", "policy.toml"])
async def test_invalid_toml_stops_the_start_and_names_the_line(home, name):
    home.write(name, 'a = 1\nb = "open\n')
    result = await home.agentd()
    assert result.code == 78
    assert f"{name}:2: is not TOML" in one_line(result.err)
    assert not result.out


async def test_unknown_provider_in_config_stops_the_start_in_a_routine_only_its_runs(
    home,
):
    home.write("config.toml", 'provider = "gtp"\n')
    result = await home.agentd()
    assert result.code == 78
    assert "gtp" in one_line(result.err)
    home.write("config.toml", "")
    home.routine("hello", HELLO)
    home.routine("lost", '[run]\nprompt = "x"\nprovider = "gtp"\n')
    await home.start()
    run_result = await home.agentctl("run", "lost")
    assert run_result.code == 5
    assert "run.provider" in run_result.err
    assert "gtp" in run_result.err
    assert (await home.agentctl("run", "hello")).code == 0


@pytest.mark.process
async def test_unreadable_stored_definition_fails_the_run_and_not_the_start(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        await home.kill()
        database = sqlite3.connect(home.state / "agentd.db")
        with database:
            database.execute("UPDATE definition SET body = ?", ('{"from": "the future"}',))
        database.close()
        await home.start()
        result = await home.until(run, "run_ended")
    assert result["status"] == "failed"
    assert "cannot be read by this version" in result["detail"]


# --- vendors and models


async def test_vendor_answer_that_is_no_json_is_retried_and_then_reported_in_one_line(home):
    page = {"raw": "<html><title>Log in to the Wi-Fi</title></html>"}
    nonsense = {"raw": "upstream connect error", "content_type": "text/plain"}
    home.routine("hello", HELLO)
    async with Vendor([page, nonsense, "Hello.", page | {"repeat": 3}, "Hello again."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        result = await home.agentctl("run", "hello")
        assert (result.code, result.out) == (0, "Hello.\n"), result.err
        run_result = await home.agentctl("run", "hello", "--json")
        assert run_result.code == 1
        assert "a web page titled “Log in to the Wi-Fi”" in one_line(run_result.json["detail"])
        assert (await home.agentctl("run", "hello")).out == "Hello again.\n"


async def test_invalid_tool_calls_are_answered_to_the_model_and_the_run_continues(home):
    calls = [
        {"name": "shel", "arguments": {"command": "ls"}},
        {"name": "file_read", "arguments": '{"path": '},
        {"name": "file_read", "arguments": {"pfad": "x"}},
    ]
    home.routine("work", AGENT)
    async with Vendor([{"tool_calls": calls}, "I was wrong three times."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        result = await home.agentctl("run", "work")
        assert (result.code, result.out) == (0, "I was wrong three times.\n"), result.err
    tool_results = [
        message["content"]
        for message in vendor.requests[-1].body["messages"]
        if message["role"] == "tool"
    ]
    for answer, word in zip(tool_results, ["shell", "JSON", "path"], strict=True):
        assert word in answer
        assert answer.startswith("[")
        assert "Traceback" not in answer


async def test_fifty_megabytes_of_tool_output_reach_the_model_cut_in_the_middle(home):
    flood = {
        "tool_calls": [{"name": "shell", "arguments": {"command": "head -c 50000000 /dev/zero"}}]
    }
    home.routine("work", AGENT)
    home.write("policy.toml", POLICY)
    async with Vendor([flood, "Much of nothing."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        result = await home.agentctl("run", "work")
        assert (result.code, result.out) == (0, "Much of nothing.\n"), result.err
        assert await alive(home)
    tool_result = vendor.requests[-1].body["messages"][-1]["content"]
    assert len(tool_result) < 300_000
    assert "cut" in tool_result


# --- the disk, the state and the socket


def room(home, size):
    """Let the daemon write no file beyond a size, as on a disk without room."""
    _, hard = resource.prlimit(home.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(home.pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit(2), which is Linux's")
@pytest.mark.process
async def test_a_full_disk_is_reported_and_the_run_continues_after_a_restart(home):
    home.routine("hello", HELLO)
    # comes once the second request is there: when the disk is full
    answer = {
        "text": "Hello.",
        "together": 2,
    }
    async with Vendor([answer, answer, "Hello."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        room(home, 0)
        pause_result = await home.agentctl("pause", "hello")
        assert pause_result.code == 1
        assert "check the space left" in one_line(pause_result.err)
        assert await alive(home)
        assert (await home.agentctl("runs", "--json")).json["items"][0]["status"] == "running"
        room(home, resource.RLIM_INFINITY)
        assert (await home.agentctl("pause", "hello")).code == 0
        await home.kill()
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit(2), which is Linux's")
@pytest.mark.process
async def test_a_run_stopped_by_a_full_disk_continues_once_there_is_room(home):
    home.routine("hello", HELLO)
    async with Vendor([{"text": "Lost.", "together": 2}, "Hello."]) as vendor:
        home.write("config.toml", config(vendor))
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        # The log still has some room; the journal's next commit needs more, wherever in its file
        # SQLite writes it.
        room(home, (home.state / "logs" / "agentd.jsonl").stat().st_size + 6_000)
        for send in vendor.held_answers:  # what is answered now cannot be written down
            send()
        (log_line,) = await home.wait_for_log("step.refused")
        assert "check the space left" in log_line["detail"]
        await home.wait_for_log("run.write_failed")
        room(home, resource.RLIM_INFINITY)
        assert (await home.until(run, "run_ended"))["report"] == "Hello."
        await home.wait_for_log("delivery.arrived")


@pytest.mark.process
async def test_the_socket_file_of_a_killed_daemon_does_not_prevent_a_start(home):
    await home.start()
    await home.kill()
    assert home.socket.is_socket()
    result = await home.agentctl("list")
    assert result.code == 3
    assert "nobody listens any more" in result.err
    await home.start()
    assert await alive(home)


async def test_a_daemon_works_in_a_state_folder_too_deep_for_a_socket_path(tmp_path):
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    home = InProcessHome(deep)
    try:
        await home.start()
        assert len(os.fsencode(home.state / "agentd.sock")) > 108
        assert await alive(home)
    finally:
        await home.stop()
    assert not home.socket.exists()


async def test_a_second_agentd_once_on_the_same_state_is_refused(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}]) as vendor:
        home.write("config.toml", config(vendor))
        first = await home.spawn("agentd", "once", "hello", *home.places)
        await vendor.wait_for_requests(1)
        second = await home.agentd("once", "hello")
        first.kill()
        await first.communicate()
    assert second.code == 75
    assert "is in use by process" in one_line(second.err)


# --- whoever reads


async def test_a_run_continues_after_its_client_disconnects(home):
    home.routine("hello", HELLO)
    answer = {"text": "Hello.", "together": 2}
    async with Vendor([answer, answer]) as vendor:
        home.write("config.toml", config(vendor))
        home.routine("other", HELLO)
        await home.start()
        client = await home.spawn("agentctl", "--socket", home.socket, "run", "hello")
        await vendor.wait_for_requests(1)
        while b"run " not in await client.stderr.readline():
            pass
        client.send_signal(signal.SIGINT)
        _, complaint = await client.communicate()
        assert client.returncode == 130
        assert "goes on in the daemon" in complaint.decode()
        assert (await home.agentctl("run", "other")).code == 0
        (run,) = (await home.agentctl("runs", "hello", "--json")).json["items"]
        assert (await home.until(run["id"], "run_ended"))["status"] == "succeeded"


async def test_a_daemon_runs_with_closed_standard_streams(home):
    home.routine("hello", HELLO)
    command = [sys.executable, "-m", "daemon.app.main", *map(str, home.places)]
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'exec "$0" "$@" >/dev/full 2>&-', *command, env=home.env, cwd=home.folder
    )
    while (await home.agentctl("run", "hello")).code == 3:
        assert process.returncode is None
    assert (await home.agentctl("run", "hello")).code == 0
    process.terminate()
    assert await process.wait() == 0


@pytest.mark.root
def test_the_home_of_a_user_without_an_account_is_the_root_folder():
    code = (
        "import os\nfrom daemon.definitions.paths import "
        "user_home\nos.setuid(54321)\nprint(user_home())"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env={}, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout == "/\n"


# --- what lies about


@pytest.mark.process
async def test_an_api_key_in_the_environment_is_mentioned_and_not_used(home):
    home.env["ANTHROPIC_API_KEY"] = "sk-ant-canary-31c5e9b2"
    home.routine("hello", HELLO)
    await home.start()
    assert "no model" in (await home.agentctl("run", "hello")).out.lower()
    assert await home.stop() == 0
    _, _, after = home.output.partition(READY)
    assert "$ANTHROPIC_API_KEY is set but is not used" in after
    assert "agentctl setup --provider claude" in after
    assert "canary" not in home.output


async def test_unusable_workspace_or_routines_folder_stops_the_start_with_one_line(home):
    home.write("file", "")
    home.write("config.toml", f'workspace = "{home.folder}/file"\n')
    result = await home.agentd()
    assert result.code == 78
    assert "workspace: cannot be the folder agents work in: File exists" in one_line(result.err)
    home.write("config.toml", 'routines = "file"\n')
    result = await home.agentd()
    assert result.code == 78
    assert "the folder of routines cannot be read: Not a directory" in one_line(result.err)


# --- one run in the foreground


async def test_agentd_once_exits_with_the_outcome_after_all_retries(home):
    home.routine("hello", HELLO.replace("attempts = 1", 'attempts = 2\nbackoff = "1s"'))
    async with Vendor(
        [{"error": 401, "message": "no"}, {"error": 503, "message": "later", "repeat": 3}, "Hello."]
    ) as vendor:
        home.write("config.toml", config(vendor))
        once_result = await home.agentd("once", "hello")
        assert once_result.code == 1
        assert "no key was sent" in one_line(once_result.err)
        result = await home.agentd("once", "hello")
        assert (result.code, result.out) == (0, "Hello.\n"), result.err


async def test_agentd_once_first_finishes_the_run_of_a_killed_agentd_once(home):
    home.routine("hello", HELLO.replace("hello.md", "{run}.md"))
    async with Vendor([{"hang": True}, "The first.", "The second."]) as vendor:
        home.write("config.toml", config(vendor))
        process = await home.spawn("agentd", "once", "hello", *home.places)
        await vendor.wait_for_requests(1)
        process.kill()
        await process.communicate()
        result = await home.agentd("once", "hello")
        assert (result.code, result.out) == (0, "The second.\n"), result.err
    reports = sorted(path.read_text().splitlines()[-1] for path in home.workspace.iterdir())
    assert reports == ["The first.", "The second."]


async def test_ctrl_c_suspends_the_run_of_agentd_once_without_an_error(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}, "The first.", "The second."]) as vendor:
        home.write("config.toml", config(vendor))
        first = await home.spawn("agentd", "once", "hello", *home.places)
        await vendor.wait_for_requests(1)
        first.send_signal(signal.SIGINT)
        _, complaint = await first.communicate()
        assert (first.returncode, complaint) == (130, b"")
        assert (await home.agentd("once", "hello")).out == "The second.\n"


async def test_agentd_once_fails_if_its_report_is_not_delivered(home):
    home.routine("hello", HELLO)
    home.routine("broken", "nope = 1\n")
    (home.workspace / "hello.md").mkdir(parents=True)
    result = await home.agentd("once", "hello")
    assert result.code == 6
    assert result.out
    assert one_line(result.err).startswith("not delivered to file: ")
    assert (await home.agentd("once", "broken")).code == 5


async def test_agentd_once_at_a_terminal_says_that_a_run_succeeded_without_a_delivery(home):
    home.routine("hello", HELLO)
    (home.workspace / "hello.md").mkdir(parents=True)
    env = {**home.env, "NO_COLOR": "1"}
    async with terminal("once", "hello", *home.places, env=env, cwd=home.folder) as command:
        assert await command.end() == 6
    assert "hello started" in command.text
    assert re.search(r"[✓+] hello \d", command.text), command.text


async def test_an_unchanged_routine_fault_is_logged_once(home):
    home.routine("bad", "nope = 1\n")
    await home.start()
    home.routine("bad", "nope = 2\n")
    for _ in range(2):
        assert (await home.agentctl("reload")).code == 1
    lines = (await home.agentctl("logs", "--level", "warning")).out.splitlines()
    fault_lines = [line for line in lines if "routine.invalid" in line]
    assert len(fault_lines) == len(set(fault_lines)) == 3, (
        "both faults at the start, and the one that changed"
    )
