"""A remembered call is exactly one call of one routine, shown as a diff first, and can be
revoked.
"""

from __future__ import annotations

import re

import pytest

from daemon.definitions.routines.routine import Origin
from daemon.errors import NotFound, Refused
from daemon.models import Status
from tests.runs.approvals.conftest import POLICY, turn, write

APPEND = ("shell", {"command": "echo hi | tee -a notes.md"})
INTERPRETERS = """
[[rule]]
tool = "shell"
argv = ["%s"]
effect = "ask"
"""


async def remember(harness, question):
    diff, confirm = await harness.approvals.propose(question.id)
    await harness.approvals.approve(question.id, by="uid 1000", remember=confirm)
    return diff


async def test_a_remembered_call_is_shown_as_a_diff_and_never_asks_again(build_harness):
    harness = build_harness(turn(APPEND), "Done.")
    run, approval = await harness.run_to_question()
    diff = await remember(harness, approval)
    assert '+what = "echo hi | tee -a notes.md"' in diff.splitlines()
    assert '+routine = "daily"' in diff.splitlines()
    assert (await harness.execute(run)).report == "Done."
    harness = build_harness(turn(APPEND), "Done.")
    again = await harness.execute()
    assert again.status is Status.SUCCEEDED
    assert (harness.workspace / "notes.md").read_text() == "hi\nhi\n"
    (call,) = [
        step for step in await harness.journal.runs.get_steps(again.id) if step.kind == "call"
    ]
    assert call.body["verdict"]["rule"] == f"approvals.toml ({approval.id})"
    assert {row.kind for row in await harness.journal.audit.find()} >= {
        "asked",
        "approved",
        "remembered",
        "call",
        "result",
    }


@pytest.mark.parametrize(
    "command",
    ["echo ho | tee -a notes.md", "echo hi | tee -a other.md", "echo hi|tee -a notes.md x"],
)
async def test_a_call_with_other_words_than_the_remembered_call_asks(build_harness, command):
    harness = build_harness(turn(APPEND), "Done.")
    _, approval = await harness.run_to_question()
    await remember(harness, approval)
    harness = build_harness(turn(("shell", {"command": command})), "Done.")
    assert (await harness.execute()).status is Status.WAITING


async def test_a_remembered_call_applies_only_to_its_routine(build_harness):
    harness = build_harness(turn(APPEND), "Done.")
    _, approval = await harness.run_to_question()
    await remember(harness, approval)
    harness = build_harness(turn(APPEND), "Done.")
    harness.routine = harness.routine.model_copy(update={"name": "weekly"})
    assert (await harness.execute()).status is Status.WAITING


async def test_a_tainted_run_asks_despite_a_remembered_call_and_can_remember_none(
    build_harness,
):
    harness = build_harness(turn(APPEND), "Done.")
    run, approval = await harness.run_to_question()
    await remember(harness, approval)
    await harness.execute(run)
    harness = build_harness(turn(("look", {"at": "a page"})), turn(APPEND), "Done.")
    _, question = await harness.run_to_question()
    with pytest.raises(Refused, match="had read what strangers wrote") as error:
        await harness.approvals.propose(question.id)
    assert f'[routine.daily] tainted_tools = ["{APPEND[0]}"] in policy.toml' in str(error.value)


@pytest.mark.parametrize("tool", ["send", "http_request"])
async def test_the_line_that_is_named_for_a_tainted_call_ends_the_question(build_harness, tool):
    policy = (
        f'{POLICY}[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["shed.example"]\n'
    )
    call = {
        "send": ("send", {"text": "hi"}),
        "http_request": ("http_request", {"url": "https://shed.example/x"}),
    }[tool]

    def harness_with(policy):
        harness = build_harness(turn(("look", {"at": "a page"})), turn(call), "Done.")
        if tool == "http_request":
            harness.registry.register("http_request", "Ask a server.", lambda url: "ok")
        harness.set_policy(policy)
        return harness

    harness = harness_with(policy)
    _, approval = await harness.run_to_question()
    with pytest.raises(Refused) as error:
        await harness.approvals.propose(approval.id)
    assert "change what asks" not in str(error.value)
    assert ("safe = true" in str(error.value)) == (tool == "http_request")
    section, line = re.search(
        r"(\[routine\.\w+\]) (tainted_tools = .*) in policy", str(error.value)
    ).groups()
    harness = harness_with(f"{policy}\n{section}\n{line}\n")
    assert (await harness.execute()).status is Status.SUCCEEDED


def made_by(maker, harness):
    """Have the routine of a harness be one that an agent of the routine `maker` made."""
    origin = Origin(routine=maker, run="r")
    harness.routine = harness.routine.model_copy(update={"origin": origin})
    return harness


@pytest.mark.parametrize(("maker", "asks"), [(None, False), ("watcher", True)])
async def test_a_routine_made_by_an_agent_has_not_the_rights_of_a_table_with_its_name(
    build_harness, maker, asks
):
    def harness_with(*replies):
        harness = build_harness(*replies)
        return made_by(maker, harness) if maker else harness

    harness = harness_with(turn(APPEND), "Done.")
    run, approval = await harness.run_to_question()
    await remember(harness, approval)
    await harness.execute(run)
    harness = harness_with(turn(("look", {"at": "a page"})), turn(APPEND), "Done.")
    harness.set_policy(f'{POLICY}[routine.daily]\ntainted_tools = ["{APPEND[0]}"]\n')
    run = await harness.execute()
    assert run.status is (Status.WAITING if asks else Status.SUCCEEDED)


