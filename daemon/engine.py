"""The alarm clock: rings when a routine is due, and has the ledger settle it.

APScheduler wakes us up, with one job per routine, and nothing more. What is due is asked of the schedule and of the
ledger each time, so a ring, a start, a resume, a clock that was set and a `fire` called twice all do the same thing,
and none of them can start a slot again.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import structlog
from apscheduler.job import Job  # type: ignore[import-untyped]
from apscheduler.jobstores.base import BaseJobStore  # type: ignore[import-untyped]
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from apscheduler.schedulers.base import STATE_PAUSED  # type: ignore[import-untyped]
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]

from daemon.almanac import Almanac
from daemon.arrivals import RETRY, Arrivals
from daemon.bell import DirectoryWatcher
from daemon.clock import Clock, machine_id
from daemon.due import next_moment
from daemon.errands import Errands
from daemon.errors import ConfigError, DaemonError, NotFound, Refused
from daemon.hindrances import Afford, anything
from daemon.ledger import AHEAD, SLICE, Ledger, sliced
from daemon.models import Run, new_id
from daemon.occasions import Occasions
from daemon.routines import Changes, Loaded, Routine, compared
from daemon.schedule import Schedule
from daemon.store.journal import Journal, RoutineState
from daemon.timer import Timer, system_timer
from daemon.tools.subagent import SUBAGENT

log = structlog.get_logger()


class RoutineEngine:
    """Knows the routines and when they are due, and starts each slot once."""

    def __init__(
        self,
        *,
        journal: Journal,
        submit: Callable[[Run], Awaitable[None]],
        cancel: Callable[[str], Awaitable[object]],
        clock: Clock,
        zone: str,
        timer: Timer | None = None,
        machine: str | None = None,
        host: str | None = None,
        anywhere: bool = False,
        workspace: Path = Path(),
        directory_watcher: DirectoryWatcher | None = None,
        afford: Afford = anything,
        when_waits_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`when_waits_moved` is called after the clock was set and what waits for an instant was moved accordingly."""
        self._clock, self._journal, self._submit = clock, journal, submit
        self._when_waits_moved = when_waits_moved
        self.almanac = Almanac(
            zone=zone,
            machine=machine_id() if machine is None else machine,
            host=platform.node() if host is None else host,
            anywhere=anywhere,
        )
        self._ledger = Ledger(
            journal=journal, submit=submit, cancel=cancel, clock=clock, almanac=self.almanac, afford=afford
        )
        self._occasions = Occasions(self._ledger, journal, clock)
        self._arrivals = Arrivals(
            self._ledger,
            self._occasions,
            journal,
            workspace,
            directory_watcher or DirectoryWatcher(),
            look_again=self._look_again,
        )
        self._timer = timer
        self._alarm: _Alarm | None = None
        self._faults: Mapping[str, ConfigError] = {}
        self._slots = Errands(
            "slot claims", self._ledger.settle, retry=RETRY, session=self._ledger.open, at_once=2 * AHEAD * SLICE
        )
        self._realigning: asyncio.Task[None] | None = None
        self._steps = 0
        """How often the clock was set."""

    # --- life

    async def load(self, loaded: Loaded) -> None:
        """Take up definitions only: `trigger` works, nothing starts by itself."""
        self._ledger.routines, self._faults = dict(loaded.routines), dict(loaded.faults)

    async def start(self, loaded: Loaded) -> None:
        """Take up the routines, settle what came while nobody was there, and ring from now on."""
        ledger, self._faults = self._ledger, dict(loaded.faults)
        self._alarm = _Alarm(self._timer or system_timer(self._clock), ring=self._ring, stepped=self._clock_set)
        async with ledger.open():
            ledger.up_since = self._clock.now()
            await self._take_up(dict(loaded.routines), fresh=loaded.routines)
            self._alarm.start()
            await self._stand(ledger.schedules)
            await ledger.settle(ledger.schedules)
            await self._occasions.start_of_daemon()
            await self._occasions.first_runs(ledger.routines)
            self._journal.when_ended = self._arrivals.heard_end
            await self._occasions.missed_ends(ledger.schedules)
        self._arrivals.watch()
        log.info("engine.started", routines=len(ledger.routines), zone=self.almanac.zone)

    async def reload(self, loaded: Loaded, *, zone: str | None = None) -> Changes:
        """Go over to new definitions; a file that can no longer be read keeps what it said before."""
        ledger, old = self._ledger, self._ledger.routines
        async with ledger.open():
            # Not on the loop: to compare ten thousand takes 0.1 s.
            new, faults, changes = await asyncio.to_thread(compared, old, loaded)
            moved = zone is not None and zone != self.almanac.zone
            # What is due by the old definition is settled by it.
            await ledger.settle(ledger.schedules if moved else [*changes.changed, *changes.removed])
            fresh = list(new) if moved else [*changes.added, *changes.changed]
            self.almanac.zone, self._faults = zone or self.almanac.zone, faults
            await self._take_up(new, fresh=fresh)
            await self._stand([*fresh, *changes.removed])
            await self._occasions.first_runs([*changes.added, *changes.changed])
            await self._occasions.missed_ends([*changes.added, *changes.changed])
        self._arrivals.watch()
        self._ring(*self._occasions.watches.keys() & set(fresh))  # what hindered them may be gone
        log.info("engine.reloaded", added=changes.added, changed=changes.changed, removed=changes.removed)
        return changes

    async def _take_up(self, routines: Mapping[str, Routine], *, fresh: Iterable[str]) -> None:
        await self._ledger.take_up(routines, fresh=fresh, unread=self._faults)
        self._occasions.take_up()

    async def stop(self) -> None:
        """Ring no more; a claim under way is finished."""
        self._arrivals.close()
        if self._alarm:
            await self._alarm.stop()
        await self._slots.stop()
        await self._arrivals.stop()
        if self._realigning:
            await asyncio.wait([self._realigning])

    # --- what others ask

    @property
    def started(self) -> bool:
        """Whether it rings by itself, or only answers."""
        return self._alarm is not None

    @property
    def routines(self) -> Mapping[str, Routine]:
        return self._ledger.routines

    @property
    def faults(self) -> Mapping[str, ConfigError]:
        return self._faults

    @property
    def states(self) -> Mapping[str, RoutineState]:
        return self._ledger.states

    async def fire(self, name: str) -> Run | None:
        """Settle what is due of one routine; return its run if that started one."""
        async with self._ledger.open():
            runs = await self._ledger.settle([name])
        return runs[0] if runs else None

    async def trigger(self, name: str, *, event: str | None = None, trigger: str = "manual") -> Run:
        """Run a routine now, whatever its hours, pause and gate say; the same event gets the same run.

        NotFound; Refused if the routine cannot be used or a run of it is under way.
        """
        self._known(name)
        return await self._occasions.run_now(name, event=event or new_id(), trigger=trigger)

    async def pause(self, name: str, *, until: datetime | None = None, length: timedelta | None = None) -> None:
        """Let the slots of a routine pass from now on, up to a moment, for a while, or until it is resumed."""
        self._known(name)
        async with self._ledger.open():
            await self._ledger.pause(name, until=until, length=length)

    async def resume(self, name: str) -> None:
        """Let a routine run again; what was due meanwhile stays past, and its failures are forgiven."""
        self._known(name)
        async with self._ledger.open():
            await self._ledger.resume(name)
        self._ring(name)

    async def heed(self) -> None:
        """Take note of what was paused or resumed through another daemon on the same database."""
        if not self.started:
            return
        async with self._ledger.open():
            again = await self._ledger.heed()
        self._ring(*again)

    async def rehearsed(self, name: str) -> None:
        """Let a routine run whose rehearsal was approved; what wants to run at first sight does so now."""
        async with self._ledger.open():
            await self._ledger.is_held_back(name)
            if self.started:
                await self._occasions.first_runs([name])
        if self.started:
            self._ring(name)

    @property
    def unrehearsed(self) -> Collection[str]:
        """The routines that are held back until a rehearsal was approved."""
        return self._ledger.unrehearsed

    async def rename(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Give a routine another name; it is taken up by the next reload. NotFound; Refused; what `move` raises."""
        self._known(old)
        async with self._ledger.open():
            await self._ledger.rename(old, new, move)
            self._occasions.take_up()
            if self._alarm:
                self._alarm.set(old, None, self._clock.now())
        self._arrivals.watch()

    async def hook(self, name: str, *, event: str, body: Any) -> Run:
        """Start a routine by a webhook; the same event gets the same run.

        NotFound; Refused while the routine may not run: nothing is kept then, the sender is to come again.
        """
        async with self._ledger.open():
            return await self._occasions.hook(name, event=event, body=body)

    @property
    def hooks(self) -> list[str]:
        """The routines that a webhook starts."""
        return [name for name in self._ledger.schedules if self.routines[name].trigger.webhook]

    def is_content_with(self, run: Run) -> bool:
        """Tell whether there is nothing to be done about a run's end, and take note of it then."""
        return self._ledger.is_content_with(run)

    async def ended(self, run: Run) -> None:
        """Take note of a run's end."""
        await self._ledger.ended(run)

    def next_fires(self, name: str, count: int = 3, *, after: datetime | None = None) -> list[datetime]:
        """Return the next slots within the routine's hours, from now on or after a moment."""
        self._known(name)
        schedule, moment = self._ledger.schedules.get(name), after or self._clock.now()
        number = self.routines[name].gate.moments
        fires: list[datetime] = []
        while schedule and len(fires) < count:
            slot = next_moment(schedule, name, number, moment) if number else schedule.next_active(moment)
            if slot is None:
                break
            fires.append(slot)
            moment = slot
        return fires

    def schedule(self, routine: Routine) -> Schedule:
        """Return when a routine runs, whether it is enabled or not."""
        return self.almanac.schedule(routine)

    def _known(self, name: str) -> None:
        if name in self.routines:
            return
        if fault := self._faults.get(name):
            raise Refused(f"{name} cannot be used: {fault.faults[0]}")
        raise NotFound(f"there is no routine {name!r}; agentctl list shows those there are")

    # --- ringing

    async def _stand(self, names: Iterable[str]) -> None:
        """Set the alarm of each routine to its next start."""
        assert self._alarm  # noqa: S101  started
        with self._alarm.held():
            for some in sliced(names):
                now = self._clock.now()
                for name in some:
                    self._alarm.set(name, self._ledger.schedules.get(name), now)
                await asyncio.sleep(0)

    def _ring(self, *names: str) -> None:
        watches = self._occasions.watches
        self._slots.add(*(name for name in names if name not in watches))
        for name in watches.keys() & set(names):
            self._arrivals.look(name)

    def _look_again(self, name: str, at: datetime) -> None:
        if self._alarm:
            self._alarm.set_once(name, at)

    def _clock_set(self) -> None:
        self._steps += 1
        if self._realigning is None or self._realigning.done():
            self._realigning = asyncio.create_task(self._realign(), name="clock set")

    async def _realign(self) -> None:
        """Ask for everything anew: after a step of the clock no alarm, and no floor in the future, can be trusted."""
        try:
            steps = 0
            while steps != self._steps:  # it may be set once more before this is done
                steps = self._steps
                log.info("engine.clock_set", now=self._clock.now().isoformat())
                try:
                    for run in (await self._journal.move_waits()).runs:
                        if run.trigger != SUBAGENT:  # its parent takes it up
                            await self._submit(run)
                    self._when_waits_moved()
                except DaemonError as error:  # no room, or no database: slots are put right all the same
                    log.warning("clock.waits_not_moved", detail=str(error))
                async with self._ledger.open():
                    await self._ledger.realign()
                    await self._stand(self._ledger.schedules)
        except Exception:  # the rings below find what is due; the next one of each routine stands where it stood
            log.exception("engine.realign_failed")
        self._ring(*self._ledger.schedules)


# --- APScheduler -----------------------------------------------------------------------------------


class _Alarm:
    """One job per routine, on one alarm of the system."""

    def __init__(self, timer: Timer, *, ring: Callable[..., None], stepped: Callable[[], None]) -> None:
        self._timer, self._ring, self._stepped = timer, ring, stepped
        self._scheduler = _Scheduler(timer, ring)

    def start(self) -> None:
        self._timer.open(rang=self._scheduler.rang, stepped=self._stepped)
        self._scheduler.start(paused=True)

    async def stop(self) -> None:
        self._timer.close()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it takes its leave in the loop's next turn

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing ring in this block: on a running scheduler each change would wake it."""
        self._scheduler.pause()
        try:
            yield
        finally:
            if self._scheduler.running:
                self._scheduler.resume()

    def set(self, name: str, schedule: Schedule | None, now: datetime) -> None:
        """Set the alarm of a routine to its next start, or take it away."""
        at = schedule.next_start(now) if schedule else None
        self._set(name, _StartTrigger(schedule) if schedule else _OnceTrigger(), at)

    def set_once(self, name: str, at: datetime) -> None:
        """Set the alarm of a routine to one moment."""
        self._set(name, _OnceTrigger(), at)

    def _set(self, name: str, trigger: BaseTrigger, at: datetime | None) -> None:
        if self._scheduler.get_job(name):
            self._scheduler.remove_job(name)
        if at:
            # the library wants to know what it would call; `_process_jobs` rings for many by their ids
            self._scheduler.add_job(self._ring, trigger, args=(name,), id=name, name=name, next_run_time=at)


class _OnceTrigger(BaseTrigger):  # type: ignore[misc]
    """Has been set to its only moment already."""

    __slots__ = ()
    schedule = None

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return None


class _StartTrigger(BaseTrigger):  # type: ignore[misc]
    """Asks the schedule for the next start."""

    __slots__ = ("schedule",)

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        # From the later of the two, so that an outage is one step.
        return self.schedule.next_start(max(previous_fire_time or now, now))


class _Scheduler(AsyncIOScheduler):  # type: ignore[misc]
    """An AsyncIOScheduler that sleeps on our alarm instead of the loop's monotonic one, and rings for many at once."""

    def __init__(self, timer: Timer, ring: Callable[..., None]) -> None:
        self._timer, self._ring = timer, ring
        self._alarms = _SlicedJobStore()
        quiet = logging.getLogger("daemon.engine.apscheduler")
        quiet.setLevel(logging.ERROR)  # it tells of each job added and run; the ledger says it better
        super().__init__(timezone=UTC, logger=quiet, jobstores={"default": self._alarms})

    def rang(self) -> None:
        """Do what is due now: `wakeup` would do so in the loop's next turn, as it may be called from any thread."""
        self._start_timer(self._process_jobs())

    def _process_jobs(self) -> float | None:
        """Ring for what is due, and set each job to its next start.

        The library's own way makes an event for each job, asks its trigger twice more, and goes through an executor:
        for ten thousand jobs of one instant four times the work, and here nobody listens.
        """
        if self.state == STATE_PAUSED:
            return None
        now = datetime.now(UTC)
        due = self._alarms.get_due_jobs(now)
        # A slot is judged by its own rules, however late the ring; so several starts of one job are one ring.
        self._ring(*(job.id for job in due))
        following: dict[int, datetime | None] = {}  # by schedule: those who share one share the answer
        for job in due:
            like = id(job.trigger.schedule)
            if like not in following:
                following[like] = job.trigger.get_next_fire_time(job.next_run_time, now)
            job.next_run_time = following[like]
            if job.next_run_time:
                self._alarms.update_job(job)
            else:
                self._alarms.remove_job(job.id)
        return 0.0

    def _start_timer(self, wait_seconds: float | None) -> None:
        self._timer.set(None if wait_seconds is None else self._alarms.get_next_run_time())

    def _stop_timer(self) -> None:
        """Nothing: the alarm is set anew, never added."""


class _SlicedJobStore(BaseJobStore):  # type: ignore[misc]
    """Hands out so many due jobs per wake-up; the rest is due still, so the next wake-up comes at once.

    A heap of instants, each with the jobs that stand at it: moving ten thousand jobs through the sorted list of
    APScheduler's own store costs more than all else.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, tuple[float | None, Job]] = {}
        """With the instant that each stands at; None: it was handed out."""
        self._heap: list[float] = []
        self._standing: dict[float, deque[str]] = {}
        """Some entries have been overtaken: what they say is not what `_jobs` says."""

    def get_due_jobs(self, now: datetime) -> list[Job]:
        # Each of them is updated or removed before anybody asks again.
        due, limit = list[Job](), now.timestamp()
        while len(due) < SLICE and (job := self._first()) and self._heap[0] <= limit:
            name = self._standing[self._heap[0]].popleft()
            self._jobs[name] = None, job
            due.append(job)
        return due

    def get_next_run_time(self) -> datetime | None:
        job = self._first()
        return job.next_run_time if job else None

    def _first(self) -> Job | None:
        """Return the job that is due first, at the head of the first queue."""
        while self._heap:
            at = self._heap[0]
            names = self._standing[at]
            while names:
                found, job = self._jobs.get(names[0], _GONE)
                if found == at:
                    return job
                names.popleft()
            del self._standing[heappop(self._heap)]
        return None

    def add_job(self, job: Job) -> None:
        at = job.next_run_time.timestamp()
        self._jobs[job.id] = at, job
        if (names := self._standing.get(at)) is None:
            names = self._standing[at] = deque()
            heappush(self._heap, at)
        names.append(job.id)

    update_job = add_job

    def lookup_job(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id, _GONE)[1]

    def get_all_jobs(self) -> list[Job]:
        return [job for _, job in sorted(self._jobs.values(), key=lambda each: each[0] or 0.0)]

    def remove_job(self, job_id: str) -> None:
        del self._jobs[job_id]

    def remove_all_jobs(self) -> None:
        self._jobs.clear()
        self._heap.clear()
        self._standing.clear()


_GONE: tuple[float | None, Job | None] = (None, None)
