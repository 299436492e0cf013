"""The life of a run, from its claim to its end.

`supervise` claims a run and is the one place that knows of a lost lease, a full disk, a
cancellation and the end of the process. `live` takes the claimed run to its end: each way a run can
end is one line there. `execute` does the work: gate, gather, gate, agent. `finish` writes the end
in one commit.

The run's row and steps say at any moment how far it came, so a run that a crash interrupted comes
through `supervise` like a new one, and `execute` skips what its steps already hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from daemon.agent.tool_calls import ApprovalRequired
from daemon.definitions.routines.routine import Gate
from daemon.delivery.channels.base import deliveries_for
from daemon.errors import DaemonError, Fenced, Retryable, StoreFull
from daemon.models import FunctionCall, Reply, Run, Status, Taint, ToolResult, Usage, worse
from daemon.runs.gather import (
    EVENT_TRIGGERS,
    closed_by,
    closed_by_command,
    event_facts,
    for_each_file,
    gather,
    gathered_values,
    with_facts,
)
from daemon.runs.images import Pictures
from daemon.runs.recorder import StepRecorder
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.runs.retry import put_off
from daemon.store.seen_items import Sightings
from daemon.tools.reported_items import judged, reported

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ToolCallRunner
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Fact, Step
    from daemon.runs.context import RunContext
    from daemon.runs.recorder import StepLog

T = TypeVar("T")
log = structlog.get_logger()

# Who has not answered a question by then has seen the report of the next day.
APPROVAL_TIMEOUT = timedelta(hours=24)
# A person who starts a run, and the first run ever, do not wait for something to change.
UNGATED_TRIGGERS = frozenset({"manual", "first_run", "once", REHEARSAL})
# Writing the end of a run takes milliseconds; a disk that hangs must not keep the process alive.
GRACE_SECONDS = 60.0


class DeadlinePassed(Exception):
    """The run has used up the active time that its routine gives it."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"not done within {limit.total_seconds():g} s of active time")


class RunHistory(Protocol):
    """What `execute` reads of this run and of those before it."""

    async def get(self, run_id_or_prefix: str) -> Run: ...
    async def input_of(self, run_id: str) -> Any: ...
    async def last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None: ...
    async def steps(self, run_id: str) -> list[Step]: ...


