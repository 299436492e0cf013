"""Rehearsals: the real model runs, and effects of tools are reported instead of done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.errors import NotFound, Refused
from daemon.models import Outcome, Reason, Status
from tests.engine_harness import HALF_HOURLY, EngineHarness, routine
from tests.replaying import ReplayedApp

POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["reports/**"]
[[rule]]
tool = "shell"
effect = "ask"
[[rule]]
tool = "memory_store"
effect = "allow"
[[rule]]
tool = "http_request"
effect = "allow"
hosts = ["example.org"]
methods = ["GET", "POST"]
[[rule]]
tool = "subagent"
effect = "allow"
[routine.tidy]
tainted_tools = ["*"]
"""
ROUTINE = """
[run]
mode = "agent"
memory = "recall+store"
prompt = "Keep the list."
tools = ["file_read", "file_write", "shell", "memory_store", "http_request", "subagent"]
REHEARSE
[[gather]]
name = "notes"
tool = "file_read"
args = { path = "notes.txt" }
[gate]
changed = ["notes"]
[[deliver]]
to = "file"
path = "reports/{slot:%Y}.md"
"""
CALLS = """
  { text = "I look.", tool_calls = [{ name = "file_read", arguments = { path = "notes.txt" } }] },
  { text = "I keep it.", tool_calls = [
    { name = "file_write", arguments = { path = "reports/out.md", content = "milk\\nbread\\n" } },
    { name = "file_write", arguments = { path = "reports/new.md", content = "new\\n" } },
    { name = "shell", arguments = { command = "touch done.txt" } },
    { name = "memory_store", arguments = { key = "list", content = "milk" } },
    { name = "http_request", arguments = { method = "POST", url = "https://example.org/list", body = "milk" } },
    { name = "subagent", arguments = { task = "buy it" } },
    { name = "file_write", arguments = { path = "secret.txt", content = "no" } },
    { name = "file_write", arguments = { path = 7 } },
  ] },
  "Milk and bread are out.",
"""  # noqa: E501


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    app = ReplayedApp(tmp_path)
    app.write(
        "config.toml",
        f'provider = "fake"\n[providers.fake]\nkind = "scripted"\nreplies = [{CALLS * 4}]\n'
        "price = { input = 1.0, output = 2.0 }\n",
    )
    app.write("policy.toml", POLICY)
    app.write_routine("tidy", ROUTINE.replace("REHEARSE", "rehearse_first = true"))
    workspace = app.state / "workspace"
    (workspace / "reports").mkdir(parents=True, mode=0o700)
    (workspace / "notes.txt").write_text("buy milk\n")
    (workspace / "reports" / "out.md").write_text("milk\n")
    return app


async def rehearse(app: ReplayedApp, name: str = "tidy") -> dict[str, Any]:
    """Rehearse a routine to its end, and return what it would have done."""
    run = await app.parts.rehearsals.begin(name, f"event {len(await app.journal.runs.find())}")
    while not (run := await app.journal.runs.get(run.id)).status.has_ended:
        await app.daemon.runs.queue.running[run.id]
    rehearsal: dict[str, Any] = await app.parts.rehearsals.describe(run.id)
    return rehearsal


def everything_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_a_rehearsal_reports_effects_and_changes_no_file(app: ReplayedApp) -> None:
    workspace = app.state / "workspace"
    before = everything_in(workspace)
    async with app:
        rehearsal = await rehearse(app)
        assert everything_in(workspace) == before
        texts = {effect["call"]: effect["text"] for effect in rehearsal["effects"]}
        assert (
            texts["2.0"].splitlines()[0]
            == "would write reports/out.md (11 bytes), which holds 5 bytes now"
        )
        assert texts["2.0"].endswith("@@ -1 +1,2 @@\n milk\n+bread")
        assert texts["2.1"].startswith("would write reports/new.md (4 bytes), a new file")
        assert texts["2.2"].startswith(
            "would ask a person first (rule 3 (shell)), then run touch done.txt"
        )
        assert '["touch", "done.txt"]' in texts["2.2"]
        assert texts["2.3"] == "would remember list: milk"
        assert texts["2.4"] == "would send POST https://example.org/list\nbody: milk"
        assert texts["2.5"] == "would hand this to a sub-agent: buy it"
        # denied is denied, and malformed is malformed
        assert set(texts) == {f"2.{number}" for number in range(6)}
        assert rehearsal["deliveries"] == ["would send the report to file: reports/2026.md"]
        assert (rehearsal["status"], rehearsal["routine"]) == ("succeeded", "tidy")
        steps = {
            step.call_id: step.body
            for step in await app.journal.runs.get_steps(rehearsal["run"])
            if step.kind == "result"
        }
        assert steps["1.0"]["text"].rstrip() == "buy milk"  # what only looks is really done
        assert "denied by default" in steps["2.6"]["text"]
        assert not steps["2.7"]["ok"]
        assert rehearsal["usd"] == pytest.approx(
            await app.journal.spending.get_cost_of_run(rehearsal["run"])
        )
        assert rehearsal["tokens"] > 0


