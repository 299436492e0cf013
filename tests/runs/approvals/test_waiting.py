"""A call that asks parks its run, and starts at most once after its approval."""

from __future__ import annotations

import asyncio

import pytest

from daemon.errors import NotFound, Refused
from daemon.models import ApprovalStatus, Status, StepKind
from daemon.runs.run import APPROVAL_TIMEOUT
from tests.runs.approvals.conftest import POLICY, turn, write


async def test_allowed_calls_of_the_turn_finish_before_the_run_waits(build_harness):
    harness = build_harness(turn(("look", {"at": "a"}), write(), ("look", {"at": "b"})), "Done.")
    run, approval = await harness.run_to_question()
    assert approval.approval_request.tool == "file_write"
    assert approval.approval_request.reason == "the owner wants to see it first"
    steps = await harness.journal.runs.get_steps(run.id)
    assert [step.call_id for step in steps if step.kind is StepKind.RESULT] == ["1.0", "1.2"]
    assert not (harness.workspace / "out.md").exists()
    assert run.detail == "waits for a person to allow file_write: agentctl approvals"


async def test_an_approved_call_runs_once_and_its_result_states_the_age_of_the_approval(
    build_harness, clock
):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    clock.advance(hours=3)
    await harness.approvals.approve(approval.id, by="uid 1000")
    clock.advance(minutes=5)
    assert [queued_run.id for queued_run in harness.queue] == [run.id]
    ended_run = await harness.execute(run)
    assert (ended_run.status, ended_run.report) == (Status.SUCCEEDED, "Done.")
    assert (harness.workspace / "out.md").read_text() == "x"
    assert harness.tool_results()[0].startswith(
        "[a person allowed this 5 min ago, 3 h after you asked"
    )
    assert (await harness.journal.approvals.get(approval.id)).status is ApprovalStatus.USED


async def test_a_rejected_call_is_denied_and_the_run_continues(build_harness):
    harness = build_harness(turn(write()), "Without it.")
    run, approval = await harness.run_to_question()
    await harness.approvals.reject(approval.id, by="uid 1000")
    ended_run = await harness.execute(run)
    assert (ended_run.status, ended_run.report) == (Status.SUCCEEDED, "Without it.")
    assert "said no" in harness.tool_results()[0]
    assert not (harness.workspace / "out.md").exists()


async def test_an_approval_request_without_an_answer_expires_after_a_day(build_harness, clock):
    harness = build_harness(turn(write()), "Without it.")
    run, approval = await harness.run_to_question()
    clock.advance(hours=24, seconds=-0.05)
    keeper = asyncio.create_task(harness.approvals.run())
    await asyncio.sleep(0)
    assert not harness.queue
    clock.advance(seconds=0.05)
    async with asyncio.timeout(30):
        while not harness.queue:
            await asyncio.sleep(0)
    keeper.cancel()
    ended_run = await harness.execute(run)
    assert ended_run.report == "Without it."
    assert "did not answer in time" in harness.tool_results()[0]
    with pytest.raises(Refused, match="is expired"):
        await harness.approvals.approve(approval.id, by="uid 1000")


async def test_an_overdue_approval_request_cannot_be_approved_before_its_expiry_is_recorded(
    build_harness, clock
):
    harness = build_harness(turn(write()), "Done.")
    _, approval = await harness.run_to_question()
    clock.advance(hours=25)
    with pytest.raises(Refused, match="is expired"):
        await harness.approvals.approve(approval.id, by="uid 1000")


async def test_the_timeout_of_a_run_excludes_its_wait_for_an_approval(build_harness, clock):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    assert run.active < 5
    clock.advance(hours=23)
    await harness.approvals.approve(approval.id, by="uid 1000")
    assert (await harness.execute(run)).status is Status.SUCCEEDED