class ExecutionContext(Protocol):
    """What `execute` needs: a RunContext for a live run, a ReplayContext for a replayed one."""

    @property
    def journal(self) -> RunHistory: ...
    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the calls of gather steps."""

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate; its `shell` returns the exit code."""

    async def agent_for(
        self, run: Run, routine: Routine, recorder: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of the run; `deadline` is in the event loop's time."""

    async def pictures_for(self, run: Run, routine: Routine, event_input: Any) -> Pictures:
        """Return what the model is to see; `event_input` came with the event of the trigger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How an attempt of a run ended."""

    status: Status
    detail: str | None = None
    reply: Reply | None = None
    """None where no model answered."""
    provider: str = ""
    model: str = ""
    taint: Taint = Taint.NONE
    """What the agent had read, beyond what the steps say."""
    seen_items: Sightings | None = None
    """Items that are known as reported once the run has ended; None without `[dedupe]`."""

    @classmethod
    def cancelled(cls, detail: str | None = None) -> RunResult:
        return cls(status=Status.CANCELLED, detail=detail)

    @classmethod
    def interrupted(cls, detail: str) -> RunResult:
        return cls(status=Status.INTERRUPTED, detail=detail)

    @classmethod
    def skipped(cls, reason: str) -> RunResult:
        return cls(status=Status.SKIPPED, detail=reason)

    @classmethod
    def timed_out(cls, error: DeadlinePassed) -> RunResult:
        return cls(status=Status.TIMED_OUT, detail=str(error))

    @classmethod
    def failed(cls, error: DaemonError) -> RunResult:
        return cls(status=Status.FAILED, detail=str(error))

    @classmethod
    def crashed(cls, error: Exception) -> RunResult:
        detail = f"a fault of agentd itself ({type(error).__name__}: {error}); its log has more"
        return cls(status=Status.FAILED, detail=detail)

    def with_usage(self, usage: Usage) -> RunResult:
        """Return the result with what the summary for the memory used added to its reply."""
        if self.reply is None or not usage.total:
            return self
        return replace(self, reply=replace(self.reply, usage=self.reply.usage + usage))


async def supervise(run_id: str, context: RunContext, *, takeover: bool = False) -> Run | None:
    """Run `run_id` until it ends, waits for an approval or is put off.

    Returns None if the run is not there to be claimed, or another process owns it. `takeover=True`
    claims the run even while another process leases it (a sub-agent of a run that was taken over).
    """
    started = asyncio.get_running_loop().time()
    claim: asyncio.Future[Run | None] | None = None
    try:
        while True:  # a full disk takes no claim: try again when there is room
            claim = asyncio.ensure_future(_claim(run_id, context, takeover=takeover))
            try:
                run = await asyncio.shield(claim)  # a claim under way is never torn in two
                break
            except StoreFull as error:
                log.error("run.not_begun", run=run_id, detail=str(error))  # noqa: TRY400  # no traceback
                claim = None
                await asyncio.sleep(context.full_disk_retry)
        if run is None:
            return None
        with _log_context(run):
            log.info("run.started", attempt=run.attempt, trigger=run.trigger)
            try:
                return await live(run, context)
            except Fenced:
                log.warning("run.fenced")  # another process owns the run: write nothing more
                return None
            except StoreFull as error:
                log.error("run.stuck", detail=str(error))  # noqa: TRY400  # no traceback
                return await suspend_when_there_is_room(run, context)
    except asyncio.CancelledError:
        # a person's cancel ends the run; the end of the process suspends it
        if claim is not None:
            await uninterrupted(_cancel_or_suspend(claim, context, started))
        raise


async def _claim(run_id: str, context: RunContext, *, takeover: bool) -> Run | None:
    """Make a run ours. Returns None if it is not queued, or not to be started yet."""
    # a run that this process opened just now is claimed together with its first steps
    fresh = context.journal.begin(run_id, owner=context.owner)
    return fresh or await context.journal.take(run_id, owner=context.owner, takeover=takeover)


async def live(run: Run, context: RunContext) -> Run:
    """Take a claimed run to its end and return its row: each way it can end is one line here.

    Steps of earlier attempts are reused. Raises Fenced and StoreFull: nothing can be written then.
    """
    routine, recorder = None, StepRecorder(context.journal, run, context.events)
    try:
        await recorder.load()
        routine = await context.routine_of(run)  # as the run began it
        if routine.origin and routine.origin.tainted:  # an agent that had read strangers' words
            run = replace(run, taint=worse(run.taint, Taint.TAINTED))
        await context.ping_started(run, routine)
        if run.cancel:
            result = RunResult.cancelled("cancelled while nobody lived it")
        elif run.barren > routine.run.retry.attempts:
            result = RunResult.interrupted(
                f"gave up: {run.barren - 1} attempts in a row died without a new step"
            )
        else:
            async with _deadline(routine.run.timeout, used=run.active) as deadline:
                result = await execute(run, routine, recorder, context, deadline)
            if result.reply:
                run = replace(run, provider=result.provider, model=result.model, taint=result.taint)
                usage = await context.archive(run, routine, result.reply, recorder.steps)
                result = result.with_usage(usage)
    except (Fenced, StoreFull):  # both are DaemonErrors
        raise
    except ApprovalRequired as pending:
        return await uninterrupted(park(run, recorder, pending, context))
    except DeadlinePassed as error:
        result = RunResult.timed_out(error)
    except Retryable as error:
        if routine is not None and (delay := _next_attempt(run, routine, recorder, error)):
            return await uninterrupted(_put_off(run, recorder, error, delay, context))
        result = RunResult.failed(error)  # no attempt is left
    except DaemonError as error:
        result = RunResult.failed(error)
    except Exception as error:
        log.exception("run.crashed")
        result = RunResult.crashed(error)
    try:
        return await uninterrupted(finish(run, routine, result, recorder, context))
    except (Fenced, StoreFull):
        raise
    except Exception as error:  # no row may say `running` for nobody: end it without deliveries
        log.exception("run.crashed")
        crashed = RunResult.crashed(error)
        return await uninterrupted(finish(run, None, crashed, recorder, context))


async def execute(
    run: Run, routine: Routine, recorder: StepLog, context: ExecutionContext, deadline: float
) -> RunResult:
    """Gate, gather, gate, ask the agent; return how the attempt ended.

    What the steps hold already is not done again. Writes nothing but steps. `deadline` is in the
    event loop's time. Raises ApprovalRequired when a person has to answer, DaemonError for faults
    of vendors, tools and the budget.
    """
    earlier_steps = list(recorder.steps)
    gate = Gate() if run.trigger in UNGATED_TRIGGERS else routine.gate
    if gate.command and (
        reason := await closed_by_command(
            gate,
            call_runner=context.gate_call_runner_for(run, routine),
            steps=earlier_steps,
            record=recorder.append,
        )
    ):
        return RunResult.skipped(reason)

    # gates and the report's "what changed" compare with the last good run
    previous_values: dict[str, Any] = {}
    if routine.gather:
        last = await context.journal.last(run.about, statuses={Status.SUCCEEDED}, before=run.id)
        if last:
            previous_values = gathered_values(await context.journal.steps(last.id))
    event_input = await context.journal.input_of(run.id) if run.trigger in EVENT_TRIGGERS else None
    gather_steps = for_each_file(routine.gather, run.trigger, event_input)
    facts: list[Fact] = []
    if gather_steps:
        facts = await gather(
            gather_steps,
            call_runner=context.call_runner_for(run, routine),
            steps=earlier_steps,
            record=recorder.append,
            before=previous_values,
        )
    if reason := closed_by(gate, facts, previous_values):
        return RunResult.skipped(reason)

    agent = await context.agent_for(run, routine, recorder, deadline)
    facts_of_event: list[Fact] = []
    taint, pictures = Taint.NONE, Pictures()
    if not agent.is_resumed:  # else its steps hold the message with all of these
        facts_of_event, taint = await _inspect_event(run, routine, event_input, context)
        if routine.run.media:
            pictures = await context.pictures_for(run, routine, event_input)
    all_facts = [*facts_of_event, *pictures.facts, *facts]
    reply = await agent.process_message(
        with_facts(run.goal, all_facts, agent.language),
        about=run.goal,
        facts=all_facts,
        taint=worse(taint, pictures.taint),
        media=pictures.images,
        notes=pictures.notes,
    )

    required = {step.name for step in gather_steps if step.required}
    missing = [fact.name for fact in facts if not fact.ok and fact.name in required]
    if missing and reply.status is Status.SUCCEEDED:
        detail = f"could not gather: {', '.join(missing)}"
        reply = replace(reply, status=Status.FAILED, silent=False, detail=detail)
    seen_items = None
    if routine.dedupe:
        items = reported(recorder.steps, routine.dedupe.key)
        reply = judged(reply, items)  # without what an earlier run has reported
        if items and reply.status is Status.SUCCEEDED:
            seen_items = Sightings(items=items.sightings, keep=routine.dedupe.keep)
    return RunResult(
        status=reply.status,
        detail=reply.detail,
        reply=reply,
        provider=agent.provider.name,
        model=agent.provider.model_name,
        taint=agent.transcript.taint,
        seen_items=seen_items,
    )


async def _inspect_event(
    run: Run, routine: Routine, event_input: Any, context: ExecutionContext
) -> tuple[list[Fact], Taint]:
    """Return what the run's event said, inspected like the result of a tool, and its taint."""
    facts, taint = [], run.taint
    for fact in event_facts(run.trigger, event_input):
        call = FunctionCall(name=run.trigger, arguments={})
        inspector = context.call_runner_for(run, routine).inspector
        result = await inspector.inspect("event", call, ToolResult(ok=True, text=fact.text))
        if run.trigger == "after":  # a run of ours: its report is as tainted as the run itself
            earlier = await context.journal.get(event_input["run"])
            result = replace(result, taint=earlier.taint)
        facts.append(replace(fact, text=result.text))
        taint = worse(taint, result.taint)
    return facts, taint


async def finish(
    run: Run,
    routine: Routine | None,
    result: RunResult,
    recorder: StepRecorder,
    context: RunContext,
) -> Run:
    """Write the end of a run in one commit: its row, its deliveries, what it reported for the first
    time.

    Without a readable `routine` nothing is delivered. Raises Fenced and StoreFull.
    """
    reply, totals = result.reply, recorder.totals()
    delivers = routine is not None and run.trigger != REHEARSAL
    run = run.to(
        result.status,
        ended=context.now(),
        detail=context.redact(result.detail) if result.detail else None,
        report=context.redact(reply.content) if reply else None,
        silent=bool(reply and reply.silent),
        usage=reply.usage if reply else totals.usage,
        iterations=reply.iterations if reply else run.iterations,
        taint=result.taint if reply else totals.taint,
        sandbox=await context.sandbox_level(),
    )
    if routine is not None:
        await context.cancel_subagents(run, routine)
    deliveries = (
        deliveries_for(run, routine.deliver, ping=routine.ping) if routine and delivers else ()
    )
    run = await context.journal.end(
        run,
        deliveries,
        zone=(routine and routine.trigger.timezone) or context.zone,
        found=result.seen_items if delivers else None,
    )
    context.announce_end(run)  # after the commit, never before
    return run


async def end_abandoned(run: Run, routine: Routine, context: RunContext) -> None:
    """End a run that broke off so long ago that its slot would not be started any more."""
    claimed = await context.journal.take(run.id, owner=context.owner)
    if claimed is None:
        return
    recorder = StepRecorder(context.journal, claimed, context.events)
    with suppress(DaemonError):  # damaged steps: the run ends all the same
        await recorder.load()
    result = RunResult.interrupted(
        "the daemon was down for so long that its slot would not be started any more"
    )
    await finish(claimed, routine, result, recorder, context)


def _next_attempt(
    run: Run, routine: Routine, recorder: StepRecorder, error: Retryable
) -> timedelta | None:
    """Return how long to wait before the next attempt; None if the routine has no attempt left.

    Only attempts in a row without a new step count.
    """
    retry = routine.run.retry
    fruitless_attempts = 0 if recorder.has_new_steps else run.barren
    if fruitless_attempts + 1 >= retry.attempts:
        return None
    lot = f"{run.id} {run.attempt}"
    return put_off(
        fruitless_attempts + 1, retry.backoff, retry.max, by=lot, bounded_below=error.retry_after
    )


async def _put_off(
    run: Run, recorder: StepRecorder, error: Retryable, delay: timedelta, context: RunContext
) -> Run:
    """Queue the run again; its next attempt goes on from its steps."""
    not_before, detail = context.now() + delay, context.redact(str(error))
    log.warning("run.put_off", until=not_before.isoformat(), detail=detail)
    run = replace(run, active=recorder.active_seconds)
    return await context.journal.suspend(run, not_before=not_before, detail=detail)


async def park(
    run: Run, recorder: StepRecorder, pending: ApprovalRequired, context: RunContext
) -> Run:
    """Leave the run to wait for a person, who is told so; while it waits, its time stands still.

    If the person answered meanwhile, the run is queued again at once.
    """
    run = replace(run, active=recorder.active_seconds, taint=recorder.totals().taint)
    routine = await context.routine_of(run)
    tools = ", ".join(dict.fromkeys(request.tool for request in pending.requests))
    parked = await context.journal.park(
        run,
        pending.requests,
        patience=APPROVAL_TIMEOUT,
        detail=f"waits for a person to allow {tools}: agentctl approvals",
        notice=context.waiting_notice(
            run, routine, pending.requests, context.now() + APPROVAL_TIMEOUT
        ),
    )
    context.announce_wait(parked, tools)
    return parked


async def _cancel_or_suspend(
    claim: asyncio.Future[Run | None], context: RunContext, started: float
) -> None:
    """Write down that the run was stopped in the middle, unless it has just ended.

    `started` is when `supervise` began, in the event loop's time.
    """
    try:
        run = await claim
    except DaemonError:
        return  # the claim failed: the run is as it was
    if run is None:
        return
    row = await context.journal.get(run.id)
    if row.status.ended:
        return
    run = replace(run, active=run.active + asyncio.get_running_loop().time() - started)
    # another process may own the run by now; and what a full disk does not take, the next start
    # finds as left over
    with _log_context(run), suppress(Fenced, StoreFull):
        if not row.cancel:
            await context.journal.suspend(run)
            log.info("run.suspended")
            return
        recorder = StepRecorder(context.journal, run, context.events)
        routine = None
        with suppress(
            DaemonError
        ):  # unreadable steps or routine: the run is cancelled all the same
            await recorder.load()
            routine = await context.routine_of(run)
        await finish(run, routine, RunResult.cancelled(), recorder, context)


async def suspend_when_there_is_room(run: Run, context: RunContext) -> Run | None:
    """Wait until the disk takes writes again, then queue the run: it goes on from its steps.

    Returns None if another process owns the run by then.
    """
    while True:
        await asyncio.sleep(context.full_disk_retry)
        try:
            return await context.journal.suspend(run, detail="the disk was full")
        except Fenced:
            return None
        except StoreFull:
            continue


async def uninterrupted(work: Coroutine[Any, Any, T], *, grace: float = GRACE_SECONDS) -> T:
    """Await `work` to its end, also while the caller is cancelled again and again.

    Raises CancelledError once the work is done if the caller was cancelled, or when the work is not
    done `grace` seconds after the first cancel; else returns or raises what the work does.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    give_up_at: float | None = None
    while not task.done():
        try:
            timeout = None if give_up_at is None else give_up_at - loop.time()
            await asyncio.wait([task], timeout=timeout)
            if give_up_at is not None and loop.time() >= give_up_at:
                break
        except asyncio.CancelledError:
            give_up_at = give_up_at or loop.time() + grace
    if give_up_at is None:
        return task.result()
    if task.done() and not task.cancelled() and (error := task.exception()):
        log.warning("run.stop_failed", error=f"{type(error).__name__}: {error}")
    raise asyncio.CancelledError


@asynccontextmanager
async def _deadline(limit: timedelta, *, used: float) -> AsyncIterator[float]:
    """Give the body what is left of `limit` after `used` seconds.

    Yields the deadline in the event loop's time. Raises DeadlinePassed when it has passed; a
    TimeoutError of anything else passes through as it is.
    """
    deadline = asyncio.get_running_loop().time() + limit.total_seconds() - used
    try:
        async with asyncio.timeout_at(deadline) as timeout:
            yield deadline
    except TimeoutError:
        if not timeout.expired():
            raise
        raise DeadlinePassed(limit) from None


def _log_context(run: Run) -> Any:
    """Return a context manager that adds the run to each record logged within."""
    return bound_contextvars(run=run.id, routine=run.routine, slot=run.slot.isoformat())
