"""The queue of runs: in which order runs are executed by this process, and how many at once.

A run queue is given run ids and nothing else. It does no harm if an id comes twice, late or not at
all: the journal says whether a run may be claimed, and at the next start every run that is left
over is submitted again.

Theory of operation: waiting runs are ordered by the instant at which they were due. Each routine
has one place in that order however many of its runs wait, and after one of them was started the
routine comes after all others that were waiting by then, so no routine keeps another from its turn.
A run whose provider has no capacity is passed over and takes no capacity while it waits. Runs that
ask no model have as much capacity of their own, so a slow vendor never delays them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from daemon.agent.conversations.conversations import ASK, ask_routine
from daemon.errors import DaemonError
from daemon.models import Run, Status
from daemon.runs.spread import spread_delay
from daemon.system.clock import Clock

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.delivery.incidents.model_outages import ModelOutages
    from daemon.runs.parts import RunParts
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.telemetry.metrics import Metrics


log = structlog.get_logger()

NEVER = datetime.min.replace(tzinfo=UTC)  # the last start of a routine that did not start yet


@dataclass(frozen=True, kw_only=True, slots=True)
class ConcurrencyGroup:
    """Runs that ask the same provider, and how many of them may be executed at once."""

    name: str = ""
    limit: int | None = None
    """None: no limit but that of the queue."""
    uses_model: bool = True
    """False for the provider `offline` and for scripts, which ask no model."""


class _WaitingRun(NamedTuple):
    """A run that waits for its turn; in a heap, the one that was due first comes first."""

    due_at: datetime
    run_id: str
    group: ConcurrencyGroup


class _Candidate(NamedTuple):
    """The first waiting run of a routine; in a heap, the one whose routine waits longest comes
    first.
    """

    waits_since: datetime
    run_id: str
    routine: str


def single_group(_run: Run) -> ConcurrencyGroup:
    """Return one group for all runs, where providers do not matter."""
    return ConcurrencyGroup()


class LocalRunQueue:
    """Execute runs as tasks of this process, at most `max_concurrent` at a time.

    Two runs of one routine are never executed at once: a run that is queued behind another one, or
    has cancelled it, waits for its end.
    """

    def __init__(
        self,
        execute: Callable[[str], Awaitable[Run | None]],
        *,
        max_concurrent: int,
        clock: Clock,
        group_of: Callable[[Run], ConcurrencyGroup] = single_group,
    ) -> None:
        """`execute` runs a run id until it ends, waits or is put off, and returns the run; None if
        another process owns it.
        """
        self._execute, self._max_concurrent = execute, max_concurrent
        self._clock, self._group_of = clock, group_of
        self.running: dict[str, asyncio.Task[Run | None]] = {}
        """By run id."""
        self._subagents: dict[str, asyncio.Task[Run | None]] = {}
        """The tasks of sub-agents, for which those of their parents wait, by run id."""
        self._waiting: dict[str, list[_WaitingRun]] = {}
        """By routine, each a heap."""
        self._waiting_routines: dict[str, str] = {}
        """The routine of each waiting run, by run id."""
        self._candidates: dict[str, list[_Candidate]] = {}
        """By group, each a heap of the runs that may be started next; entries that `_is_current`
        denies are left in it until they are first.
        """
        self._groups: dict[str, ConcurrencyGroup] = {}
        self._last_started: dict[str, datetime] = {}
        """When the last run of a routine was started."""
        self._occupied_routines: set[str] = set()
        """Routines with a run that is executed or parked now."""
        self._running_counts: Counter[str] = Counter()
        """Runs that are executed now, by group."""
        self._parked: dict[str, str] = {}
        """The routine of each run that waits for an approval, by run id: no task is kept for such a
        run, but no other run of its routine may start.
        """
        self._resubmitted: dict[str, Run] = {}
        """Runs that were submitted while they were executed: their approval was answered before
        they had stopped.
        """
        self._delayed: list[tuple[datetime, str, Run]] = []
        """A heap of the runs that may not start before an instant."""
        self._delayed_until: dict[str, datetime] = {}
        """The instant of each delayed run, by run id; an entry of the heap with another instant is
        void.
        """
        self._timer: asyncio.TimerHandle | None = None
        """Ends when the first delayed run may start."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    async def submit(self, run: Run) -> None:
        """Execute a run when it is its turn, but not before its `not_before`.

        A run that is delayed already gets the new `not_before`.
        """
        self._enqueue_or_delay(run)

    async def submit_all(self, runs: Iterable[Run]) -> None:
        """Submit the runs that an earlier process left."""
        for run in runs:
            await self.submit(run)

    def hold_parked(self, runs: Iterable[Run]) -> None:
        """Let no other run of their routines start before these runs, which were parked for an
        approval before this process began.
        """
        for run in runs:
            self._park(run.id, run.routine)

    @property
    def capacity(self) -> int:
        """How many runs that ask a model may be executed at a time."""
        return self._max_concurrent

    def set_max_concurrent(self, max_concurrent: int) -> None:
        """Change how many runs may be executed at a time; runs under way go on."""
        self._max_concurrent = max_concurrent
        self._start_runs()

    def positions(self) -> dict[str, int]:
        """Return how many runs come before each waiting run, by run id.

        Runs that ask a model and runs that ask none do not take each other's capacity, so they are
        counted apart.
        """
        entries = []
        for routine, waiting_runs in self._waiting.items():
            is_occupied = routine in self._occupied_routines
            for index, run in enumerate(sorted(waiting_runs)):
                # First the next run of each routine, then their second ones, and so on.
                round_number = index + is_occupied
                waits_since = self._waits_since(run.due_at, routine)
                entries.append((round_number, waits_since, run.run_id, run.group.uses_model))
        counts, positions = Counter[bool](), {}
        for _, _, run_id, uses_model in sorted(entries):
            positions[run_id] = counts[uses_model]
            counts[uses_model] += 1
        return positions

    def queue_position(self, run_id: str) -> int | None:
        """Return how many runs come before this one; None if it does not wait for capacity."""
        return self.positions()[run_id] if run_id in self._waiting_routines else None

    def add_subagent(self, run_id: str, task: asyncio.Task[Run | None]) -> None:
        """Let `interrupt` stop a sub-agent. Its task takes no capacity: that of its parent waits
        for it.
        """
        self._subagents[run_id] = task
        task.add_done_callback(lambda _: self._subagents.pop(run_id, None))

    @property
    def executed_runs(self) -> set[str]:
        """The ids of the runs that are executed now, sub-agents too."""
        return self.running.keys() | self._subagents.keys()

    def interrupt(self, run_id: str) -> bool:
        """Stop a run where it is, tools included; return whether it was executed.

        The journal says whether that cancels or suspends the run. A waiting run leaves the queue.
        """
        routine = self._waiting_routines.pop(run_id, None)
        if routine is not None:
            self._set_waiting(
                routine,
                [run for run in self._waiting[routine] if run.run_id != run_id],
            )
            self._add_candidate(routine)
        if self._unpark(run_id):
            self._start_runs()
        task = self.running.get(run_id) or self._subagents.get(run_id)
        return task.cancel() if task else False

    async def wait_until_idle(self) -> None:
        """Wait until no run is executed."""
        await self._idle.wait()

    async def stop(self, grace: float) -> None:
        """Start nothing more, wait up to `grace` seconds for the runs under way, then cancel their
        tasks, which suspends the runs.
        """
        self._stopping = True
        self._set_timer()
        if self.running:
            log.info("executor.draining", runs=list(self.running), grace=grace)
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            tasks = list(self.running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- the order of waiting runs

    def _enqueue(self, run: Run) -> None:
        if run.id in self.running:
            self._resubmitted[run.id] = run
            return
        if run.id in self._waiting_routines:
            return
        self._unpark(run.id)
        group = self._group_of(run)
        self._groups[group.name] = group
        self._waiting_routines[run.id] = run.routine
        waiting_runs = self._waiting.setdefault(run.routine, [])
        heapq.heappush(waiting_runs, _WaitingRun(run.slot, run.id, group))
        self._add_candidate(run.routine)
        self._start_runs()

    def _add_candidate(self, routine: str) -> None:
        """Add the first waiting run of a routine to the candidates of its group, if it may start
        now.
        """
        if routine not in self._occupied_routines and (waiting_runs := self._waiting.get(routine)):
            first_run = waiting_runs[0]
            waits_since = self._waits_since(first_run.due_at, routine)
            candidates = self._candidates.setdefault(first_run.group.name, [])
            heapq.heappush(candidates, _Candidate(waits_since, first_run.run_id, routine))

    def _waits_since(self, due_at: datetime, routine: str) -> datetime:
        """Return since when a routine waits for its turn, with a run that was due at `due_at`:
        since then, or since its last start if that was later.
        """
        # At most now: slots and starts of a clock that was ahead would let all others pass.
        return min(max(due_at, self._last_started.get(routine, NEVER)), self._clock.now())

    def _start_runs(self) -> None:
        """Start waiting runs until no capacity is left."""
        while not self._stopping and (candidates := self._next_candidates()):
            _, run_id, routine = heapq.heappop(candidates)
            group = heapq.heappop(self._waiting[routine]).group
            self._set_waiting(routine, self._waiting[routine])
            del self._waiting_routines[run_id]
            self._occupied_routines.add(routine)
            self._running_counts[group.name] += 1
            self._last_started[routine] = self._clock.now()
            self._idle.clear()
            task = self.running[run_id] = asyncio.create_task(
                self._execute_guarded(run_id), name=f"run {run_id}"
            )
            task.add_done_callback(partial(self._handle_end, run_id, routine, group))

    def _next_candidates(self) -> list[_Candidate] | None:
        """Return the heap whose first run is to be started now; None if no run may start."""
        next_candidates = None
        for name, candidates in self._candidates.items():
            while candidates and not self._is_current(candidates[0]):
                heapq.heappop(candidates)
            if (
                candidates
                and self._has_capacity(self._groups[name])
                and (next_candidates is None or candidates[0] < next_candidates[0])
            ):
                next_candidates = candidates
        return next_candidates

    def _is_current(self, candidate: _Candidate) -> bool:
        """Tell whether a candidate is still the first waiting run of a routine that may start."""
        waiting_runs = self._waiting.get(candidate.routine)
        return (
            waiting_runs is not None
            and candidate.routine not in self._occupied_routines
            and waiting_runs[0].run_id == candidate.run_id
        )

    def _has_capacity(self, group: ConcurrencyGroup) -> bool:
        if group.limit is not None and self._running_counts[group.name] >= group.limit:
            return False
        running_count = sum(
            count
            for name, count in self._running_counts.items()
            if self._groups[name].uses_model == group.uses_model
        )
        return running_count < self._max_concurrent

    def _set_waiting(self, routine: str, waiting_runs: list[_WaitingRun]) -> None:
        if waiting_runs:
            heapq.heapify(waiting_runs)
            self._waiting[routine] = waiting_runs
        else:
            del self._waiting[routine]

    def rebuild_order(self) -> None:
        """Order the waiting runs anew after the clock was set: runs that were queued while it was
        ahead would let all new ones pass.
        """
        self._candidates.clear()
        for routine in self._waiting:
            self._add_candidate(routine)
        self._start_runs()

    # --- execution

    async def _execute_guarded(self, run_id: str) -> Run | None:
        try:
            return await self._execute(run_id)
        except Exception:
            # One run's fault must not stop the others; the run is submitted again at the next
            # start.
            log.exception("run.crashed", run=run_id)
            return None

    def _handle_end(
        self, run_id: str, routine: str, group: ConcurrencyGroup, task: asyncio.Task[Run | None]
    ) -> None:
        self.running.pop(run_id, None)
        self._occupied_routines.discard(routine)
        self._running_counts[group.name] -= 1
        run = None if task.cancelled() else task.result()
        resubmitted_run = self._resubmitted.pop(run_id, None)
        if run is not None and run.status is Status.WAITING:
            self._park(run_id, routine)
        # Answered meanwhile: while it was parked, or while nothing could be claimed as it still
        # waited for this answer.
        if resubmitted_run and (run is None or run.status is Status.WAITING):
            self._enqueue(resubmitted_run)
        # Put off until later; or answered while it was parked, and executed again at once.
        if run is not None and run.status is Status.QUEUED:
            self._enqueue_or_delay(run)
        self._add_candidate(routine)
        self._start_runs()
        if not self.running:
            self._idle.set()

    def _park(self, run_id: str, routine: str) -> None:
        self._parked[run_id] = routine
        self._occupied_routines.add(routine)

    def _unpark(self, run_id: str) -> bool:
        """Let other runs of its routine start, if this run was parked; return whether it was."""
        routine = self._parked.pop(run_id, None)
        if routine is None:
            return False
        if routine not in self._parked.values():
            self._occupied_routines.discard(routine)
            self._add_candidate(routine)
        return True

    # --- delayed runs

    def _enqueue_or_delay(self, run: Run) -> None:
        if run.not_before is not None and run.not_before > self._clock.now():
            self._delay(run, run.not_before)
        else:
            self._delayed_until.pop(run.id, None)
            self._enqueue(run)

    def _delay(self, run: Run, until: datetime) -> None:
        if self._delayed_until.get(run.id) == until:
            return
        heapq.heappush(self._delayed, (until, run.id, run))
        self._delayed_until[run.id] = until
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer to the instant at which the first delayed run may start."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._delayed and not self._stopping:
            seconds = max(0.0, (self._delayed[0][0] - self._clock.now()).total_seconds())
            self._timer = asyncio.get_running_loop().call_later(seconds, self.start_due)

    def start_due(self) -> None:
        """Queue the delayed runs whose instant has come; to be called after the clock was set,
        too.
        """
        now = self._clock.now()
        while self._delayed and self._delayed[0][0] <= now:
            until, run_id, run = heapq.heappop(self._delayed)
            if self._delayed_until.get(run_id) == until:
                del self._delayed_until[run_id]
                self._enqueue(run)
        self._set_timer()


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
            routine = self.engine.routines.get(run.routine)
            delay = spread_delay(run, routine) if routine else timedelta()
            self.metrics.count_run(run, delay=delay)
            if run.provider and run.status is Status.SUCCEEDED:
                self.model_outages.record_answer(run.provider)
            has_succeeded = self.engine.record_success(run)
            if self.shared:  # one that another process took just now was not notified in time
                await self._read_messages(run_id)
            if not has_succeeded or self.conversations.inbox.has_messages(run.id):
                await asyncio.shield(self.follow_up(run))
        return run

    async def _read_messages(self, run_id: str) -> None:
        """Read the messages to a run that has ended; where the database does not answer, the next
        start of a daemon answers them.
        """
        try:
            self.conversations.inbox.put(await self.journal.runs.find_messages(run_id))
        except DaemonError as error:
            log.error("message.unanswered", run=run_id, problem=str(error))  # noqa: TRY400  no traceback

    async def follow_up(self, run: Run) -> None:
        """Count the failure or success of a routine, and answer messages that its run did not
        read; what starts after it is started by `RunRepository.on_ended`.
        """
        await self.engine.record_end(run)
        await self.conversations.answer_late_messages(run)

    def group_of(self, run: Run) -> ConcurrencyGroup:
        """Return the concurrency group of the provider that a run asks first, as its routine is
        defined now.
        """
        config = self.settings.config
        routines = self.engine.routines
        routine = ask_routine(config) if run.routine == ASK else routines.get(run.base_routine)
        if routine is not None and not routine.run.asks_model:
            return ConcurrencyGroup(name="offline", uses_model=False)
        name = (routine and routine.run.provider) or config.provider
        if name not in config.provider_names:  # it was taken out of the config meanwhile
            return ConcurrencyGroup(name=name)
        provider = config.provider_config(name)
        return ConcurrencyGroup(
            name=name, limit=provider.max_concurrency, uses_model=provider.kind != "offline"
        )
