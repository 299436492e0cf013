"""Facts collected before the first model call, and what changed in them since the last report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import join
from typing import TYPE_CHECKING, Any

from daemon.agent.conversations.conversations import ASK
from daemon.agent.texts import paragraph
from daemon.agent.tool_calls import ToolCallRunner
from daemon.agent.transcript import PendingCall, Transcript
from daemon.definitions.routines.checks import PATH_PLACEHOLDER
from daemon.errors import ToolFailed
from daemon.models import Effect, Fact, FunctionCall, Step, StepKind, Taint, ToolResult, max_taint
from daemon.providers.facts import lay_out, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.agent.tool_calls import ResultInspector
    from daemon.definitions.routines.routine import Gate, Gather
    from daemon.models import Json, Run
    from daemon.runs.protocols import RunHistory, StepLog

# A prompt has to stay small whatever an event brings.
MAX_FILES = 20  # files that gather steps with `{path}` read
MAX_PATHS = 200  # paths that the prompt names
MAX_EVENT_CHARACTERS = 20_000
MAX_LINE_CHARACTERS = 300  # of a command's output in a detail of one line

# The triggers by which a person starts a run, with an input or without.
HAND_TRIGGERS = ("manual", "once")
# The triggers that may give a run an input.
EVENT_TRIGGERS = ("watch", "webhook", "after", ASK, *HAND_TRIGGERS)


def gather_call_id(name: str) -> str:
    """Return the id of the call that a gather step makes."""
    return f"gather.{name}"


async def gather(
    gather_steps: Sequence[Gather],
    *,
    call_runner: ToolCallRunner,
    step_log: StepLog,
    previous_values: Mapping[str, Any],
) -> list[Fact]:
    """Run the gather steps and return their facts, in order.

    What the steps in `step_log` hold already is not run again; new steps are added to it.
    `previous_values` are those of the last successful run by name; a fact says in words what
    differs from them.
    """
    calls = [
        FunctionCall(name=step.tool, arguments=dict(step.args), id=gather_call_id(step.name))
        for step in gather_steps
    ]
    results = await run_calls(calls, call_runner=call_runner, step_log=step_log)
    facts = []
    for step in gather_steps:
        result = results[gather_call_id(step.name)]
        value, ok = result.get("value"), bool(result["ok"])
        previous_value = previous_values.get(step.name)
        definition = call_runner.registry.get_function(step.tool)
        describe_changes = definition.changes if definition else None
        changes: list[str] = []
        if ok and describe_changes and previous_value is not None and value is not None:
            changes = describe_changes(previous_value, value) or ["nothing since the last report"]
        fact = Fact(
            name=step.name,
            tool=step.tool,
            ok=ok,
            text=str(result["text"]),
            value=value,
            changes=tuple(call_runner.redact(change) for change in changes),
        )
        facts.append(fact)
    return facts


class _GatherSteps:
    """The steps of calls that are run before the agent: they add nothing to its taint."""

    taint = Taint.NONE

    def __init__(self, step_log: StepLog) -> None:
        self.results: dict[str, Json] = Transcript(step_log.steps).gather_results
        """The bodies of the results so far, by call id."""
        self._step_log = step_log
        self._unwritten: list[Step] = []

    def add_step(self, step: Step) -> None:
        if step.kind is StepKind.RESULT:
            # people and models read it laid out; gates and the next report compare the value
            if step.body["ok"] and isinstance(value := step.body.get("value"), dict | list):
                step = replace(step, body={**step.body, "text": lay_out(value)})
            self.results[str(step.call_id)] = step.body
        self._unwritten.append(step)

    def first_answer(self, address: str) -> ToolResult | None:
        return None  # the routine chose these calls, and each of them is made

    async def commit(self, *, durable: bool = False) -> None:
        steps, self._unwritten = self._unwritten, []
        await self._step_log.append(*steps, durable=durable)


async def run_calls(
    calls: Sequence[FunctionCall],
    *,
    call_runner: ToolCallRunner,
    step_log: StepLog,
) -> dict[str, Json]:
    """Run the calls that no earlier attempt has run; return all result bodies by call id."""
    steps = _GatherSteps(step_log)
    started_calls = {
        step.call_id: step
        for step in step_log.steps
        if step.kind is StepKind.CALL and step.iteration == 0
    }
    pending_calls = []
    for call in calls:
        if call.id not in steps.results:
            started_call = started_calls.get(call.id)
            pending_calls.append(
                PendingCall(
                    call_id=str(call.id),
                    call=call,
                    started=started_call is not None,
                    repeatable=bool(started_call and started_call.body.get("repeatable")),
                )
            )
    if pending_calls:
        await call_runner.run(pending_calls, 0, steps)
        await steps.commit()
    return steps.results


def describe_denied_steps(gather_steps: Sequence[Gather], step_log: StepLog) -> str | None:
    """Return which required gather steps the policy denied, and why; None if it denied none.

    A run without them fails whatever a model says, so none is asked.
    """
    verdicts = {
        step.call_id: step.body["verdict"]
        for step in step_log.steps
        if step.kind is StepKind.CALL and step.iteration == 0 and "verdict" in step.body
    }
    reasons = []
    for step in gather_steps:
        verdict = verdicts.get(gather_call_id(step.name))
        if step.required and verdict and verdict["effect"] == Effect.DENY.value:
            # a rule need not give a reason
            reason = verdict.get("reason") or "the policy denies it"
            reasons.append(f"{step.name}: {reason} ({verdict['rule']})")
    return f"could not gather {'; '.join(reasons)}" if reasons else None


def read_gathered_values(steps: Iterable[Step]) -> dict[str, Any]:
    """Return the values that an earlier run gathered, by the name of the gather step."""
    return {
        str(step.call_id).removeprefix(gather_call_id("")): step.body["value"]
        for step in steps
        if step.kind is StepKind.RESULT
        and str(step.call_id).startswith(gather_call_id(""))
        and "value" in step.body
    }


async def inspect_event(
    run: Run, event_input: Any, inspector: ResultInspector, runs: RunHistory
) -> tuple[list[Fact], Taint]:
    """Return the input of a run's event as facts, inspected like the result of a tool, and the
    taint of the run with them.

    What the owner sent by hand is taken as it is, like the prompt of the routine.
    """
    facts, taint = [], run.taint
    for fact in event_facts(run.trigger, event_input):
        if run.trigger in HAND_TRIGGERS and not event_input["tainted"]:
            facts.append(fact)
            continue
        call = FunctionCall(name=fact.tool, arguments={})
        result = await inspector.inspect("event", call, ToolResult(ok=True, text=fact.text))
        if run.trigger == "after":  # the report of a run of ours is as tainted as that run
            earlier_run = await runs.get(event_input["run"])
            result = replace(result, taint=earlier_run.taint)
        facts.append(replace(fact, text=result.text))
        taint = max_taint(taint, result.taint)
    return facts, taint


def event_facts(trigger: str, event_input: Any) -> list[Fact]:
    """Return the input of a run's event as a fact: data for the model, no part of the task.

    Returns an empty list for a run without an event.
    """
    if event_input is None:
        return []
    if trigger == "watch":
        paths = event_input["paths"]
        lines = [f"- {path}" for path in paths[:MAX_PATHS]]
        if len(paths) > MAX_PATHS:
            lines.append(f"- … and {len(paths) - MAX_PATHS} more")
        if len(paths) > MAX_FILES:
            lines.append(
                f"\nOf these {len(paths)} only the first {MAX_FILES} are looked into below."
            )
        name, text = "files that landed", "\n".join(lines)
    elif trigger in HAND_TRIGGERS:
        name, text = "input", event_input["text"]
    elif trigger == ASK:
        if not event_input.get("quoted"):
            return []
        name, text = "what the person quotes of others", event_input["quoted"]
    else:
        name = "run before" if trigger == "after" else f"what the {trigger} said"
        text = lay_out(event_input)
    if len(text) > MAX_EVENT_CHARACTERS:
        excess = len(text) - MAX_EVENT_CHARACTERS
        text = f"{text[:MAX_EVENT_CHARACTERS]}\n[… cut here: {excess} more characters …]"
    tool = "input" if trigger in (ASK, *HAND_TRIGGERS) else trigger
    return [Fact(name=name, tool=tool, ok=True, text=text)]


def expand_paths(gather_steps: Sequence[Gather], trigger: str, event_input: Any) -> list[Gather]:
    """Return the gather steps of a run: those with a `{path}` once for each new file.

    A run that no file started, one by hand for example, leaves out the steps with a `{path}`.
    """
    paths = event_input["paths"][:MAX_FILES] if trigger == "watch" and event_input else []
    run_steps: list[Gather] = []
    for step in gather_steps:
        names = [name for name, value in step.args.items() if value == PATH_PLACEHOLDER]
        if not names:
            run_steps.append(step)
            continue
        for path in paths:
            args = {**step.args, **dict.fromkeys(names, path)}
            run_steps.append(step.model_copy(update={"name": f"{step.name}: {path}", "args": args}))
    return run_steps


def add_facts(goal: str, facts: Sequence[Fact], language: str, boundary: str) -> str:
    """Return the goal with the facts below it, as the model reads it; see providers/facts.py for
    the `boundary`.
    """
    if not facts:
        return goal
    return f"{goal.rstrip()}\n\n{paragraph('facts', language)}\n\n{wrap(facts, boundary)}"


async def check_gate_command(
    gate: Gate,
    *,
    call_runner: ToolCallRunner,
    step_log: StepLog,
) -> str | None:
    """Run the gate's command; return why it closes the gate, or None if the gate is open.

    Raises ToolFailed if the command may not run, or exits with neither 0 (open) nor 1 (closed): a
    fault must be reported, so it does not keep the gate closed.
    """
    if not gate.command:
        return None
    code, output = await run_program(
        gate.command, "gate", "gate.command", call_runner=call_runner, step_log=step_log
    )
    command, output = one_line(join(gate.command)), one_line(output)
    if code > 1:
        suffix = f": {output}" if output else ""
        raise ToolFailed(f"the gate's command failed with exit code {code}: {command}{suffix}")
    return f"the gate's command said no: {command}" if code else None


async def run_program(
    words: Sequence[str],
    table: str,
    call_id: str,
    *,
    call_runner: ToolCallRunner,
    step_log: StepLog,
) -> tuple[int, str]:
    """Run the command of a `table` of the routine, gate or check, as the policy allows; return its
    exit code and output. One that an earlier attempt has run is not run again.

    Raises ToolFailed if it may not run, or was not.
    """
    call = FunctionCall(name="shell", arguments={"command": join(words)}, id=call_id)
    results = await run_calls([call], call_runner=call_runner, step_log=step_log)
    result = results[call_id]
    command = one_line(call.arguments["command"])
    if not result["ok"]:
        verdict = call_runner.policy.judge(
            call.name, call.arguments, routine=call_runner.context.routine
        )
        if verdict.effect is Effect.DENY:
            raise ToolFailed(
                f"the {table}'s command may not run: {command}: {verdict.reason} ({verdict.rule})"
            )
        text = one_line(result["text"])
        raise ToolFailed(f"the {table}'s command was not run: {command}: {text}")
    return result["value"]["exit_code"], str(result["value"]["output"])


def one_line(text: str) -> str:
    """Return the beginning of a text in one line."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_LINE_CHARACTERS else f"{text[:MAX_LINE_CHARACTERS]}…"


def check_gate_changes(
    gate: Gate, facts: Sequence[Fact], previous_values: Mapping[str, Any]
) -> str | None:
    """Return why `changed` closes the gate after the gather, or None if the gate is open.

    A fact that could not be gathered opens the gate, so that the fault is reported.
    """
    if not gate.changed or not previous_values:
        return None
    values = {fact.name: fact.value for fact in facts}
    for path in gate.changed:
        name, *keys = path.split(".")
        fact = next((fact for fact in facts if fact.name == name), None)
        if (
            fact is None
            or not fact.ok
            or _value_at(values.get(name), keys) != _value_at(previous_values.get(name), keys)
        ):
            return None
    # These words are in the journals of earlier versions, whose runs are replayed.
    return f"nothing changed in {', '.join(gate.changed)} since the last good run"


def _value_at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