async def test_two_approval_requests_of_one_turn_are_answered_separately(build_harness):
    harness = build_harness(turn(write("a.md"), write("b.md")), "Done.")
    run = await harness.execute()
    second, first = await harness.find_pending()
    await harness.approvals.approve(first.id, by="uid 1000")
    run = await harness.execute(run)
    assert run.status is Status.WAITING
    assert (harness.workspace / "a.md").exists()
    (approval,) = await harness.find_pending()
    assert approval == second, "it stays asked, with its id and its time"
    await harness.approvals.reject(second.id, by="uid 1000")
    assert (await harness.execute(run)).report == "Done."
    assert not (harness.workspace / "b.md").exists()


async def test_an_answer_during_the_execution_of_the_run_is_kept(build_harness):
    harness = build_harness(turn(write("a.md"), write("b.md")), "Done.")
    run = await harness.execute()
    second, first = await harness.find_pending()
    await harness.approvals.approve(first.id, by="uid 1000")
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    # the run is running: nothing to queue
    await harness.approvals.approve(second.id, by="uid 1000")
    assert (await harness.journal.runs.get(run.id)).status is Status.RUNNING
    parked_run = await harness.journal.approvals.park(
        claimed_run,
        [first.approval_request, second.approval_request],
        timeout=APPROVAL_TIMEOUT,
        detail="",
    )
    assert parked_run.status is Status.QUEUED
    assert (await harness.execute(run)).report == "Done."
    assert (harness.workspace / "a.md").exists()
    assert (harness.workspace / "b.md").exists()


async def test_identical_calls_of_one_turn_are_one_approval_request_and_one_call(build_harness):
    harness = build_harness(turn(write(), write()), "Done.")
    run, approval = await harness.run_to_question()
    await harness.approvals.approve(approval.id, by="uid 1000")
    ended_run = await harness.execute(run)
    assert ended_run.report == "Done."
    assert "allowed once and run once" in harness.tool_results()[1]


async def test_a_rejected_call_is_not_asked_again_in_the_same_run(build_harness):
    harness = build_harness(turn(write()), turn(write()), "Without it.")
    run, approval = await harness.run_to_question()
    await harness.approvals.reject(approval.id, by="uid 1000")
    ended_run = await harness.execute(run)
    assert ended_run.report == "Without it."
    assert "said no" in harness.tool_results()[1]


async def test_after_three_rejections_a_run_asks_no_more(build_harness):
    harness = build_harness(*(turn(write(f"{n}.md")) for n in range(4)), "I give up.")
    run = await harness.execute()
    for _ in range(3):
        (approval,) = await harness.find_pending()
        await harness.approvals.reject(approval.id, by="uid 1000")
        run = await harness.execute(run)
    assert (run.status, run.report) == (Status.SUCCEEDED, "I give up.")
    assert "too many questions" in harness.tool_results()[3]


async def test_on_ask_deny_in_the_policy_denies_instead_of_asking(build_harness):
    harness = build_harness(turn(write()), "Without it.")
    harness.set_policy(f'{POLICY}\n[routine.daily]\non_ask = "deny"\n')
    assert (await harness.execute()).report == "Without it."
    assert "denied by rule 1 (file_write)" in harness.tool_results()[0]
    harness = build_harness(turn(write()), "Without it.")
    harness.set_policy(POLICY.replace("version = 1", 'version = 1\non_ask = "deny"'))
    assert (await harness.execute()).report == "Without it."


async def test_an_edit_of_the_policy_voids_the_approval_request_and_asks_again(build_harness):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    harness.set_policy(f"{POLICY}# edited\n")
    with pytest.raises(Refused, match="the policy has changed since this was asked"):
        await harness.approvals.approve(approval.id, by="uid 1000")
    run = await harness.execute(run)
    assert run.status is Status.WAITING
    (again,) = await harness.find_pending()
    assert again.id != approval.id
    await harness.approvals.approve(again.id, by="uid 1000")
    assert (await harness.execute(run)).report == "Done."


async def test_an_edit_of_the_policy_after_the_approval_asks_again(build_harness):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    await harness.approvals.approve(approval.id, by="uid 1000")
    harness.set_policy(f"{POLICY}# edited\n")
    run = await harness.execute(run)
    assert run.status is Status.WAITING
    assert not (harness.workspace / "out.md").exists()
    assert (await harness.journal.approvals.get(approval.id)).status is ApprovalStatus.VOID