async def test_a_routine_made_by_an_agent_has_not_the_remembered_calls_of_one_of_its_name(
    build_harness,
):
    harness = build_harness(turn(APPEND), "Done.")
    run, approval = await harness.run_to_question()
    await remember(harness, approval)
    await harness.execute(run)
    harness = made_by("watcher", build_harness(turn(APPEND), "Done."))
    run, approval = await harness.run_to_question()
    assert '+routine = "watcher/daily"' in (await remember(harness, approval)).splitlines()
    await harness.execute(run)
    harness = made_by("watcher", build_harness(turn(APPEND), "Done."))
    assert (await harness.execute()).status is Status.SUCCEEDED


async def test_of_a_routine_made_by_an_agent_the_table_of_its_maker_is_named_and_counts(
    build_harness,
):
    replies = (turn(("look", {"at": "a page"})), turn(("send", {"text": "hi"})), "Done.")
    _, approval = await made_by("watcher", build_harness(*replies)).run_to_question()
    with pytest.raises(Refused) as error:
        await build_harness().approvals.propose(approval.id)
    line = '[routine.watcher] tainted_tools = ["send"]'
    assert f"{line} in policy.toml" in str(error.value)
    harness = made_by("watcher", build_harness(*replies))
    harness.set_policy(POLICY + line.replace("] t", "]\nt") + "\n")
    assert (await harness.execute()).status is Status.SUCCEEDED


async def test_a_remembered_call_of_a_routine_made_by_an_agent_follows_the_table_of_its_maker(
    build_harness,
):
    harness = made_by("watcher", build_harness(turn(APPEND), "Done."))
    run, approval = await harness.run_to_question()
    await remember(harness, approval)
    await harness.execute(run)
    replies = (turn(("look", {"at": "a page"})), turn(APPEND), "Done.")
    for name, status in (("daily", Status.WAITING), ("watcher", Status.SUCCEEDED)):
        harness = made_by("watcher", build_harness(*replies))
        harness.set_policy(f'{POLICY}[routine.{name}]\ntainted_tools = ["{APPEND[0]}"]\n')
        assert (await harness.execute()).status is status


async def test_of_a_call_that_a_rule_asks_about_that_rule_is_named(build_harness):
    harness = build_harness(turn(("look", {"at": "a page"})), turn(APPEND), "Done.")
    _, approval = await harness.run_to_question()
    with pytest.raises(Refused, match=r"change what asks in policy.toml: rule 3 \(shell: tee -a\)"):
        await harness.approvals.propose(approval.id)


@pytest.mark.parametrize("program", ["python3", "env", "xargs", "sudo", "sh", "find", "make"])
async def test_a_call_of_an_interpreter_is_never_remembered(build_harness, program):
    harness = build_harness(turn(("shell", {"command": f"{program} x"})), "Done.")
    harness.set_policy(POLICY + INTERPRETERS % program)
    _, approval = await harness.run_to_question()
    with pytest.raises(
        Refused, match=r"cannot be remembered: .*(runs whatever it is told to|is not installed)"
    ):
        await harness.approvals.propose(approval.id)


async def test_a_denied_call_is_denied_despite_a_remembered_call(build_harness):
    harness = build_harness(turn(APPEND), "Done.")
    run, approval = await harness.run_to_question()
    await remember(harness, approval)
    await harness.execute(run)
    harness = build_harness(turn(APPEND), "Without it.")
    harness.set_policy(f'{POLICY}\n[routine.daily]\ntools = ["look"]\n')
    assert (await harness.execute()).report == "Without it."


async def test_a_remembered_call_can_be_revoked(build_harness):
    harness = build_harness(turn(APPEND), "Done.")
    _, approval = await harness.run_to_question()
    await remember(harness, approval)
    assert [entry.id for entry in harness.approvals.remembered_calls.load_entries()] == [
        approval.id
    ]
    await harness.approvals.revoke(approval.id[-6:], by="uid 1000")
    assert harness.approvals.remembered_calls.load_entries() == ()
    with pytest.raises(NotFound):
        await harness.approvals.revoke(approval.id, by="uid 1000")
    harness = build_harness(turn(APPEND), "Done.")
    assert (await harness.execute()).status is Status.WAITING


async def test_a_broken_or_world_writable_file_of_remembered_calls_counts_as_empty(build_harness):
    harness = build_harness(turn(write()), "Done.")
    _, approval = await harness.run_to_question()
    await remember(harness, approval)
    path = harness.state / "approvals.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    remembered_calls = harness.approvals.remembered_calls
    path.write_text(path.read_text() + "\n")
    assert (remembered_calls.load_entries(), "written by everybody" in remembered_calls.fault) == (
        (),
        True,
    )
    path.chmod(0o600)
    path.write_text("version = 1\nnonsense = 2\n")
    assert (remembered_calls.load_entries(), "nonsense" in remembered_calls.fault) == ((), True)
    path.unlink()
    assert (remembered_calls.load_entries(), remembered_calls.fault) == ((), "")


async def test_remembering_with_another_digest_than_the_shown_diff_is_refused(build_harness):
    harness = build_harness(turn(write()), "Done.")
    _, approval = await harness.run_to_question()
    with pytest.raises(Refused, match="not what was shown"):
        await harness.approvals.approve(approval.id, by="uid 1000", remember="0123456789abcdef")
    assert (await harness.find_pending()) == [approval]
