"""The engine of routines: APScheduler rings when one is due, and the ledger settles its slots.

Each routine that starts by itself is a job of APScheduler's. Its trigger asks our schedule for the
next start, and the job does nothing but note the routine's name, so that it never holds up the
loop. What is due is asked of the schedule and of the ledger each time, so a ring, a start, a
resume, a clock that was set and a `fire` called twice all do the same thing, and none of them can
start a slot again. APScheduler therefore lets every job run however late it is
(`misfire_grace_time=None`), once for all starts that have passed (`coalesce=True`).

APScheduler sleeps on a timer of the event loop, which takes no notice of the wall clock. So after a
jump of that clock each job is given its next start anew (`clock_was_set`). To wake APScheduler is
not enough: after a step back the next starts are too far ahead.
"""

from __future__ import annotations

import asyncio
import math
import platform
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import structlog
from apscheduler.executors.debug import DebugExecutor  # type: ignore[import-untyped]
from apscheduler.job import Job  # type: ignore[import-untyped]
from apscheduler.jobstores.base import (  # type: ignore[import-untyped]
    BaseJobStore,
    ConflictingIdError,
    JobLookupError,
)
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]
from apscheduler.triggers.date import DateTrigger  # type: ignore[import-untyped]

from daemon.definitions.routines.folder import Changes, Loaded, compared
from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.errors import ConfigError, DaemonError, NotFound, Refused
from daemon.models import Run, new_id
from daemon.scheduler.pending_triggers import RETRY, PendingTriggers
from daemon.scheduler.routine_times import named
from daemon.scheduler.skip_reasons import Afford, anything
from daemon.scheduler.slot_ledger import AHEAD, SLICE, Ledger, sliced
from daemon.scheduler.slots import next_moment
from daemon.scheduler.triggers import Triggers
from daemon.store.journal import Journal, RoutineState
from daemon.system.clock import Clock, machine_id
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.system.watch import DirectoryWatcher
from daemon.tools.builtin.subagent import SUBAGENT

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
        event_loop: asyncio.AbstractEventLoop | None = None,
        machine: str | None = None,
        host: str | None = None,
        anywhere: bool = False,
        workspace: Path = Path(),
        directory_watcher: DirectoryWatcher | None = None,
        afford: Afford = anything,
        when_waits_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Make an engine that does nothing yet.

        `event_loop`: whose timers APScheduler sleeps on; None: the loop that runs at the start.
        `when_waits_moved` is called after the clock was set and what waits for an instant was moved
        accordingly.
        """
        self._clock, self._journal, self._submit = clock, journal, submit
        self._when_waits_moved = when_waits_moved
        self._ledger = Ledger(
            journal=journal,
            submit=submit,
            cancel=cancel,
            clock=clock,
            zone=zone,
            machine=machine_id() if machine is None else machine,
            host=platform.node() if host is None else host,
            anywhere=anywhere,
            afford=afford,
        )
        self._triggers = Triggers(self._ledger, journal, clock)
        self._pending_triggers = PendingTriggers(
            self._ledger,
            self._triggers,
            journal,
            workspace,
            directory_watcher or DirectoryWatcher(),
            look_again=self._look_again,
        )
        self._event_loop = event_loop
        self._scheduler: AsyncIOScheduler | None = None
        self._faults: Mapping[str, ConfigError] = {}
        self._slots = CoalescingQueue(
            "slot claims",
            self._ledger.settle,
            retry=RETRY,
            session=self._ledger.open,
            at_once=2 * AHEAD * SLICE,
        )
        self._realigning: asyncio.Task[None] | None = None
        self._clock_changes = 0
        """How often the clock was set."""

    # --- life

    async def load(self, loaded: Loaded) -> None:
        """Take up definitions only: `trigger` works, nothing starts by itself."""
        self._ledger.routines, self._faults = dict(loaded.routines), dict(loaded.faults)

    async def start(self, loaded: Loaded) -> None:
        """Take up the routines, settle what came while nobody was there, and ring from now on."""
        ledger, self._faults = self._ledger, dict(loaded.faults)
        self._scheduler = AsyncIOScheduler(
            event_loop=self._event_loop,
            timezone=UTC,
            jobstores={"default": SlicedJobStore()},
            executors={"default": DebugExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )
        self._scheduler.start(paused=True)
        async with ledger.open():
            ledger.up_since = self._clock.now()
            await self._take_up(dict(loaded.routines), fresh=loaded.routines)
            await self._schedule_next_starts(ledger.schedules)
            await ledger.settle(ledger.schedules)
            await self._triggers.start_of_daemon()
            await self._triggers.first_runs(ledger.routines)
            self._journal.runs.when_ended = self._pending_triggers.heard_end
            await self._triggers.missed_ends(ledger.schedules)
        self._pending_triggers.watch()
        log.info("engine.started", routines=len(ledger.routines), zone=self.zone)

    async def reload(self, loaded: Loaded, *, zone: str | None = None) -> Changes:
        """Go over to new definitions; a file that can no longer be read keeps what it said
        before.
        """
        ledger, old = self._ledger, self._ledger.routines
        async with ledger.open():
            # Not on the loop: to compare ten thousand takes 0.1 s.
            new, faults, changes = await asyncio.to_thread(compared, old, loaded)
            moved = zone is not None and zone != self.zone
            # What is due by the old definition is settled by it.
            await ledger.settle(ledger.schedules if moved else [*changes.changed, *changes.removed])
            fresh = list(new) if moved else [*changes.added, *changes.changed]
            ledger.zone, self._faults = zone or ledger.zone, faults
            await self._take_up(new, fresh=fresh)
            await self._schedule_next_starts([*fresh, *changes.removed])
            await self._triggers.first_runs([*changes.added, *changes.changed])
            await self._triggers.missed_ends([*changes.added, *changes.changed])
        self._pending_triggers.watch()
        self._ring(*self._triggers.watches.keys() & set(fresh))  # what hindered them may be gone
        log.info(
            "engine.reloaded", added=changes.added, changed=changes.changed, removed=changes.removed
        )
        return changes

    async def _take_up(self, routines: Mapping[str, Routine], *, fresh: Iterable[str]) -> None:
        await self._ledger.take_up(routines, fresh=fresh, unread=self._faults)
        self._triggers.take_up()

    async def stop(self) -> None:
        """Ring no more; a claim under way is finished."""
        self._pending_triggers.close()
        if self._realigning:
            await asyncio.wait([self._realigning])
        if self._scheduler and self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it stops in the loop's next turn
        await self._slots.stop()
        await self._pending_triggers.stop()

    # --- what others ask

    @property
    def started(self) -> bool:
        """Whether it rings by itself, or only answers."""
        return self._scheduler is not None

    @property
    def zone(self) -> str:
        """The time zone of routines that name none."""
        return self._ledger.zone

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
        """Run a routine now, whatever its hours, pause and gate say; the same event gets the same
        run.

        NotFound; Refused if the routine cannot be used or a run of it is under way.
        """
        self._known(name)
        return await self._triggers.run_now(name, event=event or new_id(), trigger=trigger)

    async def pause(
        self, name: str, *, until: datetime | None = None, length: timedelta | None = None
    ) -> None:
        """Let the slots of a routine pass from now on, up to a moment, for a while, or until it is
        resumed.
        """
        self._known(name)
        async with self._ledger.open():
            await self._ledger.pause(name, until=until, length=length)

    async def resume(self, name: str) -> None:
        """Let a routine run again; what was due meanwhile stays past, and its failures are
        forgiven.
        """
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
        """Let a routine run whose rehearsal was approved; what wants to run at first sight does so
        now.
        """
        async with self._ledger.open():
            await self._ledger.is_held_back(name)
            if self.started:
                await self._triggers.first_runs([name])
        if self.started:
            self._ring(name)

    @property
    def unrehearsed(self) -> Collection[str]:
        """The routines that are held back until a rehearsal was approved."""
        return self._ledger.unrehearsed

    async def rename(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Give a routine another name; it is taken up by the next reload.

        NotFound; Refused; what `move` raises.
        """
        self._known(old)
        async with self._ledger.open():
            await self._ledger.rename(old, new, move)
            self._triggers.take_up()
            if self._scheduler:
                self._schedule_next_start(old, self._clock.now())
        self._pending_triggers.watch()

    async def hook(self, name: str, *, event: str, body: Any) -> Run:
        """Start a routine by a webhook; the same event gets the same run.

        NotFound; Refused while the routine may not run: nothing is kept then, the sender is to come
        again.
        """
        async with self._ledger.open():
            return await self._triggers.hook(name, event=event, body=body)

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

    def next_fires(
        self, name: str, count: int = 3, *, after: datetime | None = None
    ) -> list[datetime]:
        """Return the next slots within the routine's hours, from now on or after a moment."""
        self._known(name)
        schedule, moment = self._ledger.schedules.get(name), after or self._clock.now()
        number = self.routines[name].gate.moments
        fires: list[datetime] = []
        while schedule and len(fires) < count:
            slot = (
                next_moment(schedule, name, number, moment)
                if number
                else schedule.next_active(moment)
            )
            if slot is None:
                break
            fires.append(slot)
            moment = slot
        return fires

    def schedule(self, routine: Routine) -> Schedule:
        """Return when a routine runs, whether it is enabled or not."""
        return self._ledger.schedule(routine)

    def words(self, routine: Routine) -> str:
        """Return in English when a routine runs."""
        words, number = (
            self.schedule(routine).words(routine.trigger.event_words),
            routine.gate.moments,
        )
        if number:
            words = (
                f"at {f'{number} random moments' if number > 1 else 'a random moment'} of a day "
                f"({words})"
            )
        elsewhere = self.elsewhere(routine)
        return f"{words}; {elsewhere}" if elsewhere else words

    def elsewhere(self, routine: Routine) -> str:
        """Return why a routine is not started by this host; empty if it is."""
        if self._ledger.is_started_here(routine):
            return ""
        return (
            f"not on this machine: {self._ledger.host} is none of "
            f"{', '.join(routine.trigger.machines)}"
        )

    def may_live_here(self, routine: Routine) -> bool:
        """Tell whether a routine is for this host, whoever starts it."""
        return named(routine.trigger.machines, self._ledger.host)

    def _known(self, name: str) -> None:
        if name in self.routines:
            return
        if fault := self._faults.get(name):
            raise Refused(f"{name} cannot be used: {fault.faults[0]}")
        raise NotFound(f"there is no routine {name!r}; agentctl list shows those there are")

    # --- ringing

    async def _schedule_next_starts(self, names: Iterable[str]) -> None:
        """Give each routine's job its next start anew."""
        assert self._scheduler  # noqa: S101  started
        self._scheduler.pause()  # else each change would wake it
        try:
            for some in sliced(names):
                now = self._clock.now()
                for name in some:
                    self._schedule_next_start(name, now)
                await asyncio.sleep(0)
        finally:
            if self._scheduler.running:
                self._scheduler.resume()

    def _schedule_next_start(self, name: str, now: datetime) -> None:
        """Give a routine's job its next start anew; a routine that does not start by itself has no
        job.
        """
        schedule = self._ledger.schedules.get(name)
        trigger = StartTrigger(name, schedule) if schedule else None
        if trigger and (start := trigger.get_next_fire_time(None, now)):
            self._add_job(name, trigger, start)
        elif self._scheduler and self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def _add_job(self, name: str, trigger: BaseTrigger, start: datetime) -> None:
        if self._scheduler:
            self._scheduler.add_job(
                self._ring,
                trigger,
                args=(name,),
                id=name,
                name=name,
                next_run_time=start,
                replace_existing=True,
            )

    def _ring(self, *names: str) -> None:
        watches = self._triggers.watches
        self._slots.add(*(name for name in names if name not in watches))
        for name in watches.keys() & set(names):
            self._pending_triggers.look(name)

    def _look_again(self, name: str, at: datetime) -> None:
        self._add_job(name, DateTrigger(at, timezone=UTC), at)

    def clock_was_set(self) -> None:
        """Reckon everything anew, in a task of its own: the clock was set, or the machine woke from
        suspend.
        """
        if self._scheduler is None or not self._scheduler.running:
            return
        self._clock_changes += 1
        if self._realigning is None or self._realigning.done():
            self._realigning = asyncio.create_task(self._realign(), name="clock set")

    async def _realign(self) -> None:
        """Ask for everything anew: after a step of the clock no next start, and no floor in the
        future, is true.
        """
        try:
            changes = 0
            while changes != self._clock_changes:  # it may be set once more before this is done
                changes = self._clock_changes
                log.info("engine.clock_set", now=self._clock.now().isoformat())
                try:
                    for run in (await self._journal.move_waits()).runs:
                        if run.trigger != SUBAGENT:  # its parent takes it up
                            await self._submit(run)
                    self._when_waits_moved()
                except (
                    DaemonError
                ) as error:  # no room, or no database: slots are put right all the same
                    log.warning("clock.waits_not_moved", detail=str(error))
                async with self._ledger.open():
                    await self._ledger.realign()
                    await self._schedule_next_starts(self._ledger.schedules)
        except (
            Exception
        ):  # the rings below find what is due; the next one of each routine stands where it stood
            log.exception("engine.realign_failed")
        self._ring(*self._ledger.schedules)


