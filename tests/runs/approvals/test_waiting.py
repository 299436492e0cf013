"""A call that a person has to allow parks its run, holds nothing, and starts at most once."""

from __future__ import annotations

import asyncio

import pytest

from daemon.errors import NotFound, Refused
from daemon.models import ApprovalStatus, Status, StepKind
from daemon.runs.run import APPROVAL_TIMEOUT
from tests.runs.approvals.conftest import POLICY, turn, write


async def test_the_allowed_calls_of_the_turn_finish_and_then_the_run_waits(harness):
    here = harness(turn(("look", {"at": "a"}), write(), ("look", {"at": "b"})), "Done.")
    run, asked = await here.waits()
    assert asked.approval_request.tool == "file_write"
    assert asked.approval_request.reason == "the owner wants to see it first"
    steps = await here.journal.runs.get_steps(run.id)
    assert [step.call_id for step in steps if step.kind is StepKind.RESULT] == ["1.0", "1.2"]
    assert not (here.workspace / "out.md").exists()
    assert run.detail == "waits for a person to allow file_write: agentctl approvals"


async def test_an_approved_call_is_made_once_and_the_model_hears_how_old_the_approval_is(
    harness, clock
):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    clock.advance(hours=3)
    await here.approvals.approve(asked.id, by="uid 1000")
    clock.advance(minutes=5)
    assert [each.id for each in here.queue] == [run.id]
    ended = await here.live(run)
    assert (ended.status, ended.report) == (Status.SUCCEEDED, "Done.")
    assert (here.workspace / "out.md").read_text() == "x"
    assert here.told()[0].startswith("[a person allowed this 5 min ago, 3 h 0 min after you asked")
    assert (await here.journal.approvals.get(asked.id)).status is ApprovalStatus.USED


async def test_a_rejected_call_is_denied_and_the_run_goes_on(harness):
    here = harness(turn(write()), "Without it.")
    run, asked = await here.waits()
    await here.approvals.reject(asked.id, by="uid 1000")
    ended = await here.live(run)
    assert (ended.status, ended.report) == (Status.SUCCEEDED, "Without it.")
    assert "said no" in here.told()[0]
    assert not (here.workspace / "out.md").exists()


async def test_nobody_who_answers_within_a_day_is_a_no(harness, clock):
    here = harness(turn(write()), "Without it.")
    run, asked = await here.waits()
    clock.advance(hours=24, seconds=-0.05)
    keeper = asyncio.create_task(here.approvals.run())
    await asyncio.sleep(0)
    assert not here.queue
    clock.advance(seconds=0.05)
    async with asyncio.timeout(30):
        while not here.queue:
            await asyncio.sleep(0)
    keeper.cancel()
    ended = await here.live(run)
    assert ended.report == "Without it."
    assert "did not answer in time" in here.told()[0]
    with pytest.raises(Refused, match="is expired"):
        await here.approvals.approve(asked.id, by="uid 1000")


async def test_what_has_expired_cannot_be_approved_even_before_anybody_noticed(harness, clock):
    here = harness(turn(write()), "Done.")
    _, asked = await here.waits()
    clock.advance(hours=25)
    with pytest.raises(Refused, match="is expired"):
        await here.approvals.approve(asked.id, by="uid 1000")


async def test_its_timeout_stands_still_while_it_waits(harness, clock):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    assert run.active < 5
    clock.advance(hours=23)
    await here.approvals.approve(asked.id, by="uid 1000")
    assert (await here.live(run)).status is Status.SUCCEEDED


async def test_of_two_questions_of_one_turn_each_is_answered_by_itself(harness):
    here = harness(turn(write("a.md"), write("b.md")), "Done.")
    run = await here.live()
    second, first = await here.pending()
    await here.approvals.approve(first.id, by="uid 1000")
    run = await here.live(run)
    assert run.status is Status.WAITING
    assert (here.workspace / "a.md").exists()
    (left,) = await here.pending()
    assert left == second, "it stays asked, with its id and its time"
    await here.approvals.reject(second.id, by="uid 1000")
    assert (await here.live(run)).report == "Done."
    assert not (here.workspace / "b.md").exists()


async def test_an_answer_that_comes_while_the_run_is_lived_is_not_lost(harness):
    here = harness(turn(write("a.md"), write("b.md")), "Done.")
    run = await here.live()
    second, first = await here.pending()
    await here.approvals.approve(first.id, by="uid 1000")
    taken = await here.journal.runs.claim(run.id, owner="test")
    await here.approvals.approve(second.id, by="uid 1000")  # the run is running: nothing to queue
    assert (await here.journal.runs.get(run.id)).status is Status.RUNNING
    parked = await here.journal.approvals.park(
        taken,
        [first.approval_request, second.approval_request],
        patience=APPROVAL_TIMEOUT,
        detail="",
    )
    assert parked.status is Status.QUEUED
    assert (await here.live(run)).report == "Done."
    assert (here.workspace / "a.md").exists()
    assert (here.workspace / "b.md").exists()


async def test_twins_of_one_turn_are_one_question_and_one_call(harness):
    here = harness(turn(write(), write()), "Done.")
    run, asked = await here.waits()
    await here.approvals.approve(asked.id, by="uid 1000")
    ended = await here.live(run)
    assert ended.report == "Done."
    assert "allowed once and run once" in here.told()[1]


async def test_what_was_refused_is_not_asked_again_in_the_same_run(harness):
    here = harness(turn(write()), turn(write()), "Without it.")
    run, asked = await here.waits()
    await here.approvals.reject(asked.id, by="uid 1000")
    ended = await here.live(run)
    assert ended.report == "Without it."
    assert "said no" in here.told()[1]


