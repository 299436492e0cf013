"""Run the calls a model asked for: judged, journalled before they start, results in the order of
the calls.

The rule that kill -9 must not break: a call's `call` step is committed before the call starts,
durably if it may change something. So a call found without a result may have taken effect, and is
run again only where that does no harm. The results of such calls are written while the model reads
them; all others are safe before it is asked.

A call that a person has to allow is not journalled at all until then: the others of its turn are
run, and `ApprovalRequired` says what is to be asked. When the run is resumed, the call is found
without a `call` step and judged anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

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
        """Add a step to the run; it is safe after the next `commit`."""

    async def commit(self, *, durable: bool = False) -> None:
        """Return when all added steps are committed, with `durable` even against a loss of
        power.
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
    """What became of a call that the policy wants a person to be asked about."""

    verdict: Verdict
    """Allow or deny; ask as long as nobody has answered."""
    approval_request: ApprovalRequest | None = None
    """What to ask, where that has not been asked by a twin of this turn."""
    approval: str = ""
    """The id of the approval that is used up by the call's start."""
    remembered_rule: str = ""
    """What allows it for good instead."""
    note: str = ""
    """What the model is told of it: instead of a result, or above it."""
    asking_rule: str = ""
    """The rule that wants a person to be asked, where the verdict is a person's, or follows from
    one.
    """


