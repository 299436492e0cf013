"""Sub-agents: runs that another run starts and waits for.

The child has a row, steps and a lease of its own. Its definition is the parent's routine, narrowed:
never more tools, tokens or time than the parent has left, nothing gathered, checked, pinged or
delivered. Its event names the parent and the call, so a call that is repeated after a crash finds
the same child.
Only the parent resumes it; when the parent ends, what is left of the child is cancelled.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

import structlog

from daemon.agent.transcript import Transcript
from daemon.definitions.routines.routine import Budget, Gate
from daemon.errors import DaemonError, ToolFailed
from daemon.models import Json, Run, Status, Step, ToolContext
from daemon.runs.run import supervise
from daemon.store.journal import Claim
from daemon.tools.builtin.subagent import SUBAGENT

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.runs.context import RunContexts

log = structlog.get_logger()

MAX_SUBAGENTS = 8  # of one run: each has a conversation of its own to pay for
MAX_REPORT_CHARACTERS = 50_000  # of a report that the parent reads
# until a child's "not before" is read again: it moves when the clock is set
MAX_SLEEP_SECONDS = 60.0


class SubagentQueue(Protocol):
    """Stops sub-agents that a person cancels."""

    def add_subagent(self, run_id: str, task: asyncio.Task[Run | None]) -> None:
        """Have this task cancelled when the sub-agent is."""


class SubagentRunner:
    """Start and supervise the sub-agents of the runs of this process."""

    def __init__(self, contexts: RunContexts, queue: SubagentQueue) -> None:
        self._contexts, self._services, self._queue = contexts, contexts.services, queue

    async def delegate(
        self, context: ToolContext, task: str, tools: list[str] | None, budget: int | None
    ) -> Json:
        """Have a task done by a sub-agent of the run in `context` and return what it reports.

        `tools` are those of the parent that it gets, all by default; `budget` is its limit of
        tokens. Raises ToolFailed if the sub-agent did not succeed.
        """
        journal = self._services.journal
        parent = await journal.runs.get(context.run)
        if parent.trigger == SUBAGENT:
            raise ToolFailed("a sub-agent has no sub-agents; do it yourself")
        event = f"{parent.id}/{context.call}"
        child = await journal.slots.get_run_of_event(SUBAGENT, event)
        if child is None:
            routine = await self._contexts.routine_of(parent)
            steps = await journal.runs.get_steps(parent.id)
            tokens = _token_limit(routine, steps, budget)
            narrowed_routine = _narrow(routine, task, tools, tokens)
            calls = [
                step for step in steps if step.kind == "call" and step.body["tool"] == SUBAGENT
            ]
            if len(calls) > MAX_SUBAGENTS:
                raise ToolFailed(f"a run has at most {MAX_SUBAGENTS} sub-agents")
            claim = Claim(
                routine=SUBAGENT,
                definition=narrowed_routine.dump(),
                trigger=SUBAGENT,
                slot=self._services.clock.now(),
                goal=task,
                event=event,
                input={"parent": parent.id, "tainted": context.tainted},
            )
            (child,) = await journal.slots.claim([claim])
            child = child or await journal.slots.get_run_of_event(SUBAGENT, event)
        if child is None:
            raise ToolFailed("the sub-agent's run is gone", transient=True)
        try:
            run = await self._run_to_end(child)
        finally:
            if tracer := self._services.settings.tracer:
                tracer.export_run(child.id)
        await self._answer_messages(run)
        if run.status is Status.CANCELLED:
            raise ToolFailed("a person cancelled the sub-agent")
        if run.status is not Status.SUCCEEDED:
            outcome = run.status.value.replace("_", " ")
            raise ToolFailed(
                f"the sub-agent {outcome}: {run.detail or 'without a word'}",
                partial=(run.report or "")[:MAX_REPORT_CHARACTERS],
            )
        return {
            "run": run.id,
            "report": (run.report or run.detail or "")[:MAX_REPORT_CHARACTERS],
            "tokens": run.usage.total,
            "untrusted": bool(run.taint),
        }

    async def _answer_messages(self, child: Run) -> None:
        """Have new runs answer the messages that a sub-agent did not read before it ended. Where
        that fails, the next start of a daemon does it.
        """
        runs, conversations = self._services.journal.runs, self._services.conversations
        try:
            if runs.shared:  # other processes may have taken messages for it
                conversations.inbox.put(await runs.find_messages(child.id))
            await conversations.answer_late_messages(child)
        except DaemonError as error:
            log.error("message.unanswered", run=child.id, problem=str(error))  # noqa: TRY400  no traceback

    async def _run_to_end(self, child: Run) -> Run:
        """Supervise the child until it has ended, however often it is put off."""
        while not child.status.has_ended:
            if child.not_before:
                seconds = (child.not_before - self._services.clock.now()).total_seconds()
                await asyncio.sleep(max(0.0, min(seconds, MAX_SLEEP_SECONDS)))
            task = asyncio.create_task(
                supervise(child.id, self._contexts.take(), takeover=True),
                name=f"sub-agent {child.id}",
            )
            self._queue.add_subagent(child.id, task)
            run = None
            try:
                run = await task
            except asyncio.CancelledError:
                if (parent_task := asyncio.current_task()) and parent_task.cancelling():
                    raise  # else only the sub-agent was cancelled
            child = run or await self._services.journal.runs.get(child.id)
            if run is None and child.status is Status.QUEUED and child.not_before:
                # its "not before" was moved, or the database's clock is behind ours
                await asyncio.sleep(1.0)
            elif run is None and not child.status.has_ended:
                raise ToolFailed("another process runs the sub-agent", transient=True)
        return child


def _narrow(routine: Routine, task: str, tools: list[str] | None, tokens: int | None) -> Routine:
    """Return the parent's routine with what the sub-agent may use of it."""
    allowed_tools = [tool for tool in routine.run.tools if tool != SUBAGENT]
    if tools is not None:
        unavailable = [
            tool
            for tool in tools
            if not any(fnmatchcase(tool, pattern) for pattern in allowed_tools)
        ]
        if unavailable:
            available = ", ".join(allowed_tools) or "none"
            raise ToolFailed(f"you have no {', '.join(unavailable)} to pass on; yours: {available}")
        allowed_tools = tools
    budget = Budget(
        tokens=tokens,
        usd=routine.run.budget.usd,
        day=routine.run.budget.day,
        month=routine.run.budget.month,
    )
    spec = routine.run.model_copy(
        update={
            "mode": "agent",
            "prompt": task,
            "tools": tuple(allowed_tools),
            "required_tools": (),
            "silent_token": None,
            "memory": "none" if routine.run.memory == "none" else "recall",
            "budget": budget,
            "sections": {},
            "media": (),
        }
    )
    return routine.model_copy(
        update={
            "run": spec,
            "gather": (),
            "gate": Gate(),
            "check": None,
            "ping": None,
            "deliver": (),
            "dedupe": None,
            "first_run": False,
        }
    )


def _token_limit(routine: Routine, steps: list[Step], requested_tokens: int | None) -> int | None:
    """Return the tokens that a child may use: `requested_tokens`, and at most what its parent has
    left.

    None means no limit. Raises ToolFailed if the parent has none left.
    """
    budget = routine.run.budget.tokens
    if budget is None:
        return requested_tokens
    transcript = Transcript(steps)
    remaining_tokens = budget - transcript.usage.total - transcript.subagent_tokens
    if remaining_tokens <= 0:
        raise ToolFailed("no tokens are left for a sub-agent")
    return min(remaining_tokens, requested_tokens) if requested_tokens else remaining_tokens
