"""The routes on what runs may do: questions to a person and their answers, what was withheld, the
audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from daemon.api.binding import Caller, Limit, RouteRow, RowNumber
from daemon.api.context import ApiContext
from daemon.api.schemas import Page, iso, iso_or_none
from daemon.models import Approval, ApprovalStatus

if TYPE_CHECKING:
    from daemon.runs.approvals.remembered import RememberedCall
    from daemon.store.records import AuditEntry, QuarantinedResult


class ApprovalView(TypedDict):
    """One question to a person."""

    id: str
    """Its number for `agentctl approve`."""
    run: str
    """The id of the run that asks, of several the first."""
    routine: str
    """The routine of that run."""
    tool: str
    """The tool that is called."""
    what: str
    """What would happen, in words. Of a long call the beginning of each argument, and the command
    that shows all; one approval alone has it whole.
    """
    rule: str
    """The rule of policy.toml, or its default, by which the call needs a person."""
    reason: str
    """What the rule says as its reason; empty if it says none."""
    taint: str
    """The taint of the run when it asked: empty, tainted or high."""
    status: str
    """pending, approved, used (approved, and the call was started), rejected, expired or void (the
    run does not wait for it any more)
    """
    created: str
    """When the run asked."""
    expires: str
    """When the run goes on without the call unless somebody has answered."""
    decided: str | None
    """When it was answered, or expired; null while it is pending."""
    by: str
    """The user who answered, such as `uid 1000`; empty where nobody did."""
    calls: int
    """How many runs wait for this very answer."""


class ApprovalDetail(ApprovalView):
    """The same, with exactly what would happen."""

    request: dict[str, Any]
    """The call and what it would do, part by part."""
    digest: str
    """The SHA-256 of `request`, to which the answer is bound."""


class ProposalView(TypedDict):
    """What remembering a call would write."""

    diff: str
    """The change of the file of remembered calls, as `diff -u` shows it."""
    confirm: str
    """Send it as `remember` to have exactly this remembered."""


class RememberedCallView(TypedDict):
    """A call that is allowed for good."""

    id: str
    """The id that `agentctl approvals --revoke` takes."""
    routine: str
    """The routine whose runs may make the call."""
    tool: str
    """The tool that is called."""
    what: str
    """What the call does, in words."""
    by: str
    """The user who had it remembered, such as `uid 1000`."""
    at: str
    """When it was remembered."""


class RememberedCallList(TypedDict):
    """What is allowed for good."""

    items: list[RememberedCallView]
    """The remembered calls."""
    next: str | None
    """Always null: the list has one part."""
    fault: str
    """Why none of it holds; empty if it does."""


class QuarantineView(TypedDict):
    """A text that was kept from the models."""

    id: str
    """Its id in the quarantine."""
    run: str
    """The id of the run whose tool brought it."""
    routine: str
    """The routine of that run."""
    call: str
    """The call that brought it, such as `3.0`: the first call of iteration 3."""
    tool: str
    """The tool that was called."""
    reason: str
    """What the injection check found in it."""
    at: str
    """When it was withheld."""
    text: str
    """The text as the tool returned it: a stranger's words."""


class AuditView(TypedDict):
    """One row of the audit."""

    seq: int
    """The number of the row, from 1 without gaps."""
    at: str
    """When it was written."""
    kind: str
    """What happened, such as call, result, asked, approved or quarantined."""
    run: str
    """The id of the run; empty where it is about none."""
    routine: str
    """The routine; empty where it is about none."""
    call: str
    """The call, such as `3.0`: the first call of iteration 3; empty where it is about none."""
    tool: str
    """The tool that was called; empty where it is about none."""
    actor: str
    """Who did it: a user such as `uid 1000`, or the daemon."""
    body: dict[str, Any]
    """The details, by kind."""
    hash: str
    """The SHA-256 over this row and the hash of the row before."""


class ProofView(TypedDict):
    """What came of walking the audit's chain."""

    ok: bool
    """Whether the whole chain holds."""
    rows: int
    """How many rows hold, from the first one on."""
    head: str
    """The hash of the last row that holds."""
    broken: int | None
    """The number of the first row that breaks the chain; null if none does."""


