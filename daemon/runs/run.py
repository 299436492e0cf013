"""The life of a run, from its claim to its end.

`supervise` claims a run and is the one place that knows of a lost lease, a full disk, a
cancellation and the end of the process. `live` takes the claimed run to its end: each way a
run can end is one line there. In between execute.py does the work. `finish` writes the end in one
commit.

The run's row and steps say at any moment how far it came, so a run that a crash interrupted comes
through `supervise` like a new one, and `execute` skips what its steps already hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from daemon.agent.conversations.conversations import ASK, origin_of
from daemon.agent.tool_calls import ApprovalRequired
from daemon.delivery.outbox import deliveries_for
from daemon.errors import (
    DaemonError,
    Fenced,
    NothingListens,
    Retryable,
    StoreFull,
    Unavailable,
    is_shortage,
)
from daemon.models import Run, Status, StepKind, Taint, max_taint
from daemon.runs.events import begin_of, retry_of
from daemon.runs.execute import RunResult, execute
from daemon.runs.recorder import StepRecorder
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.runs.retry import retry_delay
from daemon.runs.spread import spread_delay

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.models import ApprovalRequest
    from daemon.runs.context import RunContext

T = TypeVar("T")
log = structlog.get_logger()

# Whoever has not answered an approval request by then has seen the report of the next day.
APPROVAL_TIMEOUT = timedelta(hours=24)
# A person who starts a run or a rehearsal waits for it.
_AWAITED_TRIGGERS = frozenset({"manual", ASK, REHEARSAL})
# Writing the end of a run takes milliseconds; a disk that hangs must not keep the process alive.
GRACE_SECONDS = 60.0


class DeadlinePassed(Exception):
    """The run has used up the active time that its routine gives it."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"not done within {limit.total_seconds():g} s of active time")


async def supervise(run_id: str, context: RunContext, *, takeover: bool = False) -> Run | None:
    """Run `run_id` until it ends, waits for an approval or is to be retried later.

    Returns None if the run is not there to be claimed, or another process owns it. `takeover=True`
    claims the run even while another process leases it (a sub-agent of a run that was taken over).
    """
    start = asyncio.get_running_loop().time()
    claim: asyncio.Future[Run | None] | None = None
    try:
        while True:  # a full disk takes no claim: try again when there is room
            claim = asyncio.ensure_future(_claim(run_id, context, takeover=takeover))
            try:
                run = await asyncio.shield(claim)  # a cancel must not stop a claim halfway
                break
            except StoreFull as error:
                log.error("run.claim_failed", run=run_id, detail=str(error))  # noqa: TRY400  # no traceback
                claim = None
                await asyncio.sleep(context.full_disk_retry)
        if run is None:
            return None
        with _log_context(run):
            log.info("run.started", attempt=run.attempt, trigger=run.trigger)
            if run.attempt == 1:
                context.events.publish(run.id, begin_of(run))
            try:
                return await live(run, context)
            except Fenced:
                log.warning("run.fenced")  # another process owns the run: write nothing more
                return None
            except StoreFull as error:
                log.error("run.write_failed", detail=str(error))  # noqa: TRY400  # no traceback
                return await suspend_when_there_is_room(run, context)
    except asyncio.CancelledError:
        # a person's cancel ends the run; the end of the process suspends it
        if claim is not None:
            await uninterrupted(_cancel_or_suspend(claim, context, start))
        raise


async def _claim(run_id: str, context: RunContext, *, takeover: bool) -> Run | None:
    """Make a run ours. Returns None if it is not queued, or not to be started yet."""
    # a run that this process opened just now is claimed together with its first steps
    run = context.journal.runs.claim_lazily(run_id, owner=context.owner)
    if run is None:
        run = await context.journal.runs.claim(run_id, owner=context.owner, takeover=takeover)
    return run


