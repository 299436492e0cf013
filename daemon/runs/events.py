"""The event bus of the process: what happens inside runs right now, for their followers. It keeps
nothing.

Theory of operation: the journal is the truth, the bus only saves reading it all the time. A step of
a run stands for at most one event (`event_of_step`), whose `id` is the step's number. Whoever needs
each event exactly once (`api/events.py`) follows the bus first, reads the journal then, and skips
on the bus what it has read. So publish an event only after the commit of the step it stands for.
`thinking`, `failed_over` and `delta` stand for no step, have no id, and are lost to a follower who
comes late.

Event types: run_started {goal}, thinking {provider} when a model is asked and {text} with what it
thought, failed_over {from, to, reason}, tool_started {tool, args}, tool_finished {tool, ok,
preview}, message {text}, delta {text}, run_waiting {status, detail}, run_retry_scheduled {until,
detail}, run_ended {status, detail, report, silent}. Every event has `type`, `run`, `routine` and
`at`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Self
from weakref import ReferenceType, ref

from daemon.models import Json, Run, Status, Step, StepKind

# A follower that does not keep up loses the oldest events beyond these: memory stays bounded, and
# nobody waits for it.
BACKLOG = 10_000


class EventSubscription(AsyncIterator[Json]):
    """The events from now on, for one follower; ends when it or the bus is closed."""

    def __init__(
        self, run_id: str | None, subscriptions: set[ReferenceType[EventSubscription]]
    ) -> None:
        self.run_id = run_id
        self._subscriptions = subscriptions
        self.missed = False
        """It fell so far behind that events were dropped; for the follower to reset once it has
        caught up.
        """
        self._queue: deque[Json] = deque(maxlen=BACKLOG)
        self._news = asyncio.Event()
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Json:
        while not self._queue:
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._queue.popleft()

    def push(self, event: Json) -> None:
        if not self._is_closed:
            self.missed = self.missed or len(self._queue) == BACKLOG
            self._queue.append(event)
            self._news.set()

    def close(self) -> None:
        """End after what is already queued."""
        self._is_closed = True
        self._news.set()
        self._subscriptions.discard(ref(self))


class EventBus:
    """The event bus, for the thread of the event loop only: publishers and followers run there."""

    def __init__(self) -> None:
        # Weakly: a follower that was dropped without being closed takes itself off the list. No
        # WeakSet, which counts in Python: each step of each run asks whether anybody listens, and
        # hardly ever does anybody.
        self._followers: set[ReferenceType[EventSubscription]] = set()
        self._is_closed = False

    @property
    def followed(self) -> bool:
        """Whether anybody listens; if not, an event need not be made."""
        return bool(self._followers)

    def publish(self, run_id: str, event: Json) -> None:
        """Hand an event of a run to its followers; never blocks, and costs next to nothing when
        nobody follows.
        """
        if not self._followers:
            return
        event = {"run": run_id, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
        for follower in self._live_followers():
            if follower.run_id is None or follower.run_id == run_id:
                follower.push(event)

    def follow(self, run_id: str | None = None) -> EventSubscription:
        """Return the events of a run (None: of all runs) from this call on, not from the first
        `await`.
        """
        follower = EventSubscription(run_id, self._followers)
        if self._is_closed:
            follower.close()
        else:
            self._followers.add(ref(follower, self._followers.discard))
        return follower

    def followed_runs(self) -> set[str]:
        """Return the runs that somebody follows by their ids."""
        return {
            follower.run_id for follower in self._live_followers() if follower.run_id is not None
        }

    def is_followed(self, run_id: str) -> bool:
        """Return whether somebody follows this very run."""
        return bool(self._followers) and any(
            follower.run_id == run_id for follower in self._live_followers()
        )

    def close(self) -> None:
        """End every follower, and at once whoever comes later."""
        self._is_closed = True
        for follower in self._live_followers():
            follower.close()

    def _live_followers(self) -> list[EventSubscription]:
        references = tuple(self._followers)
        return [follower for reference in references if (follower := reference()) is not None]


def from_steps(run: Run, steps: Iterable[Step]) -> list[Json]:
    """Return the events that a run's row and steps stand for, in order."""
    events = [begin_of(run)]
    events += [event for step in steps if (event := event_of_step(run, step)) is not None]
    if run.status.has_ended:
        events.append(end_of(run))
    return events


def begin_of(run: Run) -> Json:
    """Return the first event of a run."""
    return {"type": "run_started", **_stamp(run, run.started or run.created), "goal": run.goal}


def event_of_step(run: Run, step: Step) -> Json | None:
    """Return the event that a step stands for, if it stands for one."""
    from daemon.agent.transcript import call_event  # a start does without

    stamp = {"id": step.seq, **_stamp(run, step.at)}
    if event := call_event(step):
        return {"type": event["type"], **stamp, **event}
    text = str(step.body.get("content", ""))
    if step.kind is StepKind.LLM and text.strip():
        return {"type": "message", **stamp, "text": text, "iteration": step.iteration}
    return None


def end_of(run: Run) -> Json:
    """Return the last event of a run that has ended."""
    end = {"type": "run_ended", **_stamp(run, run.ended or run.created), "status": run.status.value}
    return {**end, "detail": run.detail, "report": run.report, "silent": run.silent}


def waiting_of(run: Run) -> Json:
    """Return the event of a run that is parked until somebody approves of what it wants to do."""
    waiting_event = {"type": "run_waiting", **_stamp(run, run.started or run.created)}
    return {**waiting_event, "status": run.status.value, "detail": run.detail}


def retry_of(run: Run) -> Json | None:
    """Return the event of a run that was put off after a transient fault; None if it was not."""
    if run.status is not Status.QUEUED or run.not_before is None:
        return None
    until = run.not_before.isoformat(timespec="milliseconds")
    stamp = _stamp(run, run.started or run.created)
    return {"type": "run_retry_scheduled", **stamp, "until": until, "detail": run.detail}


def _stamp(run: Run, at: datetime | None) -> Json:
    moment = at.isoformat(timespec="milliseconds") if at else None
    return {"run": run.id, "routine": run.routine, "at": moment}
