"""Replay a recorded run, through the same gate, gather and loop as a live one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from structlog.contextvars import bound_contextvars

from daemon.agent.agent import NO_DEADLINE_SECONDS, Agent, AgentOptions, AgentServices
from daemon.agent.conversations.conversations import ASK
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import ApprovalRequired, DenyApprovals, ToolCallRunner
from daemon.agent.transcript import Transcript, facts_from, image_from
from daemon.definitions.routines.routine import Routine
from daemon.errors import DaemonError, Refused
from daemon.models import (
    FunctionCall,
    Json,
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
from daemon.runs.execute import execute
from daemon.runs.images import AttachedImages
from daemon.runs.replay.cassette import Cassette
from daemon.runs.replay.compare import (
    ReplayChange,
    ReplayDifference,
    ReplayResult,
    RunEnd,
    compare_ends,
    compare_steps,
    describe_calls,
    diff,
)
from daemon.runs.replay.recorded import (
    RecordedChecker,
    RecordedInbox,
    RecordedModel,
    RecordedToolExecutor,
    RecordExhausted,
    Recording,
    drop_superseded_limits,
)
from daemon.runs.replay.recorded_policy import RecordedApprover, RecordedPolicy
from daemon.tools.builtin import sysinfo
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.agent.tool_calls import Approver
    from daemon.models import Json
    from daemon.providers import LLMProvider
    from daemon.runs.protocols import StepLog

# Ends that no step brings about: a person, the clock or a process that died did.
_EXTERNAL_ENDS = {
    Status.CANCELLED: "a person cancelled it",
    Status.TIMED_OUT: "its time was up",
    Status.INTERRUPTED: "it broke off and was not taken up again",
    Status.RUNNING: "it is still under way",
    Status.QUEUED: "it waits to be taken up again",
    Status.WAITING: "it waits for a person",
}


async def replay(cassette: Cassette, change: ReplayChange = ReplayChange()) -> ReplayResult:  # noqa: B008  frozen
    """Replay a run and return how the replay compares.

    Raises Refused for a record that this version cannot read.
    """
    try:
        routine = Routine.restore(cassette.definition)
    except ValueError as error:
        raise Refused(
            f"its definition cannot be read by this version: {str(error).splitlines()[0]}"
        ) from None
    context = ReplayContext(cassette, routine, change)
    with bound_contextvars(replay=cassette.run.id):
        end = await context.replay()
    return context.compare(end)


class _StepList:
    """Holds the steps of the replay in memory."""

    is_exclusive = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def write_lazily(self, *steps: Step) -> None:
        self.steps += steps

    def append(self, *steps: Step, durable: bool = False) -> asyncio.Future[list[Step]]:
        self.steps += steps
        result: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
        result.set_result(list(steps))
        return result

    def publish_live(self, event: Json) -> None:
        """Nobody follows a replay."""


class _RecordedInspector:
    """Returns the text and taint of the run's event, and of what the command of its check put out,
    as they were inspected when it was recorded.
    """

    def __init__(self, recording: Recording) -> None:
        self._messages = {f"check.{number}": step for number, step in enumerate(recording.repairs)}
        if recording.goal:
            self._messages["event"] = recording.goal

    async def inspect(self, call_id: str, call: FunctionCall, result: ToolResult) -> ToolResult:
        message = self._messages.get(call_id)
        if message is None:
            return result
        texts = {fact.tool: fact.text for fact in facts_from(message.body)}
        taint = Taint(message.body.get("taint", ""))
        return replace(result, text=texts.get(call.name, result.text), taint=taint)


class _RecordedHistory:
    """What the run read of the journal, and nothing else."""

    def __init__(self, cassette: Cassette, recording: Recording) -> None:
        self._cassette, self._recording = cassette, recording

    async def get(self, run_id_or_prefix: str) -> Run:
        goal = self._recording.goal
        return replace(
            self._cassette.run, taint=Taint(goal.body.get("taint", "")) if goal else Taint.NONE
        )

    async def get_input(self, run_id: str) -> Any:
        return self._cassette.event_input

    async def get_last(
        self, routine: str, *, statuses: Iterable[Status], before: str | None = None
    ) -> Run | None:
        # stands for the run that had gathered the previous values, which `get_steps` returns
        return self._cassette.run if self._cassette.previous_values else None

    async def get_steps(self, run_id: str) -> list[Step]:
        return [
            Step(
                kind=StepKind.RESULT,
                iteration=0,
                call_id=f"gather.{name}",
                body={"ok": True, "value": value},
            )
            for name, value in self._cassette.previous_values.items()
        ]


class ReplayContext:
    """What a replayed run needs of the world: see `ExecutionContext`."""

    def __init__(self, cassette: Cassette, routine: Routine, change: ReplayChange) -> None:
        self._cassette, self._routine, self._change = cassette, routine, change
        self._steps = drop_superseded_limits(cassette.steps)
        self._recording = Recording(self._steps, cassette.run, cassette.language)
        workspace = Path(cassette.workspace)
        recorded_policies = {
            policy_hash: Policy.read(text, workspace=workspace)
            for policy_hash, text in cassette.policies.items()
        }
        last_policy = next(reversed(list(recorded_policies.values())), None)
        asks_models = bool(change.models)
        self._limiting_policy = change.policy or last_policy
        """The policy whose limits hold; None where none was kept."""
        self._policy = RecordedPolicy(
            self._recording,
            recorded_policies,
            current_policy=change.current_policy if asks_models else None,
            other_policy=change.policy,
            is_changed=bool(change.kind),
        )
        self._approver = RecordedApprover(self._recording, is_changed=bool(change.kind))
        self._unknown_tools = self._recording.unknown_tools()
        self._registry = self._make_registry()
        self._executor = RecordedToolExecutor(
            self._recording, self._registry, any_order=asks_models
        )
        self._model_steps = list(self._recording.model_steps)
        self._agent: Agent | None = None
        self._step_list = _StepList()
        self.runs = _RecordedHistory(cassette, self._recording)

    # --- what `execute` needs

    @property
    def asks_for_items(self) -> bool:
        """Another model is told; the recorded one if it was, as by older versions it was not."""
        return bool(self._change.models) or self._recording.was_asked_for_items

    @property
    def judges_denials(self) -> bool:
        """A changed run is judged; the recorded one if it failed, as by older versions such a run
        succeeded.
        """
        return bool(self._change.kind) or self._cassette.run.status is not Status.SUCCEEDED

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        return self.call_runner_for(run, routine)

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what gives gather steps their recorded results."""
        offered_tools = self._recording.tools_of_gather()
        return ToolCallRunner(
            registry=self._registry,
            executor=self._executor,
            policy=self._policy,
            context=self._context,
            offered_tools=self._registry.names() if offered_tools is None else offered_tools,
            approver=self._current_approver,
            inspector=_RecordedInspector(self._recording),
        )

    def checker_for(self, run: Run, routine: Routine, deadline: float) -> RecordedChecker:
        return RecordedChecker(self._recording)

    async def images_for(self, run: Run, routine: Routine, event_input: Any) -> AttachedImages:
        """Return the images that the model was shown."""
        body = self._recording.goal.body if self._recording.goal else {}
        return AttachedImages(
            images=tuple(image_from(image) for image in body.get("images", ())),
            facts=tuple(fact for fact in facts_from(body) if fact.tool == "media") if body else (),
            notes=tuple(body.get("notes", ())),
            taint=Taint(body.get("taint", Taint.NONE)),
        )

    async def agent_for(
        self, run: Run, routine: Routine, step_log: StepLog, deadline: float
    ) -> Agent:
        """Return the agent, with the recorded prompt."""
        prompt, spec = self._cassette.prompt, routine.run
        if prompt is None:
            raise RecordExhausted
        max_tool_calls = spec.max_tool_calls
        if self._limiting_policy:
            limits = self._limiting_policy.limits_for(routine.policy_name)
            max_tool_calls = min(max_tool_calls, limits.tool_calls)
        provider, *fallback = self._models(prompt)
        agent = Agent(
            provider,
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
                frozen_prompt=prompt,
                required_tools=spec.required_tools,
                limits=LoopLimits(
                    max_iterations=spec.max_iterations,
                    max_tool_calls=max_tool_calls,
                    tokens=spec.budget.tokens,
                    temperature=spec.temperature,
                    effort=spec.effort,
                    max_tokens=spec.max_tokens,
                ),
                deadline=deadline,
                taint=self._initial_taint,
                tool_context=self._context,
                keeps_safe_reads=run.trigger != SUBAGENT,
            ),
            services=AgentServices(
                audit_fields=lambda: {"mode": "observe"} if self._recording.is_trial else {},
                fallback=fallback,
                policy=self._policy,
                step_writer=step_log,
                executor=self._executor,
                approver=self._current_approver,
                messages=RecordedInbox(self._recording, self._current_iteration),
            ),
            steps=step_log.steps,
        )
        self._agent = agent
        return agent

    def _current_iteration(self) -> int:
        return self._agent.transcript.iterations if self._agent else 0

    @property
    def _initial_taint(self) -> Taint:
        """The taint of the run before its first step."""
        origin = self._routine.origin
        return Taint.TAINTED if origin and origin.tainted else Taint.NONE

    @property
    def _current_approver(self) -> Approver:
        # under another policy a sub-agent may meet an approval, for which its parent cannot wait
        if self._cassette.run.trigger == SUBAGENT and self._change.policy is not None:
            return DenyApprovals()
        return self._approver

    @property
    def _context(self) -> ToolContext:
        cassette = self._cassette
        return ToolContext(
            run=cassette.run.id,
            routine=self._routine.policy_name,
            workspace=Path(cassette.workspace),
            language=cassette.language,
        )

    def _models(self, prompt: Json) -> Sequence[LLMProvider]:
        if self._change.models:
            return self._change.models
        names = [str(prompt["provider"])]
        names += [
            str(step.body["to"]) for step in self._model_steps if step.kind is StepKind.FAILOVER
        ]
        model = str(prompt.get("model", ""))
        return [
            RecordedModel(name, model, self._recording, self._model_steps)
            for name in dict.fromkeys(names)
        ]

    def _make_registry(self) -> FunctionRegistry:
        """Return the tools that there were, by name; their functions are never called."""
        registry, calls = FunctionRegistry(), self._recording.calls.values()
        prompt = self._cassette.prompt or {}
        schemas = {str(schema["name"]): schema for schema in prompt.get("functions") or ()}
        names = [
            *schemas,
            *(step.tool for step in self._routine.gather),
            *(step.body["tool"] for step in calls),
            "shell",
        ]
        for name in dict.fromkeys(names):
            if name in self._unknown_tools or (name not in schemas and not _is_tool_name(name)):
                continue
            # a tool is idempotent if all its calls were repeatable; of a call that was approved or
            # never judged the record does not say so
            repeatable = [
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
                idempotent=bool(repeatable) and all(repeatable),
                changes=sysinfo.changes if name == "sysinfo" else None,
            )
        return registry

    # --- replaying

    async def replay(self) -> RunEnd:
        """Replay the run; return how it ended."""
        run = replace(self._cassette.run, taint=self._initial_taint)
        if self._change.prompt is not None:
            run = replace(run, goal=self._change.prompt)
        deadline = asyncio.get_running_loop().time() + NO_DEADLINE_SECONDS
        while True:
            try:
                result = await execute(run, self._routine, self._step_list, self, deadline)
            except ApprovalRequired:
                if self._approver.give_next_answer():
                    continue  # the run was resumed when a person had answered
                return self._end_without_reply(Status.INTERRUPTED, None)
            except RecordExhausted:
                return self._end_without_reply(Status.INTERRUPTED, None)
            except DaemonError as error:
                return self._end_without_reply(Status.FAILED, str(error))
            if result.reply is None:
                return self._end_without_reply(result.status, result.detail)
            reply = result.reply
            return RunEnd(
                status=reply.status,
                detail=reply.detail,
                report=reply.content,
                silent=reply.silent,
                iterations=reply.iterations,
                usage=reply.usage,
                calls=describe_calls(self._step_list.steps, self._approver.would_ask),
            )

    def _end_without_reply(self, status: Status, detail: str | None) -> RunEnd:
        return RunEnd(
            status=status,
            detail=detail,
            report="",
            silent=False,
            iterations=self._cassette.run.iterations,
            usage=Transcript(self._step_list.steps).usage,
            calls=describe_calls(self._step_list.steps, self._approver.would_ask),
        )

    # --- comparing

    def compare(self, replayed_end: RunEnd) -> ReplayResult:
        """Return how the replay, which ended so, compares with the recorded run."""
        run, change = self._cassette.run, self._change
        recorded_end = RunEnd(
            status=run.status,
            detail=run.detail,
            report=run.report or "",
            silent=run.silent,
            iterations=run.iterations,
            # what a summary for the memory used is no part of the conversation
            usage=replayed_end.usage if self._routine.run.memory == "recall+store" else run.usage,
            calls=describe_calls(self._steps),
        )
        external_end = ""
        if not change.kind:
            differences = list(compare_steps(self._steps, self._step_list.steps))
            if not differences:
                external_end = self._external_end(replayed_end)
            if external_end:
                replayed_end = recorded_end
            else:
                differences += compare_ends(recorded_end, replayed_end)
        else:
            # iterations and usage differ with any change; calls are compared as a whole
            differences = list(
                compare_ends(recorded_end, replayed_end, ("status", "detail", "report", "silent"))
            )
            if recorded_end.calls != replayed_end.calls:
                text = diff("\n".join(recorded_end.calls), "\n".join(replayed_end.calls))
                differences.insert(
                    0,
                    ReplayDifference(at="the calls", seq=None, what="the calls differ", diff=text),
                )
            if differences and change.prompt is not None:
                text = diff(run.goal, change.prompt)
                differences.insert(
                    0,
                    ReplayDifference(
                        at="the beginning", seq=None, what="the prompt differs", diff=text
                    ),
                )
        never_made = []
        for call_id, call in self._executor.never_made:
            arguments = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)
            never_made.append(f"{call_id} {call.name} {arguments}")
        return ReplayResult(
            run=run.id,
            routine=run.routine,
            change=change.kind,
            steps=len(self._cassette.steps),
            recorded=recorded_end,
            replayed=replayed_end,
            differences=differences,
            never_made=never_made,
            would_ask=[
                f"{call_id}: {verdict.rule}"
                for call_id, verdict in self._approver.would_ask.items()
            ],
            external_end=external_end,
            missing_parts=self._cassette.missing_parts,
            usage=replayed_end.usage if change.models else Usage(),
        )

    def _external_end(self, replayed_end: RunEnd) -> str:
        """Return what ended the run from outside, in words; empty if it ended by itself."""
        run = self._cassette.run
        if words := _EXTERNAL_ENDS.get(run.status):
            return words
        if run.status is Status.FAILED and replayed_end.status is Status.INTERRUPTED:
            return f"it failed here: {run.detail}"
        return ""


def _is_tool_name(name: str) -> bool:
    """Return whether the registry takes the name: a model may have called anything."""
    return name.replace("_", "").replace("-", "").isalnum() and name.isascii() and len(name) <= 64


def _never_called(**_arguments: Any) -> None:
    raise AssertionError("a replay calls no tool")
