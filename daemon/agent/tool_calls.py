"""Run the calls a model asked for: judged, journalled before they start, results in the order of
the calls.

The rule that kill -9 must not break: a call's `call` step is committed before the call starts,
durably if it may change something. So a call found without a result may have taken effect, and is
run again only where that does no harm. The results of such calls are written while the model reads
them; all others are committed before it is asked.

A call that a person has to allow is not journalled at all until then: the others of its turn are
run, and `ApprovalRequired` says what is to be asked. When the run is resumed, the call is found
without a `call` step and judged anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from daemon.agent.texts import say
from daemon.agent.transcript import PendingCall, call_step, result_step
from daemon.models import (
    ApprovalRequest,
    Effect,
    FunctionCall,
    Json,
    Step,
    Taint,
    ToolContext,
    ToolResult,
    Verdict,
)
from daemon.telemetry.redaction import redact_json

if TYPE_CHECKING:
    from daemon.tools.executor import ToolExecutor
    from daemon.tools.registry import FunctionRegistry


# A model that was denied so often in one run is looking for a way round: it is told to stop.
MAX_DENIALS = 3


class StepWriter(Protocol):
    """Writes the steps of one run."""

    @property
    def is_exclusive(self) -> bool:
        """Whether no other process can take the run over, so that a model may be asked while steps
        are still being written.
        """

    def append(self, *steps: Step, durable: bool = False) -> Awaitable[object]:
        """Queue the steps at once, in order; awaiting the result means they are committed."""
        ...

    def write_lazily(self, *steps: Step) -> None:
        """Queue steps for the next commit without waiting; they are lost in a crash."""


class CallSteps(Protocol):
    """Takes the steps of calls, and knows what the run has read."""

    @property
    def taint(self) -> Taint:
        """The taint of the run now: a result that was just added may have changed it."""

    def add_step(self, step: Step) -> None:
        """Add a step to the run; the next `commit` writes it."""

    async def commit(self, *, durable: bool = False) -> None:
        """Return when all added steps are committed, with `durable` even against a loss of
        power.
        """

    def first_answer(self, address: str) -> ToolResult | None:
        """Return what the run got from an address that it reads at most once; None if it has not
        read the address yet.
        """


class PolicyEngine(Protocol):
    """Decides whether a call may run."""

    def judge(
        self, tool: str, arguments: Json, *, routine: str, tainted: bool = False
    ) -> Verdict: ...

    def is_read_only(self, tool: str, arguments: Json) -> bool: ...


class ApprovalRequired(Exception):
    """The run can only go on when a person has answered; all that could be done without is done and
    written down.
    """

    def __init__(self, requests: Sequence[ApprovalRequest]) -> None:
        self.requests = tuple(requests)
        super().__init__(f"{len(self.requests)} to be answered")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalDecision:
    """Whether a call may start: the policy's verdict, or what a person's answer makes of it."""

    verdict: Verdict
    """Allow or deny; ask as long as nobody has answered."""
    approval_request: ApprovalRequest | None = None
    """What to ask a person; None if the same call of this turn asks that already."""
    approval: str = ""
    """The id of the approval that is used up by the call's start."""
    remembered_rule: str = ""
    """The remembered call by which this one is allowed for good; empty if none does."""
    note: str = ""
    """What the model reads above the result, or instead of it if the call is not run."""
    asking_rule: str = ""
    """The rule that wants a person to be asked, where the verdict is a person's, or follows from
    one.
    """


class Approver(Protocol):
    """Finds out whether a person has allowed a call that the policy wants a person to allow."""

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision: ...


class DenyApprovals:
    """Deny what a person would have to allow: for an agent used as a library."""

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        reason = verdict.reason or "a person would have to allow it"
        return ApprovalDecision(verdict=replace(verdict, effect=Effect.DENY, reason=reason))