async def list_approvals(
    api: ApiContext,
    *,
    status: ApprovalStatus | None = None,
    run: str | None = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """List approvals, newest first; those of several runs for the very same call are one."""
    run_id = (await api.journal.runs.get(run)).id if run is not None else None
    approvals = await api.journal.approvals.find(
        run=run_id, status=status, limit=limit + 1, before=cursor
    )
    page = approvals[:limit]
    groups: dict[tuple[str, ...], list[Approval]] = {}
    for approval in page:
        # only pending ones are merged: those that were decided have each its own history
        own_key = "" if approval.status is ApprovalStatus.PENDING else approval.id
        key = (approval.routine, approval.approval_request.digest, own_key)
        groups.setdefault(key, []).append(approval)
    items = [_view_of_approval(group[-1], len(group)) for group in groups.values()]
    return Page(items=items, next=page[-1].id if len(approvals) > limit else None)


async def show_approval(api: ApiContext, *, id: str) -> ApprovalDetail:  # noqa: A002  the name in the path
    """Return one approval in full; the beginning or the end of its id (4 characters) is enough."""
    approval = await api.journal.approvals.get(id)
    approval_request = approval.approval_request
    return ApprovalDetail(
        **_view_of_approval(approval, 1, is_whole=True),
        request=approval_request.request,
        digest=approval_request.digest,
    )


async def propose(api: ApiContext, *, id: str) -> ProposalView:  # noqa: A002
    """Return what remembering the call of an approval would write."""
    diff, confirm = await api.approvals.propose(id)
    return ProposalView(diff=diff, confirm=confirm)


async def approve(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    by: Caller,
    remember: str | None = None,  # noqa: A002, RUF100
) -> ApprovalView:
    """Allow the call once; with `remember` (the `confirm` of its proposal) for good."""
    return _view_of_approval(await api.approvals.approve(id, by=str(by), remember=remember), 1)


async def reject(api: ApiContext, *, id: str, by: Caller) -> ApprovalView:  # noqa: A002
    """Reject the call; its run goes on without it."""
    return _view_of_approval(await api.approvals.reject(id, by=str(by)), 1)


async def list_remembered(api: ApiContext) -> RememberedCallList:
    """List the calls that are allowed for good."""
    remembered_calls = api.approvals.remembered_calls
    items = [_view_of_remembered_call(call) for call in remembered_calls.load_entries()]
    return RememberedCallList(items=items, next=None, fault=remembered_calls.fault)


async def revoke(api: ApiContext, *, id: str, by: Caller) -> RememberedCallView:  # noqa: A002
    """Revoke a call that was allowed for good: a person is asked again."""
    return _view_of_remembered_call(await api.approvals.revoke(id, by=str(by)))


async def list_quarantine(
    api: ApiContext, *, limit: Limit = 50, cursor: str | None = None
) -> Page[QuarantineView]:
    """List the texts that were withheld from models, newest first."""
    results = await api.journal.audit.find_quarantined(limit=limit + 1, before=cursor)
    page = results[:limit]
    return Page(
        items=[_view_of_quarantine(result) for result in page],
        next=page[-1].id if len(results) > limit else None,
    )


async def show_quarantine(api: ApiContext, *, id: str) -> QuarantineView:  # noqa: A002
    """Return one text that was withheld from models; the end of its id is enough."""
    return _view_of_quarantine(await api.journal.audit.get_quarantined(id))


async def list_audit(
    api: ApiContext, *, run: str | None = None, limit: Limit = 50, cursor: RowNumber | None = None
) -> Page[AuditView]:
    """List the rows of the audit, newest first."""
    run_id = (await api.journal.runs.get(run)).id if run is not None else None
    entries = await api.journal.audit.find(run=run_id, limit=limit + 1, before=cursor)
    page = entries[:limit]
    return Page(
        items=[_view_of_audit_entry(entry) for entry in page],
        next=str(page[-1].seq) if len(entries) > limit else None,
    )


async def prove_audit(api: ApiContext) -> ProofView:
    """Verify the audit's chain from its first row on, and return where it breaks, if it does."""
    proof = await api.journal.audit.verify()
    return ProofView(ok=proof.broken is None, rows=proof.rows, head=proof.head, broken=proof.broken)


def _view_of_approval(approval: Approval, calls: int, *, is_whole: bool = False) -> ApprovalView:
    from daemon.runs.approvals.request import MAX_LISTED_CHARACTERS, format_request

    approval_request = approval.approval_request
    return ApprovalView(
        id=approval.id,
        run=approval.run,
        routine=approval.routine,
        tool=approval_request.tool,
        what=format_request(
            approval_request.request,
            id_=approval.id,
            max_characters=None if is_whole else MAX_LISTED_CHARACTERS,
        ),
        rule=approval_request.rule,
        reason=approval_request.reason,
        taint=approval_request.taint.value,
        status=approval.status.value,
        created=iso(approval.created),
        expires=iso(approval.expires),
        decided=iso_or_none(approval.decided),
        by=approval.by,
        calls=calls,
    )


def _view_of_remembered_call(call: RememberedCall) -> RememberedCallView:
    return RememberedCallView(
        id=call.id,
        routine=call.routine,
        tool=call.tool,
        what=call.what,
        by=call.by,
        at=iso(call.at),
    )


def _view_of_quarantine(result: QuarantinedResult) -> QuarantineView:
    return QuarantineView(
        id=result.id,
        run=result.run,
        routine=result.routine,
        call=result.call_id,
        tool=result.tool,
        reason=result.reason,
        at=iso(result.at),
        text=result.text,
    )


def _view_of_audit_entry(entry: AuditEntry) -> AuditView:
    return AuditView(
        seq=entry.seq,
        at=iso(entry.at),
        kind=entry.kind,
        run=entry.run,
        routine=entry.routine,
        call=entry.call_id,
        tool=entry.tool,
        actor=entry.actor,
        body=entry.body,
        hash=entry.hash,
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/approvals", list_approvals),
    ("GET", "/v1/approvals/{id}", show_approval),
    ("GET", "/v1/approvals/{id}/proposal", propose),
    ("POST", "/v1/approvals/{id}/approve", approve),
    ("POST", "/v1/approvals/{id}/reject", reject),
    ("GET", "/v1/remembered", list_remembered),
    ("POST", "/v1/remembered/{id}/revoke", revoke),
    ("GET", "/v1/quarantine", list_quarantine),
    ("GET", "/v1/quarantine/{id}", show_quarantine),
    ("GET", "/v1/audit", list_audit),
    ("GET", "/v1/audit/proof", prove_audit),
)
