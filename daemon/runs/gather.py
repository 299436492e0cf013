"""Facts collected before the first model call, and what changed in them since the last report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import join
from typing import TYPE_CHECKING, Any

from daemon.agent.texts import paragraph
from daemon.agent.tool_calls import ToolCallRunner
from daemon.agent.transcript import PendingCall, Transcript
from daemon.definitions.routines.rules import PATH
from daemon.errors import ToolFailed
from daemon.models import Effect, Fact, FunctionCall, Step, StepKind
from daemon.providers.facts import lay_out, new_boundary, wrap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.definitions.routines.routine import Gate, Gather
    from daemon.models import Json


LONGEST_LINE = 300  # characters of what a command put out that a detail of one line may hold


# Files that a run looks into, files it is told of, and characters of what an event said: a prompt
# stays a prompt.
MOST_FILES = 20
MOST_PATHS = 200
LONGEST_EVENT = 20_000


# What brings something along when it starts a run.
EVENT_TRIGGERS = ("watch", "webhook", "after")


def key_of(name: str) -> str:
    """Return the journal's key for a gather step."""
    return f"gather.{name}"


async def gather(
    wanted: Sequence[Gather],
    *,
    call_runner: ToolCallRunner,
    steps: Sequence[Step],
    record: Callable[..., Awaitable[object]],
    before: Mapping[str, Any],
) -> list[Fact]:
    """Collect the facts; those that an earlier attempt of the run has collected are taken from its
    steps.

    `before` holds the values of the last good run by name: what differs from them is told in words.
    """
    calls = [
        FunctionCall(name=each.tool, arguments=dict(each.args), id=key_of(each.name))
        for each in wanted
    ]
    done = await _results(calls, call_runner=call_runner, steps=steps, record=record)
    return [
        _fact(each, done[key_of(each.name)], call_runner, before.get(each.name)) for each in wanted
    ]


async def _results(
    calls: Sequence[FunctionCall],
    *,
    call_runner: ToolCallRunner,
    steps: Sequence[Step],
    record: Callable[..., Awaitable[object]],
) -> dict[str, Json]:
    """Run calls that come before the first model call, as far as no earlier attempt has; return
    results by call id.
    """
    done = Transcript(steps).gathered
    started = {
        step.call_id: step for step in steps if step.kind is StepKind.CALL and step.iteration == 0
    }
    unwritten: list[Step] = []

    def add_step(step: Step) -> None:
        if step.kind is StepKind.RESULT:
            # people and models read it laid out; gates and the next report compare the value
            if step.body["ok"] and isinstance(value := step.body.get("value"), dict | list):
                step = replace(step, body={**step.body, "text": lay_out(value)})
            done[str(step.call_id)] = step.body
        unwritten.append(step)

    async def commit(durable: bool) -> None:
        await record(*unwritten, durable=durable)
        unwritten.clear()

    missing = [_pending(call, started.get(call.id)) for call in calls if call.id not in done]
    if missing:
        await call_runner.run(missing, 0, add_step, commit)
        await commit(durable=False)
    return done


def _pending(call: FunctionCall, started: Step | None) -> PendingCall:
    repeatable = bool(started and started.body.get("repeatable"))
    return PendingCall(
        key=str(call.id), call=call, started=started is not None, repeatable=repeatable
    )


def _fact(wanted: Gather, result: Json, call_runner: ToolCallRunner, before: Any) -> Fact:
    value, ok = result.get("value"), bool(result["ok"])
    definition = call_runner.registry.get_function(wanted.tool)
    tell = definition.changes if definition else None
    changes: list[str] = []
    if ok and tell and before is not None and value is not None:
        changes = tell(before, value) or ["nothing since the last report"]
    return Fact(
        name=wanted.name,
        tool=wanted.tool,
        ok=ok,
        text=str(result["text"]),
        value=value,
        changes=tuple(call_runner.redact(change) for change in changes),
    )


def gathered_values(steps: Iterable[Step]) -> dict[str, Any]:
    """Return what an earlier run gathered, by name."""
    return {
        str(step.call_id).removeprefix(key_of("")): step.body["value"]
        for step in steps
        if step.kind is StepKind.RESULT
        and str(step.call_id).startswith(key_of(""))
        and "value" in step.body
    }


