"""What people answer at: a question is approved, rejected or left to expire, and its run goes
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from daemon.errors import DaemonError, Refused
from daemon.models import Approval, ApprovalStatus, Run
from daemon.runs.approvals.remembered import changed
from daemon.runs.approvals.request import changed_between, digest
from daemon.system.clock import wait_until

if TYPE_CHECKING:
    from daemon.runs.approvals.remembered import Remembered, RememberedCall
    from daemon.runs.approvals.request import CallDescriber
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

_RETRY = 60.0  # seconds until what could not be written is tried again


class Approvals:
    """Takes answers; `run` lets questions expire that nobody has answered."""

    def __init__(
        self,
        journal: Journal,
        calls: CallDescriber,
        remembered: Remembered,
        *,
        submit: Callable[[Run], Awaitable[None]],
        clock: Clock,
        shared: bool = False,
    ) -> None:
        """`shared`: what is remembered holds for all processes of the database."""
        self._shared = shared
        self._journal, self.calls, self.remembered = journal, calls, remembered
        self._submit, self._clock = submit, clock
        self._bell = asyncio.Event()

    def wake(self) -> None:
        """Look at once: something was asked, or the clock has jumped."""
        self._bell.set()

    async def run(self) -> None:
        """Let questions expire, until cancelled."""
        while True:
            self._bell.clear()
            try:
                await self._go_on(await self._journal.approvals.expire())
                expiry = await self._journal.approvals.get_next_expiry()
            except DaemonError as error:
                log.error("approvals.stuck", detail=str(error))  # noqa: TRY400  a full disk needs no traceback
                await asyncio.sleep(_RETRY)
                continue
            await wait_until(expiry, self._bell, self._clock)

    async def approve(self, id_: str, *, by: str, remember: str | None = None) -> Approval:
        """Allow a call once, and with the token of its proposal for good. NotFound, Refused.

        It must still be what was asked: else the question is void, and the run has its call judged
        anew.
        """
        asked = await self._journal.approvals.get(id_)
        if remember is not None and self.remembered.proposal(asked)[1] != remember:
            raise Refused("what would be remembered is not what was shown; look at it again")
        if asked.status is ApprovalStatus.PENDING and (changed := await self._changed(asked)):
            await self._go_on(await self._journal.approvals.void([asked.id], by=by))
            raise Refused(
                f"nothing was approved: {changed} since this was asked. The run goes on and has its "  # noqa: E501
                "call judged anew; what is asked then is in: agentctl approvals"
            )
        answered, runs = await self._journal.approvals.answer(
            asked.id, ApprovalStatus.APPROVED, by=by
        )
        log.info(
            "approval.given",
            approval=asked.id,
            routine=asked.routine,
            tool=asked.approval_request.tool,
            by=by,
        )
        await self._go_on(runs)
        if remember is not None:
            entry = self.remembered.add(asked, by=by, at=self._clock.now())
            await self._share(
                lambda entries: (*(each for each in entries if each.id != entry.id), entry)
            )
            body = {"approval": asked.id, "request": asked.approval_request.digest}
            await self._journal.audit.write(
                "remembered", actor=by, routine=asked.routine, body=body
            )
        return next(each for each in answered if each.id == asked.id)

    async def reject(self, id_: str, *, by: str) -> Approval:
        """Refuse a call; its run goes on without it. NotFound, Refused."""
        asked = await self._journal.approvals.get(id_)
        answered, runs = await self._journal.approvals.answer(
            asked.id, ApprovalStatus.REJECTED, by=by
        )
        log.info(
            "approval.refused",
            approval=asked.id,
            routine=asked.routine,
            tool=asked.approval_request.tool,
            by=by,
        )
        await self._go_on(runs)
        return next(each for each in answered if each.id == asked.id)

    async def proposal(self, id_: str) -> tuple[str, str]:
        """Return the diff that remembering a call would make, and what confirms it.

        NotFound, Refused.
        """
        return self.remembered.proposal(await self._journal.approvals.get(id_))

    async def revoke(self, id_: str, *, by: str) -> RememberedCall:
        """Take back what was allowed for good. NotFound."""
        gone = self.remembered.revoke(id_)
        await self._share(lambda entries: [each for each in entries if each.id != gone.id])
        await self._journal.audit.write(
            "revoked", actor=by, routine=gone.routine, body={"approval": gone.id}
        )
        return gone

    async def heed(self) -> None:
        """Take over what was allowed for good, or taken back, through another process."""
        await self._share(lambda entries: entries)

    async def _share(
        self, change: Callable[[Sequence[RememberedCall]], Sequence[RememberedCall]]
    ) -> None:
        if self._shared:
            own = self.remembered.entries()
            self.remembered.learn(
                await self._journal.approvals.change_remembered(
                    lambda kept: changed(kept, own, change)
                )
            )

    async def _changed(self, asked: Approval) -> str:
        """Say what about a call is no longer as it was asked; empty if nothing is."""
        before = asked.approval_request.request
        now = await self.calls.describe(
            asked.approval_request.tool, before["arguments"], routine=asked.routine
        )
        if digest(now) == asked.approval_request.digest:
            return ""
        return changed_between(before, now) or "a part of its words has been forgotten"

    async def _go_on(self, runs: Iterable[Run]) -> None:
        for run in runs:
            await self._submit(run)
