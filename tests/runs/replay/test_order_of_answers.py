"""A run whose calls wait for people is replayed as it was, in whatever order people answered."""

from __future__ import annotations

import asyncio
import random

import pytest

from daemon.models import ApprovalStatus, Status
from daemon.testing import tool_call
from tests.properties import quick_share
from tests.replaying import ReplayedApp

POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "ask"
"""
ROUTINE = """
[run]
mode = "agent"
prompt = "Tidy up."
tools = ["file_read", "file_write", "shell"]
"""
CALLS = {
    "allowed": lambda number: tool_call("file_read", path="notes.txt"),
    "denied": lambda number: tool_call("shell", command=f"rm {number}"),
    "asked": lambda number: tool_call("file_write", path=f"{number}.md", content="milk"),
}


async def live_one_run(app: ReplayedApp, lot: random.Random) -> None:
    """Live a run of two turns with calls drawn by lot; people answer some of its questions at a
    time, in any order.
    """
    model, approvals = app.model_named("scripted"), app.daemon.runs.approvals
    for turn in range(2):
        kinds = lot.choices(list(CALLS), k=lot.randint(1, 6))
        calls = [CALLS[kind](f"{turn}{number}") for number, kind in enumerate(kinds)]
        model.enqueue({"tool_calls": [call for reply in calls for call in reply["tool_calls"]]})
    model.enqueue("Tidy.")
    run = await app.run("tidy")
    while run.status is Status.WAITING:
        pending = await app.journal.approvals.find(run=run.id, status=ApprovalStatus.PENDING)
        questions = lot.sample(list(pending), lot.randint(1, len(pending)))
        answers = [lot.choice([approvals.approve, approvals.reject]) for _ in questions]
        await asyncio.gather(
            *[
                answer(question.id, by="uid 1000")
                for answer, question in zip(answers, questions, strict=True)
            ]
        )
        run = await app.finish(run.id)
    if run.status is not Status.SUCCEEDED:  # by lot, nothing was allowed
        assert (run.detail or "").startswith("it could do nothing, as its calls were denied")


@pytest.mark.slow
async def test_runs_are_replayed_as_they_were_in_whatever_order_people_answered(tmp_path):
    app, lot = ReplayedApp(tmp_path), random.Random(7)
    app.write("policy.toml", POLICY)
    app.write_routine("tidy", ROUTINE)
    async with app:
        app.workspace.mkdir(exist_ok=True)
        (app.workspace / "notes.txt").write_text("buy milk\n")
        for _ in range(int(100 * quick_share())):
            await live_one_run(app, lot)
    # a ReplayedApp replays all its runs when it is closed