def event_facts(trigger: str, given: Any) -> list[Fact]:
    """Return what the event that started a run said, as a fact: data like any other, and not a word
    of the task.
    """
    if given is None:
        return []
    if trigger == "watch":
        paths = given["paths"]
        lines = [f"- {path}" for path in paths[:MOST_PATHS]]
        if len(paths) > MOST_PATHS:
            lines.append(f"- … and {len(paths) - MOST_PATHS} more")
        if len(paths) > MOST_FILES:
            lines.append(
                f"\nOf these {len(paths)} only the first {MOST_FILES} are looked into below."
            )
        name, text = "files that landed", "\n".join(lines)
    else:
        name, text = (
            "run before" if trigger == "after" else f"what the {trigger} said",
            lay_out(given),
        )
    if len(text) > LONGEST_EVENT:
        text = (
            f"{text[:LONGEST_EVENT]}\n[… cut here: {len(text) - LONGEST_EVENT} more characters …]"
        )
    return [Fact(name=name, tool=trigger, ok=True, text=text)]


def for_each_file(wanted: Sequence[Gather], trigger: str, given: Any) -> list[Gather]:
    """Return the gather steps of a run: those with a `{path}` once for each file that landed, the
    others as they are.

    A run without such files, one by hand say, goes without those steps.
    """
    paths = given["paths"][:MOST_FILES] if trigger == "watch" and given else []
    steps: list[Gather] = []
    for each in wanted:
        names = [key for key, value in each.args.items() if value == PATH]
        if not names:
            steps.append(each)
            continue
        for path in paths:
            args = {**each.args, **dict.fromkeys(names, path)}
            steps.append(each.model_copy(update={"name": f"{each.name}: {path}", "args": args}))
    return steps


def with_facts(goal: str, facts: Sequence[Fact], language: str) -> str:
    """Return the goal with the facts below it, as the model reads it."""
    if not facts:
        return goal
    return f"{goal.rstrip()}\n\n{paragraph('facts', language)}\n\n{wrap(facts, new_boundary())}"


async def closed_by_command(
    gate: Gate,
    *,
    call_runner: ToolCallRunner,
    steps: Sequence[Step],
    record: Callable[..., Awaitable[object]],
) -> str | None:
    """Return why the gate's command closes it, or None if it opens it.

    Raises ToolFailed if it may not run, or says neither yes (0) nor no (1): a fault is told, not
    slept through.
    """
    if not gate.command:
        return None
    call = FunctionCall(name="shell", arguments={"command": join(gate.command)}, id="gate.command")
    result = (await _results([call], call_runner=call_runner, steps=steps, record=record))[
        "gate.command"
    ]
    line = one_line(call.arguments["command"])
    if not result["ok"]:
        verdict = call_runner.policy.judge(
            call.name, call.arguments, routine=call_runner.context.routine
        )
        if verdict.effect is Effect.DENY:
            raise ToolFailed(
                f"the gate's command may not run: {line}: {verdict.reason} ({verdict.rule})"
            )
        raise ToolFailed(f"the gate's command was not run: {line}: {one_line(result['text'])}")
    code, told = result["value"]["exit_code"], one_line(result["value"]["output"])
    if code > 1:
        raise ToolFailed(
            f"the gate's command failed with exit code {code}: {line}{f': {told}' if told else ''}"
        )
    return f"the gate's command said no: {line}" if code else None


def one_line(text: str) -> str:
    """Return the beginning of a text as it fits into a line."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"


def closed_by(gate: Gate, facts: Sequence[Fact], before: Mapping[str, Any]) -> str | None:
    """Return why the gate stays closed after the gather, or None if it is open.

    A fact that could not be gathered opens it: a fault is told, not slept through.
    """
    if not gate.changed or not before:
        return None
    now = {fact.name: fact.value for fact in facts}
    for path in gate.changed:
        name, *keys = path.split(".")
        fact = next((fact for fact in facts if fact.name == name), None)
        if fact is None or not fact.ok or _at(now.get(name), keys) != _at(before.get(name), keys):
            return None
    return f"nothing changed in {', '.join(gate.changed)} since the last good run"


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
