"""An agent with `[dedupe]` that writes its report in words is told once to call `report_items`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daemon.errors import Overloaded
from daemon.models import Run, Status, StepKind
from daemon.runs.replay.cassette import load_cassette
from daemon.runs.replay.play import replay
from daemon.testing import TestApp, tool_call
from tests.cli.agentctl import agentctl
from tests.replaying import ReplayedApp

ROUTINE = (
    '[run]\nmode = "agent"\nprompt = "Report the news."\n{run}\n[dedupe]\nkey = "title"\n{more}'
)
ITEMS = tool_call("report_items", items=[{"title": "Bread is dearer"}])


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    app = ReplayedApp(tmp_path)
    app.write_routine("news", ROUTINE.format(run="", more=""))
    return app


async def sources_of(app: ReplayedApp, run: Run) -> list[str]:
    """Return the sources of the messages to the model, in order."""
    return [step.body["source"] for step in await app.steps(run) if step.kind is StepKind.MESSAGE]


async def test_an_agent_that_wrote_words_reports_items_once_it_is_told(app: ReplayedApp) -> None:
    async with app:
        app.model.enqueue("Bread is dearer.", ITEMS, "Reported.")
        run = await app.run("news")
        assert (run.status, run.detail) == (Status.SUCCEEDED, None)
        assert run.report == "1 new\n\n- **Bread is dearer**"
        assert "Call report_items now" in app.model.calls[1].messages[-1].content
        assert await sources_of(app, run) == ["goal", "dedupe"]
        async with app.serve_api() as socket:
            inspection = await agentctl(socket, "inspect", run.id)
        assert "told that it reported no items" in inspection.out


async def test_an_agent_is_told_once_and_then_fails(app: ReplayedApp) -> None:
    async with app:
        app.model.enqueue("Bread is dearer.", "I said so.", "Never asked.")
        run = await app.run("news")
        assert (run.status, len(app.model.calls)) == (Status.FAILED, 2)
        assert run.detail is not None
        assert run.detail.startswith("the agent wrote a report without report_items")


@pytest.mark.parametrize("answers", [(ITEMS, "Reported."), (tool_call("finish", notify=False),)])
async def test_an_agent_that_did_as_the_task_says_is_told_nothing(
    app: ReplayedApp, answers: tuple[object, ...]
) -> None:
    async with app:
        app.model.enqueue(*answers)
        run = await app.run("news")
        assert run.status is Status.SUCCEEDED
        assert await sources_of(app, run) == ["goal"]


async def test_the_request_counts_towards_the_limits_of_the_run(app: ReplayedApp) -> None:
    app.write_routine("news", ROUTINE.format(run="max_iterations = 1", more=""))
    async with app:
        app.model.enqueue("Bread is dearer.", "Never asked.")
        run = await app.run("news")
        assert (run.status, len(app.model.calls)) == (Status.FAILED, 1)
        assert run.detail is not None
        assert "1 iterations reached" in run.detail
        assert run.detail.endswith("; the agent had written a report without report_items")


async def test_a_run_that_was_interrupted_is_not_told_again(app: ReplayedApp) -> None:
    async with app:
        app.model.enqueue("Bread is dearer.", Overloaded("busy", retry_after=3600))
        run = await app.run("news")
        assert run.status is Status.QUEUED
        app.model.enqueue(ITEMS, "Reported.")
        app.advance(hours=2)
        run = await app.finish(run.id)
        assert (run.status, run.report) == (Status.SUCCEEDED, "1 new\n\n- **Bread is dearer**")
        assert await sources_of(app, run) == ["goal", "dedupe"]


async def test_the_report_is_checked_after_the_items(app: ReplayedApp) -> None:
    check = '[check]\ncontains = ["the end"]\nrepair = 1\n'
    app.write_routine("news", ROUTINE.format(run="", more=check))
    async with app:
        app.model.enqueue("Bread is dearer.", ITEMS, "Reported.", "Reported, the end.")
        run = await app.run("news")
        assert run.status is Status.SUCCEEDED, run.detail
        assert await sources_of(app, run) == ["goal", "dedupe", "check"]


async def test_a_run_of_an_older_version_which_was_told_nothing_is_replayed(
    app: ReplayedApp,
) -> None:
    async with app:
        app.model.enqueue("Bread is dearer.", "I said so.")
        run = await app.run("news")
        cassette = await load_cassette(app.journal, run.id, workspace=".", language="en")
        answers = [step for step in cassette.steps if step.kind is StepKind.LLM]
        end = cassette.steps.index(answers[0]) + 1
        older_run = replace(cassette.run, iterations=1, report="Bread is dearer.")
        result = await replay(replace(cassette, run=older_run, steps=cassette.steps[:end]))
        assert (result.replayed.status, result.replayed.detail) == (run.status, run.detail)
        assert result.replayed.report == "Bread is dearer."


async def test_a_run_without_a_model_says_that_none_is_set(tmp_path: Path) -> None:
    app = TestApp(tmp_path, config='provider = "offline"\n')
    app.write_routine("news", ROUTINE.format(run="", more=""))
    async with app:
        run = await app.run("news")
    assert run.status is Status.FAILED
    assert run.detail is not None
    assert run.detail.startswith("no model is set, and only a model can report items")
