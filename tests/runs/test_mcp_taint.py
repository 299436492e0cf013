"""What a run may do that is offered the tools of an MCP server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from daemon.models import Status, Taint
from daemon.testing import TestApp, tool_call

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("calendar")


@server.tool(description="Tells what is on.")
def events() -> str:
    return "nothing"


server.run("stdio")
"""
CONFIG = """
timezone = "UTC"
provider = "scripted"
[providers.scripted]
kind = "scripted"
[mcp.calendar]
command = ["{python}", "{server}"]
trusted = {trusted}
"""
ROUTINE = """
[run]
mode = "agent"
prompt = "Note what is on today."
tools = ["calendar__*", "file_write"]
"""
POLICY = """
version = 1
[[rule]]
tool = "calendar__*"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["notes.md"]
"""


@pytest.mark.parametrize(
    ("trusted", "taint", "status"),
    [("false", Taint.TAINTED, Status.WAITING), ("true", Taint.NONE, Status.SUCCEEDED)],
)
async def test_a_run_is_tainted_from_its_start_by_what_an_untrusted_server_says_of_its_tools(
    tmp_path: Path, trusted: str, taint: Taint, status: Status
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    app = TestApp(tmp_path)
    app.write(
        "config.toml",
        CONFIG.format(python=sys.executable, server=tmp_path / "server.py", trusted=trusted),
    )
    app.write_routine("day", ROUTINE)
    app.write("policy.toml", POLICY)
    async with app:
        assert not app.faults
        app.model.enqueue(tool_call("file_write", path="notes.md", content="Nothing."), "Noted.")
        run = await app.run("day")
        assert (run.taint, run.status) == (taint, status)
