"""The routine engine: APScheduler fires when a routine is due, and the slot ledger starts its run.

Each routine with a schedule is one job of APScheduler. Its trigger asks our schedule for the next
start, and the job only queues the routine's name, so it never holds up the event loop. What is due
is then read from the schedule and the ledger, so a job that fires, the start of the daemon, a
resume, a clock that was set and a job that fires twice all lead to the same result, and none of
them can start a slot twice. APScheduler therefore runs every job however late it is
(`misfire_grace_time=None`), and once for all fire times that have passed (`coalesce=True`).

APScheduler sleeps on a timer of the event loop, which does not follow the wall clock. So after the
clock was set each job gets its next fire time anew (`handle_clock_change`). To wake APScheduler is
not enough: after a step back the fire times it has are too far ahead.
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

from daemon.definitions.routines.folder import (
    PSEUDO_ROUTINES,
    FolderContents,
    RoutineChanges,
    compare_with_old,
)
from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.errors import ConfigError, DaemonError, NotFound, Refused
from daemon.models import Json, Run, new_id
from daemon.scheduler.pacing import Pacing
from daemon.scheduler.routine_times import matches_host
from daemon.scheduler.skip_reasons import CapCheck, no_cap
from daemon.scheduler.slot_ledger import BATCH_SIZE, MAX_BATCHES_IN_FLIGHT, SlotLedger, in_batches
from daemon.scheduler.slots import next_random_moment
from daemon.scheduler.triggers import LOOK_PERIOD, RETRY_SECONDS, EventTriggers
from daemon.store.journal import Journal, RoutineState
from daemon.system.clock import Clock, machine_id
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.system.intervals import until_next_multiple
from daemon.system.watch import DirectoryWatcher
from daemon.tools.builtin.subagent import SUBAGENT

log = structlog.get_logger()

# Seconds between two checks for routines that are due and were not taken.
LATENESS_CHECK_SECONDS = 30.0
# The id of the job that looks at all watched files; no routine can have such a name.
_DAILY_LOOK = "all files"


class RoutineEngine:
    """Know the routines and when they are due, and start each slot once."""

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
        shared_journal: bool = False,
        workspace: Path = Path(),
        directory_watcher: DirectoryWatcher | None = None,
        find_used_up_cap: CapCheck = no_cap,
        on_waits_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Make an engine without routines; `load` or `start` brings them.

        `submit` puts a run that was started into the run queue; `cancel` stops a run by its id.
        `event_loop`: whose timers APScheduler sleeps on; None: the loop that runs at the start.
        `zone` is the time zone of routines that name none. `machine` is the machine id and `host`
        the host name; None: of this machine. `shared_journal`: several machines share the journal.
        `find_used_up_cap` returns the cap that leaves no room for a run of a routine.
        `on_waits_moved` is called after the clock was set and the journal has moved the instants
        that deliveries and approvals wait for.
        """
        self._clock, self._journal, self._submit = clock, journal, submit
        self._has_shared_journal = shared_journal
        self._on_waits_moved = on_waits_moved
        self._ledger = SlotLedger(
            journal=journal,
            submit=submit,
            cancel=cancel,
            clock=clock,
            zone=zone,
            machine=machine_id() if machine is None else machine,
            host=platform.node() if host is None else host,
            shared_journal=shared_journal,
            find_used_up_cap=find_used_up_cap,
        )
        self._triggers = EventTriggers(
            self._ledger,
            journal,
            clock,
            workspace,
            directory_watcher or DirectoryWatcher(),
            schedule_scan=self._schedule_scan,
        )
        self._pacing = Pacing(
            self._ledger,
            journal,
            clock,
            self._triggers,
            schedule_check=self._schedule_paced_start,
        )
        self._event_loop = event_loop
        self._scheduler: AsyncIOScheduler | None = None
        self._job_store = BatchedJobStore()
        self._faults: Mapping[str, ConfigError] = {}
        self._has_unscheduled = False
        """Whether the last reload failed after it had begun to take the routines: the next one
        schedules all of them.
        """
        self._unhandled_removals: set[str] = set()
        """Routines that a reload has removed, until their jobs and incidents are gone, too."""
        self._due_queue = CoalescingQueue(
            "slot claims",
            self._ledger.process_due,
            retry=RETRY_SECONDS,
            session=self._ledger.lock,
            batch_size=2 * MAX_BATCHES_IN_FLIGHT * BATCH_SIZE,
        )
        self._correction_task: asyncio.Task[None] | None = None
        self._clock_changes = 0
        """How often the clock was set."""
        self._clock_changes_at_check = self._clock_changes_before = 0
        """How often it had been set at the last check of `watch_lateness`, and the one before."""
        self._overdue_start: datetime | None = None
        """What was due at the last check and had not been taken."""

    # --- start, reload, stop

    async def load(self, contents: FolderContents) -> None:
        """Take the routines only: `run_now` works, nothing starts by itself."""
        self._ledger.routines, self._faults = dict(contents.routines), dict(contents.faults)

    async def load_with_states(self, contents: FolderContents) -> None:
        """Take the routines without starting any by itself, and read what the journal has of each:
        besides `run_now`, `pause` and `resume` work, and `states` is complete.
        """
        routines, self._faults = dict(contents.routines), dict(contents.faults)
        await self._ledger.set_unscheduled_routines(routines, unreadable=contents.faults)

    async def start(self, contents: FolderContents) -> None:
        """Take the routines, process what became due while no daemon ran, and schedule the rest."""
        ledger, self._faults = self._ledger, dict(contents.faults)
        self._job_store = BatchedJobStore()
        self._scheduler = AsyncIOScheduler(
            event_loop=self._event_loop,
            timezone=UTC,
            jobstores={"default": self._job_store},
            executors={"default": DebugExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )
        self._scheduler.start(paused=True)
        async with ledger.lock():
            ledger.up_since = self._clock.now()
            # Of a shared journal, another machine may have the routines of an open incident.
            if not self._has_shared_journal:
                await self._close_incidents_of_removed(
                    await self._journal.incidents.get_open_subjects()
                )
            await self._set_routines(dict(contents.routines), changed_names=contents.routines)
            await self._schedule_next_starts(ledger.schedules)
            await ledger.process_due(ledger.schedules)
            await self._triggers.start_on_start()
            await self._triggers.start_first_runs(ledger.routines)
            # From here on ends are queued; those before are found by start_after_missed_ends.
            self._journal.runs.on_ended = self._note_ended_run
            await self._triggers.start_after_missed_ends(ledger.schedules)
            await self._pacing.start_due(self._pacing.routines)
        self._watch_files()
        log.info("engine.started", routines=len(ledger.routines), zone=self.zone)

    async def reload(self, contents: FolderContents, *, zone: str | None = None) -> RoutineChanges:
        """Replace the routines; return what has changed.

        A routine whose file has faults now keeps its old definition. `zone`: the new time zone of
        routines that name none; None: as before.
        """
        ledger, old_routines = self._ledger, self._ledger.routines
        async with ledger.lock():
            # In a thread: to compare ten thousand takes 0.1 s.
            new_routines, faults, changes = await asyncio.to_thread(
                compare_with_old, old_routines, contents
            )
            zone_changes = zone is not None and zone != self.zone
            # What is due by the old definitions is processed by them.
            await ledger.process_due(
                ledger.schedules if zone_changes else [*changes.changed, *changes.removed]
            )
            new_names = [*changes.added, *changes.changed]
            if self._has_unscheduled:
                new_names = list(new_routines)
            names = list(new_routines) if zone_changes else new_names
            ledger.zone, self._faults = zone or ledger.zone, faults
            self._has_unscheduled = True
            self._unhandled_removals.update(changes.removed)
            await self._set_routines(new_routines, changed_names=names)
            await self._schedule_next_starts([*names, *self._unhandled_removals])
            await self._triggers.start_first_runs(new_names)
            await self._triggers.start_after_missed_ends(new_names)
            await self._pacing.start_due(names)
        await self._close_incidents_of_removed(
            f"routine {name}" for name in self._unhandled_removals
        )
        self._watch_files()
        # What kept a routine from starting for its files may be gone.
        for name in names:
            self._triggers.scan_files_of(name)
        self._has_unscheduled = False
        self._unhandled_removals.clear()
        log.info(
            "engine.reloaded", added=changes.added, changed=changes.changed, removed=changes.removed
        )
        return changes

    async def _set_routines(
        self, routines: Mapping[str, Routine], *, changed_names: Collection[str]
    ) -> None:
        names = [*changed_names, *(self._ledger.routines.keys() - routines.keys())]
        try:
            await self._ledger.set_routines(
                routines, changed_names=changed_names, unreadable=self._faults
            )
        finally:  # it may have taken the routines before it failed
            self._triggers.read_routines(names)
            self._pacing.read_routines(names)

    def _note_ended_run(self, run: Run) -> None:
        """Queue what follows on the end of a run."""
        self._triggers.queue_end(run)
        self._pacing.queue_check(run.routine)

    async def _close_incidents_of_removed(self, subjects: Iterable[str]) -> None:
        """Close the incidents of these subjects whose routine has no file any more."""
        names = {
            subject.removeprefix("routine ")
            for subject in subjects
            if subject.startswith("routine ")
        }
        await self._journal.incidents.close_of_removed(
            names - self.routines.keys() - self._faults.keys() - set(PSEUDO_ROUTINES)
        )

    async def stop(self) -> None:
        """Start nothing more; claims under way are finished."""
        self._triggers.close()
        if self._correction_task:
            await asyncio.wait([self._correction_task])
        if self._scheduler and self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # it stops in the loop's next turn
        await self._due_queue.stop()
        await self._pacing.stop()
        await self._triggers.stop()

    async def watch_lateness(self, *, check_every: float = LATENESS_CHECK_SECONDS) -> None:
        """Every `check_every` seconds, make up for waits that were moved too early and for a timer
        that was lost.
        """
        while True:
            await asyncio.sleep(until_next_multiple(check_every))
            await self._move_late_waits()
            self._wake_scheduler_if_late()

    async def _move_late_waits(self) -> None:
        """After the clock was set, move waits once more: a run that ended at that moment may have
        written the time of its end, taken before, after the other waits were moved.
        """
        # Of the last two intervals: the clock may have been set a moment before this check.
        if self._clock_changes != self._clock_changes_before:
            await self._move_waits()
        self._clock_changes_before = self._clock_changes_at_check
        self._clock_changes_at_check = self._clock_changes

    def _wake_scheduler_if_late(self) -> None:
        """Wake the scheduler where a routine that is due is not started: the scheduler loses its
        timer if it fails in its turn of the event loop, and nothing would start any more.
        """
        next_start = self._job_store.get_next_run_time()
        if next_start is None or next_start > self._clock.now():
            self._overdue_start = None
        elif next_start != self._overdue_start:  # it may have become due just now
            self._overdue_start = next_start
        elif self._scheduler and self._scheduler.running:
            log.error("engine.late", due=next_start.isoformat(), why="the scheduler is woken")
            self._scheduler.wakeup()

    # --- what API and app ask

    @property
    def is_started(self) -> bool:
        """Whether routines start by themselves; False after `load`."""
        return self._scheduler is not None

    @property
    def zone(self) -> str:
        """The name of the time zone of routines that name none."""
        return self._ledger.zone

    @property
    def routines(self) -> Mapping[str, Routine]:
        """The routines in force, by name."""
        return self._ledger.routines

    @property
    def faults(self) -> Mapping[str, ConfigError]:
        """What is wrong with routine files that cannot be used, by name."""
        return self._faults

    def describe_faults(self, name: str) -> str:
        """Return in a line why the file of a routine cannot be used; KeyError if it can."""
        first_fault, *more_faults = self._faults[name].faults
        more = f"; and {len(more_faults)} more: agentctl show {name}" if more_faults else ""
        return f"{name} cannot be used: {first_fault}{more}"

    @property
    def states(self) -> Mapping[str, RoutineState]:
        """What the journal has of each routine besides its file, by name."""
        return self._ledger.states

    async def run_now(
        self,
        name: str,
        *,
        event: str | None = None,
        trigger: str = "manual",
        run_input: Json | None = None,
    ) -> Run:
        """Run a routine now, whatever its hours, pause and gate say; the same event gets the same
        run.

        `trigger` is what the run says that it was started by. `run_input` is what `input_by_hand`
        returns. Raises NotFound; Refused if the routine cannot be used or a run of it is under way.
        """
        self._require_routine(name)
        return await self._triggers.run_now(
            name, event=event or new_id(), trigger=trigger, run_input=run_input
        )

    async def pause(
        self, name: str, *, until: datetime | None = None, length: timedelta | None = None
    ) -> None:
        """Skip the slots of a routine from now on, until a moment, for a length of time, or until
        it is resumed.
        """
        self._require_routine(name)
        async with self._ledger.lock():
            await self._ledger.pause(name, until=until, length=length)

    async def resume(self, name: str) -> None:
        """Let a routine start again and forget its failures; slots of the pause stay skipped.

        A routine with `first_run` that never ran is started at once.
        """
        self._require_routine(name)
        async with self._ledger.lock():
            await self._ledger.resume(name)
            if self.is_started:
                await self._triggers.start_first_runs([name])
        self._recheck_starts(name)

    def recheck_starts(self) -> None:
        """Look again at what waits to start a routine: a cap of the budget may have been raised."""
        if self.is_started:
            self._recheck_starts(*self._ledger.schedules)

    async def refresh_states(self) -> None:
        """Read what was paused or resumed through another daemon on the same database."""
        if not self.is_started:
            return
        async with self._ledger.lock():
            resumed_names = await self._ledger.refresh_states()
        self._recheck_starts(*resumed_names)

    async def recheck_rehearsal(self, name: str) -> None:
        """Let a routine start whose rehearsal was approved, at once if it has `first_run`."""
        async with self._ledger.lock():
            await self._ledger.check_rehearsal(name)
            if self.is_started:
                await self._triggers.start_first_runs([name])
        if self.is_started:
            self._recheck_starts(name)

    @property
    def unrehearsed_routines(self) -> Collection[str]:
        """The routines that do not start until a rehearsal of them was approved."""
        return self._ledger.unrehearsed_routines

    async def rename(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Rename a routine with its history; `move` renames its file, the next reload reads it.

        Raises NotFound, Refused, and what `move` raises.
        """
        self._require_routine(old)
        async with self._ledger.lock():
            await self._ledger.rename(old, new, move)
            self._triggers.read_routines([old])
            self._pacing.read_routines([old])
            if self._scheduler:
                self._schedule_next_start(old, self._clock.now())
        self._watch_files()

    async def start_by_webhook(self, name: str, *, event: str, body: Any) -> Run:
        """Start a routine by a webhook; the same event gets the same run.

        Raises NotFound; Refused while the routine may not run: the event is not kept then, its
        sender has to send it again.
        """
        async with self._ledger.lock():
            return await self._triggers.start_by_webhook(name, event=event, body=body)

    def webhook_sender_of(self, name: str) -> str | None:
        """Return the [hooks.senders.NAME] that must have signed the webhooks of a routine; None if
        it names none, or there is no such routine.
        """
        routine = self.routines.get(name)
        return routine.webhook.sender if routine and routine.webhook else None

    @property
    def webhook_routines(self) -> list[str]:
        """The routines that a webhook starts."""
        return list(self._triggers.webhooks)

    def record_success(self, run: Run) -> bool:
        """Forget the failures of a routine if `run` succeeded; return whether it did."""
        return self._ledger.record_success(run)

    async def record_end(self, run: Run) -> None:
        """Count the failure of a routine, or forget its failures if `run` succeeded."""
        await self._ledger.record_end(run)

    def next_slots(
        self, name: str, count: int = 3, *, after: datetime | None = None
    ) -> list[datetime]:
        """Return up to `count` next slots within the routine's hours, after a moment or from now
        on, the earliest first; the next paced start is one of them.
        """
        self._require_routine(name)
        schedule, moment = self._ledger.schedules.get(name), after or self._clock.now()
        number_of_moments = self.routines[name].gate.moments
        slots: list[datetime] = []
        # Only the next paced start is known: the run that it starts says when the one after is.
        paced_start = self._ledger.paced_starts.get(name)
        is_paced_later = paced_start is not None and paced_start > moment
        while schedule and len(slots) < count:
            if number_of_moments:
                slot = next_random_moment(schedule, name, number_of_moments, moment)
            else:
                slot = schedule.next_active(moment)
            if slot is None:
                break
            slots.append(slot)
            moment = slot
        if paced_start and is_paced_later:
            slots = sorted({*slots, paced_start})[:count]
        return slots

    def paced_start(self, name: str) -> datetime | None:
        """Return when a routine with a pace is started next; None while a run of it is under way,
        or a person keeps it from starting.
        """
        return self._ledger.paced_starts.get(name)

    def schedule(self, routine: Routine) -> Schedule:
        """Return the schedule of a routine on this machine, whether it is enabled or not."""
        return self._ledger.schedule(routine)

    def describe_schedule(self, routine: Routine) -> str:
        """Return in English when a routine runs."""
        text = self.schedule(routine).words(*routine.event_words)
        if number := routine.gate.moments:
            moments = f"{number} random moments" if number > 1 else "a random moment"
            text = f"at {moments} of a day ({text})"
        mismatch = self.describe_host_mismatch(routine)
        return f"{text}; {mismatch}" if mismatch else text

    def describe_host_mismatch(self, routine: Routine) -> str:
        """Return why a routine is not started by this host; empty if it is."""
        if self._ledger.is_started_here(routine):
            return ""
        return f"not on this machine: {self._ledger.host} is none of {', '.join(routine.machines)}"

    def is_for_this_host(self, routine: Routine) -> bool:
        """Tell whether runs of a routine may be executed on this host, whoever starts them."""
        return matches_host(routine.machines, self._ledger.host)

    def _require_routine(self, name: str) -> None:
        if name in self.routines:
            return
        if name in self._faults:
            raise Refused(self.describe_faults(name))
        raise NotFound(f"there is no routine {name!r}; agentctl list shows those there are")

    # --- jobs

    async def _schedule_next_starts(self, names: Iterable[str]) -> None:
        """Give each routine's job its next fire time anew."""
        assert self._scheduler  # noqa: S101  started
        self._scheduler.pause()  # else each change would wake it
        try:
            for batch in in_batches(names):
                now = self._clock.now()
                for name in batch:
                    self._schedule_next_start(name, now)
                await asyncio.sleep(0)
        finally:
            if self._scheduler.running:
                self._scheduler.resume()

    def _schedule_next_start(self, name: str, now: datetime) -> None:
        """Give a routine's job its next fire time anew; remove the job if there is none."""
        schedule = self._ledger.schedules.get(name)
        trigger = StartTrigger(name, schedule) if schedule else None
        if trigger and (start := trigger.get_next_fire_time(None, now)):
            self._add_job(name, trigger, start, self._due_queue.add, name)
        elif self._scheduler and self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def _add_job(
        self,
        id_: str,
        trigger: BaseTrigger,
        start: datetime,
        function: Callable[[str], None],
        name: str,
    ) -> None:
        """Have a function called with a name whenever a trigger fires, first at `start`."""
        if self._scheduler:
            self._scheduler.add_job(
                function,
                trigger,
                args=(name,),
                id=id_,
                name=name,
                next_run_time=start,
                replace_existing=True,
            )

    def _recheck_starts(self, *names: str) -> None:
        """Look at the slots, the watched files and the paces by which these routines may start."""
        self._due_queue.add(*names)
        for name in names:
            self._triggers.scan_files_of(name)
        self._pacing.queue_check(*names)

    def _schedule_paced_start(self, name: str, at: datetime) -> None:
        """Have a routine with a pace checked again at `at`."""
        trigger = DateTrigger(at, timezone=UTC)
        self._add_job(f"pace {name}", trigger, at, self._pacing.queue_check, name)

    def _schedule_scan(self, watch: str, at: datetime) -> None:
        """Have the files of a watch looked at again at `at`."""
        trigger = DateTrigger(at, timezone=UTC)
        self._add_job(f"files {watch}", trigger, at, self._triggers.scan_files, watch)

    def _watch_files(self) -> None:
        """Watch the files of the routines, and look at all of them once a day."""
        self._triggers.watch()
        job = self._scheduler.get_job(_DAILY_LOOK) if self._scheduler else None
        if self._triggers.has_watches and job is None:
            self._schedule_daily_look()
        elif job and not self._triggers.has_watches:
            job.remove()

    def _schedule_daily_look(self) -> None:
        start = self._clock.now() + LOOK_PERIOD
        self._add_job(_DAILY_LOOK, DailyTrigger(), start, self._scan_all_files, _DAILY_LOOK)

    def _scan_all_files(self, _job: str) -> None:
        for name in self._ledger.schedules:
            self._triggers.scan_files_of(name)

    def handle_clock_change(self) -> None:
        """Compute all fire times anew, in a task: the clock was set, or the machine was suspended.

        May be called again while the task runs.
        """
        if self._scheduler is None or not self._scheduler.running:
            return
        self._clock_changes += 1
        if self._correction_task is None or self._correction_task.done():
            self._correction_task = asyncio.create_task(
                self._correct_for_clock_change(), name="clock set"
            )

    async def _correct_for_clock_change(self) -> None:
        """Correct waits, baselines, floors and fire times, then process what is due."""
        try:
            changes = 0
            while changes != self._clock_changes:  # the clock may be set again meanwhile
                changes = self._clock_changes
                log.info("engine.clock_set", now=self._clock.now().isoformat())
                await self._move_waits()
                async with self._ledger.lock():
                    await self._ledger.correct_for_clock_change()
                    await self._schedule_next_starts(self._ledger.schedules)
                if self._triggers.has_watches:
                    self._schedule_daily_look()
        except Exception:
            # A background task: what is due is found below, and jobs keep their old fire times.
            log.exception("engine.realign_failed")
        self._recheck_starts(*self._ledger.schedules)

    async def _move_waits(self) -> None:
        """Have the waits that began while the clock was ahead begin now."""
        try:
            for run in (await self._journal.move_waits()).runs:
                if run.trigger != SUBAGENT:  # those are submitted by their parent run
                    await self._submit(run)
            self._on_waits_moved()
        except DaemonError as error:
            # No room, or no database. Slots are corrected all the same.
            log.warning("clock.waits_not_moved", detail=str(error))


# --- APScheduler


class StartTrigger(BaseTrigger):  # type: ignore[misc]
    """The fire times of a job: when the next run of a routine is to start."""

    __slots__ = ("_routine", "_schedule")

    def __init__(self, routine: str, schedule: Schedule) -> None:
        self._routine, self._schedule = routine, schedule

    def get_next_fire_time(
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        # After the later of the two, so that APScheduler does not go through every fire time of an
        # outage one by one.
        after = max(previous_fire_time or now, now)
        try:
            return self._schedule.next_start(after)
        except Exception:  # it would end APScheduler's loop, and with it all other routines
            log.exception("routine.start_unknown", routine=self._routine, retry=RETRY_SECONDS)
            return after + timedelta(seconds=RETRY_SECONDS)


class DailyTrigger(BaseTrigger):  # type: ignore[misc]
    """The fire times of a job that is called once a day, and once for all days of an outage."""

    __slots__ = ()

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return max(previous_fire_time or now, now) + LOOK_PERIOD


class BatchedJobStore(BaseJobStore):  # type: ignore[misc]
    """Keep jobs in memory, and hand out at most BATCH_SIZE due jobs at a time, so that the event
    loop is not held up.

    The others stay due, so APScheduler asks for them in one of the loop's next turns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, tuple[float, Job]] = {}
        """By id, each with its fire time in seconds since the epoch; infinity: paused."""
        self._order: list[tuple[float, str]] = []
        """Fire times and ids, the earliest first."""

    def lookup_job(self, job_id: str) -> Job | None:
        return self._jobs[job_id][1] if job_id in self._jobs else None

    def get_due_jobs(self, now: datetime) -> list[Job]:
        count = bisect_right(self._order, now.timestamp(), key=itemgetter(0))
        return [self._jobs[job_id][1] for _, job_id in self._order[: min(count, BATCH_SIZE)]]

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