async def test_after_three_refusals_nobody_is_asked_any_more(harness):
    here = harness(*(turn(write(f"{n}.md")) for n in range(4)), "I give up.")
    run = await here.live()
    for _ in range(3):
        (asked,) = await here.pending()
        await here.approvals.reject(asked.id, by="uid 1000")
        run = await here.live(run)
    assert (run.status, run.report) == (Status.SUCCEEDED, "I give up.")
    assert "too many questions" in here.told()[3]


async def test_who_never_wants_to_be_asked_says_so_in_the_policy(harness):
    here = harness(turn(write()), "Without it.")
    here.set_policy(f'{POLICY}\n[routine.daily]\non_ask = "deny"\n')
    assert (await here.live()).report == "Without it."
    assert "denied by rule 1 (file_write)" in here.told()[0]
    here = harness(turn(write()), "Without it.")
    here.set_policy(POLICY.replace("version = 1", 'version = 1\non_ask = "deny"'))
    assert (await here.live()).report == "Without it."


async def test_a_policy_edited_meanwhile_voids_the_question_and_judges_anew(harness):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    here.set_policy(f"{POLICY}# edited\n")
    with pytest.raises(Refused, match="the policy has changed since this was asked"):
        await here.approvals.approve(asked.id, by="uid 1000")
    run = await here.live(run)
    assert run.status is Status.WAITING
    (again,) = await here.pending()
    assert again.id != asked.id
    await here.approvals.approve(again.id, by="uid 1000")
    assert (await here.live(run)).report == "Done."


async def test_a_policy_that_is_edited_between_the_answer_and_the_start_asks_again(harness):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    await here.approvals.approve(asked.id, by="uid 1000")
    here.set_policy(f"{POLICY}# edited\n")
    run = await here.live(run)
    assert run.status is Status.WAITING
    assert not (here.workspace / "out.md").exists()
    assert (await here.journal.approvals.get(asked.id)).status is ApprovalStatus.VOID


async def test_a_policy_that_now_allows_or_forbids_needs_no_answer(harness):
    allowed = POLICY.replace('effect = "ask"\nreason', 'effect = "allow"\nreason')
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    here.set_policy(allowed)
    with pytest.raises(Refused):
        await here.approvals.approve(asked.id, by="uid 1000")
    assert (await here.live(run)).report == "Done."
    assert (here.workspace / "out.md").exists()


async def test_a_file_of_the_call_that_was_changed_meanwhile_is_another_call(harness):
    line = "echo hi | tee -a notes.md"
    here = harness(turn(("shell", {"command": line})), "Done.")
    (here.workspace / "notes.md").write_text("as it was\n")
    _, asked = await here.waits()
    (here.workspace / "notes.md").write_text("swapped\n")
    with pytest.raises(Refused, match="a program or a file of this call"):
        await here.approvals.approve(asked.id, by="uid 1000")
    assert (here.workspace / "notes.md").read_text() == "swapped\n"


async def test_the_request_names_argv_programs_files_folder_and_policy(harness):
    here = harness(turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done.")
    (here.workspace / "notes.md").write_text("as it was\n")
    _, asked = await here.waits()
    request = asked.approval_request.request
    assert request["folder"] == str(here.workspace)
    assert request["policy"] == here.policy.hash
    ((_, (echo, tee)),) = request["line"]
    assert (echo["argv"], tee["argv"]) == (["echo", "hi"], ["tee", "-a", "notes.md"])
    assert len(tee["program"]["sha256"]) == 64
    assert len(tee["files"]["notes.md"]["sha256"]) == 64


async def test_an_approval_is_of_no_use_a_second_time(harness):
    here = harness(turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done.")
    run, asked = await here.waits()
    await here.approvals.approve(asked.id, by="uid 1000")
    await here.live(run)
    assert (here.workspace / "notes.md").read_text() == "hi\n"
    with pytest.raises(Refused, match="is used"):
        await here.approvals.approve(asked.id, by="uid 1000")
    other = harness(turn(("shell", {"command": "echo hi | tee -a notes.md"})), "Done.")
    other.clock.advance(hours=1)
    assert (await other.live()).status is Status.WAITING, "another run asks for itself"


async def test_a_step_that_names_a_used_approval_is_not_written(harness):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    await here.approvals.approve(asked.id, by="uid 1000")
    await here.live(run)
    forged = await here.journal.runs.claim((await here.open(event="e")).id, owner="test")
    (step,) = [
        each for each in await here.journal.runs.get_steps(run.id) if each.kind is StepKind.CALL
    ]
    with pytest.raises(Refused, match="nothing was started"):
        await here.journal.runs.append(forged, step, durable=True)
    assert await here.journal.runs.get_steps(forged.id) == []


async def test_a_run_that_is_cancelled_while_it_waits_lets_its_question_go(harness):
    here = harness(turn(write()), "Done.")
    run, asked = await here.waits()
    assert (await here.journal.runs.request_cancel(run.id)).status is Status.CANCELLED
    assert (await here.journal.approvals.get(asked.id)).status is ApprovalStatus.VOID
    with pytest.raises(Refused, match="is void"):
        await here.approvals.approve(asked.id, by="uid 1000")


async def test_a_wrong_id_is_told_where_to_look(harness):
    here = harness("Done.")
    with pytest.raises(NotFound, match="agentctl approvals"):
        await here.approvals.approve("NOSUCH", by="uid 1000")


async def test_from_the_third_denial_on_the_model_is_told_to_stop_trying(harness):
    denied = ("shell", {"command": "rm x"})
    here = harness(turn(denied), turn(denied, denied), "I stop.")
    assert (await here.live()).report == "I stop."
    assert ["stop looking for a way round" in each for each in here.told()] == [False, False, True]
