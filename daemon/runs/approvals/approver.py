"""Decide about the calls of one run that a person has to allow.

A decision follows from the answers in the journal and from what the call would do now. An answer
holds only for the call it was given to, and only while that call would do exactly the same;
otherwise a person is asked anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.agent.tool_calls import ApprovalDecision
from daemon.durations import duration_in_words
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
    from daemon.policy.policy import LivePolicy
    from daemon.runs.approvals.remembered import RememberedCalls
    from daemon.runs.approvals.request import CallDescriber
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

# After so many refusals in one run people are not asked any more: the model has left its task.
MAX_REFUSALS = 3
# Why nobody is asked about a call of a routine with `mode = "observe"`.
_OBSERVED_REASON = (
    "it would have to be approved, and nobody is asked while this routine is observed"
)
_REFUSAL_STATUSES = (ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED)


class RunApprover:
    """Decide about the calls of one run for which the policy wants a person to be asked."""

    def __init__(
        self,
        run: Run,
        journal: Journal,
        live_policy: LivePolicy,
        describer: CallDescriber,
        remembered_calls: RememberedCalls,
        *,
        clock: Clock,
        policy_name: str = "",
        language: str = "en",
    ) -> None:
        """`remembered_calls` holds calls allowed for good; `policy_name` is the name by which the
        policy knows the run's routine; empty if that is its own.
        """
        self._policy_name = policy_name or run.routine
        self._run, self._journal, self._live_policy = run, journal, live_policy
        self._describer, self._remembered_calls = describer, remembered_calls
        self._clock, self._language = clock, language
        self._approvals: list[Approval] | None = None
        self._requested_calls: dict[tuple[str, str], str] = {}
        """The ids of the calls for which this attempt asks a person, by turn and digest."""

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        """Return whether a call may start, is refused, or waits for a person.

        `call_id` is the id of the call in the run; `taint` is that of the run at the call.
        """
        request = await self._describer.describe(
            call.name, call.arguments, routine=self._policy_name
        )
        is_trusted = self._live_policy.policy.trusts_when_tainted(call.name, self._policy_name)
        if (not taint or is_trusted) and (rule := self._remembered_calls.find_rule(request)):
            allow = Verdict(effect=Effect.ALLOW, rule=rule, reason=f"asked by {verdict.rule}")
            return ApprovalDecision(verdict=allow, remembered_rule=rule, asking_rule=verdict.rule)
        approval_request = ApprovalRequest(
            call_id=call_id,
            tool=call.name,
            request=request,
            digest=digest(request),
            rule=verdict.rule,
            reason=verdict.reason,
            taint=taint,
        )
        if self._approvals is None:
            # only a run that waits is answered, so no answer can come while this attempt lasts
            self._approvals = await self._journal.approvals.find_of_run(self._run.id)
        return (
            self._decide_by_own_answer(approval_request, verdict)
            or self._decide_by_observation(verdict)
            or self._decide_by_same_call(approval_request, verdict)
            or self._decide_by_refusals(approval_request, verdict)
            or self._request_approval(approval_request, verdict)
        )

    def _approvals_of(self, request: ApprovalRequest) -> list[Approval]:
        """Return the approvals of this run that ask for exactly this."""
        approvals = self._approvals or []
        return [
            approval for approval in approvals if approval.approval_request.digest == request.digest
        ]

    def _decide_by_own_answer(
        self, request: ApprovalRequest, verdict: Verdict
    ) -> ApprovalDecision | None:
        """Decide by the answer that this very call was given."""
        for approval in self._approvals_of(request):
            if approval.approval_request.call_id != request.call_id:
                continue
            if approval.decided is None:  # the run waits for this answer
                return None
            if approval.status is ApprovalStatus.APPROVED:
                age = self._clock.now() - approval.decided
                wait = approval.decided - approval.created
                allow = Verdict(
                    effect=Effect.ALLOW,
                    rule=f"approval {approval.id} by {approval.by}",
                    reason=f"asked by {verdict.rule}",
                )
                note = say(
                    "approved",
                    self._language,
                    age=duration_in_words(age.total_seconds()),
                    since=duration_in_words(wait.total_seconds()),
                )
                return ApprovalDecision(
                    verdict=allow, approval=approval.id, note=note, asking_rule=verdict.rule
                )
            if approval.status in _REFUSAL_STATUSES:
                return self._deny(approval.status, verdict)
            return None
        return None

    def _decide_by_observation(self, verdict: Verdict) -> ApprovalDecision | None:
        """Deny the call where the routine is observed: then no run waits for a person."""
        if not self._live_policy.policy.is_observed(self._policy_name, self._clock.now()):
            return None
        reason = "; ".join(filter(None, (verdict.reason, _OBSERVED_REASON)))
        return ApprovalDecision(
            verdict=replace(verdict, effect=Effect.DENY, reason=reason), asking_rule=verdict.rule
        )

    def _decide_by_same_call(
        self, request: ApprovalRequest, verdict: Verdict
    ) -> ApprovalDecision | None:
        """Decide by the same call in this turn: one of them is asked about, and one is run."""
        turn = _turn_of(request.call_id)
        if not turn:
            return None
        if self._requested_calls.get((turn, request.digest), request.call_id) != request.call_id:
            return ApprovalDecision(verdict=verdict)  # waits with the other one
        for approval in self._approvals_of(request):
            call_id = approval.approval_request.call_id
            if call_id == request.call_id or _turn_of(call_id) != turn:
                continue
            if approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.USED):
                reason = "the same call of this turn was approved once"
                deny = replace(verdict, effect=Effect.DENY, reason=reason)
                note = say("merged", self._language)
                return ApprovalDecision(verdict=deny, note=note, asking_rule=verdict.rule)
            if approval.status is ApprovalStatus.PENDING:
                return ApprovalDecision(verdict=verdict)
        return None

    def _decide_by_refusals(
        self, request: ApprovalRequest, verdict: Verdict
    ) -> ApprovalDecision | None:
        """Deny what a person has refused already, and everything after too many refusals."""
        for approval in self._approvals_of(request):
            if approval.status in _REFUSAL_STATUSES:
                return self._deny(approval.status, verdict)
        refusals = sum(approval.status in _REFUSAL_STATUSES for approval in self._approvals or ())
        return self._deny("too_many_refusals", verdict) if refusals >= MAX_REFUSALS else None

    def _deny(self, cause: str, verdict: Verdict) -> ApprovalDecision:
        reasons = {"rejected": "a person said no", "expired": "nobody answered in time"}
        reason = reasons.get(cause, f"{MAX_REFUSALS} questions of this run were refused")
        return ApprovalDecision(
            verdict=replace(verdict, effect=Effect.DENY, reason=reason, alternative=""),
            note=say(cause, self._language),
            asking_rule=verdict.rule,
        )

    def _request_approval(self, request: ApprovalRequest, verdict: Verdict) -> ApprovalDecision:
        if turn := _turn_of(request.call_id):
            self._requested_calls[turn, request.digest] = request.call_id
        return ApprovalDecision(verdict=verdict, approval_request=request)


def _turn_of(call_id: str) -> str:
    """Return the turn of a model's call; empty for a call of the routine, such as a gather step."""
    turn, _, number = call_id.partition(".")
    return turn if turn.isdigit() and number.isdigit() else ""
