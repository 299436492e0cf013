"""The steps of one run on their way into the journal."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import structlog

from daemon.agent.transcript import Transcript
from daemon.errors import DaemonError, StoreFull
from daemon.models import Json, Run, Step, Taint, Usage, max_taint
from daemon.runs.events import EventBus, event_of_step

if TYPE_CHECKING:
    from daemon.store.runs import RunRepository

log = structlog.get_logger()

_Write: TypeAlias = asyncio.Future[list[Step]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTotals:
    """What the steps of a run add up to."""

    usage: Usage
    iterations: int
    taint: Taint
    """The worst taint of all that the run has read."""


class StepRecorder:
    """Write the steps of one run to the journal, and publish each once it is committed."""

    def __init__(self, runs: RunRepository, run: Run, events: EventBus) -> None:
        self.steps: list[Step] = []
        """The steps of earlier attempts, which `load` reads, and of this one, in order."""
        self.has_new_steps = False
        """Whether this attempt got further than the one before."""
        self._runs, self._run, self._events = runs, run, events
        self._started = asyncio.get_running_loop().time()
        self._is_loaded = False
        self._lazy_write: _Write | None = None
        self._written_steps = 0
        """How many of `steps` are committed."""
        self._live_events: deque[tuple[int, Json]] = deque()
        """Events that wait for steps to be committed, each with the number of steps before it."""

    async def load(self) -> None:
        """Read the steps of earlier attempts. Raises DaemonError where they are damaged."""
        self.steps = list(await self._runs.get_steps(self._run.id))
        self._written_steps = len(self.steps)
        self._is_loaded = True

    @property
    def is_exclusive(self) -> bool:
        """Whether no other process can take the run over: the lock on the state folder is ours."""
        return not self._runs.shared

    @property
    def active_seconds(self) -> float:
        """Seconds that the run was under way, earlier attempts included."""
        return self._run.active + asyncio.get_running_loop().time() - self._started

    def totals(self) -> StepTotals:
        """Return usage, iterations and worst taint of all steps.

        Where the steps were not or cannot be read, nobody can tell what the run has read: no usage,
        and tainted.
        """
        if self._is_loaded:
            try:
                transcript = Transcript(self.steps, self._run.taint)
                return StepTotals(
                    usage=transcript.usage,
                    iterations=transcript.iterations,
                    taint=transcript.taint,
                )
            except (DaemonError, AttributeError, LookupError, TypeError, ValueError):
                log.warning("run.steps_damaged", run=self._run.id)
        taint = max_taint(self._run.taint, Taint.TAINTED)
        return StepTotals(usage=Usage(), iterations=0, taint=taint)

    def append(self, *steps: Step, durable: bool = False) -> Awaitable[list[Step]]:
        """Queue steps at once, in order; awaiting the result means that they are committed.

        With `durable` even against a loss of power. Raises Fenced and StoreFull when awaited.
        """
        write = self._submit(steps, durable=durable)
        return write if write is self._lazy_write else self._publish_when_written(write)

    def write_lazily(self, *steps: Step) -> None:
        """Queue steps for the next commit without waiting (at most 20 ms).

        They are lost in a crash, so never use this for calls of tools.
        """
        write = self._submit(steps, lazily=True)
        if write is not self._lazy_write:  # else these steps joined a write that is still queued
            self._lazy_write = write
            write.add_done_callback(self._publish)

    def _submit(
        self, steps: Sequence[Step], *, durable: bool = False, lazily: bool = False
    ) -> _Write:
        self.steps += steps
        self.has_new_steps = True
        return self._runs.append(
            self._run, *steps, durable=durable, lazily=lazily, active=self.active_seconds
        )

    async def _publish_when_written(self, write: _Write) -> list[Step]:
        # not by a callback: the caller goes on in the same turn of the loop as the publication
        try:
            return await write
        finally:
            self._publish(write)

    def publish_live(self, event: Json) -> None:
        """Publish an event that no step records, after the events of all steps added before it."""
        self._live_events.append((len(self.steps), {"routine": self._run.routine, **event}))
        if len(self.steps) <= self._written_steps:
            self._publish_live_events()

    def _publish_live_events(self) -> None:
        """Publish the live events before which all steps are committed."""
        while self._live_events and self._live_events[0][0] <= self._written_steps:
            self._events.publish(self._run.id, self._live_events.popleft()[1])

    def _publish(self, write: _Write) -> None:
        """Publish the steps that a write has committed; log a full disk, as nobody may await the
        write.
        """
        if not write.done() or write.cancelled():
            return
        if error := write.exception():
            if isinstance(error, StoreFull):
                log.error("step.refused", run=self._run.id, detail=str(error))
            return
        for step in write.result():
            self._publish_live_events()
            self._written_steps += 1
            if self._events.followed and (event := event_of_step(self._run, step)):
                self._events.publish(self._run.id, event)
        self._publish_live_events()
