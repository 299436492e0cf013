"""Numbers of this machine leave a run its tools; whatever else a program prints does not."""

from __future__ import annotations

import pytest

from daemon.models import Status, Taint
from daemon.testing import TestApp, tool_call

ROUTINE = """
[run]
mode = "agent"
prompt = "Note how full the disks are."
tools = ["shell", "memory_store"]
"""
POLICY = """
version = 1
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
argv = [["df", "nproc", "uptime", "free", "echo"]]
[[rule]]
tool = "memory_store"
effect = "allow"
"""
STORE = tool_call("memory_store", key="disks", content="They are not full.")


@pytest.fixture
def app(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    app.write_routine("disks", ROUTINE)
    return app


@pytest.mark.parametrize("command", ["df --output=pcent,avail", "uptime", "nproc", "free -b"])
async def test_a_run_that_read_numbers_changes_things_unasked(app, command):
    async with app:
        app.model.enqueue(tool_call("shell", command=command), STORE, "Noted.")
        run = await app.run("disks")
    assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.NONE), run.detail


@pytest.mark.parametrize("command", ["df -h", "echo 3", "nproc | df", "df /nowhere", "df --help"])
async def test_a_run_that_read_anything_else_is_asked(app, command):
    async with app:
        app.model.enqueue(tool_call("shell", command=command), STORE, "Noted.")
        run = await app.run("disks")
    assert (run.status, run.taint) == (Status.WAITING, Taint.TAINTED), run.detail
