"""What runs, sub-agents, rehearsals and replays are made with, built when it is first needed.

Most of it is imported late: a daemon that starts has nothing to run yet.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import RunStarter
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Json, Run, ToolContext
    from daemon.runs.context import Preview, RunContexts
    from daemon.runs.rehearsal.rehearsals import Rehearsals, RoutineCatalog
    from daemon.runs.replay.replays import Replays
    from daemon.runs.services import RunServices
    from daemon.runs.subagents import SubagentQueue, SubagentRunner

    class RunQueue(RunStarter, SubagentQueue, Protocol):
        """Starts runs, and stops sub-agents."""


class RunParts:
    """What runs, sub-agents and replays are made with, each imported when it is first needed."""

    def __init__(
        self,
        services: RunServices,
        *,
        engine: RoutineCatalog,
        queue: RunQueue,
    ) -> None:
        self.services = services
        self._engine, self._queue = engine, queue

    @cached_property
    def contexts(self) -> RunContexts:
        """What builds the context of each run."""
        from daemon.runs.context import RunContexts

        return RunContexts(self.services)

    @cached_property
    def replays(self) -> Replays:
        from daemon.runs.replay.replays import Replays

        return Replays(self.services)

    @cached_property
    def rehearsals(self) -> Rehearsals:
        from daemon.runs.rehearsal.rehearsals import Rehearsals

        services = self.services
        return Rehearsals(
            services.journal,
            self._engine,
            queue=self._queue,
            budget_ledger=services.budget_ledger,
            clock=services.clock,
            settings=services.settings,
        )

    @cached_property
    def _subagents(self) -> SubagentRunner:
        from daemon.runs.subagents import SubagentRunner

        return SubagentRunner(self.contexts, self._queue)

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as `run` began it; DaemonError if this version cannot read it."""
        return await self.contexts.routine_of(run)

    async def preview(self, routine: Routine) -> Preview:
        """Return what the model of a run of `routine` would be told now; no model is asked."""
        return await self.contexts.take().preview(routine)

    async def delegate(
        self, context: ToolContext, task: str, tools: list[str] | None, budget: int | None
    ) -> Json:
        """Have a task done by a sub-agent of the run in `context`; ToolFailed if it fails."""
        return await self._subagents.delegate(context, task, tools, budget)
