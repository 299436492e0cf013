"""Play a recorded run again, through the same gate, gather and loop as a live one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from structlog.contextvars import bound_contextvars

from daemon.agent.agent import NO_DEADLINE_SECONDS, Agent, AgentOptions, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import ApprovalRequired, DenyApprovals, ToolCallRunner
from daemon.agent.transcript import Transcript, facts_from, image_from
from daemon.definitions.routines.routine import Routine
from daemon.errors import DaemonError, Refused
from daemon.models import (
    FunctionCall,
    Reply,
    Run,
    Status,
    Step,
    StepKind,
    Taint,
    ToolContext,
    ToolResult,
    Usage,
)
from daemon.policy.policy import Policy
from daemon.runs.images import Pictures
from daemon.runs.replay.cassette import Cassette
from daemon.runs.replay.compare import calls_of, diff, differences, of_ends
from daemon.runs.replay.outcome import End, ReplayChange, ReplayDifference, ReplayResult
from daemon.runs.replay.recorded import (
    RecordedInbox,
    RecordedModel,
    RecordedToolExecutor,
    RecordExhausted,
    Recording,
)
from daemon.runs.replay.verdicts import RecordedApprover, RecordedPolicy
from daemon.runs.run import execute
from daemon.tools.builtin import sysinfo
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.agent.tool_calls import Approver
    from daemon.models import Json
    from daemon.providers import LLMProvider
    from daemon.runs.recorder import StepLog

# Ends that nothing in the record brings about: a person, the clock, a process that died.
_FROM_OUTSIDE = {
    Status.CANCELLED: "a person cancelled it",
    Status.TIMED_OUT: "its time was up",
    Status.INTERRUPTED: "it broke off and was not taken up again",
    Status.RUNNING: "it is still under way",
    Status.QUEUED: "it waits to be taken up again",
    Status.WAITING: "it waits for a person",
}
ASK = "ask"
SUBAGENT = "subagent"


async def play(cassette: Cassette, change: ReplayChange = ReplayChange()) -> ReplayResult:  # noqa: B008  frozen
    """Play a run again and return how it compares; raises Refused for a record that this version
    cannot read.
    """
    try:
        routine = Routine.restore(cassette.definition)
    except ValueError as error:
        raise Refused(
            f"its definition cannot be read by this version: {str(error).splitlines()[0]}"
        ) from None
    context = ReplayContext(cassette, routine, change)
    with bound_contextvars(replay=cassette.run.id):
        end = await context.play()
    return context.outcome(end)


class _StepList:
    """Keeps the steps of the run that is played."""

    is_exclusive = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def write_lazily(self, *steps: Step) -> None:
        self.steps += steps

    def append(self, *steps: Step, durable: bool = False) -> asyncio.Future[list[Step]]:
        self.steps += steps
        kept: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
        kept.set_result(list(steps))
        return kept


class _RecordedInspector:
    """Looks at what the event that began the run said as it was looked at then."""

    def __init__(self, goal: Step | None) -> None:
        self._facts = {fact.tool: fact.text for fact in facts_from(goal.body)} if goal else {}
        self._taint = Taint(goal.body.get("taint", "")) if goal else Taint.NONE

    async def inspect(self, key: str, call: FunctionCall, result: ToolResult) -> ToolResult:
        if key != "event":
            return result
        return replace(result, text=self._facts.get(call.name, result.text), taint=self._taint)


class _RecordedHistory:
    """What the run could see of the journal, and nothing else of it."""

    def __init__(self, cassette: Cassette, recording: Recording) -> None:
        self._cassette, self._recording = cassette, recording

    async def get(self, run_id_or_prefix: str) -> Run:
        goal = self._recording.goal
        return replace(
            self._cassette.run, taint=Taint(goal.body.get("taint", "")) if goal else Taint.NONE
        )

    async def get_input(self, run_id: str) -> Any:
        return self._cassette.given

    async def get_last(
        self, routine: str, *, statuses: Iterable[Status], before: str | None = None
    ) -> Run | None:
        return self._cassette.run if self._cassette.before else None

    async def get_steps(self, run_id: str) -> list[Step]:
        return [
            Step(
                kind=StepKind.RESULT,
                iteration=0,
                call_id=f"gather.{name}",
                body={"ok": True, "value": value},
            )
            for name, value in self._cassette.before.items()
        ]


class ReplayContext:
    """What a run that is played again finds around itself: see `run.Around`."""

    def __init__(self, cassette: Cassette, routine: Routine, change: ReplayChange) -> None:
        self._cassette, self._routine, self._change = cassette, routine, change
        self._recording = Recording(cassette.steps, cassette.run, cassette.language)
        workspace = Path(cassette.workspace)
        then = {
            hash_: Policy.read(text, workspace=workspace)
            for hash_, text in cassette.policies.items()
        }
        asking = bool(change.models)
        self._policy = change.policy or next(reversed(list(then.values())), None)
        self._recorded_policy = RecordedPolicy(
            self._recording,
            then,
            change.by_now if asking else None,
            change.policy,
            trying=bool(change.changed),
        )
        self._approver = RecordedApprover(self._recording, trying=bool(change.changed))
        self._unknown_tools = self._recording.unknown_here()
        self._registry = self._tools()
        self._executor = RecordedToolExecutor(self._recording, self._registry, loose=asking)
        self._model_steps = list(self._recording.asks)
        self._agent: Agent | None = None
        self._step_list = _StepList()
        self.runs = _RecordedHistory(cassette, self._recording)

    # --- what `execute` asks for

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        return self.call_runner_for(run, routine)

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what answers gather steps as they were answered then."""
        offered = next(iter(self._unknown_tools.values()), None)
        return ToolCallRunner(
            registry=self._registry,
            executor=self._executor,
            policy=self._recorded_policy,
            context=self._context,
            offered=self._registry.names() if offered is None else offered,
            approver=self._current_approver,
            inspector=_RecordedInspector(self._recording.goal),
        )

    async def pictures_for(self, run: Run, routine: Routine, event_input: Any) -> Pictures:
        """Return what the model was shown then."""
        body = self._recording.goal.body if self._recording.goal else {}
        return Pictures(
            images=tuple(image_from(each) for each in body.get("images", ())),
            facts=tuple(fact for fact in facts_from(body) if fact.tool == "media") if body else (),
            notes=tuple(body.get("notes", ())),
        )

    async def agent_for(
        self, run: Run, routine: Routine, recorder: StepLog, deadline: float
    ) -> Agent:
        """Return the agent, with the prompt of then."""
        frozen, spec = self._cassette.frozen, routine.run
        if frozen is None:
            raise RecordExhausted
        limits = (
            self._policy.limits_for(routine.under).tool_calls
            if self._policy
            else spec.max_tool_calls
        )
        first, *others = self._models(frozen)
        agent = Agent(
            first,
            self._registry,
            options=AgentOptions(
                prompt_context=PromptContext(
                    persona=Persona(language=self._cassette.language),
                    workspace=self._context.workspace,
                    now=run.created,
                    zone=UTC,
                    routine="" if run.trigger == ASK else routine.name,
                    silent_token=routine.run.silent_token or "",
                    sections={},
                ),
                frozen_prompt=frozen,
                required_tools=spec.required_tools,
                limits=LoopLimits(
                    max_iterations=spec.max_iterations,
                    max_tool_calls=min(spec.max_tool_calls, limits),
                    tokens=spec.budget.tokens,
                    temperature=spec.temperature,
                    max_tokens=spec.max_tokens,
                ),
                deadline=deadline,
                taint=self._taint_before,
                tool_context=self._context,
            ),
            services=AgentServices(
                fallback=others,
                policy=self._recorded_policy,
                step_writer=recorder,
                executor=self._executor,
                approver=self._current_approver,
                messages=RecordedInbox(self._recording, self._iteration),
            ),
            steps=recorder.steps,
        )
        self._agent = agent
        return agent

    def _iteration(self) -> int:
        return self._agent.transcript.iterations if self._agent else 0

    @property
    def _taint_before(self) -> Taint:
        """What the run had of strangers before its first step."""
        origin = self._routine.origin
        return Taint.TAINTED if origin and origin.tainted else Taint.NONE

    @property
    def _current_approver(self) -> Approver:
        nobody = self._cassette.run.trigger == SUBAGENT and self._change.policy is not None
        return DenyApprovals() if nobody else self._approver

    @property
    def _context(self) -> ToolContext:
        cassette = self._cassette
        return ToolContext(
            run=cassette.run.id,
            routine=self._routine.under,
            workspace=Path(cassette.workspace),
            language=cassette.language,
        )

    def _models(self, frozen: Json) -> Sequence[LLMProvider]:
        if self._change.models:
            return self._change.models
        names = [str(frozen["provider"])]
        names += [
            str(step.body["to"]) for step in self._model_steps if step.kind is StepKind.FAILOVER
        ]
        model = str(frozen.get("model", ""))
        return [
            RecordedModel(name, model, self._recording, self._model_steps)
            for name in dict.fromkeys(names)
        ]

    def _tools(self) -> FunctionRegistry:
        """Return functions of the names there were; they are never called."""
        registry, calls = FunctionRegistry(), self._recording.calls.values()
        frozen = self._cassette.frozen or {}
        schemas = {str(each["name"]): each for each in frozen.get("functions") or ()}
        names = [
            *schemas,
            *(each.tool for each in self._routine.gather),
            *(step.body["tool"] for step in calls),
        ]
        for name in dict.fromkeys([*names, "shell"]):
            if name in self._unknown_tools or (name not in schemas and not _named(name)):
                continue
            again = [
                bool(step.body.get("repeatable"))
                for step in calls
                if step.body["tool"] == name
                and not step.body.get("approval")
                and step.body.get("verdict")
            ]
            schema = schemas.get(name, {})
            registry.register(
                name,
                str(schema.get("description", name)),
                _never_called,
                schema.get("parameters", {"type": "object", "properties": {}}),
                idempotent=bool(again) and all(again),
                changes=sysinfo.changes if name == "sysinfo" else None,
            )
        return registry

    # --- playing

    async def play(self) -> End:
        """Play the run; return how it ended."""
        run = replace(self._cassette.run, taint=self._taint_before)
        if self._change.prompt is not None:
            run = replace(run, goal=self._change.prompt)
        deadline = asyncio.get_running_loop().time() + NO_DEADLINE_SECONDS
        while True:
            try:
                result = await execute(run, self._routine, self._step_list, self, deadline)
            except ApprovalRequired:
                if self._approver.answer():
                    continue
                return self._broken_off(Status.INTERRUPTED, None)
            except RecordExhausted:
                return self._broken_off(Status.INTERRUPTED, None)
            except DaemonError as error:
                return self._broken_off(Status.FAILED, str(error))
            if result.reply is None:
                return self._broken_off(result.status, result.detail)
            return self._ended(result.reply)

    def _broken_off(self, status: Status, detail: str | None) -> End:
        transcript = Transcript(self._step_list.steps)
        return End(
            status=status,
            detail=detail,
            report="",
            silent=False,
            iterations=self._cassette.run.iterations,
            usage=transcript.usage,
            calls=calls_of(self._step_list.steps, self._approver.would_ask),
        )

    def _ended(self, reply: Reply) -> End:
        return End(
            status=reply.status,
            detail=reply.detail,
            report=reply.content,
            silent=reply.silent,
            iterations=reply.iterations,
            usage=reply.usage,
            calls=calls_of(self._step_list.steps, self._approver.would_ask),
        )

    # --- comparing

    def outcome(self, played: End) -> ReplayResult:
        """Return how what was played compares with what was recorded."""
        cassette, run, change = self._cassette, self._cassette.run, self._change
        recorded = End(
            status=run.status,
            detail=run.detail,
            report=run.report or "",
            silent=run.silent,
            iterations=run.iterations,
            # what a summary for the memory cost is no part of the conversation
            usage=played.usage if self._routine.run.memory == "recall+store" else run.usage,
            calls=calls_of(cassette.steps),
        )
        found = self._parted(recorded, played)
        outside = ""
        if not change.changed and not found and (outside := self._outside(played)):
            played = recorded
        else:
            found += (
                of_ends(recorded, played) if not change.changed else self._changed(recorded, played)
            )
            if found and change.prompt is not None:
                prompts = diff(run.goal, change.prompt)
                found.insert(
                    0,
                    ReplayDifference(
                        at="the beginning", seq=None, what="the prompt differs", diff=prompts
                    ),
                )
        return ReplayResult(
            run=run.id,
            routine=run.routine,
            changed=change.changed,
            steps=len(cassette.steps),
            recorded=recorded,
            played=played,
            differences=found,
            never_made=[
                f"{key} {call.name} {_words(call.arguments)}"
                for key, call in self._executor.never_made
            ],
            would_ask=[
                f"{key}: {verdict.rule}" for key, verdict in self._approver.would_ask.items()
            ],
            outside=outside,
            missing=cassette.missing,
            asked=played.usage if change.models else Usage(),
        )

    def _parted(self, recorded: End, played: End) -> list[ReplayDifference]:
        if not self._change.changed:
            return list(differences(self._cassette.steps, self._step_list.steps))
        if recorded.calls == played.calls:
            return []
        before, after = "\n".join(recorded.calls), "\n".join(played.calls)
        return [
            ReplayDifference(
                at="the calls", seq=None, what="the calls differ", diff=diff(before, after)
            )
        ]

    @staticmethod
    def _changed(recorded: End, played: End) -> list[ReplayDifference]:
        """Return in what the ends differ that matters when something was changed on purpose."""
        return list(of_ends(recorded, played, ("status", "detail", "report", "silent")))

    def _outside(self, played: End) -> str:
        """Return what ended the run from outside, in words; empty if it ended by itself."""
        run = self._cassette.run
        if words := _FROM_OUTSIDE.get(run.status):
            return words
        if run.status is Status.FAILED and played.status is Status.INTERRUPTED:
            return f"it failed here: {run.detail}"
        return ""


def _named(name: str) -> bool:
    return name.replace("_", "").replace("-", "").isalnum() and name.isascii() and len(name) <= 64


def _words(arguments: Json) -> str:
    import json

    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _never_called(**_arguments: Any) -> None:
    raise AssertionError("a replay calls no tool")
