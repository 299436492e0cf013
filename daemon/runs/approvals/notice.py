"""The notices that people get of a run that waits for them, when it starts to wait, as a reminder
and when its time is up: the call, why they are asked, and the two commands that answer.

The call is an indented block, which no text in it can leave. The call of a tainted run is sanitized
like its reports (delivery/sanitize.py), as strangers may have written parts of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.models import Approval, ApprovalRequest, Run, WaitingNotice, new_id
from daemon.runs.approvals.request import format_request

LONGEST = 1_500  # characters of a call; the whole of it is in `agentctl approvals`
MOST_QUESTIONS = 5  # of one turn, whose words stand in the notice


def waiting_notice(
    run: Run,
    requests: Sequence[ApprovalRequest],
    targets: Sequence[str],
    *,
    deadline: datetime,
    redact: Callable[[str], str],
) -> WaitingNotice:
    """Word the notice that a run waits for a person; `deadline`, in the reader's zone, it
    does so.
    """
    host = os.uname().nodename
    questions = []
    for index, approval_request in enumerate(requests):
        id_ = new_id()
        if index < MOST_QUESTIONS:
            questions.append((id_, _question(approval_request, id_, deadline, redact)))
        else:
            questions.append((id_, f"Likewise asked: {id_}, {approval_request.tool}."))
    head = (
        f"The run {run.id} of {run.routine} on {host} waits: it wants to make a call that a person "
        "has to allow."
    )
    return WaitingNotice(
        title=f"{run.routine} on {host} waits for your approval",
        head=head,
        questions=tuple(questions),
        targets=tuple(dict.fromkeys(targets)),
    )


def reminder_notice(
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
    )


def expiry_notice(
    approvals: Sequence[Approval], *, zone: tzinfo, redact: Callable[[str], str]
) -> WaitingNotice:
    """Word that nobody answered approval requests of one run in time; `zone` is the reader's."""
    run, routine, host = approvals[0].run, approvals[0].routine, os.uname().nodename
    questions = []
    for approval in approvals:
        call = _call_and_reason(approval.approval_request, redact)
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
    )


def _limit_questions(
    approvals: Sequence[Approval], questions: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return the questions with the calls of the first ones only."""
    others = [
        (approval.id, f"Likewise asked: {approval.id}, {approval.approval_request.tool}.")
        for approval in approvals[MOST_QUESTIONS:]
    ]
    return (*questions[:MOST_QUESTIONS], *others)


def _question(
    approval_request: ApprovalRequest, id_: str, deadline: datetime, redact: Callable[[str], str]
) -> str:
    """Return the call, why it is asked about, until when, and the commands that answer."""
    return (
        f"{_call_and_reason(approval_request, redact)}"
        f" Without an answer by {deadline:%Y-%m-%d %H:%M %Z} it is refused, and the run goes on "
        "without it.\n\n"
        f"    agentctl approve {id_}\n    agentctl reject {id_}"
    )


def _call_and_reason(approval_request: ApprovalRequest, redact: Callable[[str], str]) -> str:
    make_harmless = neutralize if approval_request.taint else strip_controls

    def sanitize(text: str) -> str:
        # redact first: a secret that looks like a link would no longer be found
        return make_harmless(redact(text))

    # cut last: half a secret is not known for one
    call = sanitize(format_request(approval_request.request, max_characters=sys.maxsize))
    call = (
        call if len(call) <= LONGEST else f"{call[:LONGEST]}… (agentctl approvals shows the rest)"
    )
    block = "\n".join(f"    {line}" for line in f"{approval_request.tool}: {call}".splitlines())
    reason = f", {approval_request.reason}" if approval_request.reason else ""
    strangers = (
        " The run has read what strangers may have written." if approval_request.taint else ""
    )
    return (
        f"{block}\n\nIt is asked about because of "
        f"{sanitize(f'{approval_request.rule}{reason}')}.{strangers}"
    )
