"""Run the calls a model asked for: judged, journalled before they start, results in the order of the calls.

The rule that kill -9 must not break: a call's `call` step is committed before the call starts, durably if it may change
something. So a call found without a result may have taken effect, and is run again only where that does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from daemon.agent.texts import say
from daemon.agent.transcript import PendingCall, call_step, result_step
from daemon.models import Effect, FunctionCall, Json, Step, ToolContext, ToolResult, Verdict

if TYPE_CHECKING:
    from daemon.functions import FunctionRegistry, ToolExecutor


class Recorder(Protocol):
    """Where the steps of one run are kept."""

    def append(self, *steps: Step, durable: bool = False) -> Awaitable[object]:
        """Queue the steps at once, in order; awaiting the result means they are committed."""
        ...


class Judge(Protocol):
    """Who says whether a call may run."""

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict: ...

    def is_read_only(self, tool: str, arguments: Json) -> bool: ...


class NoPolicy:
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
    looks: bool = True
    """It changes nothing, so it may run beside its neighbours and needs no durable record first."""
    repeatable: bool = True
    """Running it again does no harm; whatever only looks is repeatable."""
    refusal: str = ""
    """Why it will not run; empty if it will."""
    started: bool = False


@dataclass(frozen=True, kw_only=True)
class Hands:
    """Everything needed to run calls for one run."""

    registry: FunctionRegistry
    executor: ToolExecutor
    policy: Judge
    context: ToolContext
    offered: Sequence[str]
    redact: Callable[[str], str] = str
    tool_retries: int = 3
    tool_retry_delay: float = 1.0

    async def act(
        self,
        pending: Sequence[PendingCall],
        iteration: int,
        note: Callable[[Step], None],
        commit: Callable[[bool], Awaitable[None]],
        *,
        allowance: int | None = None,
    ) -> None:
        """Run the calls; neighbours that only look run beside each other, all others one by one.

        `note` adds a step to the run, `commit(durable)` makes all noted steps safe. Calls past `allowance` are not run.
        """
        plans = [self._plan(each, allowed=allowance is None or place < allowance) for place, each in enumerate(pending)]
        for batch in _batches(plans):
            for plan in batch:
                if not plan.started:
                    note(call_step(plan.key, plan.call, iteration, plan.verdict, repeatable=plan.repeatable))
            running = [plan for plan in batch if not plan.refusal]
            if running:
                await commit(any(not plan.looks for plan in running))
            results = await self._all([self._run(plan) for plan in batch])
            for plan, (result, seconds) in zip(batch, results, strict=True):
                note(result_step(plan.key, plan.call, iteration, result, seconds))

    @staticmethod
    async def _all(runs: Sequence[Awaitable[tuple[ToolResult, float]]]) -> list[tuple[ToolResult, float]]:
        if len(runs) == 1:
            return [await runs[0]]
        return await asyncio.gather(*runs)

    def _plan(self, pending: PendingCall, *, allowed: bool) -> _Plan:
        call, language = pending.call, self.context.language
        plan = _Plan(key=pending.key, call=call, started=pending.started)
        if pending.started and not pending.repeatable:
            return replace(plan, refusal=say("interrupted", language))
        if not allowed:
            return replace(plan, refusal=say("over_limit", language))
        if call.invalid is not None:
            return replace(plan, refusal=say("malformed", language, tool=call.name, fault=call.invalid))
        definition = self.registry.get_function(call.name) if call.name in self.offered else None
        if definition is None:
            near = get_close_matches(call.name, self.offered, 1)
            hint = say("nearest", language, name=near[0]) if near else ""
            names = ", ".join(sorted(self.offered)) or "-"
            return replace(plan, refusal=say("unknown_tool", language, tool=call.name, hint=hint, names=names))
        verdict = self.policy.judge(call.name, call.arguments, routine=self.context.routine)
        if not verdict.allows:
            allowed_forms = say("allowed_forms", language, forms=verdict.allowed) if verdict.allowed else ""
            refusal = say("denied", language, rule=verdict.rule, reason=verdict.reason, allowed=allowed_forms)
            return replace(plan, verdict=verdict, refusal=refusal)
        looks = definition.read_only or self.policy.is_read_only(call.name, call.arguments)
        return replace(plan, verdict=verdict, looks=looks, repeatable=looks or definition.idempotent)

    async def _run(self, plan: _Plan) -> tuple[ToolResult, float]:
        if plan.refusal:
            return ToolResult(ok=False, text=self.redact(plan.refusal)), 0.0
        clock = asyncio.get_running_loop().time
        begin = clock()
        result = await self.executor.run(plan.call, self.context)
        for _ in range(self.tool_retries if plan.repeatable else 0):
            if result.ok or not result.transient:
                break
            await asyncio.sleep(self.tool_retry_delay)
            result = await self.executor.run(plan.call, self.context)
        return replace(result, text=self.redact(result.text), value=cleaned(result.value, self.redact)), clock() - begin


def cleaned(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a JSON value with the secrets in its strings taken out."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: cleaned(item, redact) for key, item in value.items()}
        case list():
            return [cleaned(item, redact) for item in value]
    return value


def _batches(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    """Group neighbours that may run beside each other."""
    batches: list[list[_Plan]] = []
    for plan in plans:
        if batches and plan.looks and batches[-1][-1].looks:
            batches[-1].append(plan)
        else:
            batches.append([plan])
    return batches
