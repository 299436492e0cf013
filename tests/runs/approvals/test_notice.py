"""Approval requests are delivered from the commit that parks the run, and withdrawn with their
answer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from daemon.definitions.routines.routine import Routine
from daemon.delivery.markup import split_first_parts
from daemon.delivery.message import compose
from daemon.delivery.sanitize import neutralize
from daemon.models import ApprovalRequest, DeliveryStatus, Run, Taint
from daemon.runs.approvals.notice import MAX_CALL_CHARACTERS, make_waiting_notice
from daemon.runs.approvals.request import format_request
from daemon.store.incidents import IncidentSettings
from daemon.telemetry.redaction import Secrets
from tests.runs.approvals.conftest import turn, write


def telling(harness, **deliver):
    """Let the routine of a harness deliver to people."""
    fields = {
        "run": {"prompt": "Work.", "mode": "agent", "tools": ["*"]},
        "deliver": [{"to": "mail", **deliver}],
    }
    harness.routine = Routine.model_validate({"name": "daily", **fields})
    return harness


async def test_each_approval_request_is_delivered_once_and_the_incident_ends_with_the_last_answer(
    build_harness, journal
):
    journal.incidents.settings = IncidentSettings(to=("mail", "pager"))
    harness = telling(build_harness(turn(write("a.md"), write("b.md")), "Done."))
    run = await harness.execute()
    deliveries = await journal.outbox.find(run=run.id)
    assert sorted((delivery.target, delivery.kind) for delivery in deliveries) == [
        ("mail", "question"),
        ("pager", "question"),
    ]
    second, first = await harness.find_pending()
    assert deliveries[0].options["approvals"] == [first.id, second.id]
    (incident,) = await journal.incidents.find()
    assert (incident.subject, incident.run) == ("approval for daily", run.id)

    await harness.approvals.approve(first.id, by="uid 1000")
    assert [open_incident.id for open_incident in await journal.incidents.find()] == [
        incident.id
    ], "the other one is still open"
    run = await harness.execute(run)
    assert len(await journal.outbox.find(run=run.id)) == 2, (
        "nobody is told again of what was asked before"
    )
    await harness.approvals.reject(second.id, by="uid 1000")
    assert await journal.incidents.find() == []
    statuses = {delivery.status for delivery in await journal.outbox.find(run=run.id)}
    assert statuses == {DeliveryStatus.SUPPRESSED}, (
        "what was not sent by then asks nothing any more"
    )


async def test_an_expired_or_cancelled_approval_request_ends_its_incident(
    build_harness, journal, clock
):
    harness = telling(build_harness(turn(write()), "Done.", turn(write()), "Done."))
    await harness.run_to_question()
    assert len(await journal.incidents.find()) == 1
    clock.advance(hours=25)
    assert len(await journal.approvals.expire()) == 1
    assert await journal.incidents.find() == []
    run, _ = await telling(build_harness(turn(write()), "Done.")).run_to_question()
    assert len(await journal.incidents.find()) == 1
    await journal.runs.request_cancel(run.id)
    assert await journal.incidents.find() == []


async def test_an_approval_request_made_with_a_clock_ahead_is_due_once_the_clock_is_corrected(
    build_harness, journal, clock
):
    clock.advance(hours=5)
    run = await telling(build_harness(turn(write()), "Done.")).execute()
    clock.advance(hours=-5)
    assert await journal.outbox.find_due(clock.now()) == []
    await journal.move_waits()
    (question,) = await journal.outbox.find_due(clock.now())
    assert (question.run, question.kind) == (run.id, "question")


async def test_a_routine_without_question_deliveries_has_only_the_incident(build_harness, journal):
    harness = telling(build_harness(turn(write()), "Done."), on=["succeeded"])
    run = await harness.execute()
    assert await journal.outbox.find(run=run.id) == []
    assert len(await journal.incidents.find()) == 1


def word(approval_request: ApprovalRequest, run: Run) -> str:
    until = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    notice = make_waiting_notice(
        run,
        [approval_request],
        ["mail"],
        deadline=until,
        redact=lambda text: text.replace("s3cr3t", "[…]"),
    )
    ((_, text),) = notice.questions
    return text


async def test_a_secret_in_a_call_is_redacted_even_if_cut_or_written_like_a_link(build_harness):
    harness = build_harness(
        turn(
            write(
                content=f"{'x' * (MAX_CALL_CHARACTERS - 60)} "
                "sk-proj-aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"
            )
        ),
        "Done.",
    )
    run, approval = await harness.run_to_question()
    secrets = Secrets()
    secrets.add("sk-proj-aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5")
    secrets.add("mE4.abcdef.ghijkl-secret")
    until = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    for taint in (Taint.NONE, Taint.TAINTED):
        approval_request = replace(
            approval.approval_request, taint=taint, reason="mE4.abcdef.ghijkl-secret"
        )
        notice = make_waiting_notice(
            run, [approval_request], ["mail"], deadline=until, redact=secrets.redact
        )
        ((_, text),) = notice.questions
        assert "sk-proj" not in text and "abcdef" not in text


async def test_an_approval_notice_is_bounded_redacted_and_sanitized_if_tainted(build_harness):
    harness = build_harness(turn(write("a.md", "s3cr3t")), "Done.")
    run, approval = await harness.run_to_question()
    assert "'[…]'" in word(approval.approval_request, run) and "2026-11-21 08:30 UTC" in word(
        approval.approval_request, run
    )
    address = "https://evil.example.org/x"
    request = {
        **approval.approval_request.request,
        "arguments": {"content": f"{address} {'y' * 5_000}\x1b[31m\u202e"},
    }
    plain = replace(approval.approval_request, request=request)
    assert address in word(plain, run)
    assert len(word(plain, run)) < MAX_CALL_CHARACTERS + 1_000
    assert "\x1b" not in word(plain, run) and "\u202e" not in word(plain, run)
    tainted_words = word(replace(plain, taint=Taint.TAINTED), run)
    assert address not in tainted_words and "hxxps" in tainted_words
    assert "strangers" in tainted_words
    lines = replace(
        plain, request={**request, "line": [[";", [{"argv": ["echo", "a\n# Title\n"]}]]]}
    )
    assert "\n# Title" not in word(lines, run), "no word of a call leaves its block"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            {"method": "POST", "body": "All is well. " * 200, "url": "https://evil.example.org/c"},
            ["url = 'hxxps://evil[.]example[.]org/c'", "method = 'POST'", "body = 'All is well."],
        ),
        (
            {"content": "All is well. " * 2_000, "path": "build.sh"},
            ["path = 'build.sh'", "content = 'All is well."],
        ),
        (
            {"message": {"text": "y" * 5_000, "to": "eve"}, "title": "z" * 5_000},
            ["message = {'to': 'eve'", "title = 'zzz"],
        ),
        (
            {"path": f"{'a/' * 2_000}b", "content": "Hello"},
            ["path = 'a/a/", "content = 'Hello'"],
        ),
    ],
)
async def test_a_long_argument_of_a_call_hides_no_other_argument_from_the_approver(
    build_harness, arguments, shown
):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    request = {**approval.approval_request.request, "arguments": arguments}
    asked = replace(approval.approval_request, request=request, taint=Taint.TAINTED)
    text = word(asked, run)
    for part in (*shown, "characters left out", "agentctl approvals"):
        assert part in text
    assert len(text) < MAX_CALL_CHARACTERS + 1_000
    whole_text = format_request(request)
    assert "left out" not in whole_text
    for value in arguments.values():
        assert str(value)[-500:] in whole_text or "'eve'" in whole_text


async def test_a_long_word_of_a_command_line_hides_no_other_word_from_the_approver(build_harness):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    commands = [{"argv": ["cp", "a" * 2_000, "build.sh", "b" * 2_000]}, {"argv": ["wc", "-l"]}]
    request = {**approval.approval_request.request, "line": [[";", commands]], "arguments": {}}
    text = word(replace(approval.approval_request, request=request), run)
    assert " build.sh bbb" in text and " | wc -l" in text
    assert text.count("characters left out") == 2


async def test_the_start_and_the_end_of_a_line_of_very_many_words_are_shown(build_harness):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    commands = [{"argv": ["tee", *(f"file{number}" for number in range(1_000)), "last.sh"]}]
    request = {**approval.approval_request.request, "line": [[";", commands]], "arguments": {}}
    text = word(replace(approval.approval_request, request=request), run)
    assert "tee file0 " in text and "file999 last.sh" in text and "characters left out" in text
    assert len(text) < MAX_CALL_CHARACTERS + 1_000


@pytest.mark.parametrize("word_of_call", ["evil.comx", "a/resume"])
async def test_half_of_a_word_of_a_cut_call_is_no_address_and_no_command(
    build_harness, word_of_call
):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    for length in range(12):  # wherever the cut comes
        commands = [{"argv": ["t" * (length + 1), *[word_of_call] * 300, "e" * (length + 1)]}]
        request = {**approval.approval_request.request, "line": [[";", commands]], "arguments": {}}
        asked = replace(approval.approval_request, request=request, taint=Taint.TAINTED)
        call = word(asked, run).split("\n\n")[0]
        assert "characters left out" in call
        assert neutralize(call) == call


@pytest.mark.parametrize("taint", [Taint.NONE, Taint.TAINTED])
async def test_each_part_of_a_notice_that_is_cut_on_its_way_is_sanitized_if_tainted(
    build_harness, journal, taint
):
    harness = telling(build_harness(turn(write()), "Done."))
    run, approval = await harness.run_to_question()
    request = {**approval.approval_request.request, "arguments": {"content": "x/resume-" * 140}}
    asked = replace(approval.approval_request, request=request, taint=taint)
    until = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    notice = make_waiting_notice(run, [asked], ["mail"], deadline=until, redact=str)
    assert notice.is_tainted is bool(taint)
    (question,) = await journal.outbox.find(run=run.id)
    options = {**question.options, "text": notice.questions[0][1]}
    message = compose(replace(question, options=options | {"tainted": notice.is_tainted}))
    parts = list[str]()
    for limit in range(100, 109):  # wherever the cuts come
        cut_parts, _ = split_first_parts(
            message.text, limit, max_parts=20, sanitize=message.sanitize
        )
        parts += cut_parts
    commands = [part for part in parts if re.search(r"(?<!\w)/resume\b", part)]
    assert bool(commands) is not bool(taint)


async def test_nothing_in_a_cut_argument_passes_for_another_argument(build_harness):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    forged = "x' (9 characters left out), url = 'https://good.example.org'" + "y" * 5_000
    request = {**approval.approval_request.request, "arguments": {"body": forged}}
    text = word(replace(approval.approval_request, request=request), run)
    assert "body = \"x' (9 characters" in text and '…" (' in text


async def test_the_file_that_a_command_reads_as_its_input_is_shown(build_harness):
    harness = build_harness(turn(("shell", {"command": "tee -a build.sh < evil.txt"})), "Done.")
    (harness.workspace / "evil.txt").write_text("rm -rf things")
    run, approval = await harness.run_to_question()
    assert "shell: tee -a build.sh < evil.txt\n" in word(approval.approval_request, run)


async def test_a_secret_that_only_the_words_around_it_give_away_is_redacted_if_cut(build_harness):
    run, approval = await build_harness(turn(write()), "Done.").run_to_question()
    secret = "0123456789abcdefghij"
    commands = [{"argv": ["curl", "-H", "Authorization:", secret, "x" * 5_000]}]
    request = {**approval.approval_request.request, "line": [[";", commands]], "arguments": {}}
    notice = make_waiting_notice(
        run,
        [replace(approval.approval_request, request=request)],
        ["mail"],
        deadline=datetime(2026, 11, 21, 8, 30, tzinfo=UTC),
        redact=Secrets().redact,
    )
    ((_, text),) = notice.questions
    assert "curl -H" in text and secret[:8] not in text


def test_a_stored_definition_without_waiting_deliveries_stays_readable_for_older_workers():
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
