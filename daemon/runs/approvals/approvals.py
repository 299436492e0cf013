"""Approve and reject approval requests, remind people of them and let them expire; then their runs
go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog

from daemon.definitions.routines.routine import Routine
from daemon.errors import DaemonError, NotFound, Refused, StoreDamaged
from daemon.models import Approval, ApprovalStatus, Run, WaitingNotice
from daemon.runs.approvals.remembered import change_shared_entries
from daemon.runs.approvals.request import describe_change, digest
from daemon.system.clock import wait_until

if TYPE_CHECKING:
    from datetime import datetime

    from daemon.agent.conversations.conversations import RunStarter
    from daemon.delivery.outbox import Outbox
    from daemon.runs.approvals.remembered import RememberedCall, RememberedCalls
    from daemon.runs.approvals.request import CallDescriber
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

_RETRY = 60.0  # seconds until what could not be written is tried again


class Approvals:
    """Records the answers of people; `run` reminds them of requests, and expires those that nobody
    has answered.
    """

    def __init__(
        self,
        journal: Journal,
        describer: CallDescriber,
        remembered_calls: RememberedCalls,
        *,
        queue: RunStarter,
        clock: Clock,
        shared: bool = False,
        outbox: Outbox | None = None,
        find_zone: Callable[[], str] = lambda: "UTC",
        redact: Callable[[str], str] = str,
    ) -> None:
        """With `shared`, remembered calls hold for all processes of the database.

        `outbox` is woken for the notices, which are in the zone of the routine, or in the one that
        `find_zone` returns; `redact` removes secrets from them.
        """
        self._shared, self._outbox = shared, outbox
        self._find_zone, self._redact = find_zone, redact
        self._journal, self.describer, self.remembered_calls = journal, describer, remembered_calls
        self._queue, self._clock = queue, clock
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for requests that are due at once: there is a new one, or the clock was set."""
        self._wake.set()

    async def run(self) -> None:
        """Expire requests and remind people of them until cancelled."""
        while True:
            self._wake.clear()
            try:
                next_due = await self.handle_due()
            except DaemonError as error:
                log.error("approvals.stuck", detail=str(error))  # noqa: TRY400  a full disk needs no traceback
                await asyncio.sleep(_RETRY)
                continue
            await wait_until(next_due, self._wake, self._clock)

    async def handle_due(self) -> datetime | None:
        """Expire the requests whose time is up and send the reminders that are due; return when the
        next of either is, None if no request is pending.
        """
        now = self._clock.now()
        await self._expire(now)
        await self._remind(now)
        return await self._journal.approvals.get_next_due()

    async def _expire(self, now: datetime) -> None:
        """Expire the requests whose time is up at `now`, and tell the people who were asked."""
        expired_approvals = await self._journal.approvals.find_expired(now)
        if not expired_approvals:
            return
        from daemon.runs.approvals.notice import make_expiry_notice

        notices = await self._make_notices(expired_approvals, make_expiry_notice)
        runs = await self._journal.approvals.expire(notices, until=now)
        for approval in expired_approvals:
            request = approval.approval_request
            log.info(
                "approval.expired",
                approval=approval.id,
                run=approval.run,
                routine=approval.routine,
                tool=request.tool,
            )
        if self._outbox:
            self._outbox.wake()
        await self._queue_runs(runs)

    async def _remind(self, now: datetime) -> None:
        """Remind the people who were asked of the requests that are pending still."""
        due_requests = await self._journal.approvals.find_reminders(now)
        if not due_requests:
            return
        from daemon.runs.approvals.notice import make_reminder_notice

        notices = await self._make_notices(due_requests, make_reminder_notice)
        reminded_ids = await self._journal.approvals.remind(notices, until=now)
        for approval in due_requests:
            if approval.id in reminded_ids:
                log.info(
                    "approval.reminded",
                    approval=approval.id,
                    run=approval.run,
                    routine=approval.routine,
                    tool=approval.approval_request.tool,
                    until=approval.expires.isoformat(),
                )
        if self._outbox:
            self._outbox.wake()

    async def _make_notices(
        self, approvals: Sequence[Approval], make_notice: Callable[..., WaitingNotice]
    ) -> dict[str, WaitingNotice]:
        """Return a notice for each run of these approvals, by run; `make_notice` is a function of
        notice.py.
        """
        by_run: dict[str, list[Approval]] = {}
        for approval in approvals:
            by_run.setdefault(approval.run, []).append(approval)
        return {
            run: make_notice(group, zone=await self._zone_of(run), redact=self._redact)
            for run, group in by_run.items()
        }

    async def _zone_of(self, run_id: str) -> ZoneInfo:
        """Return the zone of the routine of a run; that of the daemon if it names none or cannot be
        read.
        """
        zone = None
        # Its rows are damaged, or another version of agentd wrote them: the requests of other runs
        # must not wait for it.
        with suppress(NotFound, StoreDamaged, ValueError):
            run = await self._journal.runs.get(run_id)
            definition = await self._journal.runs.get_definition(run.definition)
            zone = Routine.restore(definition).timezone
        return ZoneInfo(zone or self._find_zone())

    async def approve(self, id_: str, *, by: str, remember: str | None = None) -> Approval:
        """Allow a call once; with `remember`, the token of its proposal, for good.

        A call that would do something else by now than the person was asked about is not allowed:
        the request becomes void, and the run has the call judged anew. Raises NotFound and Refused.
        """
        approval = await self._journal.approvals.get(id_)
        if remember is not None and self.remembered_calls.propose(approval)[1] != remember:
            raise Refused("what would be remembered is not what was shown; look at it again")
        if approval.status is ApprovalStatus.PENDING and (
            difference := await self._describe_change_since(approval)
        ):
            await self._queue_runs(await self._journal.approvals.void([approval.id], by=by))
            raise Refused(
                f"nothing was approved: {difference} since this was asked. The run goes on and has "
                "its call judged anew; what is asked then is in: agentctl approvals"
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
        await self._queue_runs(runs)
        if remember is not None:
            entry = self.remembered_calls.add(approval, by=by, at=self._clock.now())
            await self._change_shared(new_entry=entry)
            body = {"approval": approval.id, "request": approval.approval_request.digest}
            await self._journal.audit.write(
                "remembered", actor=by, routine=approval.routine, body=body
            )
        return next(item for item in approvals if item.id == approval.id)

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
        await self._queue_runs(runs)
        return next(item for item in approvals if item.id == approval.id)

    async def propose(self, id_: str) -> tuple[str, str]:
        """Return the diff of approvals.toml that remembering a call would make, and the token that
        confirms it.

        Raises NotFound, and Refused for a call that cannot be remembered.
        """
        return self.remembered_calls.propose(await self._journal.approvals.get(id_))

    async def revoke(self, id_: str, *, by: str) -> RememberedCall:
        """Forget a remembered call. Raises NotFound."""
        revoked_call = self.remembered_calls.revoke(id_)
        await self._change_shared(revoked_id=revoked_call.id)
        await self._journal.audit.write(
            "revoked", actor=by, routine=revoked_call.routine, body={"approval": revoked_call.id}
        )
        return revoked_call

    async def refresh_remembered(self) -> None:
        """Read the calls that other processes remembered or revoked, where processes share them."""
        await self._change_shared()

    async def _change_shared(
        self, new_entry: RememberedCall | None = None, revoked_id: str = ""
    ) -> None:
        """Change the calls that all processes of a shared database remember, and write the result
        into this process's file.
        """
        if not self._shared:
            return
        change = partial(
            change_shared_entries,
            own_entries=self.remembered_calls.load_entries(),
            new_entry=new_entry,
            revoked_id=revoked_id,
        )
        self.remembered_calls.replace(await self._journal.approvals.change_remembered(change))

    async def _describe_change_since(self, approval: Approval) -> str:
        """Say what the call would do otherwise now than when a person was asked; empty if
        nothing.
        """
        old_request = approval.approval_request.request
        new_request = await self.describer.describe(
            approval.approval_request.tool, old_request["arguments"], routine=old_request["routine"]
        )
        if digest(new_request) == approval.approval_request.digest:
            return ""
        return describe_change(old_request, new_request) or "a part of its words has been forgotten"

    async def _queue_runs(self, runs: Iterable[Run]) -> None:
        for run in runs:
            await self._queue.submit(run)