class ConfirmingApprover:
    """Asks the user of the program: for an agent used as a library."""

    def __init__(
        self,
        confirm: Callable[[FunctionCall, Verdict], bool | Awaitable[bool]],
        *,
        language: str = "en",
    ) -> None:
        """`confirm` gets the call and why it is asked; it may be a coroutine function. `language`
        is that of the model's messages.
        """
        self._confirm, self._language = confirm, language

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        answer = self._confirm(call, verdict)
        is_allowed = answer if isinstance(answer, bool) else await answer
        if is_allowed:
            # the call changes something, and a person allowed it once
            allow = replace(verdict, effect=Effect.ALLOW)
            return ApprovalDecision(verdict=allow, approval=call_id, asking_rule=verdict.rule)
        denial = replace(verdict, effect=Effect.DENY, reason="a person said no")
        note = say("rejected", self._language)
        return ApprovalDecision(verdict=denial, asking_rule=verdict.rule, note=note)


class ResultInspector(Protocol):
    """Inspects what a call brought before a model sees it."""

    async def inspect(self, call_id: str, call: FunctionCall, result: ToolResult) -> ToolResult: ...


class NoInspection:
    """Trust everything: for an agent used as a library on functions its own program registered."""

    async def inspect(self, call_id: str, call: FunctionCall, result: ToolResult) -> ToolResult:
        return result


class AllowAll:
    """Allow everything: for an agent used as a library on functions its own program registered."""

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        return Verdict(effect=Effect.ALLOW, rule="no policy")

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """What is to become of one call."""

    call_id: str
    call: FunctionCall
    decision: ApprovalDecision | None = None
    """The decision of the policy, and of a person where one must be asked; None for a call that
    cannot be run whatever they decide.
    """
    is_read_only: bool = True
    """Whether the call changes nothing: then it may run beside others, before its step is
    durable.
    """
    repeatable: bool = True
    """Whether running the call twice does no harm, as for every read-only call."""
    refusal: str = ""
    """Why the call will not run; empty if it will."""
    started: bool = False
    taint: Taint = Taint.NONE
    """The taint of the run when the call was judged."""
    waits: bool = False
    """Whether the call waits for a person's answer."""
    answer: ToolResult | None = None
    """The result of an earlier call of the same address, if that is read only once in a run."""
    offered_tools: Sequence[str] | None = None
    """The tools that the model was offered, if none of them has the name of the call."""


