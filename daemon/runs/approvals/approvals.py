"""Approval requests are approved, rejected or left to expire; then their run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from daemon.errors import DaemonError, Refused
from daemon.models import Approval, ApprovalStatus, Run
from daemon.runs.approvals.remembered import apply_change
from daemon.runs.approvals.request import describe_change, digest
from daemon.system.clock import wait_until

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import RunStarter
    from daemon.runs.approvals.remembered import Remembered, RememberedCall
    from daemon.runs.approvals.request import CallDescriber
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

_RETRY = 60.0  # seconds until what could not be written is tried again


class Approvals:
    """Records the answers of people; `run` expires requests that nobody has answered."""

    def __init__(
        self,
        journal: Journal,
        calls: CallDescriber,
        remembered: Remembered,
        *,
        queue: RunStarter,
        clock: Clock,
        shared: bool = False,
    ) -> None:
        """With `shared`, remembered calls hold for all processes of the database."""
        self._shared = shared
        self._journal, self.calls, self.remembered = journal, calls, remembered
        self._queue, self._clock = queue, clock
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for expired requests at once: there is a new one, or the clock was set."""
        self._wake.set()

    async def run(self) -> None:
        """Expire requests until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._go_on(await self._journal.approvals.expire())
                expiry = await self._journal.approvals.get_next_expiry()
            except DaemonError as error:
                log.error("approvals.stuck", detail=str(error))  # noqa: TRY400  a full disk needs no traceback
                await asyncio.sleep(_RETRY)
                continue
            await wait_until(expiry, self._wake, self._clock)

    async def approve(self, id_: str, *, by: str, remember: str | None = None) -> Approval:
        """Allow a call once; with `remember`, the token of its proposal, for good.

        A call that would do something else by now than the person was asked about is not allowed:
        the request becomes void, and the run has the call judged anew. Raises NotFound and Refused.
        """
        approval = await self._journal.approvals.get(id_)
        if remember is not None and self.remembered.proposal(approval)[1] != remember:
            raise Refused("what would be remembered is not what was shown; look at it again")
        if approval.status is ApprovalStatus.PENDING and (
            difference := await self._describe_change_since(approval)
        ):
            await self._go_on(await self._journal.approvals.void([approval.id], by=by))
            raise Refused(
                f"nothing was approved: {difference} since this was asked. The run goes on and has its "  # noqa: E501
                "call judged anew; what is asked then is in: agentctl approvals"
            )
        approvals, runs = await self._journal.approvals.answer(
            approval.id, ApprovalStatus.APPROVED, by=by
        )
        log.info(
            "approval.given",
            approval=approval.id,
            routine=approval.routine,
            tool=approval.approval_request.tool,
            by=by,
        )
        await self._go_on(runs)
        if remember is not None:
            entry = self.remembered.add(approval, by=by, at=self._clock.now())
            await self._share(
                lambda entries: (*(call for call in entries if call.id != entry.id), entry)
            )
            body = {"approval": approval.id, "request": approval.approval_request.digest}
            await self._journal.audit.write(
                "remembered", actor=by, routine=approval.routine, body=body
            )
        return next(call for call in approvals if call.id == approval.id)

    async def reject(self, id_: str, *, by: str) -> Approval:
        """Refuse a call; its run goes on without it. Raises NotFound and Refused."""
        approval = await self._journal.approvals.get(id_)
        approvals, runs = await self._journal.approvals.answer(
            approval.id, ApprovalStatus.REJECTED, by=by
        )
        log.info(
            "approval.refused",
            approval=approval.id,
            routine=approval.routine,
            tool=approval.approval_request.tool,
            by=by,
        )
        await self._go_on(runs)
        return next(item for item in approvals if item.id == approval.id)

    async def proposal(self, id_: str) -> tuple[str, str]:
        """Return the diff of approvals.toml that remembering a call would make, and the token that
        confirms it.

        Raises NotFound, and Refused for a call that cannot be remembered.
        """
        return self.remembered.proposal(await self._journal.approvals.get(id_))

    async def revoke(self, id_: str, *, by: str) -> RememberedCall:
        """Forget a remembered call. Raises NotFound."""
        revoked_call = self.remembered.revoke(id_)
        await self._share(lambda entries: [call for call in entries if call.id != revoked_call.id])
        await self._journal.audit.write(
            "revoked", actor=by, routine=revoked_call.routine, body={"approval": revoked_call.id}
        )
        return revoked_call

    async def refresh_remembered(self) -> None:
        """Read the calls that other processes remembered or revoked, where processes share them."""
        await self._share(lambda entries: entries)

    async def _share(
        self, change: Callable[[Sequence[RememberedCall]], Sequence[RememberedCall]]
    ) -> None:
        if self._shared:
            own_entries = self.remembered.entries()
            self.remembered.learn(
                await self._journal.approvals.change_remembered(
                    lambda shared_entries: apply_change(shared_entries, own_entries, change)
                )
            )

    async def _describe_change_since(self, approval: Approval) -> str:
        """Say what the call would do otherwise now than when a person was asked; empty if
        nothing.
        """
        old_request = approval.approval_request.request
        new_request = await self.calls.describe(
            approval.approval_request.tool, old_request["arguments"], routine=approval.routine
        )
        if digest(new_request) == approval.approval_request.digest:
            return ""
        return describe_change(old_request, new_request) or "a part of its words has been forgotten"

    async def _go_on(self, runs: Iterable[Run]) -> None:
        for run in runs:
            await self._queue.submit(run)
