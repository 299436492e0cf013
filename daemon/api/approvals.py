"""The routes on what runs may do: questions to a person and their answers, what was withheld, the
audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from daemon.api.binding import Caller, Limit, RouteRow
from daemon.api.context import ApiContext
from daemon.api.schemas import Page, iso, iso_or_none
from daemon.models import Approval, ApprovalStatus

if TYPE_CHECKING:
    from daemon.store.records import AuditEntry, QuarantinedResult


class ApprovalView(TypedDict):
    """One question to a person."""

    id: str
    run: str
    routine: str
    tool: str
    what: str
    """What would happen, in words."""
    rule: str
    reason: str
    taint: str
    status: str
    created: str
    expires: str
    decided: str | None
    by: str
    calls: int
    """How many runs wait for this very answer."""


class ApprovalDetail(ApprovalView):
    """The same, with exactly what would happen."""

    request: dict[str, Any]
    digest: str


class ProposalView(TypedDict):
    """What remembering a call would write."""

    diff: str
    confirm: str
    """Send it as `remember` to have exactly this remembered."""


class RememberedView(TypedDict):
    """A call that is allowed for good."""

    id: str
    routine: str
    tool: str
    what: str
    by: str
    at: str


class RememberedList(TypedDict):
    """What is allowed for good."""

    items: list[RememberedView]
    next: str | None
    fault: str
    """Why none of it holds; empty if it does."""


class QuarantineView(TypedDict):
    """A text that was kept from the models."""

    id: str
    run: str
    routine: str
    call: str
    tool: str
    reason: str
    at: str
    text: str


class AuditView(TypedDict):
    """One row of the audit."""

    seq: int
    at: str
    kind: str
    run: str
    routine: str
    call: str
    tool: str
    actor: str
    body: dict[str, Any]
    hash: str


class ProofView(TypedDict):
    """What came of walking the audit's chain."""

    ok: bool
    rows: int
    head: str
    """The hash of the last row that holds."""
    broken: int | None


async def list_approvals(
    api: ApiContext,
    *,
    status: ApprovalStatus | None = None,
    run: str | None = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """List questions to a person, newest first; those of several runs for the very same call are
    one.
    """
    run_id = (await api.journal.runs.get(run)).id if run else None
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
    items = [_approval_view(group[-1], len(group)) for group in groups.values()]
    return Page(items=items, next=page[-1].id if len(approvals) > limit else None)


async def show_approval(api: ApiContext, *, id: str) -> ApprovalDetail:  # noqa: A002  the name in the path
    """Show one question in full; the beginning or the end of its id (4 characters) is enough."""
    approval = await api.journal.approvals.get(id)
    approval_request = approval.approval_request
    return ApprovalDetail(
        **_approval_view(approval, 1),
        request=approval_request.request,
        digest=approval_request.digest,
    )


async def propose(api: ApiContext, *, id: str) -> ProposalView:  # noqa: A002
    """Show what remembering the call would write."""
    diff, confirm = await api.approvals.proposal(id)
    return ProposalView(diff=diff, confirm=confirm)


async def approve(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    by: Caller,
    remember: str | None = None,  # noqa: A002, RUF100
) -> ApprovalView:
    """Allow the call once; with `remember` (the `confirm` of its proposal) for good."""
    return _approval_view(await api.approvals.approve(id, by=str(by), remember=remember), 1)


async def reject(api: ApiContext, *, id: str, by: Caller) -> ApprovalView:  # noqa: A002
    """Refuse the call; its run goes on without it."""
    return _approval_view(await api.approvals.reject(id, by=str(by)), 1)


async def list_remembered(api: ApiContext) -> RememberedList:
    """List what is allowed for good."""
    remembered_calls = api.approvals.remembered_calls
    items = [
        RememberedView(
            id=entry.id,
            routine=entry.routine,
            tool=entry.tool,
            what=entry.what,
            by=entry.by,
            at=iso(entry.at),
        )
        for entry in remembered_calls.entries()
    ]
    return RememberedList(items=items, next=None, fault=remembered_calls.fault)


async def revoke(api: ApiContext, *, id: str, by: Caller) -> RememberedView:  # noqa: A002
    """Take back what was allowed for good."""
    entry = await api.approvals.revoke(id, by=str(by))
    return RememberedView(
        id=entry.id,
        routine=entry.routine,
        tool=entry.tool,
        what=entry.what,
        by=entry.by,
        at=iso(entry.at),
    )


async def list_quarantine(
    api: ApiContext, *, limit: Limit = 50, cursor: str | None = None
) -> Page[QuarantineView]:
    """List what was kept from the models, newest first."""
    texts = await api.journal.audit.find_quarantined(limit=limit + 1, before=cursor)
    page = texts[:limit]
    return Page(
        items=[_quarantine_view(text) for text in page],
        next=page[-1].id if len(texts) > limit else None,
    )


async def show_quarantine(api: ApiContext, *, id: str) -> QuarantineView:  # noqa: A002
    """Show one text that was kept from the models; the end of its id is enough."""
    return _quarantine_view(await api.journal.audit.get_quarantined(id))


async def list_audit(
    api: ApiContext, *, run: str | None = None, limit: Limit = 50, cursor: str | None = None
) -> Page[AuditView]:
    """List the rows of the audit, newest first."""
    run_id = (await api.journal.runs.get(run)).id if run else None
    before = int(cursor) if cursor and cursor.isdigit() else None
    entries = await api.journal.audit.find(run=run_id, limit=limit + 1, before=before)
    page = entries[:limit]
    return Page(
        items=[_audit_view(entry) for entry in page],
        next=str(page[-1].seq) if len(entries) > limit else None,
    )


async def prove_audit(api: ApiContext) -> ProofView:
    """Walk the audit's chain from its first row and say where it breaks, if it does."""
    proof = await api.journal.audit.verify()
    return ProofView(ok=proof.broken is None, rows=proof.rows, head=proof.head, broken=proof.broken)


def _approval_view(approval: Approval, calls: int) -> ApprovalView:
    from daemon.runs.approvals.request import format_request

    approval_request = approval.approval_request
    return ApprovalView(
        id=approval.id,
        run=approval.run,
        routine=approval.routine,
        tool=approval_request.tool,
        what=format_request(approval_request.request),
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


def _quarantine_view(text: QuarantinedResult) -> QuarantineView:
    return QuarantineView(
        id=text.id,
        run=text.run,
        routine=text.routine,
        call=text.call_id,
        tool=text.tool,
        reason=text.reason,
        at=iso(text.at),
        text=text.text,
    )


def _audit_view(entry: AuditEntry) -> AuditView:
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