@dataclass(frozen=True, kw_only=True)
class ToolCallRunner:
    """Run the calls of one run, in order: each is judged, and its step committed before it
    starts.
    """

    registry: FunctionRegistry
    executor: ToolExecutor
    policy: PolicyEngine
    context: ToolContext
    offered_tools: Sequence[str]
    """Names of the tools that the model was offered: no other is run."""
    redact: Callable[[str], str] = str
    approver: Approver = field(default_factory=DenyApprovals)
    inspector: ResultInspector = field(default_factory=NoInspection)
    audit_fields: Callable[[], Json] = dict
    """What is written beside each verdict: which policy was in force, and in which sandbox calls
    ran.
    """
    tool_retries: int = 3
    tool_retry_delay: float = 1.0
    keeps_safe_reads: bool = True
    """Whether a tainted run may still read the addresses of rules with `safe`. A sub-agent may not:
    each of them would read an address anew, and their number could tell something to its server.
    """

    async def run(
        self,
        pending_calls: Sequence[PendingCall],
        iteration: int,
        steps: CallSteps,
        *,
        allowance: int | None = None,
        denials: int = 0,
    ) -> bool:
        """Run the calls; consecutive read-only ones run concurrently, all others one by one.

        `steps` takes the steps of the calls; `denials` says how many calls of the run were denied
        before. Calls past `allowance` are not run.

        Returns whether one was run that may not be run again: its result has to be committed before
        anything follows. Raises ApprovalRequired if some wait for a person; the others are done
        then.
        """
        plans = [
            await self._plan(
                pending_call, steps, within_limit=allowance is None or index < allowance
            )
            for index, pending_call in enumerate(pending_calls)
        ]
        plans = self._refuse_repeated_reads(self._end_repeated_attempts(plans, denials))
        waiting_plans = [plan for plan in plans if plan.waits]
        ran_unrepeatable = False
        for batch in _batches([plan for plan in plans if not plan.waits]):
            # an earlier call of this turn read strangers' words
            if batch[0].taint is not steps.taint:
                new_plans = [await self._decide(plan, steps) for plan in batch]
                new_plans = self._refuse_repeated_reads(new_plans)
                waiting_plans += [plan for plan in new_plans if plan.waits]
                batch = [plan for plan in new_plans if not plan.waits]
            await self._run_all(batch, iteration, steps)
            if any(not plan.refusal and not plan.repeatable for plan in batch):
                ran_unrepeatable = True
        if waiting_plans:
            await steps.commit()
            decisions = [plan.decision for plan in waiting_plans if plan.decision]
            requests = [decision.approval_request for decision in decisions]
            raise ApprovalRequired([request for request in requests if request])
        return ran_unrepeatable

    async def _run_all(
        self,
        batch: Sequence[_Plan],
        iteration: int,
        steps: CallSteps,
    ) -> None:
        for plan in batch:
            if plan.started:
                continue
            decision, audit_fields = plan.decision, dict(self.audit_fields())
            if decision and decision.approval:
                audit_fields["approval"] = decision.approval
            if decision and decision.asking_rule:
                audit_fields["asked"] = decision.asking_rule
            step = call_step(
                plan.call_id,
                plan.call,
                iteration,
                decision.verdict if decision else None,
                repeatable=plan.repeatable,
                taint=plan.taint,
                audit_fields=audit_fields,
            )
            steps.add_step(step)
        runnable_plans = [plan for plan in batch if not plan.refusal]
        if runnable_plans:
            await steps.commit(durable=any(not plan.is_read_only for plan in runnable_plans))
        if len(batch) == 1:  # mostly: without a task of its own
            results = [await self._run(batch[0])]
        else:
            results = await asyncio.gather(*[self._run(plan) for plan in batch])
        sandbox = str(self.audit_fields().get("sandbox", "")) if runnable_plans else ""
        for plan, (result, seconds) in zip(batch, results, strict=True):
            step = result_step(
                plan.call_id, plan.call, iteration, result, seconds, "" if plan.refusal else sandbox
            )
            if plan.offered_tools is not None:
                step.body["offered"] = list(plan.offered_tools)
            steps.add_step(step)

    async def _plan(
        self, pending_call: PendingCall, steps: CallSteps, *, within_limit: bool
    ) -> _Plan:
        call, language = pending_call.call, self.context.language
        plan = _Plan(
            call_id=pending_call.call_id, call=call, started=pending_call.started, taint=steps.taint
        )
        if pending_call.started and not pending_call.repeatable:
            return replace(plan, refusal=say("interrupted", language))
        if not within_limit:
            return replace(plan, refusal=say("over_limit", language))
        if call.invalid is not None:
            return replace(
                plan, refusal=say("malformed", language, tool=call.name, fault=call.invalid)
            )
        if call.name not in self.offered_tools or not self.registry.has_function(call.name):
            similar_names = get_close_matches(call.name, self.offered_tools, 1)
            hint = say("nearest", language, name=similar_names[0]) if similar_names else ""
            offered_tools = sorted(self.offered_tools)
            names = ", ".join(offered_tools) or "-"
            refusal = say("unknown_tool", language, tool=call.name, hint=hint, names=names)
            return replace(plan, refusal=refusal, offered_tools=offered_tools)
        return await self._decide(plan, steps)

    async def _decide(self, plan: _Plan, steps: CallSteps) -> _Plan:
        """Return the plan with the verdict of the policy, and of a person who must be asked."""
        taint = steps.taint
        definition = self.registry.get_function(plan.call.name)
        cannot_run = plan.decision is None and plan.refusal  # whatever the policy says
        if definition is None or cannot_run:
            return replace(plan, taint=taint)
        call, language = plan.call, self.context.language
        verdict = self.policy.judge(
            call.name, call.arguments, routine=self.context.routine, tainted=bool(taint)
        )
        if verdict.once and taint and not self.keeps_safe_reads:
            reason = say("not_in_subagents", language)
            verdict = replace(verdict, effect=Effect.DENY, reason=reason, once="")
        decision = ApprovalDecision(verdict=verdict)
        if verdict.effect is Effect.ASK and not plan.started:
            decision = await self.approver.decide(plan.call_id, call, verdict, taint)
        plan, verdict = replace(plan, taint=taint, decision=decision), decision.verdict
        if verdict.effect is Effect.ASK and plan.started:  # under a policy that allowed it
            return replace(plan, refusal=say("interrupted", language))
        if verdict.effect is Effect.ASK:
            return replace(plan, waits=True)
        if not verdict.allows:
            alternative = verdict.alternative
            denial = say(
                "denied",
                language,
                rule=verdict.rule,
                reason=verdict.reason,
                allowed=say("alternative", language, alternative=alternative)
                if alternative
                else "",
            )
            return replace(plan, refusal=decision.note or denial)
        is_read_only = definition.read_only or self.policy.is_read_only(call.name, call.arguments)
        is_allowed_once = bool(decision.approval)  # by a person
        return replace(
            plan,
            is_read_only=is_read_only and not is_allowed_once,
            repeatable=(is_read_only or definition.idempotent) and not is_allowed_once,
            answer=steps.first_answer(verdict.once) if verdict.once else None,
        )

    def _refuse_repeated_reads(self, plans: Sequence[_Plan]) -> list[_Plan]:
        """Refuse all but the first of several calls that read the same address, where a run reads
        it once.
        """
        results, addresses = [], set[str]()
        for plan in plans:
            address = plan.decision.verdict.once if plan.decision and not plan.refusal else ""
            if address in addresses:
                plan = replace(plan, refusal=say("read_once", self.context.language))
            if address and plan.answer is None:
                addresses.add(address)
            results.append(plan)
        return results

    def _end_repeated_attempts(self, plans: Sequence[_Plan], denials: int) -> list[_Plan]:
        """From the third denial of a run on, tell the model to stop trying."""
        results = []
        for plan in plans:
            if plan.refusal and plan.decision is not None and not plan.started:
                denials += 1
                if denials >= MAX_DENIALS:
                    advice = say("enough", self.context.language, count=denials)
                    plan = replace(plan, refusal=f"{plan.refusal} {advice}")
            results.append(plan)
        return results

    async def _run(self, plan: _Plan) -> tuple[ToolResult, float]:
        if plan.refusal:
            return ToolResult(ok=False, text=self.redact(plan.refusal)), 0.0
        if plan.answer:
            note = say("first_answer", self.context.language)
            return replace(plan.answer, text=f"{note}\n{plan.answer.text}"), 0.0
        loop = asyncio.get_running_loop()
        start = loop.time()
        decision = plan.decision
        approval = (decision.approval or decision.remembered_rule) if decision else ""
        context = replace(
            self.context, tainted=bool(plan.taint), approved=approval, call=plan.call_id
        )
        result = await self.executor.run(plan.call, context)
        for _ in range(self.tool_retries if plan.repeatable else 0):
            if result.ok or not result.transient:
                break
            await asyncio.sleep(self.tool_retry_delay)
            result = await self.executor.run(plan.call, context)
        seconds = loop.time() - start
        text = self.redact(result.text)
        is_text = result.value is result.text  # as of every tool that returns a text
        value = text if is_text else redact_json(result.value, self.redact)
        effect = self.redact(result.dry_run_effect)
        if (
            text is not result.text
            or value is not result.value
            or effect is not result.dry_run_effect
        ):
            result = replace(result, text=text, value=value, dry_run_effect=effect)
        result = await self.inspector.inspect(plan.call_id, plan.call, result)
        if decision and decision.note and not self.context.verbatim:
            result = replace(result, text=f"{decision.note}\n{result.text}")
        return result, seconds


def _batches(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    """Group consecutive plans that may run concurrently."""
    batches: list[list[_Plan]] = []
    for plan in plans:
        if batches and plan.is_read_only and batches[-1][-1].is_read_only:
            batches[-1].append(plan)
        else:
            batches.append([plan])
    return batches
