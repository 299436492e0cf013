"""Sub-agents: a run that another run has begun, lived inside it.

The child has a row, a journal and a lease of its own, and keeps the routine of its parent as its
definition, narrowed: never more tools, tokens or time than its parent has left, nothing gathered,
nothing delivered. It is begun by an event that names the parent and the call's place, so a call
that is repeated after a crash finds the child where it was left. Nobody but its parent takes it up
again; when the parent ends, what is left of it is cancelled.
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from daemon.agent.transcript import Transcript
from daemon.definitions.routines.routine import Budget, Gate
from daemon.errors import ToolFailed
from daemon.models import Json, Run, Status, Step, ToolContext, Usage
from daemon.runs.run import live
from daemon.store.journal import Claim
from daemon.tools.builtin.subagent import SUBAGENT

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.runs.context import RunHost

MOST = 8  # children of one run: each has a conversation of its own to pay for
LONGEST = 50_000  # characters of a report that the parent reads
LONGEST_REST = 60.0  # seconds


class SubagentRunner:
    """Begins and lives the children of the runs of this process."""

    def __init__(self, host: RunHost) -> None:
        self._host = host

    async def delegate(
        self, context: ToolContext, task: str, tools: list[str] | None, budget: int | None
    ) -> Json:
        """Have a task done by a child of the run and return what it reports; ToolFailed if it did
        not succeed.
        """
        host, journal = self._host, self._host.journal
        parent = await journal.get(context.run)
        if parent.trigger == SUBAGENT:
            raise ToolFailed("a sub-agent has no sub-agents; do it yourself")
        event = f"{parent.id}/{context.call}"
        child = await journal.run_of_event(SUBAGENT, event)
        if child is None:
            routine = await host.routine_of(parent)
            steps = await journal.steps(parent.id)
            narrowed = _narrowed(routine, task, tools, _left(routine, steps, budget))
            if sum(step.kind == "call" and step.body["tool"] == SUBAGENT for step in steps) > MOST:
                raise ToolFailed(f"a run has at most {MOST} sub-agents")
            claim = Claim(
                routine=SUBAGENT,
                definition=narrowed.dump(),
                trigger=SUBAGENT,
                slot=host.now(),
                goal=task,
                event=event,
                input={"parent": parent.id, "tainted": context.tainted},
            )
            (child,) = await journal.open_slots([claim])
            child = child or await journal.run_of_event(SUBAGENT, event)
        if child is None:
            raise ToolFailed("the sub-agent's run is gone", transient=True)
        ended = await self._lived(child)
        if ended.status is not Status.SUCCEEDED:
            raise ToolFailed(
                (
                    f"the sub-agent {ended.status.value.replace('_', ' ')}: "
                    f"{ended.detail or 'without a word'}"
                ),
                partial=(ended.report or "")[:LONGEST],
            )
        return _answer(ended)

    async def _lived(self, child: Run) -> Run:
        """Live the child to its end, here, however often it is put off."""
        host = self._host
        try:
            return await self._to_the_end(child)
        finally:
            host.trace(child.id)

    async def _to_the_end(self, child: Run) -> Run:
        host = self._host
        while not child.status.ended:
            if child.not_before:
                # a while at a time, as its instant is moved when the clock was set
                rest = (child.not_before - host.now()).total_seconds()
                await asyncio.sleep(max(0.0, min(rest, LONGEST_REST)))
            run = await live(child.id, host, takeover=True)
            child = run or await host.journal.get(child.id)
            if run is None and child.status is Status.QUEUED and child.not_before:
                await asyncio.sleep(
                    1.0
                )  # its instant was moved, or the clock of the database is behind ours
            elif run is None and not child.status.ended:
                raise ToolFailed("somebody else lives the sub-agent's run", transient=True)
        return child


def _narrowed(routine: Routine, task: str, tools: list[str] | None, tokens: int | None) -> Routine:
    """Return the parent's routine as its child may live it."""
    allowed = [tool for tool in routine.run.tools if tool != SUBAGENT]
    if tools is not None:
        strangers = [
            tool for tool in tools if not any(fnmatchcase(tool, pattern) for pattern in allowed)
        ]
        if strangers:
            raise ToolFailed(
                (  # noqa: UP034
                    f"you have no {', '.join(strangers)} to pass on; yours: "
                    f"{', '.join(allowed) or 'none'}"
                )
            )
        allowed = tools
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
            "tools": tuple(allowed),
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
            "deliver": (),
            "dedupe": None,
            "first_run": False,
        }
    )


def _left(routine: Routine, steps: list[Step], wanted: int | None) -> int | None:
    """Return the tokens that a child may use: what is wanted, and at most what its parent has
    left.
    """
    whole = routine.run.budget.tokens
    if whole is None:
        return wanted
    spent = Transcript(steps)
    left = whole - spent.usage.total - spent.elsewhere
    if left <= 0:
        raise ToolFailed("no tokens are left for a sub-agent")
    return min(left, wanted) if wanted else left


def _answer(run: Run) -> Json:
    usage: Usage = run.usage
    answer: dict[str, Any] = {"run": run.id, "report": (run.report or run.detail or "")[:LONGEST]}
    return answer | {"tokens": usage.total, "untrusted": bool(run.taint)}
