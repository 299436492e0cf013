"""Who lives which run, and how many at once.

An executor is told run ids and nothing else. Being told twice, late or not at all harms nobody: the
journal says whether a run is there to be taken, and at the next start every run that is left over
is told again.

Theory of operation: runs that are due stand in line by the instant at which they fell due. Each
routine has one place in that line however many runs of it wait, and once one of them has been
served it stands behind all who had been waiting by then; so no routine keeps another from its turn.
A run whose provider has no room is passed over, and takes no place while it waits. Runs that ask no
model have as many places of their own: a slow vendor never holds them up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeAlias

import structlog

from daemon.models import Run, Status

log = structlog.get_logger()

NEVER = datetime.min.replace(tzinfo=UTC)


class RunQueue(Protocol):
    """Where the engine hands a run on."""

    async def submit(self, run: Run) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrencyGroup:
    """The provider a run will ask."""

    name: str = ""
    limit: int | None = None
    """How many runs may ask it at once."""
    asks: bool = True
    """Whether it asks a model at all."""


# When it fell due, its id, its lane.
_Waiting: TypeAlias = tuple[datetime, str, ConcurrencyGroup]
# Since when the routine's turn has been waited for, the run's id, the routine.
_Head: TypeAlias = tuple[datetime, str, str]


def single_group(_run: Run) -> ConcurrencyGroup:
    """Return the lane of everything, where providers do not matter."""
    return ConcurrencyGroup()


class LocalRunQueue:
    """Live runs as tasks of this process, at most `max_concurrent` at a time.

    Two runs of one routine never live beside each other: what queues or cancels its forerunner
    waits for its end.
    """

    def __init__(
        self,
        live: Callable[[str], Awaitable[Run | None]],
        *,
        max_concurrent: int,
        clock: Callable[[], datetime],
        group_of: Callable[[Run], ConcurrencyGroup] = single_group,
    ) -> None:
        self._live, self._max, self._clock, self._lane_of = live, max_concurrent, clock, group_of
        self.running: dict[str, asyncio.Task[Run | None]] = {}
        self._waiting: dict[str, list[_Waiting]] = {}
        """By routine, each a heap."""
        self._known: dict[str, str] = {}
        """Routines by the runs that wait."""
        self._heads: dict[str, list[_Head]] = {}
        """By lane, each a heap of the runs that could be next; some have been overtaken by events.
        """
        self._lanes: dict[str, ConcurrencyGroup] = {}
        self._served: dict[str, datetime] = {}
        """When the last run of a routine was started."""
        self._lively: set[str] = set()
        """Routines of which a run is lived now."""
        self._busy: Counter[str] = Counter()
        """Runs that are lived now, by lane."""
        self._parked: dict[str, str] = {}
        """Routines by their runs that wait for a person: these hold no task, but no other run may
        pass them.
        """
        self._again: dict[str, Run] = {}
        """Runs that were told once more while they were lived: answered before they had let go."""
        self._later: list[tuple[datetime, str, Run]] = []
        """A heap of the runs that wait for their instant."""
        self._instants: dict[str, datetime] = {}
        """The instant that each of them waits for; a different one in the heap counts no more."""
        self._alarm: asyncio.TimerHandle | None = None
        """Wakes us when the next of them is due."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    async def submit(self, run: Run) -> None:
        """Live the run as soon as it is its turn, not before its `not_before`, whenever it was to
        start until now.
        """
        if run.not_before is not None and run.not_before > self._clock():
            self._wait(run, run.not_before)
        else:
            self._instants.pop(run.id, None)
            self._line_up(run)

    async def submit_all(self, runs: Iterable[Run]) -> None:
        """Take up what an earlier process left."""
        for run in runs:
            await self.submit(run)

    def hold_parked(self, runs: Iterable[Run]) -> None:
        """Let nothing pass these runs, which wait for a person since before this process began."""
        for run in runs:
            self._park(run.id, run.routine)

    @property
    def capacity(self) -> int:
        """How many runs that ask a model may live at a time."""
        return self._max

    def set_max_concurrent(self, max_concurrent: int) -> None:
        """Let so many runs live at a time from now on; those under way go on."""
        self._max = max_concurrent
        self._next()

    def positions(self) -> dict[str, int]:
        """Return how many runs stand before each one that waits for room, as far as they want the
        same places.
        """
        line = sorted(
            (place + (routine in self._lively), self._turn(due, routine), run_id, lane.asks)
            for routine, waiting in self._waiting.items()
            for place, (due, run_id, lane) in enumerate(sorted(waiting, key=_in_order))
        )
        before, positions = Counter[bool](), {}
        for _, _, run_id, asks in line:
            positions[run_id] = before[asks]
            before[asks] += 1
        return positions

    def queue_position(self, run_id: str) -> int | None:
        """Return how many runs stand before this one, or None if it does not wait for room."""
        return self.positions()[run_id] if run_id in self._known else None

    def interrupt(self, run_id: str) -> bool:
        """Stop the run where it is, tools included; the journal says whether that cancels or
        suspends it.

        One that waits leaves the line.
        """
        if (routine := self._known.pop(run_id, None)) is not None:
            waiting = [each for each in self._waiting[routine] if each[1] != run_id]
            self._keep(routine, waiting)
            self._step_up(routine)
        if self._release(run_id):
            self._next()
        task = self.running.get(run_id)
        return task.cancel() if task else False

    async def wait_until_idle(self) -> None:
        """Wait until no run is lived."""
        await self._idle.wait()

    async def stop(self, grace: float) -> None:
        """Start nothing more, wait up to `grace` seconds for the runs under way, then suspend
        them.
        """
        self._stopping = True
        self._set_alarm()
        if self.running:
            log.info("executor.draining", runs=list(self.running), grace=grace)
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            tasks = list(self.running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- the line

    def _line_up(self, run: Run) -> None:
        if run.id in self.running:
            self._again[run.id] = run
            return
        if run.id in self._known:
            return
        self._release(run.id)
        lane = self._lane_of(run)
        self._lanes[lane.name] = lane
        self._known[run.id] = run.routine
        heapq.heappush(self._waiting.setdefault(run.routine, []), _waiting(run, lane))
        self._step_up(run.routine)
        self._next()

    def _step_up(self, routine: str) -> None:
        """Let the first of a routine's runs stand where it can be called."""
        if routine not in self._lively and (waiting := self._waiting.get(routine)):
            due, run_id, lane = waiting[0]
            heapq.heappush(
                self._heads.setdefault(lane.name, []), (self._turn(due, routine), run_id, routine)
            )

    def _turn(self, due: datetime, routine: str) -> datetime:
        """Return since when a routine's turn has been waited for."""
        # not later than now: slots and starts of a clock that was ahead would let all others pass
        return min(max(due, self._served.get(routine, NEVER)), self._clock())

    def _next(self) -> None:
        """Start what there is room for."""
        while not self._stopping and (heads := self._first()):
            _, run_id, routine = heapq.heappop(heads)
            _, _, lane = heapq.heappop(self._waiting[routine])
            self._keep(routine, self._waiting[routine])
            del self._known[run_id]
            self._lively.add(routine)
            self._busy[lane.name] += 1
            self._served[routine] = self._clock()
            self._idle.clear()
            task = self.running[run_id] = asyncio.create_task(
                self._one(run_id), name=f"run {run_id}"
            )
            task.add_done_callback(partial(self._done, run_id, routine, lane))

    def _first(self) -> list[_Head] | None:
        """Return the line whose first run is to be started now."""
        found = None
        for name, heads in self._heads.items():
            while heads and not self._stands(*heads[0]):
                heapq.heappop(heads)
            if (
                heads
                and self._has_room(self._lanes[name])
                and (found is None or heads[0] < found[0])
            ):
                found = heads
        return found

    def _stands(self, _turn: datetime, run_id: str, routine: str) -> bool:
        """Tell whether an entry still says what is: another run of the routine may have got before
        it, or be lived.
        """
        waiting = self._waiting.get(routine)
        return waiting is not None and routine not in self._lively and waiting[0][1] == run_id

    def _has_room(self, lane: ConcurrencyGroup) -> bool:
        if lane.limit is not None and self._busy[lane.name] >= lane.limit:
            return False
        beside = (
            count for name, count in self._busy.items() if self._lanes[name].asks == lane.asks
        )
        return sum(beside) < self._max

    def _keep(self, routine: str, waiting: list[_Waiting]) -> None:
        if waiting:
            heapq.heapify(waiting)
            self._waiting[routine] = waiting
        else:
            del self._waiting[routine]

    # --- living

    async def _one(self, run_id: str) -> Run | None:
        try:
            return await self._live(run_id)
        except (
            Exception
        ):  # one run's fault must not stop the others; the run is taken up again at the next start
            log.exception("run.crashed", run=run_id)
            return None

    def _done(
        self, run_id: str, routine: str, lane: ConcurrencyGroup, task: asyncio.Task[Run | None]
    ) -> None:
        self.running.pop(run_id, None)
        self._lively.discard(routine)
        self._busy[lane.name] -= 1
        run = None if task.cancelled() else task.result()
        again = self._again.pop(run_id, None)
        if run is not None and run.status is Status.WAITING:
            self._park(run_id, routine)
            if again:
                self._line_up(again)
        if run is not None and run.status is Status.QUEUED:  # put off: it is ours to try again
            self._wait(run, run.not_before or self._clock())
        self._step_up(routine)
        self._next()
        if not self.running:
            self._idle.set()

    def _park(self, run_id: str, routine: str) -> None:
        self._parked[run_id] = routine
        self._lively.add(routine)

    def _release(self, run_id: str) -> bool:
        """Let other runs of a routine pass one that waits no more for a person; tell whether it
        did.
        """
        routine = self._parked.pop(run_id, None)
        if routine is None or routine in self._parked.values():
            return routine is not None
        self._lively.discard(routine)
        self._step_up(routine)
        return True

    def _wait(self, run: Run, at: datetime) -> None:
        heapq.heappush(self._later, (at, run.id, run))
        self._instants[run.id] = at
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Wake up at the earliest moment at which a run may be tried again."""
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        if self._later and not self._stopping:
            seconds = max(0.0, (self._later[0][0] - self._clock()).total_seconds())
            self._alarm = asyncio.get_running_loop().call_later(seconds, self.start_due)

    def rebuild_order(self) -> None:
        """Let runs that stood in line while the clock was ahead stand there as of now, else all new
        ones pass them.
        """
        self._heads.clear()
        for routine in self._waiting:
            self._step_up(routine)
        self._next()

    def start_due(self) -> None:
        """Put those runs in line whose instant has come; to be called, too, after the clock was
        set.
        """
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            at, run_id, run = heapq.heappop(self._later)
            if self._instants.get(run_id) == at:
                del self._instants[run_id]
                self._line_up(run)
        self._set_alarm()


def _waiting(run: Run, lane: ConcurrencyGroup) -> _Waiting:
    return run.slot, run.id, lane


def _in_order(waiting: _Waiting) -> tuple[datetime, str]:
    return waiting[:2]