async def live(run: Run, context: RunContext) -> Run:
    """Take a claimed run to its end and return its row: each way it can end is one line here.

    Steps of earlier attempts are reused. Raises Fenced and StoreFull: nothing can be written then.
    """
    routine, recorder = None, StepRecorder(context.journal.runs, run, context.events)
    try:
        await recorder.load()
        routine = await context.routine_of(run)  # as the run began it
        if routine.origin and routine.origin.tainted:  # an agent that had read strangers' words
            run = replace(run, taint=max_taint(run.taint, Taint.TAINTED))
        await context.ping_started(run, routine)
        if run.cancel:
            result = RunResult(Status.CANCELLED, "cancelled before a process took it up")
        elif run.fruitless_attempts > routine.run.retry.attempts:
            attempts = run.fruitless_attempts - 1
            detail = f"gave up: {attempts} attempts in a row died without a new step"
            result = RunResult(Status.INTERRUPTED, detail)
        else:
            async with _deadline(routine.run.timeout, used_seconds=run.active) as deadline:
                result = await execute(run, routine, recorder, context, deadline)
            if result.reply:
                run = replace(run, provider=result.provider, model=result.model, taint=result.taint)
                usage = await context.archive(run, routine, result.reply, recorder.steps)
                if usage.total:  # of a model that wrote a summary for the memory
                    reply = replace(result.reply, usage=result.reply.usage + usage)
                    result = replace(result, reply=reply)
    except (Fenced, StoreFull):  # both are DaemonErrors
        raise
    except ApprovalRequired as error:
        return await uninterrupted(park(run, recorder, error.requests, context))
    except DeadlinePassed as error:
        result = RunResult(Status.TIMED_OUT, str(error))
    except Retryable as error:
        delay = _delay_of_retry(run, routine, recorder, error)
        if delay is not None:
            return await uninterrupted(_suspend_for_retry(run, recorder, error, delay, context))
        result = RunResult(Status.FAILED, str(error))  # no attempt is left
    except DaemonError as error:
        result = RunResult(Status.FAILED, str(error))
    except Exception as error:
        shortage = Unavailable(f"this machine lacks room: {error}")
        lacks_room = isinstance(error, MemoryError) or is_shortage(error)
        delay = _delay_of_retry(run, routine, recorder, shortage) if lacks_room else None
        if delay is not None:
            return await uninterrupted(_suspend_for_retry(run, recorder, shortage, delay, context))
        log.exception("run.crashed")
        result = _crash_result(error)
    try:
        return await uninterrupted(finish(run, routine, result, recorder, context))
    except (Fenced, StoreFull):
        raise
    except Exception as error:
        # no run may stay `running` without a process: end it without deliveries
        log.exception("run.crashed")
        result = _crash_result(error)
        return await uninterrupted(finish(run, None, result, recorder, context))


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
    run = run.to(
        result.status,
        ended=context.now(),
        active=recorder.active_seconds,
        detail=context.redact(result.detail) if result.detail else None,
        report=context.redact(reply.content) if reply else None,
        silent=bool(reply and reply.silent),
        usage=reply.usage if reply else totals.usage,
        iterations=reply.iterations if reply else totals.iterations,
        taint=result.taint if reply else totals.taint,
        sandbox=await context.sandbox_level(),
    )
    deliveries, seen_items, zone = [], None, context.zone
    if routine is not None:
        await context.cancel_subagents(run, routine)
        zone = routine.timezone or zone
        if run.trigger != REHEARSAL:
            origin = origin_of(run)
            deliveries = deliveries_for(
                run,
                routine.deliver,
                ping=routine.ping,
                chat=origin.chat if origin else None,
                verbatim=not routine.run.asks_model,
                delay=spread_delay(run, routine),
            )
            seen_items = result.seen_items
    run = await context.journal.runs.end(run, deliveries, zone=zone, reported_items=seen_items)
    context.announce_end(run)  # after the commit, never before
    return run


async def end_abandoned(run: Run, routine: Routine, context: RunContext) -> None:
    """End a run that broke off so long ago that its slot would not be started any more."""
    claimed_run = await context.journal.runs.claim(run.id, owner=context.owner)
    if claimed_run is None:  # another process has it
        return
    recorder = StepRecorder(context.journal.runs, claimed_run, context.events)
    with suppress(DaemonError):  # damaged steps: the run ends all the same
        await recorder.load()
    detail = "the daemon was down for so long that its slot would not be started any more"
    await finish(claimed_run, routine, RunResult(Status.INTERRUPTED, detail), recorder, context)


def _crash_result(error: Exception) -> RunResult:
    """Return the result of a run that failed by a fault of agentd, not of its routine."""
    detail = f"a fault of agentd itself ({type(error).__name__}: {error}); its log has more"
    return RunResult(Status.FAILED, detail)


