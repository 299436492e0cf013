"""The desk of one run: where its calls lie that a person has to allow, and what has become of each.

A ruling follows from the answers in the record and from what the call would do now. An answer fits
only the call it was given to, and only while that would do the very same; otherwise the question is
put anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.agent.tool_calls import ApprovalDecision
from daemon.models import (
    Approval,
    ApprovalRequest,
    ApprovalStatus,
    Effect,
    FunctionCall,
    Run,
    Taint,
    Verdict,
)
from daemon.runs.approvals.request import digest

if TYPE_CHECKING:
    from daemon.policy.policy import Policy
    from daemon.runs.approvals.remembered import Remembered
    from daemon.runs.approvals.request import CallDescriber
    from daemon.store.journal import Journal

# After so many refusals in one run nobody is asked any more: whatever drives the model there, it is
# not its task.
MOST_REFUSALS = 3
_REFUSED = (ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED)


class RunApprover:
    """Rules on the calls of one run."""

    def __init__(
        self,
        run: Run,
        journal: Journal,
        policy: Callable[[], Policy],
        calls: CallDescriber,
        remembered: Remembered,
        *,
        now: Callable[[], datetime],
        language: str = "en",
    ) -> None:
        self._run, self._journal, self._policy, self._calls, self._remembered = (
            run,
            journal,
            policy,
            calls,
            remembered,
        )
        self._now, self._language = now, language
        self._answers: list[Approval] | None = None
        self._asking: dict[tuple[str, str], str] = {}
        """Calls of this attempt that wait, by turn and digest."""

    async def decide(
        self, key: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        """Say whether a call may start, is refused, or waits."""
        routine = self._run.routine
        request = await self._calls.describe(call.name, call.arguments, routine=routine)
        if (not taint or self._trusted_when_tainted(call.name)) and (
            rule := self._remembered.allows(request)
        ):
            allowed = Verdict(effect=Effect.ALLOW, rule=rule, reason=f"asked by {verdict.rule}")
            return ApprovalDecision(verdict=allowed, remembered_rule=rule, asked=verdict.rule)
        asked = ApprovalRequest(
            call_id=key,
            tool=call.name,
            request=request,
            digest=digest(request),
            rule=verdict.rule,
            reason=verdict.reason,
            taint=taint,
        )
        if self._answers is None:
            # only a run that waits is answered, so these are all there can be as long as it lives
            self._answers = await self._journal.approvals(run=self._run.id, limit=1000)
        own = next(
            (
                each
                for each in self._answers
                if self._fits(each, asked) and each.approval_request.call_id == key
            ),
            None,
        )
        return (
            self._answered(own, verdict)
            or self._of_a_twin(asked, verdict)
            or self._refused_before(asked, verdict)
            or self._ask(asked, verdict)
        )

    def _trusted_when_tainted(self, tool: str) -> bool:
        table = self._policy().routines.get(self._run.routine)
        return table is not None and any(fnmatchcase(tool, each) for each in table.tainted_tools)

    def _fits(self, answer: Approval, asked: ApprovalRequest) -> bool:
        return answer.approval_request.digest == asked.digest

    def _answered(self, own: Approval | None, verdict: Verdict) -> ApprovalDecision | None:
        """Rule by the answer that this very call was given."""
        if own is None or own.decided is None:
            return None
        if own.status is ApprovalStatus.APPROVED:
            given, since = self._now() - own.decided, own.decided - own.created
            note = say("approved", self._language, age=span(given), since=span(since))
            allowed = Verdict(
                effect=Effect.ALLOW,
                rule=f"approval {own.id} by {own.by}",
                reason=f"asked by {verdict.rule}",
            )
            return ApprovalDecision(verdict=allowed, approval=own.id, note=note, asked=verdict.rule)
        return self._denied(own.status, verdict) if own.status in _REFUSED else None

    def _of_a_twin(self, asked: ApprovalRequest, verdict: Verdict) -> ApprovalDecision | None:
        """Rule by what becomes of the same call earlier in the turn: of twins one is asked about,
        and one is run.
        """
        turn = _turn(asked.call_id)
        if not turn:
            return None
        if self._asking.get((turn, asked.digest), asked.call_id) != asked.call_id:
            return ApprovalDecision(verdict=verdict)
        for each in self._answers or ():
            twin = each.approval_request
            if not (
                self._fits(each, asked)
                and _turn(twin.call_id) == turn
                and twin.call_id != asked.call_id
            ):
                continue
            if each.status in (ApprovalStatus.APPROVED, ApprovalStatus.USED):
                merged = replace(
                    verdict,
                    effect=Effect.DENY,
                    reason="the same call of this turn was approved once",
                )
                return ApprovalDecision(
                    verdict=merged, note=say("merged", self._language), asked=verdict.rule
                )
            if each.status is ApprovalStatus.PENDING:
                return ApprovalDecision(verdict=verdict)
        return None

    def _refused_before(self, asked: ApprovalRequest, verdict: Verdict) -> ApprovalDecision | None:
        """Deny what a person need not be bothered with."""
        refused = [each for each in self._answers or () if each.status in _REFUSED]
        if same := next((each for each in refused if self._fits(each, asked)), None):
            return self._denied(same.status, verdict)
        if len(refused) >= MOST_REFUSALS:
            return self._denied("tired", verdict)
        return None

    def _denied(self, why: str, verdict: Verdict) -> ApprovalDecision:
        reason = {"rejected": "a person said no", "expired": "nobody answered in time"}.get(
            why, f"{MOST_REFUSALS} questions of this run were refused"
        )
        return ApprovalDecision(
            verdict=replace(verdict, effect=Effect.DENY, reason=reason, allowed=""),
            note=say(why, self._language),
            asked=verdict.rule,
        )

    def _ask(self, asked: ApprovalRequest, verdict: Verdict) -> ApprovalDecision:
        if turn := _turn(asked.call_id):
            self._asking[turn, asked.digest] = asked.call_id
        return ApprovalDecision(verdict=verdict, approval_request=asked)


def _turn(call_id: str) -> str:
    """Return the turn of a model's call; empty for what a person wrote down, such as a gather
    step.
    """
    turn, _, place = call_id.partition(".")
    return turn if turn.isdigit() and place.isdigit() else ""


def span(time: timedelta) -> str:
    """Return a span in words of a model."""
    seconds = max(0, int(time.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
