"""A report is checked before its run ends: it fails with the reason, or the model repairs it."""

from __future__ import annotations

import pytest

from daemon.app.commands.validate import examine
from daemon.errors import Overloaded
from daemon.models import Status, StepKind, Taint
from tests.cli.agentctl import agentctl
from tests.replaying import ReplayedApp

POLICY = """
version = 1
[[rule]]
tool = "shell"
effect = "allow"
argv = [["test", "cat", "false"]]
"""
SUM = '[run]\nprompt = "Sum up."\n{run}\n[check]\n{check}\n'


@pytest.fixture
def app(tmp_path):
    app = ReplayedApp(tmp_path)
    app.write("policy.toml", POLICY)
    return app


def sum_up(app, check, run=""):
    app.write_routine("sum", SUM.format(check=check, run=run))


async def answer(app, *answers, name="sum"):
    app.model.enqueue(*answers)
    return await app.run(name)


def questions(app):
    """Return the last message of each request to the model."""
    return [call.messages[-1].content for call in app.model.calls]


async def test_a_report_that_holds_up_is_delivered_as_it_is(app):
    sum_up(app, 'contains = ["## Summary", "disk"]\ncommand = ["test", "-d", "."]')
    async with app:
        run = await answer(app, "## Summary\nThe disk is fine.")
        assert (run.status, run.report) == (Status.SUCCEEDED, "## Summary\nThe disk is fine.")
        assert len(app.model.calls) == 1


async def test_a_report_without_a_text_fails_with_the_reason(app):
    sum_up(app, 'contains = ["## Summary", "disk"]')
    async with app:
        run = await answer(app, "The disk is fine.")
        assert (run.status, run.report) == (Status.FAILED, "The disk is fine.")
        assert run.detail == "the check failed: the report does not contain '## Summary'"


async def test_a_command_that_says_no_fails_the_run_with_its_last_words(app):
    sum_up(app, 'command = ["cat", "no-such-file"]')
    async with app:
        run = await answer(app, "Done.")
        assert run.status is Status.FAILED
        assert (
            "the check failed: its command said no (exit code 1): cat no-such-file:" in run.detail
        )
        assert "No such file" in run.detail


async def test_the_model_repairs_its_report_once(app):
    sum_up(app, 'contains = ["## Summary"]\nrepair = 1')
    async with app:
        run = await answer(app, "Fine.", "## Summary\nFine.")
        assert (run.status, run.report) == (Status.SUCCEEDED, "## Summary\nFine.")
        assert "does not hold up: the report does not contain '## Summary'" in questions(app)[1]
        assert run.iterations == 2
        sources = [
            step.body["source"] for step in await app.steps(run) if step.kind is StepKind.MESSAGE
        ]
        assert sources == ["goal", "check"]
        async with app.serve_api() as socket:
            assert (
                "told what is wrong with its report"
                in (await agentctl(socket, "inspect", run.id)).out
            )
        run = await answer(app, "Fine.", "Still fine.")
        assert run.status is Status.FAILED
        assert run.detail == "the check failed: the report does not contain '## Summary'"


async def test_the_model_reads_what_the_command_put_out_as_data_of_strangers(app):
    sum_up(app, 'command = ["cat", "missing/orders"]\nrepair = 1')
    async with app:
        run = await answer(app, "Done.", "Done again.")
        assert run.status is Status.FAILED
        question = questions(app)[1]
        assert "No such file" in question
        assert '<fact name="check" tool="shell" ok="no" boundary=' in question
        assert run.taint is Taint.TAINTED


async def test_a_repair_stays_within_the_limits_of_the_run(app):
    sum_up(app, 'contains = ["## Summary"]\nrepair = 3', run="max_iterations = 2")
    async with app:
        run = await answer(app, "One.", "Two.", "Three.")
        assert (run.status, len(app.model.calls)) == (Status.FAILED, 2)
        assert "2 iterations reached" in run.detail
        assert "the check had failed: the report does not contain" in run.detail


async def test_silence_is_not_checked(app):
    sum_up(app, 'contains = ["## Summary"]', run='silent_token = "OK"')
    async with app:
        run = await answer(app, "OK")
        assert (run.status, run.silent) == (Status.SUCCEEDED, True)


async def test_a_command_that_the_policy_denies_fails_the_run_and_validate_says_so(app, tmp_path):
    sum_up(app, 'command = ["rm", "-rf", "out"]')
    (fault,) = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state").faults
    assert (fault.key, fault.found) == ("check.command", "rm -rf out")
    async with app:
        run = await answer(app, "Done.")
        assert run.status is Status.FAILED
        assert "the check's command may not run: rm -rf out" in run.detail


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SUM.format(check="repair = 1", run=""), "check: checks nothing"),
        (SUM.format(check='contains = ["a"]\nrepair = 9', run=""), "check.repair"),
        (SUM.format(check='contains = [""]', run=""), "check.contains[0]"),
        (SUM.format(check='command = [" "]', run=""), "check.command[0]: names no program"),
        (
            (
                '[check]\ncontains = ["a"]\nrepair = 1\n[run]\nmode = "script"\n'
                '[[gather]]\nname = "a"\ntool = "sysinfo"'
            ),
            "check.repair: is for the report of a model",
        ),
    ],
)
async def test_a_check_that_cannot_be_made_is_refused(app, text, problem):
    app.write_routine("sum", text)
    async with app:
        assert problem in str(app.faults["sum"])


async def test_an_interrupted_run_goes_on_with_the_same_round(app, tmp_path):
    """What was checked and asked before the interruption is not checked or asked again."""
    sum_up(app, 'command = ["test", "-e", "made"]\nrepair = 1')
    async with app:
        app.model.enqueue("Done.", Overloaded("busy", retry_after=3600))
        run = await app.run("sum")
        assert run.status is Status.QUEUED, (
            run.detail
        )  # put off, with the check and its question in the steps
        (app.workspace / "made").touch()
        app.model.enqueue("Made now.")
        app.advance(hours=2)
        run = await app.finish(run.id)
        assert (run.status, run.report) == (Status.SUCCEEDED, "Made now.")
        steps = await app.steps(run)
        checks = [step.call_id for step in steps if step.kind is StepKind.CALL]
        assert checks == ["check.command.0", "check.command.1"]
        sources = [step.body["source"] for step in steps if step.kind is StepKind.MESSAGE]
        assert sources == ["goal", "check"]
