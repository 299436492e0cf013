"""Calls of every tool run once approved, and only if the call is unchanged."""

import asyncio
import json
import shutil
import sys

import pytest

from tests.delivery.receivers import Receiver

CALLS = {
    "shell": {"command": "echo once | tee -a effects.txt"},
    "script": {"name": "keep", "arguments": ["two"]},
    "file_write": {"path": "notes.md", "content": "three"},
    "http_request": {"url": "{url}", "method": "POST", "body": "four"},
    "git": {"command": "log --oneline", "repository": "repository"},
    "time__get_current_time": {"timezone": "Europe/Berlin"},
    "greet": {"name": "Ada"},
    "subagent": {"task": "Count to three."},
    "memory_store": {"key": "door", "content": "The door is green."},
    "routine": {"action": "pause", "name": "other"},
}
"""A call of every kind of tool that can be asked about."""

POLICY = """
version = 1
[[rule]]
tool = "shell"
argv = ["echo"]
effect = "allow"
[[rule]]
tool = "TOOL"
effect = "ask"
"""
MORE_OF_THE_RULE = {
    "shell": 'argv = ["tee", "-a"]\n',
    "http_request": 'hosts = ["127.0.0.1:PORT"]\nnetworks = ["127.0.0.0/8"]\nmethods = ["POST"]\n',
}
CONFIG = """
[tools]
files = ["greet.py"]
[mcp.time]
command = ["PYTHON", "-m", "mcp_server_time"]
[providers.s]
kind = "scripted"
replies = [{ text = "", tool_calls = [{ name = "TOOL", arguments = ARGUMENTS }] }, REPLIES]
"""
ROUTINE = """
[run]
mode = "agent"
provider = "s"
prompt = "Work."
tools = ["TOOL"]
[[deliver]]
to = "log"
"""


def ask_before(home, tool, web):
    """Write a home whose agent makes one call of `tool`, which has to be approved."""
    values = [
        f"{key} = {json.dumps(value).replace('{url}', web.url)}"
        for key, value in CALLS[tool].items()
    ]
    arguments = f"{{ {', '.join(values)} }}"
    config = (
        CONFIG.replace("TOOL", tool)
        .replace("PYTHON", sys.executable)
        .replace("ARGUMENTS", arguments)
    )
    config = config.replace(
        "REPLIES", '"One, two, three.", "Done."' if tool == "subagent" else '"Done."'
    )
    home.write("config.toml", config)
    policy = POLICY.replace("TOOL", tool) + MORE_OF_THE_RULE.get(tool, "").replace(
        "PORT", str(web.port)
    )
    home.write("policy.toml", policy)
    home.routine("work", ROUTINE.replace("TOOL", tool))
    home.routine("other", '[run]\nprompt = "x"\n[[deliver]]\nto = "log"\n')
    for folder in ("tools", "scripts"):
        (home.folder / folder).mkdir()
        (home.folder / folder).chmod(0o755)
    home.write(
        "tools/greet.py", "def greet(name: str) -> str:\n    'Greet.'\n    return f'Hello {name}'\n"
    )
    home.write("scripts/keep", '#!/bin/sh\n# Keeps a word.\necho "$1" >> kept.txt; cat kept.txt\n')
    (home.folder / "scripts" / "keep").chmod(0o755)


async def results_of(home, run):
    """Return how each call of a run ended, by tool."""
    steps = (await home.agentctl("inspect", run, "--json")).json["steps"]
    return {step["body"]["tool"]: step["body"] for step in steps if step["kind"] == "result"}


@pytest.mark.parametrize("tool", [*CALLS])
async def test_an_approved_call_of_any_tool_runs(home, tool):
    if tool == "git" and shutil.which("git") is None:
        pytest.skip("needs git: apt install git")
    if tool == "time__get_current_time":
        pytest.importorskip("mcp_server_time")
    async with Receiver().open() as web:
        ask_before(home, tool, web)
        if tool == "git":
            home.workspace.mkdir(parents=True)
            await shell(
                home,
                "git init -q repository && cd repository && git -c user.name=A -c "
                "user.email=a@b.invalid"
                " commit -q --allow-empty -m first",
            )
        await home.start()
        run_result = await home.agentctl("run", "work")
        assert run_result.code == 8, run_result.err + run_result.out
        (approval,) = (await home.agentctl("approvals", "--json")).json["items"]
        approval_result = await home.agentctl("approve", approval["id"])
        assert approval_result.code == 0, approval_result.err
        ended_run = await home.until(approval["run"], "run_ended")
        assert ended_run["report"] == "Done.", ended_run
        assert (await home.agentctl("approvals", "--json")).json["items"] == []
        result = (await results_of(home, approval["run"]))[tool]
        if tool == "http_request":
            assert [post.body for post in web.posts] == [b"four"]
        elif tool == "script" and not result["ok"]:
            assert "sandbox" in result["text"], "approved, and refused by what this machine lacks"
        else:
            assert result["ok"], result


@pytest.mark.parametrize(
    ("tool", "changed_file", "reason"),
    [
        ("script", "scripts/keep", "the script {home}/scripts/keep has changed"),
        (
            "file_write",
            "notes.md",
            "a program or a file of this call, or its folder, has changed: {workspace}/notes.md",
        ),
        ("file_write", "policy.toml", "the policy has changed"),
        (
            "shell",
            "effects.txt",
            "a program or a file of this call, or its folder, has changed: {workspace}/effects.txt",
        ),
    ],
)
async def test_a_change_after_the_approval_request_is_named_and_requests_a_new_approval(
    home, tool, changed_file, reason
):
    async with Receiver().open() as web:
        ask_before(home, tool, web)
    await home.start()
    assert (await home.agentctl("run", "work")).code == 8
    (approval,) = (await home.agentctl("approvals", "--json")).json["items"]
    path = (
        home.workspace if changed_file in ("notes.md", "effects.txt") else home.folder
    ) / changed_file
    path.write_text(f"{path.read_text()}# edited\n" if path.exists() else "now it is there\n")
    if changed_file == "policy.toml":
        assert (await home.agentctl("reload")).code == 0
    result = await home.agentctl("approve", approval["id"])
    assert result.code == 5
    reason = reason.format(home=home.folder, workspace=home.workspace)
    assert f"nothing was approved: {reason} since this was asked" in " ".join(result.err.split())
    await home.wait_for_log("run.waiting", times=2, run=approval["run"])
    (again,) = (await home.agentctl("approvals", "--json")).json["items"]
    assert again["id"] != approval["id"]
    assert (await home.agentctl("approve", again["id"])).code == 0
    assert (await home.until(approval["run"], "run_ended"))["report"] == "Done."


async def shell(home, line):
    """Run a line of the test's own in the workspace, as whoever owns it."""
    process = await asyncio.create_subprocess_shell(line, cwd=home.workspace, env=home.env)
    assert await process.wait() == 0
