"""The notices that people get of a run that waits for them, when it starts to wait, as a reminder
and when its time is up: the call, why they are asked, and the two commands that answer.

The call is an indented block, which no text in it can leave. The call of a tainted run is sanitized
like its reports (delivery/sanitize.py), as strangers may have written parts of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.models import Approval, ApprovalRequest, Run, WaitingNotice, new_id
from daemon.runs.approvals.request import format_request

MAX_CALL_CHARACTERS = 1_500  # of a call; `agentctl approvals ID` shows the whole of it
MAX_QUESTIONS = 5  # of one notice that are asked in full; of further ones only the tool is named


def make_waiting_notice(
    run: Run,
    requests: Sequence[ApprovalRequest],
    targets: Sequence[str],
    *,
    deadline: datetime,
    redact: Callable[[str], str],
) -> WaitingNotice:
    """Word the notice that a run waits for a person until `deadline`, in the reader's zone."""
    host = os.uname().nodename
    questions = []
    for index, approval_request in enumerate(requests):
        id_ = new_id()
        if index < MAX_QUESTIONS:
            questions.append((id_, _question(approval_request, id_, deadline, redact)))
        else:
            questions.append((id_, _short_question(approval_request, id_)))
    head = (
        f"The run {run.id} of {run.routine} on {host} waits: it wants to make a call that a person "
        "has to allow."
    )
    return WaitingNotice(
        title=f"{run.routine} on {host} waits for your approval",
        head=head,
        questions=tuple(questions),
        targets=tuple(dict.fromkeys(targets)),
        is_tainted=any(approval_request.taint for approval_request in requests),
    )


def make_reminder_notice(
    approvals: Sequence[Approval], *, zone: tzinfo, redact: Callable[[str], str]
) -> WaitingNotice:
    """Word the reminder of pending approvals of one run; `zone` is the reader's."""
    run, routine, host = approvals[0].run, approvals[0].routine, os.uname().nodename
    questions = []
    for approval in approvals:
        until = approval.expires.astimezone(zone)
        text = _question(approval.approval_request, approval.id, until, redact)
        questions.append((approval.id, text))
    return WaitingNotice(
        title=f"{routine} on {host} still waits for your approval",
        head=(
            f"The run {run} of {routine} on {host} has waited since "
            f"{approvals[0].created.astimezone(zone):%Y-%m-%d %H:%M %Z} for a person to allow a "
            "call. This is the only reminder."
        ),
        questions=_limit_questions(approvals, questions),
        is_tainted=any(approval.approval_request.taint for approval in approvals),
    )


def make_expiry_notice(
    approvals: Sequence[Approval], *, zone: tzinfo, redact: Callable[[str], str]
) -> WaitingNotice:
    """Word that nobody answered approval requests of one run in time; `zone` is the reader's."""
    run, routine, host = approvals[0].run, approvals[0].routine, os.uname().nodename
    questions = []
    for approval in approvals:
        call = _call_and_reason(approval.approval_request, approval.id, redact)
        until = approval.expires.astimezone(zone)
        questions.append((approval.id, f"{call} Nobody answered by {until:%Y-%m-%d %H:%M %Z}."))
    return WaitingNotice(
        title=f"{routine} on {host} was not allowed a call in time",
        head=(
            f"The run {run} of {routine} on {host} asked to make a call, and nobody answered: the "
            "call was not made, and the run goes on without it. "
            f"`agentctl inspect {run}` shows how."
        ),
        questions=_limit_questions(approvals, questions),
        is_tainted=any(approval.approval_request.taint for approval in approvals),
    )


def _limit_questions(
    approvals: Sequence[Approval], questions: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return the first MAX_QUESTIONS questions as they are, and further ones in short."""
    short_questions = [
        (approval.id, _short_question(approval.approval_request, approval.id))
        for approval in approvals[MAX_QUESTIONS:]
    ]
    return (*questions[:MAX_QUESTIONS], *short_questions)


def _short_question(approval_request: ApprovalRequest, id_: str) -> str:
    return f"Likewise asked: {id_}, {approval_request.tool}."


def _question(
    approval_request: ApprovalRequest, id_: str, deadline: datetime, redact: Callable[[str], str]
) -> str:
    """Return the call, why it is asked about, until when, and the commands that answer."""
    return (
        f"{_call_and_reason(approval_request, id_, redact)}"
        f" Without an answer by {deadline:%Y-%m-%d %H:%M %Z} it is refused, and the run goes on "
        "without it.\n\n"
        f"    agentctl approve {id_}\n    agentctl reject {id_}"
    )


def _call_and_reason(
    approval_request: ApprovalRequest, id_: str, redact: Callable[[str], str]
) -> str:
    make_harmless = neutralize if approval_request.taint else strip_controls
    # redact first: once made harmless, a secret that looks like a link is not recognized
    call = format_request(
        approval_request.request,
        id_=id_,
        max_characters=MAX_CALL_CHARACTERS,
        redact=redact,
        sanitize=make_harmless,
    )
    block = "\n".join(f"    {line}" for line in f"{approval_request.tool}: {call}".splitlines())
    reason = f", {approval_request.reason}" if approval_request.reason else ""
    taint_remark = (
        " The run has read what strangers may have written." if approval_request.taint else ""
    )
    return (
        f"{block}\n\nIt is asked about because of "
        f"{make_harmless(redact(f'{approval_request.rule}{reason}'))}.{taint_remark}"
    )
