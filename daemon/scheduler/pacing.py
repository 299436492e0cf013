"""Routines whose runs say when to come again (`[trigger] pace`).

The next start follows from the journal alone: it is the end of the routine's latest run and the
wait that this run has asked for with the tool `finish`, which its steps have, or the longest wait.
Without any run it is the routine's baseline and the shortest wait. Its event names the run before
it, and is unique in the ledger: so everything here may be repeated after any crash, and by each of
several machines, without starting a second run.

A start that may not be now is put off, not skipped: for the length of a pause, of quiet hours, of a
backoff, of a run that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from daemon.definitions.routines.routine import Pace
from daemon.definitions.schedule import ScheduleEntry
from daemon.errors import DaemonError, StoreFull, Unavailable
from daemon.models import Run, Status, Step, StepKind
from daemon.scheduler.slot_ledger import SlotLedger, max_other_runs
from daemon.scheduler.triggers import RETRY_SECONDS, EventTriggers
from daemon.store.journal import Journal
from daemon.system.clock import Clock
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.tools.builtin.finish import FINISH, read_wait

log = structlog.get_logger()

_ENDED = frozenset(status for status in Status if status.has_ended)


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedStart:
    """The next start of a routine."""

    event: str
    """Unique for what it follows on: the run before it, or the baseline."""
    due_at: datetime
    wait: timedelta
    """From the end of the run before it, or from the baseline, until `due_at`."""


class Pacing:
    """Start the routines that have a pace."""

    def __init__(
        self,
        ledger: SlotLedger,
        journal: Journal,
        clock: Clock,
        triggers: EventTriggers,
        *,
        schedule_check: Callable[[str, datetime], None],
    ) -> None:
        """`schedule_check` has `queue_check` called for a routine at a moment."""
        self._ledger, self._journal, self._clock = ledger, journal, clock
        self._triggers, self._schedule_check = triggers, schedule_check
        self._queue = CoalescingQueue(
            "pace claims", self.start_due, retry=RETRY_SECONDS, session=ledger.lock
        )
        self._paces: dict[str, tuple[Pace, ScheduleEntry]] = {}
        """By routine, with the entry of the schedule that has it."""
        self._latest_starts: dict[str, PacedStart] = {}
        """By routine, the latest answer of `_next_start`."""

    def read_routines(self, names: Iterable[str]) -> None:
        """Take the paces of these routines from the ledger, which may have them no longer."""
        for name in names:
            self._paces.pop(name, None)
            if schedule := self._ledger.schedules.get(name):
                triggers = self._ledger.routines[name].triggers
                for trigger, entry in zip(triggers, schedule.entries, strict=True):
                    if trigger.pace:
                        self._paces[name] = trigger.waits, entry
            if name not in self._paces:
                self._latest_starts.pop(name, None)
                self._ledger.paced_starts.pop(name, None)

    @property
    def routines(self) -> list[str]:
        """The routines that have a pace."""
        return list(self._paces)

    async def stop(self) -> None:
        """Finish the claims under way."""
        await self._queue.stop()

    def queue_check(self, *names: str) -> None:
        """Queue a check whether these routines are due; those without a pace are left out."""
        self._queue.add(*(name for name in names if name in self._paces))

    async def start_due(self, names: Sequence[str]) -> None:
        """Start those of these routines that are due, and have the others checked when they are.

        The caller holds the ledger's lock.
        """
        for name in names:
            if name in self._paces:
                await self._start_or_wait(name)

    async def _start_or_wait(self, name: str) -> None:
        ledger, now = self._ledger, self._clock.now()
        start = await self._next_start(name, now)
        if start is None:  # the end of the run that is under way will tell
            ledger.paced_starts.pop(name, None)
            return
        if start.due_at > now:
            self._put_off(name, start.due_at)
            return
        _, entry = self._paces[name]
        if skip_reason := await ledger.skip_reason_now(name, [entry]):
            retry_at = await self._triggers.find_retry_time(skip_reason.reason, name, entry, now)
            log.info(
                "pace.waiting",
                routine=name,
                reason=skip_reason.reason.value,
                rule=skip_reason.rule,
                until=retry_at.isoformat() if retry_at else None,
            )
            if retry_at:
                self._put_off(name, retry_at)
            else:
                ledger.paced_starts.pop(name, None)
            return
        claim = ledger.make_claim(
            name,
            "pace",
            start.due_at,
            event=start.event,
            max_other_runs=max_other_runs(ledger.routines[name]),
        )
        if not await ledger.claim_and_start([claim]):
            # Another machine was quicker. The end of its run tells when the next one is; if that
            # machine dies, nobody does.
            self._put_off(name, now + start.wait)

    def _put_off(self, name: str, moment: datetime) -> None:
        self._ledger.paced_starts[name] = moment
        self._schedule_check(name, moment)

    async def _next_start(self, name: str, now: datetime) -> PacedStart | None:
        """Return the next start of a routine, which may be past; None while a run of it is under
        way.
        """
        if await self._journal.runs.find_active(name):
            self._latest_starts.pop(name, None)
            return None
        (shortest, longest), entry = self._paces[name]
        run = await self._journal.runs.get_last(name, statuses=_ENDED)
        if run is None:
            since, wait = self._ledger.states[name].baseline, shortest
            event = f"pace {since.isoformat()}"
        else:
            since, event = run.ended or run.created, f"pace {run.id}"
            wait = await self._wait_after(run, (shortest, longest))
        if await self._journal.slots.has_event(name, event):
            if await self._journal.slots.get_run_of_event(name, event):
                return None  # another machine has started it just now
            # What it had started is not kept any more, and a routine must not stop for that.
            event = f"{event} {now:%Y-%m-%d}"
        due_at, latest = since + wait, self._latest_starts.get(name)
        if latest and latest.event == event and latest.wait == wait:
            # Computed anew at each check, the limits below would put the start off again and again:
            # what they gave before stays.
            due_at = min(due_at, latest.due_at) if due_at > now else latest.due_at
        elif due_at < self._ledger.up_since and not _may_catch_up(entry, due_at, now):
            due_at = self._ledger.up_since + longest
        # A run that ended while the clock was ahead has its end in the future.
        due_at = min(due_at, now + longest)
        self._latest_starts[name] = PacedStart(event=event, due_at=due_at, wait=wait)
        return self._latest_starts[name]

    async def _wait_after(self, run: Run, pace: Pace) -> timedelta:
        try:
            return wait_after(run, await self._journal.runs.get_steps(run.id), pace)
        except (StoreFull, Unavailable):
            raise  # read again later
        except DaemonError as error:
            log.warning("pace.unknown", run=run.id, detail=str(error))
            return pace[1]


def wait_after(run: Run, steps: Sequence[Step], pace: Pace) -> timedelta:
    """Return how long after the end of a run the next one comes: what it has asked for, within the
    bounds; the longest wait if it has asked for nothing or is no success.
    """
    shortest, longest = pace
    if run.status is not Status.SUCCEEDED:
        return longest
    successful_calls = {
        step.call_id for step in steps if step.kind is StepKind.RESULT and step.body["ok"]
    }
    last_finish: Step | None = None
    for step in steps:
        is_finish = step.kind is StepKind.CALL and step.body.get("tool") == FINISH
        if not is_finish or not step.iteration or step.call_id not in successful_calls:
            continue
        # the first one of an answer ends the conversation; a repair of the report begins another
        if last_finish is None or step.iteration > last_finish.iteration:
            last_finish = step
    text = last_finish.body.get("arguments", {}).get("next") if last_finish else None
    wait = read_wait(str(text)) if text else None
    return longest if wait is None else min(max(wait, shortest), longest)


def _may_catch_up(entry: ScheduleEntry, due_at: datetime, now: datetime) -> bool:
    """Tell whether a start that came while the daemon was down is made up for, by `catch_up`."""
    if isinstance(entry.catch_up, timedelta):
        return now - due_at <= entry.catch_up
    return entry.catch_up == "once"
