"""The daemon with a routine that is observed: what is recorded of its runs, and who is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from daemon.app.background import watch_trials
from daemon.app.commands.validate import examine
from daemon.models import Status, StepKind
from daemon.policy.policy import Policy
from daemon.testing import FakeClock
from tests.replaying import ReplayedApp

RULES = """version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "ask"
paths = ["out.md"]
[routine.daily]
mode = "observe"
observe_until = 2099-12-01T09:00:00Z
"""
ROUTINE = (
    'description = "d"\n[run]\nmode = "agent"\nprompt = "Work."\ntools = ["*"]\n'
    '[trigger]\nevery = "1h"\n[[deliver]]\nto = "log"\n'
)


def call(tool: str, **arguments: str) -> dict[str, object]:
    return {"name": tool, "arguments": arguments}


async def test_runs_of_an_observed_routine_record_every_denied_call_and_replay(
    tmp_path: Path,
) -> None:
    app = ReplayedApp(tmp_path)
    app.write("policy.toml", RULES)
    app.write_routine("daily", ROUTINE)
    app.write_routine("other", ROUTINE)
    async with app:
        for name in ("daily", "other"):
            app.model.enqueue(
                {
                    "tool_calls": [
                        call("shell", command="uptime"),
                        call("file_write", path="out.md", content="x"),
                        call("file_read", path="absent.md"),
                    ]
                }
            )
            if name == "daily":
                app.model.enqueue("Done.")
            run = await app.run(name)
            steps = [step for step in await app.steps(run) if step.kind is StepKind.CALL]
            modes = [step.body.get("mode") for step in steps]
            effects = [step.body["verdict"]["effect"] for step in steps]
            if name == "daily":
                assert (run.status, run.report) == (Status.SUCCEEDED, "Done.")
                assert (modes, effects) == (["observe"] * 3, ["deny", "deny", "allow"])
            else:
                assert run.status is Status.WAITING
                assert (modes, effects) == ([None, None], ["deny", "allow"])
        asks = {
            item["name"]: item["asks"]
            for item in (await app.request("GET", "/v1/routines")).json["items"]
        }
    assert asks["daily"].startswith("daily: observe until 2099-12-01 ")
    assert "a person is asked before" in asks["other"]


def test_validate_says_that_a_routine_is_observed_and_that_a_trial_has_ended(
    tmp_path: Path,
) -> None:
    app = ReplayedApp(tmp_path)
    app.write_routine("daily", ROUTINE)
    for text, end in (
        (RULES, "daily: observe until 2099"),
        (RULES.replace("2099", "2020"), "daily: observe ended on 2020"),
    ):
        app.write("policy.toml", text)
        notes = examine(tmp_path / "config.toml", env={}, state=app.state).notes
        (note,) = [note for note in notes if "observe" in note]
        assert note.startswith(end)
        assert ("a person is asked before" in note) == ("ended" in end)


async def test_the_end_of_a_trial_is_logged_once(tmp_path: Path) -> None:
    clock = FakeClock(datetime(2099, 12, 1, 8, 59, tzinfo=UTC))
    settings = SimpleNamespace(policy=Policy.read(RULES, workspace=tmp_path))
    with capture_logs() as lines:
        watch = asyncio.create_task(watch_trials(settings, clock, check_every=0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert lines == []
        clock.advance(minutes=1)
        for _ in range(6):
            await asyncio.sleep(0)
        watch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch
    (line,) = lines
    assert (line["event"], line["routine"]) == ("policy.observe_ended", "daily")
    assert line["fix"] == "agentctl policy suggest daily"