async def test_a_waiting_call_allowed_by_an_edited_policy_runs_without_an_answer(build_harness):
    allow_policy = POLICY.replace('effect = "ask"\nreason', 'effect = "allow"\nreason')
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    harness.set_policy(allow_policy)
    with pytest.raises(Refused):
        await harness.approvals.approve(approval.id, by="uid 1000")
    assert (await harness.execute(run)).report == "Done."
    assert (harness.workspace / "out.md").exists()


async def test_a_changed_file_of_the_call_makes_its_approval_invalid(build_harness):
    line = "echo hi | tee -a notes.md"
    harness = build_harness(turn(("shell", {"command": line})), "Done.")
    (harness.workspace / "notes.md").write_text("as it was\n")
    _, approval = await harness.run_to_question()
    (harness.workspace / "notes.md").write_text("swapped\n")
    with pytest.raises(Refused, match="a program or a file of this call"):
        await harness.approvals.approve(approval.id, by="uid 1000")
    assert (harness.workspace / "notes.md").read_text() == "swapped\n"


async def test_the_request_names_argv_programs_files_folder_and_policy(build_harness):
    harness = build_harness(turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done.")
    (harness.workspace / "notes.md").write_text("as it was\n")
    _, approval = await harness.run_to_question()
    request = approval.approval_request.request
    assert request["folder"] == str(harness.workspace)
    assert request["policy"] == harness.policy.hash
    ((_, (echo, tee)),) = request["line"]
    assert (echo["argv"], tee["argv"]) == (["echo", "hi"], ["tee", "-a", "notes.md"])
    assert len(tee["program"]["sha256"]) == 64
    assert len(tee["files"]["notes.md"]["sha256"]) == 64


async def test_an_approval_can_be_used_only_once(build_harness):
    harness = build_harness(turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done.")
    run, approval = await harness.run_to_question()
    await harness.approvals.approve(approval.id, by="uid 1000")
    await harness.execute(run)
    assert (harness.workspace / "notes.md").read_text() == "hi\n"
    with pytest.raises(Refused, match="is used"):
        await harness.approvals.approve(approval.id, by="uid 1000")
    other_harness = build_harness(
        turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done."
    )
    other_harness.clock.advance(hours=1)
    assert (await other_harness.execute()).status is Status.WAITING, "another run asks for itself"


async def test_a_step_that_names_a_used_approval_is_not_written(build_harness):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    await harness.approvals.approve(approval.id, by="uid 1000")
    await harness.execute(run)
    forged_run = await harness.journal.runs.claim((await harness.open(event="e")).id, owner="test")
    (step,) = [
        record
        for record in await harness.journal.runs.get_steps(run.id)
        if record.kind is StepKind.CALL
    ]
    with pytest.raises(Refused, match="nothing was started"):
        await harness.journal.runs.append(forged_run, step, durable=True)
    assert await harness.journal.runs.get_steps(forged_run.id) == []


async def test_cancelling_a_waiting_run_voids_its_approval_request(build_harness):
    harness = build_harness(turn(write()), "Done.")
    run, approval = await harness.run_to_question()
    assert (await harness.journal.runs.request_cancel(run.id)).status is Status.CANCELLED
    assert (await harness.journal.approvals.get(approval.id)).status is ApprovalStatus.VOID
    with pytest.raises(Refused, match="is void"):
        await harness.approvals.approve(approval.id, by="uid 1000")


async def test_an_unknown_approval_id_names_agentctl_approvals(build_harness):
    harness = build_harness("Done.")
    with pytest.raises(NotFound, match="agentctl approvals"):
        await harness.approvals.approve("NOSUCH", by="uid 1000")


async def test_the_third_denial_tells_the_model_to_stop_trying(build_harness):
    denied_call = ("shell", {"command": "rm x"})
    harness = build_harness(turn(denied_call), turn(denied_call, denied_call), "I stop.")
    assert (await harness.execute()).report == "I stop."
    assert ["stop looking for a way round" in result for result in harness.tool_results()] == [
        False,
        False,
        True,
    ]
