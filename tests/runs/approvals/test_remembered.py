"""What is allowed for good is exactly one call of one routine, shown as a diff first, and can be
taken back.
"""

from __future__ import annotations

import pytest

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


async def remember(here, asked):
    diff, confirm = await here.approvals.proposal(asked.id)
    await here.approvals.approve(asked.id, by="uid 1000", remember=confirm)
    return diff


async def test_what_is_remembered_is_shown_as_a_diff_and_not_asked_again(harness):
    here = harness(turn(APPEND), "Done.")
    run, asked = await here.waits()
    diff = await remember(here, asked)
    assert '+what = "echo hi | tee -a notes.md"' in diff.splitlines()
    assert '+routine = "daily"' in diff.splitlines()
    assert (await here.live(run)).report == "Done."
    here = harness(turn(APPEND), "Done.")
    again = await here.live()
    assert again.status is Status.SUCCEEDED
    assert (here.workspace / "notes.md").read_text() == "hi\nhi\n"
    (call,) = [step for step in await here.journal.runs.get_steps(again.id) if step.kind == "call"]
    assert call.body["verdict"]["rule"] == f"approvals.toml ({asked.id})"
    assert {row.kind for row in await here.journal.audit.find()} >= {
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
async def test_any_other_words_are_asked_about(harness, command):
    here = harness(turn(APPEND), "Done.")
    _, asked = await here.waits()
    await remember(here, asked)
    here = harness(turn(("shell", {"command": command})), "Done.")
    assert (await here.live()).status is Status.WAITING


async def test_it_holds_for_its_routine_only(harness):
    here = harness(turn(APPEND), "Done.")
    _, asked = await here.waits()
    await remember(here, asked)
    here = harness(turn(APPEND), "Done.")
    here.routine = here.routine.model_copy(update={"name": "weekly"})
    assert (await here.live()).status is Status.WAITING


async def test_a_run_that_has_read_strangers_is_asked_all_the_same_and_cannot_have_it_remembered(
    harness,
):
    here = harness(turn(APPEND), "Done.")
    run, asked = await here.waits()
    await remember(here, asked)
    await here.live(run)
    here = harness(turn(("look", {"at": "a page"})), turn(APPEND), "Done.")
    _, tainted = await here.waits()
    with pytest.raises(Refused, match="had read what strangers wrote"):
        await here.approvals.proposal(tainted.id)


@pytest.mark.parametrize("program", ["python3", "env", "xargs", "sudo", "sh", "find", "make"])
async def test_what_runs_whatever_it_is_told_is_never_remembered(harness, program):
    here = harness(turn(("shell", {"command": f"{program} x"})), "Done.")
    here.set_policy(POLICY + INTERPRETERS % program)
    _, asked = await here.waits()
    with pytest.raises(
        Refused, match=r"cannot be remembered: .*(runs whatever it is told to|is not installed)"
    ):
        await here.approvals.proposal(asked.id)


async def test_a_deny_beats_what_is_remembered(harness):
    here = harness(turn(APPEND), "Done.")
    run, asked = await here.waits()
    await remember(here, asked)
    await here.live(run)
    here = harness(turn(APPEND), "Without it.")
    here.set_policy(f'{POLICY}\n[routine.daily]\ntools = ["look"]\n')
    assert (await here.live()).report == "Without it."


async def test_what_is_remembered_can_be_taken_back(harness):
    here = harness(turn(APPEND), "Done.")
    _, asked = await here.waits()
    await remember(here, asked)
    assert [entry.id for entry in here.approvals.remembered.entries()] == [asked.id]
    await here.approvals.revoke(asked.id[-6:], by="uid 1000")
    assert here.approvals.remembered.entries() == ()
    with pytest.raises(NotFound):
        await here.approvals.revoke(asked.id, by="uid 1000")
    here = harness(turn(APPEND), "Done.")
    assert (await here.live()).status is Status.WAITING


async def test_a_file_that_others_could_have_written_or_that_is_broken_holds_nothing(harness):
    here = harness(turn(write()), "Done.")
    _, asked = await here.waits()
    await remember(here, asked)
    path = here.state / "approvals.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    remembered = here.approvals.remembered
    path.write_text(path.read_text() + "\n")
    assert (remembered.entries(), "written by others" in remembered.fault) == ((), True)
    path.chmod(0o600)
    path.write_text("version = 1\nnonsense = 2\n")
    assert (remembered.entries(), "nonsense" in remembered.fault) == ((), True)
    path.unlink()
    assert (remembered.entries(), remembered.fault) == ((), "")


async def test_what_would_be_written_must_be_what_was_shown(harness):
    here = harness(turn(write()), "Done.")
    _, asked = await here.waits()
    with pytest.raises(Refused, match="not what was shown"):
        await here.approvals.approve(asked.id, by="uid 1000", remember="0123456789abcdef")
    assert (await here.pending()) == [asked]