class Approver(Protocol):
    """Finds out whether a person has allowed a call that the policy wants a person to allow."""

    async def decide(
        self, key: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision: ...


class DenyApprovals:
    """Deny what a person would have to allow: for an agent used as a library."""

    async def decide(
        self, key: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        reason = verdict.reason or "a person would have to allow it"
        return ApprovalDecision(verdict=replace(verdict, effect=Effect.DENY, reason=reason))


class ConfirmingApprover:
    """Asks the user of the program: for an agent used as a library."""

    def __init__(self, confirm: Callable[[FunctionCall, Verdict], bool | Awaitable[bool]]) -> None:
        """`confirm` gets the call and why it is asked; it may be a coroutine function."""
        self._confirm = confirm

    async def decide(
        self, key: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        answer = self._confirm(call, verdict)
        is_allowed = answer if isinstance(answer, bool) else await answer
        if is_allowed:
            # the call changes something, and a person allowed it once
            allow = replace(verdict, effect=Effect.ALLOW)
            return ApprovalDecision(verdict=allow, approval=key, asking_rule=verdict.rule)
        denied = replace(verdict, effect=Effect.DENY, reason="a person said no")
        return ApprovalDecision(verdict=denied, asking_rule=verdict.rule)


class ResultInspector(Protocol):
    """Inspects what a call brought before a model sees it."""

    async def inspect(self, key: str, call: FunctionCall, result: ToolResult) -> ToolResult: ...


class NoInspection:
    """Trust everything: for an agent used as a library on functions its own program registered."""

    async def inspect(self, key: str, call: FunctionCall, result: ToolResult) -> ToolResult:
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

    key: str
    call: FunctionCall
    verdict: Verdict | None = None
    is_read_only: bool = True
    """It changes nothing, so it may run beside its neighbours and needs no durable record first."""
    repeatable: bool = True
    """Running it again does no harm; a read-only call is always repeatable."""
    refusal: str = ""
    """Why it will not run; empty if it will."""
    started: bool = False
    taint: Taint = Taint.NONE
    """What the run had read when this was judged."""
    waits: bool = False
    """Until a person has answered."""
    approval_request: ApprovalRequest | None = None
    approval: str = ""
    remembered_rule: str = ""
    note: str = ""
    """What stands above its result."""
    asking_rule: str = ""
    """The rule that wanted a person to be asked, where the verdict is a person's, or follows from
    one.
    """
    offered: Sequence[str] | None = None
    """What tools there are instead, where there is none of this name."""


@dataclass(frozen=True, kw_only=True)
class ToolCallRunner:
    """Runs the calls of one run: judged, journalled before they start, in order."""

    registry: FunctionRegistry
    executor: ToolExecutor
    policy: PolicyEngine
    context: ToolContext
    offered: Sequence[str]
    redact: Callable[[str], str] = str
    approver: Approver = field(default_factory=DenyApprovals)
    inspector: ResultInspector = field(default_factory=NoInspection)
    audit_fields: Callable[[], Json] = dict
    """What is written beside each verdict: which policy was in force, and in which sandbox calls
    ran.
    """
    tool_retries: int = 3
    tool_retry_delay: float = 1.0

    async def run(
        self,
        pending: Sequence[PendingCall],
        iteration: int,
        steps: CallSteps,
        *,
        allowance: int | None = None,
        denials: int = 0,
    ) -> bool:
        """Run the calls; neighbours that are read-only run concurrently, all others one by one.

        `steps` takes the steps of the calls; `denials` says how many calls of the run were denied
        before. Calls past `allowance` are not run.

        Returns whether one was run that may not be run again: its result has to be safe before
        anything follows. Raises ApprovalRequired if some wait for a person; the others are done
        then.
        """
        plans = [
            await self._plan(
                pending_call, steps.taint, allowed=allowance is None or index < allowance
            )
            for index, pending_call in enumerate(pending)
        ]
        plans = self._end_repeated_attempts(plans, denials)
        waiting_plans = [plan for plan in plans if plan.waits]
        ran_unrepeatable = False
        for batch in _batches([plan for plan in plans if not plan.waits]):
            if (
                batch[0].taint is not steps.taint
            ):  # an earlier call of this turn read strangers' words
                decided = [await self._decide(plan, steps.taint) for plan in batch]
                waiting_plans += [plan for plan in decided if plan.waits]
                batch = [plan for plan in decided if not plan.waits]
            await self._run_all(batch, iteration, steps)
            if any(not plan.refusal and not plan.repeatable for plan in batch):
                ran_unrepeatable = True
        if waiting_plans:
            await steps.commit()
            raise ApprovalRequired(
                [plan.approval_request for plan in waiting_plans if plan.approval_request]
            )
        return ran_unrepeatable

    async def _run_all(
        self,
        batch: Sequence[_Plan],
        iteration: int,
        steps: CallSteps,
    ) -> None:
        for plan in batch:
            if not plan.started:
                step = call_step(
                    plan.key,
                    plan.call,
                    iteration,
                    plan.verdict,
                    repeatable=plan.repeatable,
                    taint=plan.taint,
                    audit_fields=self.audit_fields()
                    | ({"approval": plan.approval} if plan.approval else {})
                    | ({"asked": plan.asking_rule} if plan.asking_rule else {}),
                )
                steps.add_step(step)
        runnable_plans = [plan for plan in batch if not plan.refusal]
        if runnable_plans:
            await steps.commit(durable=any(not plan.is_read_only for plan in runnable_plans))
        results = await self._run_in_parallel([self._run(plan) for plan in batch])
        sandbox = str(self.audit_fields().get("sandbox", "")) if runnable_plans else ""
        for plan, (result, seconds) in zip(batch, results, strict=True):
            step = result_step(
                plan.key, plan.call, iteration, result, seconds, "" if plan.refusal else sandbox
            )
            if plan.offered is not None:
                step.body["offered"] = list(plan.offered)
            steps.add_step(step)

    @staticmethod
    async def _run_in_parallel(
        runs: Sequence[Awaitable[tuple[ToolResult, float]]],
    ) -> list[tuple[ToolResult, float]]:
        if len(runs) == 1:
            return [await runs[0]]
        return await asyncio.gather(*runs)

    async def _plan(self, pending: PendingCall, taint: Taint, *, allowed: bool) -> _Plan:
        call, language = pending.call, self.context.language
        plan = _Plan(key=pending.key, call=call, started=pending.started, taint=taint)
        if pending.started and not pending.repeatable:
            return replace(plan, refusal=say("interrupted", language))
        if not allowed:
            return replace(plan, refusal=say("over_limit", language))
        if call.invalid is not None:
            return replace(
                plan, refusal=say("malformed", language, tool=call.name, fault=call.invalid)
            )
        if call.name not in self.offered or not self.registry.has_function(call.name):
            similar_names = get_close_matches(call.name, self.offered, 1)
            hint = say("nearest", language, name=similar_names[0]) if similar_names else ""
            offered_tools = sorted(self.offered)
            names = ", ".join(offered_tools) or "-"
            refusal = say("unknown_tool", language, tool=call.name, hint=hint, names=names)
            return replace(plan, refusal=refusal, offered=offered_tools)
        return await self._decide(plan, taint)

    async def _decide(self, plan: _Plan, taint: Taint) -> _Plan:
        """Return the plan with the verdict of the policy, and of a person who must be asked."""
        definition = self.registry.get_function(plan.call.name)
        if definition is None or (plan.verdict is None and plan.refusal):
            return replace(plan, taint=taint)
        call, approval, remembered_rule, note, asking_rule = plan.call, "", "", "", ""
        verdict = self.policy.judge(
            call.name, call.arguments, routine=self.context.routine, tainted=bool(taint)
        )
        if verdict.effect is Effect.ASK:
            if plan.started:  # under a policy that allowed it
                return replace(
                    plan,
                    taint=taint,
                    verdict=verdict,
                    refusal=say("interrupted", self.context.language),
                )
            decision = await self.approver.decide(plan.key, call, verdict, taint)
            verdict, approval, remembered_rule, note = (
                decision.verdict,
                decision.approval,
                decision.remembered_rule,
                decision.note,
            )
            asking_rule = decision.asking_rule
            if verdict.effect is Effect.ASK:
                return replace(
                    plan,
                    taint=taint,
                    verdict=verdict,
                    waits=True,
                    approval_request=decision.approval_request,
                )
        if not verdict.allows:
            return replace(
                plan,
                taint=taint,
                verdict=verdict,
                refusal=note or self._denied(verdict),
                asking_rule=asking_rule,
            )
        is_read_only = definition.read_only or self.policy.is_read_only(call.name, call.arguments)
        return replace(
            plan,
            taint=taint,
            verdict=verdict,
            # what a person allowed was allowed once
            is_read_only=is_read_only and not approval,
            repeatable=(is_read_only or definition.idempotent) and not approval,
            approval=approval,
            remembered_rule=remembered_rule,
            note=note,
            asking_rule=asking_rule,
        )

    def _end_repeated_attempts(self, plans: Sequence[_Plan], denials: int) -> list[_Plan]:
        """From the third denial of a run on, tell the model to stop trying."""
        results = []
        for plan in plans:
            if plan.refusal and plan.verdict is not None and not plan.started:
                denials += 1
                if denials >= MAX_DENIALS:
                    enough = say("enough", self.context.language, count=denials)
                    plan = replace(plan, refusal=f"{plan.refusal} {enough}")
            results.append(plan)
        return results

    def _denied(self, verdict: Verdict) -> str:
        language = self.context.language
        alternatives = (
            say("allowed_forms", language, forms=verdict.alternative) if verdict.alternative else ""
        )
        return say(
            "denied", language, rule=verdict.rule, reason=verdict.reason, allowed=alternatives
        )

    async def _run(self, plan: _Plan) -> tuple[ToolResult, float]:
        if plan.refusal:
            return ToolResult(ok=False, text=self.redact(plan.refusal)), 0.0
        loop = asyncio.get_running_loop()
        start = loop.time()
        approval = plan.approval or plan.remembered_rule
        context = replace(self.context, tainted=bool(plan.taint), approved=approval, call=plan.key)
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
        result = await self.inspector.inspect(plan.key, plan.call, result)
        if plan.note:
            result = replace(result, text=f"{plan.note}\n{result.text}")
        return result, seconds


def redact_json(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a JSON value with the secrets in its strings taken out."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: redact_json(item, redact) for key, item in value.items()}
        case list():
            return [redact_json(item, redact) for item in value]
    return value


def _batches(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    """Group neighbours that may run beside each other."""
    batches: list[list[_Plan]] = []
    for plan in plans:
        if batches and plan.is_read_only and batches[-1][-1].is_read_only:
            batches[-1].append(plan)
        else:
            batches.append([plan])
    return batches
