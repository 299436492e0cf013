"""What the run queue starts: a run is supervised to its end, and what follows its end is done."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.agent.conversations.conversations import ASK, ask_routine
from daemon.models import Run, Status
from daemon.scheduler.run_queue import ConcurrencyGroup

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.delivery.incidents.model_outages import ModelOutages
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.telemetry.metrics import Metrics

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSupervisor:
    """Supervise the runs of this process, one call of `run` for each."""

    settings: LiveSettings
    parts: RunParts
    journal: Journal
    engine: RoutineEngine
    conversations: Conversations
    model_outages: ModelOutages
    metrics: Metrics
    shared: bool
    """Whether other processes take runs from the same database."""

    async def run(self, run_id: str) -> Run | None:
        """Supervise a run until it ends or waits; None if another process owns it."""
        from daemon.runs.run import supervise

        if self.shared:  # other processes may have taken messages for it
            self.conversations.inbox.put(await self.journal.runs.find_messages(run_id))
        try:
            with self.metrics.measure_lag():
                run = await supervise(run_id, self.parts.contexts.take())
        finally:
            if self.settings.tracer:
                self.settings.tracer.export_run(run_id)
        if run is not None and run.status.has_ended:
            self.metrics.count_run(run)
            if run.provider and run.status is Status.SUCCEEDED:
                self.model_outages.record_answer(run.provider)
            is_settled = self.engine.note_success(run)
            if not is_settled or self.conversations.inbox.has_messages(run.id):
                await asyncio.shield(self.follow_up(run))
        return run

    async def follow_up(self, run: Run) -> None:
        """Do what the end of a run brings: retries, chained routines, messages it did not read."""
        await self.engine.note_end(run)
        await self.conversations.answer_late_messages(run)

    def group_of(self, run: Run) -> ConcurrencyGroup:
        """Return which provider a run asks first, as its routine stands now."""
        config = self.settings.config
        routines = self.engine.routines
        routine = ask_routine(config) if run.routine == ASK else routines.get(run.base_routine)
        name = (routine and routine.run.provider) or config.provider
        if name not in config.provider_names:  # it was taken out of the config meanwhile
            return ConcurrencyGroup(name=name)
        provider = config.provider_config(name)
        return ConcurrencyGroup(
            name=name, limit=provider.max_concurrency, uses_model=provider.kind != "offline"
        )