def _delay_of_retry(
    run: Run, routine: Routine | None, recorder: StepRecorder, error: Retryable
) -> timedelta | None:
    """Return how long to wait before the next attempt, which may be no time at all; None if the
    routine has no attempt left or could not be read.

    Only attempts in a row without a new step count. A run that a person waits for has no further
    attempt where the model's server is not started, unless a model has answered it before: the
    person can start the server, and would watch a run that cannot get anywhere.
    """
    if routine is None:
        return None
    is_answered = any(step.kind is StepKind.LLM for step in recorder.steps)
    if isinstance(error, NothingListens) and run.trigger in _AWAITED_TRIGGERS and not is_answered:
        return None
    retry = routine.run.retry
    failures = 1 if recorder.has_new_steps else run.fruitless_attempts + 1
    if failures >= retry.attempts:
        return None
    return retry_delay(
        failures,
        retry.backoff,
        retry.max,
        seed=f"{run.id} {run.attempt}",
        retry_after=error.retry_after,
    )


async def _suspend_for_retry(
    run: Run, recorder: StepRecorder, error: Retryable, delay: timedelta, context: RunContext
) -> Run:
    """Queue the run again, not before `delay` has passed; its next attempt goes on from its
    steps.
    """
    not_before, detail = context.now() + delay, context.redact(str(error))
    log.warning("run.retry_scheduled", until=not_before.isoformat(), detail=detail)
    run = replace(run, active=recorder.active_seconds)
    run = await context.journal.runs.suspend(run, not_before=not_before, detail=detail)
    if event := retry_of(run):
        context.events.publish(run.id, event)
    return run


async def park(
    run: Run, recorder: StepRecorder, requests: Sequence[ApprovalRequest], context: RunContext
) -> Run:
    """Leave the run waiting for people to answer `requests`, and notify them.

    The waiting does not count towards the run's timeout. If a person answered meanwhile, the run is
    queued again at once.
    """
    run = replace(run, active=recorder.active_seconds, taint=recorder.totals().taint)
    routine = await context.routine_of(run)
    tools = ", ".join(dict.fromkeys(request.tool for request in requests))
    waiting_run = await context.journal.approvals.park(
        run,
        requests,
        timeout=APPROVAL_TIMEOUT,
        detail=f"waits for a person to allow {tools}: agentctl approvals",
        notice=context.make_waiting_notice(
            run, routine, requests, context.now() + APPROVAL_TIMEOUT
        ),
    )
    context.announce_wait(waiting_run, tools)
    return waiting_run


async def _cancel_or_suspend(
    claim: asyncio.Future[Run | None], context: RunContext, start: float
) -> None:
    """Cancel the run of `claim` if a person asked for that, else suspend it; one that has just
    ended stays as it is.

    `start` is when `supervise` started, in the event loop's time.
    """
    try:
        run = await claim
    except DaemonError:
        return  # the claim failed: the run is as it was
    if run is None:
        return
    row = await context.journal.runs.get(run.id)
    if row.status.has_ended:
        return
    run = replace(run, active=run.active + asyncio.get_running_loop().time() - start)
    # another process may own the run by now; and a run that a full disk keeps `running` is taken up
    # by the next start
    with _log_context(run), suppress(Fenced, StoreFull):
        if not row.cancel:
            await context.journal.runs.suspend(run)
            log.info("run.suspended")
            return
        recorder = StepRecorder(context.journal.runs, run, context.events)
        routine = None
        # a run whose steps or routine cannot be read is cancelled all the same
        with suppress(DaemonError):
            await recorder.load()
            routine = await context.routine_of(run)
        await finish(run, routine, RunResult(Status.CANCELLED), recorder, context)


async def suspend_when_there_is_room(run: Run, context: RunContext) -> Run | None:
    """Wait until the disk takes writes again, then queue the run: it goes on from its steps.

    Returns None if another process owns the run by then.
    """
    while True:
        await asyncio.sleep(context.full_disk_retry)
        try:
            return await context.journal.runs.suspend(run, detail="the disk was full")
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
async def _deadline(limit: timedelta, *, used_seconds: float) -> AsyncIterator[float]:
    """Give the body what is left of `limit` after `used_seconds`.

    Yields the deadline in the event loop's time. Raises DeadlinePassed when it has passed; a
    TimeoutError of anything else passes through as it is.
    """
    deadline = asyncio.get_running_loop().time() + limit.total_seconds() - used_seconds
    try:
        async with asyncio.timeout_at(deadline) as timeout:
            yield deadline
    except TimeoutError:
        if not timeout.expired():
            raise
        raise DeadlinePassed(limit) from None


def _log_context(run: Run) -> AbstractContextManager[Any]:
    """Return a context manager that adds the run to each event logged within."""
    return bound_contextvars(run=run.id, routine=run.routine, slot=run.slot.isoformat())
