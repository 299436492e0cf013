"""A routine that is observed: nobody is asked, no run waits, and each such call is denied."""

from __future__ import annotations

from datetime import timedelta

import pytest

from daemon.errors import Refused
from daemon.models import Status, StepKind
from tests.runs.approvals.conftest import POLICY, START, turn, write

OBSERVED = (
    POLICY
    + f"""
[routine.daily]
mode = "observe"
observe_until = {START + timedelta(days=7):%Y-%m-%dT%H:%M:%SZ}
"""
)


async def test_a_call_of_an_observed_routine_is_denied_instead_of_asked(build_harness):
    harness = build_harness(turn(write()), "Without it.")
    harness.set_policy(OBSERVED)
    run = await harness.execute()
    assert (run.status, run.report) == (Status.SUCCEEDED, "Without it.")
    assert await harness.find_pending() == []
    assert not (harness.workspace / "out.md").exists()
    (result,) = harness.tool_results()
    assert "nobody is asked while this routine is observed" in result
    steps = await harness.journal.runs.get_steps(run.id)
    (body,) = [step.body for step in steps if step.kind is StepKind.CALL]
    assert body["verdict"]["effect"] == "deny"
    assert body["asked"] == body["verdict"]["rule"] == "rule 1 (file_write)"


async def test_a_person_is_asked_again_once_the_trial_has_ended(build_harness, clock):
    harness = build_harness(turn(write()), "Done.")
    harness.set_policy(OBSERVED)
    clock.advance(days=7)
    run, approval = await harness.run_to_question()
    assert run.status is Status.WAITING
    assert approval.approval_request.tool == "file_write"


async def test_a_run_that_waited_when_the_trial_began_goes_on_without_the_call(build_harness):
    harness = build_harness(turn(write()), "Without it.")
    run, approval = await harness.run_to_question()
    harness.set_policy(OBSERVED)
    with pytest.raises(Refused, match="the policy has changed"):
        await harness.approvals.approve(approval.id, by="uid 1000")
    assert (await harness.execute(run)).report == "Without it."
    assert await harness.find_pending() == []
    assert not (harness.workspace / "out.md").exists()


async def test_a_remembered_call_is_allowed_during_the_trial(build_harness):
    harness = build_harness(turn(write()), "Done.", turn(write()), "Again.")
    run, approval = await harness.run_to_question()
    _, token = harness.approvals.remembered_calls.propose(approval)
    await harness.approvals.approve(approval.id, by="uid 1000", remember=token)
    await harness.execute(run)
    (harness.workspace / "out.md").unlink()
    harness.set_policy(OBSERVED)
    assert (await harness.execute()).status is Status.SUCCEEDED
    assert (harness.workspace / "out.md").read_text() == "x"
