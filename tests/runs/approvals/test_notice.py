"""What people are told of a question stands in the commit that parks the run, and goes with its
answer.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from daemon.definitions.routines.routine import Routine
from daemon.models import ApprovalRequest, DeliveryStatus, Run, Taint
from daemon.runs.approvals.notice import LONGEST, waiting_notice
from daemon.store.incidents import Alerting
from daemon.telemetry.redaction import Secrets
from tests.runs.approvals.conftest import turn, write


def telling(here, **deliver):
    """Let the routine of a harness deliver to people."""
    fields = {
        "run": {"prompt": "Work.", "mode": "agent", "tools": ["*"]},
        "deliver": [{"to": "mail", **deliver}],
    }
    here.routine = Routine.model_validate({"name": "daily", **fields})
    return here


async def test_each_question_is_told_once_and_the_incident_lasts_as_long_as_one_is_open(
    harness, journal
):
    journal.incidents.alerting = Alerting(to=("mail", "pager"))
    here = telling(harness(turn(write("a.md"), write("b.md")), "Done."))
    run = await here.live()
    told = await journal.outbox.find(run=run.id)
    assert sorted((each.target, each.kind) for each in told) == [
        ("mail", "question"),
        ("pager", "question"),
    ]
    second, first = await here.pending()
    assert told[0].options["approvals"] == [first.id, second.id]
    (incident,) = await journal.incidents.find()
    assert (incident.subject, incident.run) == ("approval for daily", run.id)

    await here.approvals.approve(first.id, by="uid 1000")
    assert [each.id for each in await journal.incidents.find()] == [incident.id], (
        "the other one is still open"
    )
    run = await here.live(run)
    assert len(await journal.outbox.find(run=run.id)) == 2, (
        "nobody is told again of what was asked before"
    )
    await here.approvals.reject(second.id, by="uid 1000")
    assert await journal.incidents.find() == []
    statuses = {each.status for each in await journal.outbox.find(run=run.id)}
    assert statuses == {DeliveryStatus.SUPPRESSED}, (
        "what was not sent by then asks nothing any more"
    )


async def test_a_question_that_expires_or_whose_run_is_cancelled_ends_its_incident(
    harness, journal, clock
):
    here = telling(harness(turn(write()), "Done.", turn(write()), "Done."))
    await here.waits()
    assert len(await journal.incidents.find()) == 1
    clock.advance(hours=25)
    assert len(await journal.approvals.expire()) == 1
    assert await journal.incidents.find() == []
    run, _ = await telling(harness(turn(write()), "Done.")).waits()
    assert len(await journal.incidents.find()) == 1
    await journal.runs.request_cancel(run.id)
    assert await journal.incidents.find() == []


async def test_a_question_put_while_the_clock_was_ahead_is_told_as_soon_as_it_is_set_right(
    harness, journal, clock
):
    clock.advance(hours=5)
    run = await telling(harness(turn(write()), "Done.")).live()
    clock.advance(hours=-5)
    assert await journal.outbox.find_due(clock.now()) == []
    await journal.move_waits()
    (question,) = await journal.outbox.find_due(clock.now())
    assert (question.run, question.kind) == (run.id, "question")


async def test_a_routine_may_leave_it_to_the_incident(harness, journal):
    here = telling(harness(turn(write()), "Done."), on=["succeeded"])
    run = await here.live()
    assert await journal.outbox.find(run=run.id) == []
    assert len(await journal.incidents.find()) == 1


def word(approval_request: ApprovalRequest, run: Run) -> str:
    until = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    notice = waiting_notice(
        run,
        [approval_request],
        ["mail"],
        until=until,
        redact=lambda text: text.replace("s3cr3t", "[…]"),
    )
    ((_, text),) = notice.questions
    return text


async def test_a_secret_in_a_call_is_redacted_though_it_is_cut_or_has_the_signs_of_a_link(harness):
    here = harness(
        turn(write(content=f"{'x' * (LONGEST - 60)} sk-proj-aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5")),
        "Done.",
    )
    run, asked = await here.waits()
    secrets = Secrets()
    secrets.add("sk-proj-aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5")
    secrets.add("mE4.abcdef.ghijkl-secret")
    until = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    for taint in (Taint.NONE, Taint.TAINTED):
        approval_request = replace(
            asked.approval_request, taint=taint, reason="mE4.abcdef.ghijkl-secret"
        )
        notice = waiting_notice(
            run, [approval_request], ["mail"], until=until, redact=secrets.redact
        )
        ((_, text),) = notice.questions
        assert "sk-proj" not in text and "abcdef" not in text


async def test_the_words_of_a_call_are_bounded_redacted_and_for_strangers_made_harmless(harness):
    here = harness(turn(write("a.md", "s3cr3t")), "Done.")
    run, asked = await here.waits()
    assert "'[…]'" in word(asked.approval_request, run) and "2026-11-21 08:30 UTC" in word(
        asked.approval_request, run
    )
    address = "https://evil.example.org/x"
    request = {
        **asked.approval_request.request,
        "arguments": {"content": f"{address} {'y' * 5_000}\x1b[31m\u202e"},
    }
    plain = replace(asked.approval_request, request=request)
    assert address in word(plain, run)
    assert len(word(plain, run)) < LONGEST + 1_000
    assert "\x1b" not in word(plain, run) and "\u202e" not in word(plain, run)
    tainted = word(replace(plain, taint=Taint.TAINTED), run)
    assert address not in tainted and "hxxps" in tainted
    assert "strangers" in tainted
    lines = replace(
        plain, request={**request, "line": [[";", [{"argv": ["echo", "a\n# Title\n"]}]]]}
    )
    assert "\n# Title" not in word(lines, run), "no word of a call leaves its block"


def test_a_worker_of_an_older_version_reads_the_definition_of_a_routine_that_says_nothing_of_it():
    fields = {
        "run": {"prompt": "Work."},
        "deliver": [{"to": "mail"}, {"to": "log", "on": ["failed"]}],
    }
    routine = Routine.model_validate({"name": "daily", **fields})
    assert "waiting" not in routine.dump()
    assert Routine.restore(routine.dump()) == routine
    earlier = [{"to": "mail", "on": ["succeeded", "failed", "timed_out", "interrupted"]}]
    explicit = Routine.model_validate({"name": "daily", **fields, "deliver": earlier})
    assert "waiting" not in Routine.restore(explicit.dump()).deliver[0].on