# --- APScheduler
# -----------------------------------------------------------------------------------


class StartTrigger(BaseTrigger):  # type: ignore[misc]
    """Ask a routine's schedule when its next run is to start."""

    __slots__ = ("_routine", "_schedule")

    def __init__(self, routine: str, schedule: Schedule) -> None:
        self._routine, self._schedule = routine, schedule

    def get_next_fire_time(
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        # From the later of the two, so that APScheduler does not go through every start of an
        # outage one by one.
        after = max(previous_fire_time or now, now)
        try:
            return self._schedule.next_start(after)
        except Exception:  # raised, it would end APScheduler's loop, and with it all other routines
            log.exception("routine.start_unknown", routine=self._routine, retry=RETRY)
            return after + timedelta(seconds=RETRY)


class SlicedJobStore(BaseJobStore):  # type: ignore[misc]
    """Keep jobs in memory, and hand out so many due ones at a time that the event loop is not held
    up.

    The others stay due, so APScheduler asks for them in one of the loop's next turns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, tuple[float, Job]] = {}
        """By id, each with the instant at which it is due; a paused job at infinity."""
        self._order: list[tuple[float, str]] = []
        """These instants and ids, the earliest first."""

    def lookup_job(self, job_id: str) -> Job | None:
        return self._jobs[job_id][1] if job_id in self._jobs else None

    def get_due_jobs(self, now: datetime) -> list[Job]:
        count = bisect_right(self._order, now.timestamp(), key=itemgetter(0))
        return [self._jobs[job_id][1] for _, job_id in self._order[: min(count, SLICE)]]

    def get_next_run_time(self) -> datetime | None:
        return self._jobs[self._order[0][1]][1].next_run_time if self._order else None

    def get_all_jobs(self) -> list[Job]:
        return [self._jobs[job_id][1] for _, job_id in self._order]

    def add_job(self, job: Job) -> None:
        if job.id in self._jobs:
            raise ConflictingIdError(job.id)
        instant = job.next_run_time.timestamp() if job.next_run_time else math.inf
        self._jobs[job.id] = instant, job
        insort(self._order, (instant, job.id))

    def update_job(self, job: Job) -> None:
        self.remove_job(job.id)
        self.add_job(job)

    def remove_job(self, job_id: str) -> None:
        if job_id not in self._jobs:
            raise JobLookupError(job_id)
        instant, _ = self._jobs.pop(job_id)
        del self._order[bisect_left(self._order, (instant, job_id))]

    def remove_all_jobs(self) -> None:
        self._jobs.clear()
        self._order.clear()
