"""The work of a run between its claim and its end: gate, gather, gate, agent, check.

run.py calls `execute` for a claimed run, replay/ for a recorded one. It writes nothing but steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from daemon.agent.conversations.conversations import ASK
from daemon.agent.texts import say
from daemon.agent.transcript import Transcript
from daemon.definitions.routines.routine import Gate
from daemon.errors import DaemonError, StoreFull
from daemon.models import (
    BUILT_IN_RULE,
    NO_MODEL,
    Effect,
    Reply,
    Run,
    Status,
    StepKind,
    Taint,
    max_taint,
)
from daemon.plurals import pluralize
from daemon.providers.facts import new_boundary
from daemon.runs.check import CheckRunner
from daemon.runs.gather import (
    EVENT_TRIGGERS,
    add_facts,
    check_gate_changes,
    check_gate_command,
    describe_denied_steps,
    expand_paths,
    gather,
    inspect_event,
    read_gathered_values,
)
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.runs.script import keep_new_lines, make_script_reply, report_lines
from daemon.store.incidents import describe_withheld
from daemon.store.seen_items import ReportedItemRecord
from daemon.tools.builtin.finish import FINISH
from daemon.tools.reported_items import REPORT_ITEMS, collect_items, report_new_items

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.definitions.routines.routine import Gather, ReportCheck, Routine
    from daemon.models import Fact, Step
    from daemon.runs.images import AttachedImages
    from daemon.runs.protocols import ExecutionContext, StepLog

log = structlog.get_logger()

# A person who starts a run, and the first run ever, do not wait for something to change; unless the
# person asks for the gate (`Run.asks_gate`).
UNGATED_TRIGGERS = frozenset({"manual", "first_run", "once", REHEARSAL})
# Tools that tell a run nothing about the world, and change nothing there: a run of which all other
# calls were denied has not done its task.
_INWARD_TOOLS = frozenset(
    {
        FINISH,
        REPORT_ITEMS,
        "memory_expand",
        "memory_forget",
        "memory_recall",
        "memory_store",
        "self_info",
        "skill",
    }
)


@dataclass(frozen=True, slots=True)
class RunResult:
    """How an attempt of a run ended."""

    status: Status
    detail: str | None = None
    """Why it ended so, in one line for people."""
    _: KW_ONLY
    reply: Reply | None = None
    """None where no model answered."""
    provider: str = ""
    model: str = ""
    taint: Taint = Taint.NONE
    """What the agent had read, beyond what the steps say."""
    seen_items: ReportedItemRecord | None = None
    """Items that are known as reported once the run has ended; None without `[dedupe]`."""


async def execute(
    run: Run, routine: Routine, step_log: StepLog, context: ExecutionContext, deadline: float
) -> RunResult:
    """Gate, gather, gate, ask the agent; return how the attempt ended.

    What the steps hold already is not done again. Writes nothing but steps. `deadline` is in the
    event loop's time. Raises ApprovalRequired when a person has to answer, DaemonError for faults
    of vendors, tools and the budget.
    """
    result = await _work(run, routine, step_log, context, deadline)
    count = sum(
        step.kind is StepKind.RESULT and bool(step.body.get("withheld")) for step in step_log.steps
    )
    if not count:
        return result
    detail = "; ".join(filter(None, (result.detail, describe_withheld(count))))
    reply = replace(result.reply, detail=detail) if result.reply else None
    return replace(result, detail=detail, reply=reply)


async def _work(
    run: Run, routine: Routine, step_log: StepLog, context: ExecutionContext, deadline: float
) -> RunResult:
    is_gated = run.trigger not in UNGATED_TRIGGERS or run.asks_gate
    gate = routine.gate if is_gated else Gate()
    if gate.command:
        reason = await check_gate_command(
            gate, call_runner=context.gate_call_runner_for(run, routine), step_log=step_log
        )
        if reason:
            return RunResult(Status.SKIPPED, reason)

    # the second gate and the report's "what changed" compare with the last successful run
    previous_values: dict[str, Any] = {}
    if routine.gather:
        last_run = await context.runs.get_last(
            run.base_routine, statuses={Status.SUCCEEDED}, before=run.id
        )
        if last_run:
            try:
                previous_values = read_gathered_values(await context.runs.get_steps(last_run.id))
            except StoreFull:
                raise
            except DaemonError as error:  # damaged: else no later run could succeed any more
                log.warning("run.nothing_to_compare", last=last_run.id, detail=str(error))
    event_input = await context.runs.get_input(run.id) if run.trigger in EVENT_TRIGGERS else None
    gather_steps = expand_paths(routine.gather, run.trigger, event_input)
    facts: list[Fact] = []
    if gather_steps:
        facts = await gather(
            gather_steps,
            call_runner=context.call_runner_for(run, routine),
            step_log=step_log,
            previous_values=previous_values,
        )
    if reason := check_gate_changes(gate, facts, previous_values):
        return RunResult(Status.SKIPPED, reason)

    if denial := describe_denied_steps(gather_steps, step_log):
        return RunResult(Status.FAILED, denial)

    if not routine.run.asks_model:
        return await _report_gathered(
            run, routine, gather_steps, facts, step_log, context, deadline
        )

    agent = await context.agent_for(run, routine, step_log, deadline)
    event_facts: list[Fact] = []
    images: AttachedImages | None = None
    taint = run.taint
    if not agent.is_resumed:  # else its steps hold the message with all of these
        if event_input is not None:
            inspector = context.call_runner_for(run, routine).inspector
            event_facts, taint = await inspect_event(run, event_input, inspector, context.runs)
        if routine.run.media:
            images = await context.images_for(run, routine, event_input)
            taint = max_taint(taint, images.taint)
    all_facts = [*event_facts, *(images.facts if images else ()), *facts]
    boundary = new_boundary()
    reply = await agent.process_message(
        add_facts(run.goal, all_facts, agent.language, boundary),
        about=run.goal,
        facts=all_facts,
        facts_boundary=boundary,
        taint=taint,
        media=images.images if images else (),
        notes=images.notes if images else (),
    )

    if (
        routine.dedupe
        and reply.status is Status.SUCCEEDED
        and agent.provider.model_name == NO_MODEL
    ):
        detail = (
            "no model answered, and only a model can report items"
            if agent.transcript.provider
            else "no model is set, and only a model can report items: name one in config.toml,"
            " `provider` and its `[providers.…]`"
        )
        reply = replace(reply, status=Status.FAILED, silent=False, detail=detail)
    elif routine.dedupe and context.asks_for_items:
        reply = await _ask_for_items(reply, routine.dedupe.key, step_log, agent)

    if routine.check is not None:
        check_runner = _make_check_runner(run, routine, routine.check, step_log, context, deadline)
        reply = await check_runner.check_reply(reply, agent)

    required_names = {step.name for step in gather_steps if step.required}
    missing_names = [fact.name for fact in facts if not fact.ok and fact.name in required_names]
    if missing_names and reply.status is Status.SUCCEEDED:
        detail = f"could not gather: {', '.join(missing_names)}"
        reply = replace(reply, status=Status.FAILED, silent=False, detail=detail)
    # whoever asks in a chat reads in the answer what was denied; and with facts there was something
    # to report whatever was denied
    if context.judges_denials and run.trigger != ASK and not any(fact.ok for fact in all_facts):
        reply = _fail_if_all_denied(reply, run.base_routine, routine, step_log.steps)
    seen_items = None
    if routine.dedupe:
        items = collect_items(step_log.steps, routine.dedupe.key)
        reply = report_new_items(reply, items)  # leaves out what an earlier run has reported
        if items and reply.status is Status.SUCCEEDED:
            seen_items = ReportedItemRecord(items=items.sightings, keep=routine.dedupe.keep)
    return RunResult(
        reply.status,
        reply.detail,
        reply=reply,
        provider=agent.provider.name,
        model=agent.provider.model_name,
        taint=agent.transcript.taint,
        seen_items=seen_items,
    )


async def _ask_for_items(reply: Reply, key_field: str, step_log: StepLog, agent: Agent) -> Reply:
    """Return the reply, or the next one where the model wrote a report without reporting items: it
    is told so once in a run.

    The steps say whether it was told, so a run that was interrupted does not tell it again.
    """
    if collect_items(step_log.steps, key_field) is not None:
        return reply
    is_report = reply.status is Status.SUCCEEDED and not reply.silent
    if is_report and not agent.transcript.item_requests:
        reply = await agent.repair(say("items_missing", agent.language), source="dedupe")
    if agent.transcript.item_requests and reply.status is not Status.SUCCEEDED:
        reason = f"the agent had written a report without {REPORT_ITEMS}"
        reply = replace(reply, detail=f"{reply.detail or 'failed'}; {reason}")
    return reply


def _fail_if_all_denied(reply: Reply, name: str, routine: Routine, steps: Sequence[Step]) -> Reply:
    """Return the reply, as a failure if calls were denied and none succeeded that reads or changes
    something: such a run knows nothing.

    What a person did not allow is known to that person, and a report says what became of it. With
    `[dedupe]` it counts too, as nothing else would tell it from a run that found nothing new.
    A trial is there to find out what is denied. `name` is that of the routine.
    """
    if reply.status is not Status.SUCCEEDED:
        return reply
    ok_calls = {step.call_id for step in steps if step.kind is StepKind.RESULT and step.body["ok"]}
    denied_tools: Counter[str] = Counter()
    reasons: list[str] = []
    for step in steps:
        if step.kind is not StepKind.CALL or step.iteration == 0:
            continue
        if step.body.get("mode") == "observe":
            return reply
        tool, verdict = step.body["tool"], step.body.get("verdict")
        if step.call_id in ok_calls:
            if tool not in _INWARD_TOOLS:
                return reply
        elif (
            verdict is not None
            and verdict["effect"] == Effect.DENY.value
            and verdict["rule"] != BUILT_IN_RULE  # the call was no good, and the model was told how
            and (routine.dedupe or "asked" not in step.body)
        ):
            denied_tools[tool] += 1
            reasons.append(verdict.get("reason") or f"denied by {verdict['rule']}")
    if not denied_tools:
        return reply
    tools = ", ".join(
        f"{tool} ({pluralize(count, 'call')})" for tool, count in denied_tools.items()
    )
    detail = (
        f"it could do nothing, as its calls were denied: {tools}: {reasons[0]}; `agentctl inspect"
        f" {name}` and `agentctl policy suggest {name}` show what to do"
    )
    return replace(reply, status=Status.FAILED, silent=False, detail=detail)


def _make_check_runner(
    run: Run,
    routine: Routine,
    check: ReportCheck,
    step_log: StepLog,
    context: ExecutionContext,
    deadline: float,
) -> CheckRunner:
    return CheckRunner(
        check=check,
        call_runner=context.gate_call_runner_for(run, routine),
        inspector=context.call_runner_for(run, routine).inspector,
        checker=context.checker_for(run, routine, deadline),
        step_log=step_log,
    )


async def _report_gathered(
    run: Run,
    routine: Routine,
    gather_steps: Sequence[Gather],
    facts: Sequence[Fact],
    step_log: StepLog,
    context: ExecutionContext,
    deadline: float,
) -> RunResult:
    """End a script: what was gathered is the report, as it is."""
    reply = make_script_reply(routine, gather_steps, facts)
    seen_items: ReportedItemRecord | None = None
    if routine.check is not None:
        check_runner = _make_check_runner(run, routine, routine.check, step_log, context, deadline)
        reply = await check_runner.check_output(reply, Transcript(step_log.steps, run.taint).taint)
    if routine.dedupe and reply.status is Status.SUCCEEDED:
        call_runner = context.call_runner_for(run, routine)
        items = await report_lines(
            reply.content, routine.dedupe.key, call_runner=call_runner, step_log=step_log
        )
        reply = keep_new_lines(reply, items)
        if items:
            seen_items = ReportedItemRecord(items=items.sightings, keep=routine.dedupe.keep)
    taint = Transcript(step_log.steps, run.taint).taint
    return RunResult(reply.status, reply.detail, reply=reply, taint=taint, seen_items=seen_items)
