"""A run is told the last reports of other routines, with their taint, where that takes nothing."""

from __future__ import annotations

import pytest

from daemon.models import Status, StepKind, Taint
from daemon.testing import TestApp, tool_call
from tests.cli.agentctl import agentctl

POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["notes/**"]
"""
COLLECT = """
[run]
mode = "agent"
prompt = "Look into the inbox."
tools = ["file_read"]
silent_token = "NOTHING"
"""
SUM_UP = """
[run]
prompt = "Sum up."
context_from = ["collect"]
"""
WRITER = """
[run]
mode = "agent"
prompt = "Note it."
tools = ["file_write"]
context_from = ["collect"]
"""
READ = tool_call("file_read", path="inbox.txt")
WRITE = tool_call("file_write", path="notes/garden.md", content="The roses bloom.")


@pytest.fixture
def app(tmp_path):
    app = TestApp(tmp_path)
    app.write("policy.toml", POLICY)
    for name, text in (("collect", COLLECT), ("sum-up", SUM_UP), ("writer", WRITER)):
        app.write_routine(name, text)
    app.write("state/workspace/inbox.txt", "Letter to the garden: the roses bloom.\n")
    (tmp_path / "state").chmod(0o700)
    return app


async def report(app, routine, *turns):
    """Run a routine whose model gives these turns, and return the run and its prompt."""
    app.model.enqueue(*turns)
    run = await app.run(routine)
    (body,) = [step.body for step in await app.steps(run) if step.kind is StepKind.PROMPT]
    return run, body


async def test_the_last_report_of_another_routine_is_in_the_prompt(app):
    async with app:
        _, prompt = await report(app, "sum-up", "Nothing yet.")
        assert "collect has not reported yet." in prompt["system"]
        await report(app, "collect", "Old news.")
        await report(app, "collect", "Two letters came.")
        run, prompt = await report(app, "sum-up", "Two letters.")
        assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.NONE)
        assert "The last report of collect (2026-11-20 12:00 UTC" in prompt["system"]
        assert "Two letters came." in prompt["system"]
        assert "Old news." not in prompt["system"]
        assert "left_out" not in prompt


async def test_a_failed_run_reports_nothing_and_a_silent_one_says_so(app):
    async with app:
        await report(app, "collect", "Two letters came.")
        failed_run, _ = await report(
            app, "collect", tool_call("finish", status="failed", report="Oh.")
        )
        assert failed_run.status is Status.FAILED
        _, prompt = await report(app, "sum-up", "Two letters.")
        assert "Two letters came." in prompt["system"]
        silent, _ = await report(app, "collect", "NOTHING")
        assert silent.silent
        _, prompt = await report(app, "sum-up", "None.")
        assert "Two letters came." not in prompt["system"]


async def test_a_tainted_report_taints_a_run_that_loses_no_tool_and_stands_between_marks(app):
    async with app:
        collected_run, _ = await report(app, "collect", READ, "The garden letter: roses bloom.")
        assert collected_run.taint is Taint.TAINTED
        run, prompt = await report(app, "sum-up", "Roses.")
        assert run.taint is Taint.TAINTED
        assert "The garden letter: roses bloom." in prompt["system"]
        before, _, _ = prompt["system"].partition("The garden letter: roses bloom.")
        assert before.rstrip().splitlines()[-1].startswith("<")


async def test_a_tainted_report_is_left_out_where_it_would_take_a_tool(app):
    async with app:
        await report(app, "collect", READ, "The garden letter: roses bloom.")
        preview = (await app.request("GET", "/v1/routines/writer/preview")).json
        assert preview["left_out"]["reports"] == ["collect"]
        run, prompt = await report(app, "writer", WRITE, "Noted.")
        assert (run.status, run.taint) == (Status.SUCCEEDED, Taint.NONE)
        assert "roses bloom" not in prompt["system"]
        assert "The last report of collect (2026-11-20 12:00 UTC" in prompt["system"]
        assert "is not shown, as strangers may have written parts of it" in prompt["system"]
        assert prompt["left_out"]["reports"] == ["collect"]
        async with app.serve_api() as socket:
            result = await agentctl(socket, "inspect", run.id)
        assert "the last report of collect with words of strangers" in result.out


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ('["colect"]', 'run.context_from[0]: no such routine (found "colect"); did you mean'),
        ('["sum-up"]', "run.context_from[0]: is this routine"),
        ("[]", "run.context_from"),
    ],
)
async def test_a_name_that_is_no_other_routine_is_refused(app, names, problem):
    app.write_routine("sum-up", SUM_UP.replace('["collect"]', names))
    async with app:
        assert problem in str(app.faults["sum-up"])


async def test_a_script_is_told_no_reports(app):
    app.write_routine(
        "sum-up",
        '[run]\nmode = "script"\ncontext_from = ["collect"]\n'
        '[[gather]]\nname = "a"\ntool = "sysinfo"\n',
    )
    async with app:
        assert "run.context_from: is for a model" in str(app.faults["sum-up"])