async def test_a_rehearsal_tells_the_model_that_the_call_was_not_done(app: ReplayedApp) -> None:
    async with app:
        await rehearse(app)
        last = app.model_named("fake").calls[-1].messages
        tool_results = [message.content for message in last if message.role == "tool"]
        assert (
            "[rehearsal: this was not done; go on as if it had been] would write reports/out.md"
            in tool_results[1]
        )


async def test_a_rehearsal_leaves_no_slot_delivery_memory_or_last_run(app: ReplayedApp) -> None:
    app.write_routine("tidy", ROUTINE.replace("REHEARSE", ""))
    async with app:
        rehearsal = await rehearse(app)
        assert await app.journal.runs.get_last("tidy", statuses={Status.SUCCEEDED}) is None
        assert not await app.journal.slots.find("tidy")
        assert not await app.journal.outbox.find(run=rehearsal["run"])
        assert not (await app.daemon.store.memory.retrieve("milk", 5))
        assert not await app.journal.runs.find("tidy")
        (run,) = await app.journal.runs.find("rehearsal:tidy")
        assert (run.trigger, run.base_routine) == ("rehearsal", "tidy")


async def test_a_rehearsal_succeeds_beside_a_real_run_of_its_routine(app: ReplayedApp) -> None:
    app.write_routine("tidy", ROUTINE.replace("REHEARSE", ""))
    async with app:
        first = await app.run("tidy")
        assert first.status is Status.WAITING  # the shell asks a person, which no rehearsal does
        await app.journal.runs.request_cancel(first.id)
        assert (await rehearse(app))["status"] == "succeeded"


async def test_a_routine_with_rehearse_first_starts_only_after_an_approved_rehearsal(
    app: ReplayedApp,
) -> None:
    async with app:
        with pytest.raises(
            Refused, match="held back until a rehearsal of it was approved: agentctl rehearse tidy"
        ):
            await app.engine.run_now("tidy")
        rehearsal = await rehearse(app)
        assert (rehearsal["held"], rehearsal["current"]) == (True, True)
        approval = await app.parts.rehearsals.approve(rehearsal["run"], "uid 1000")
        assert not approval["held"]
        assert (await app.run("tidy")).status is Status.WAITING
        (entry,) = [
            record for record in await app.journal.audit.find() if record.kind == "rehearsed"
        ]
        assert (entry.actor, entry.routine) == ("uid 1000", "tidy")
        for run in await app.journal.runs.find_active():
            await app.journal.runs.request_cancel(run.id)


async def test_an_edit_of_the_task_requires_a_new_rehearsal_and_an_edit_of_the_trigger_does_not(
    app: ReplayedApp,
) -> None:
    async with app:
        rehearsal = await rehearse(app)
        await app.parts.rehearsals.approve(rehearsal["run"], "uid 1000")
    text = ROUTINE.replace("REHEARSE", "rehearse_first = true")
    app.write_routine("tidy", 'description = "x"\n[trigger]\nevery = "2h"\n' + text)
    async with app:
        assert not (await app.parts.rehearsals.describe(rehearsal["run"]))["held"]
    app.write_routine("tidy", text.replace("Keep the list.", "Burn the list."))
    async with app:
        now = await app.parts.rehearsals.describe(rehearsal["run"])
        assert (now["held"], now["current"]) == (True, False)
        with pytest.raises(Refused, match="was edited since"):
            await app.parts.rehearsals.approve(rehearsal["run"], "uid 1000")
        with pytest.raises(Refused, match="held back"):
            await app.engine.run_now("tidy")


async def test_a_failed_rehearsal_cannot_be_approved(app: ReplayedApp) -> None:
    app.write(
        "config.toml", 'provider = "fake"\n[providers.fake]\nkind = "scripted"\nreplies = []\n'
    )
    async with app:
        rehearsal = await rehearse(app)
        assert rehearsal["status"] == "failed"
        with pytest.raises(Refused, match="nobody can approve"):
            await app.parts.rehearsals.approve(rehearsal["run"], "uid 1000")
        assert not await app.journal.incidents.find()


async def test_an_unknown_routine_or_ordinary_run_is_no_rehearsal(app: ReplayedApp) -> None:
    app.write_routine("tidy", ROUTINE.replace("REHEARSE", ""))
    async with app:
        with pytest.raises(NotFound, match="no routine 'nothere' to rehearse"):
            await app.parts.rehearsals.begin("nothere", "x")
        run = await app.run("tidy")
        with pytest.raises(NotFound, match="is no rehearsal"):
            await app.parts.rehearsals.describe(run.id)
        await app.journal.runs.request_cancel(run.id)


async def test_slots_of_an_unrehearsed_routine_are_skipped_with_the_reason(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine(trigger=HALF_HOURLY, run={"rehearse_first": True}, first_run=True))
    await harness.reach("01 08:30")
    (row,) = await harness.journal.slots.find("daily")
    assert (row.outcome, row.reason) == (Outcome.SKIPPED, Reason.GATE)
    assert row.rule == "rehearse_first = true, and no rehearsal of it as it is now was approved"
    assert not harness.submitted_runs
    assert "daily" in harness.engine.unrehearsed_routines
