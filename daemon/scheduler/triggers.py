"""What starts runs besides the clock: a person, files, webhooks, ended runs, the daemon's start.

Each event has an id that is unique for its routine in the ledger (the versions of files, the id of
a webhook's sender, the run that ended), so everything here may be repeated after any crash without
starting a second run. What happens to an event whose routine may not start now depends on its kind:
files wait, as they still lie there; the end of another run is recorded as a skipped slot; a webhook
is refused, as its sender can send it again.

Files and ended runs are queued the moment they are noticed and processed when the ledger's lock is
free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from daemon.definitions.routines.routine import Trigger
from daemon.definitions.schedule import SKIP_RULE, ScheduleEntry
from daemon.errors import NotFound, Refused, RunUnderWay
from daemon.models import FAILURES, GATED_EVENT, Json, Reason, Run, Status
from daemon.scheduler.skip_reasons import OPERATOR_SEEN, GateChecks
from daemon.scheduler.slot_ledger import SlotLedger, max_other_runs
from daemon.store.journal import Journal
from daemon.store.rows import clean
from daemon.system.clock import Clock
from daemon.system.coalescing_queue import CoalescingQueue
from daemon.system.settled_files import FileWatch, SettledFileWatcher
from daemon.system.watch import DirectoryWatcher

log = structlog.get_logger()

# Which ends of a run the trigger `after` waits for, by its key `on`. A skipped run has done nothing
# that another routine could follow on.
STATUSES_BY_ON = {
    "succeeded": frozenset({Status.SUCCEEDED}),
    "failed": FAILURES,
    "ended": FAILURES | {Status.SUCCEEDED, Status.CANCELLED},
}
# Characters of a report that are passed on to the next routine: a report may be as long as a book,
# and all of it can be read by the id of its run.
MAX_REPORT_LENGTH = 20_000
# Characters of an input by hand: as many as a prompt takes of an event (`runs/gather.py`), so that
# nothing is cut off what a person sends.
MAX_INPUT_CHARACTERS = 20_000
MIN_TIME_BETWEEN_ON_STARTS = timedelta(hours=1)
# How long the version of a file that is gone is remembered, in case the file comes back.
FILE_MEMORY = timedelta(days=90)
# How often all watched files are looked at even if nothing changes: a version that was not seen for
# FILE_MEMORY is one of a file that is gone.
LOOK_PERIOD = timedelta(days=1)
# Seconds until a write to the ledger that failed (the disk was full) is tried again.
RETRY_SECONDS = 60.0

# Why a webhook is refused, in the answer to its sender.
REFUSALS = {
    Reason.PAUSED: "it is paused",
    Reason.QUIET_HOURS: "it is outside its active hours",
    Reason.BACKOFF: "it rests after a failure",
    Reason.GATE: "its gate is closed",
    Reason.BUDGET: "its budget is spent",
    Reason.OVERLAP: "a run of it is under way",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineWatch:
    """The files that one trigger of a routine watches."""

    routine: str
    watch: FileWatch
    entry: ScheduleEntry
    """When the trigger may start the routine."""


class EventTriggers:
    """Start runs by events.

    Unless said otherwise, the caller of a method that starts runs holds the ledger's lock.
    """

    def __init__(
        self,
        ledger: SlotLedger,
        journal: Journal,
        clock: Clock,
        workspace: Path,
        directory_watcher: DirectoryWatcher,
        *,
        schedule_scan: Callable[[str, datetime], None],
    ) -> None:
        """`schedule_scan(watch, at)` has `scan_files` called for a watch at a moment."""
        self._ledger, self._journal, self._clock = ledger, journal, clock
        self._schedule_scan = schedule_scan
        self._watcher = SettledFileWatcher(workspace, self.scan_files, directory_watcher)
        self._file_queue = CoalescingQueue(
            "file claims", self._start_for_files, retry=RETRY_SECONDS
        )
        self._end_queue = CoalescingQueue(
            "chain claims", self._start_after_ends, retry=RETRY_SECONDS, session=ledger.lock
        )
        self._ended_runs: dict[str, Run] = {}
        """Those in the queue, by id."""
        self._forgotten_at: dict[str, datetime] = {}
        """When the files that are gone were last forgotten, by routine."""
        self._watches: dict[str, RoutineWatch] = {}
        """By name of the watch: that of the routine, or `NAME/1` for its further triggers."""
        self._watches_of: dict[str, list[str]] = {}
        """The names of the watches of a routine."""
        self.followers: dict[str, list[str]] = {}
        """The routines that start after a routine (`after`)."""
        self.webhooks: dict[str, Trigger] = {}
        """By routine, the trigger by which a webhook starts it."""
        self._parents_of: dict[str, list[str]] = {}
        """The routines that a routine starts after."""

    def read_routines(self, names: Iterable[str]) -> None:
        """Take the watches, followers and webhooks of these routines from the ledger, which may not
        have them any more.
        """
        for name in names:
            for watch in self._watches_of.pop(name, ()):
                del self._watches[watch]
            for parent in self._parents_of.pop(name, ()):
                self.followers[parent].remove(name)
                if not self.followers[parent]:
                    del self.followers[parent]
            self.webhooks.pop(name, None)
            if name not in self._ledger.schedules:
                continue
            for trigger, entry in self._triggers_of(name):
                if trigger.webhook:
                    self.webhooks[name] = trigger
                if trigger.watch:
                    watches = self._watches_of.setdefault(name, [])
                    watches.append(f"{name}/{len(watches)}" if watches else name)
                    settle = trigger.settle.total_seconds()
                    self._watches[watches[-1]] = RoutineWatch(
                        routine=name,
                        watch=FileWatch(globs=trigger.watch, settle=settle),
                        entry=entry,
                    )
                for parent in trigger.after:
                    parents = self._parents_of.setdefault(name, [])
                    if parent not in parents:
                        parents.append(parent)
                        self.followers.setdefault(parent, []).append(name)

    def _triggers_of(self, name: str) -> Iterator[tuple[Trigger, ScheduleEntry]]:
        """Yield the triggers of a routine, each with its entry of the schedule."""
        entries = self._ledger.schedules[name].entries
        return zip(self._ledger.routines[name].triggers, entries, strict=True)

    def close(self) -> None:
        """Stop watching files."""
        self._watcher.close()

    async def stop(self) -> None:
        """Finish the claims under way."""
        await self._file_queue.stop()
        await self._end_queue.stop()

    # --- by hand, at first sight, at the start of the daemon

    async def run_now(
        self, name: str, *, event: str, trigger: str, run_input: Json | None = None
    ) -> Run:
        """Start a run whatever schedule, pause and active hours say; the same event gets the same
        run.

        `run_input` is what `input_by_hand` returns. Raises Refused while a run of the routine is
        under way, unless its `overlap` allows for that, where a cap is used up, and where `event`
        asks for a gate that is closed before there is a run. Takes the ledger's lock itself.
        """
        routine = self._ledger.routines[name]
        if routine.run.rehearse_first and await self._ledger.check_rehearsal(name):
            raise Refused(
                f"{name} is held back until a rehearsal of it was approved: "
                f"agentctl rehearse {name}"
            )
        if cap := await self._ledger.find_used_up_cap(routine):
            if earlier_run := await self._journal.slots.get_run_of_event(name, event):
                return earlier_run
            raise Refused(
                f"{name} may spend no more for now: {cap}; agentctl usage shows what was spent"
            )
        if event.startswith(GATED_EVENT) and (key := await self._find_closed_gate(name)):
            if earlier_run := await self._journal.slots.get_run_of_event(name, event):
                return earlier_run
            raise Refused(
                f"the gate of {name} is closed: {key}; without --gate it runs all the same"
            )
        other_runs, now = max_other_runs(routine), self._clock.now()
        # Only a start that cancels other runs has to know them; all others share the lock.
        cancels_others = other_runs is None
        async with self._ledger.lock() if cancels_others else self._ledger.lock_shared():
            if cancels_others:
                await self._ledger.read_active_runs_of(name)
            if trigger == "manual":
                # Queued first, so that it is in one commit with the claim.
                operator_seen = self._journal.key_values.put(
                    OPERATOR_SEEN, now.isoformat(), lazily=True
                )
            claim = self._ledger.make_claim(
                name, trigger, now, event=event, input=run_input, max_other_runs=other_runs
            )
            runs = await self._ledger.claim_and_start([claim])
            if trigger == "manual":
                await operator_seen
        if runs:
            return runs[0]
        if earlier_run := await self._journal.slots.get_run_of_event(name, event):
            return earlier_run
        active_runs = await self._journal.runs.find_active(name)
        if active_runs:
            await self._ledger.submit_again(name)
            raise RunUnderWay(name, active_runs[0].id, active_runs[0].status.value)
        raise Refused(f"a run of {name} has ended at this very moment; ask again")

    async def _find_closed_gate(self, name: str) -> str | None:
        """Return the key that keeps the gate of a routine closed for a person who asks for it now;
        None if none does that is looked at before there is a run.

        `idle` does not count: whoever asks has just done something.
        """
        ledger = self._ledger
        routine = ledger.routines[name]
        gate = routine.gate.model_copy(update={"idle": None})
        return await GateChecks(self._journal).find_closed_key(
            routine.model_copy(update={"gate": gate}),
            ledger.schedule(routine),
            ledger.states[name],
            self._clock.now(),
        )

    async def start_on_start(self) -> None:
        """Start what runs when the daemon starts, unless it did so less than an hour ago."""
        ledger = self._ledger
        for name, schedule in list(ledger.schedules.items()):
            entries = schedule.on_start_entries
            if not entries:
                continue
            # The value is the instant of the latest such slot, and ` done` once it is accounted
            # for: if the process dies in between, the next start goes on with the same slot.
            key = f"on_start:{name}"
            slot, is_done = _read_on_start(await self._journal.key_values.get(key))
            earliest = ledger.up_since - MIN_TIME_BETWEEN_ON_STARTS
            if slot is None or not earliest < slot <= ledger.up_since:
                slot, is_done = ledger.up_since, False
                await self._journal.key_values.put(key, slot.isoformat())
            if is_done:
                continue
            if skip_reason := await ledger.skip_reason_now(name, entries):
                await ledger.record_skip(name, slot, skip_reason)
            else:
                event = f"on_start {slot.isoformat()}"
                await ledger.claim_and_start(
                    [ledger.make_claim(name, "on_start", slot, event=event)]
                )
            await self._journal.key_values.put(key, f"{slot.isoformat()} done")

    async def start_first_runs(self, names: Iterable[str]) -> None:
        """Start those of these routines that have `first_run = true` and never ran."""
        ledger = self._ledger
        candidates = [name for name in names if ledger.is_due_for_first_run(name)]
        if candidates:
            last_runs = await self._journal.runs.get_last_by_routine(candidates)
            now = self._clock.now()
            await ledger.claim_and_start(
                [
                    ledger.make_claim(name, "first_run", now, event="first_run")
                    for name in candidates
                    if name not in last_runs
                ]
            )

    # --- files

    def watch(self) -> None:
        """Watch the folders of the routines that `read_routines` has read."""
        self._watcher.watch({name: watch.watch for name, watch in self._watches.items()})

    @property
    def has_watches(self) -> bool:
        """Whether any routine watches files."""
        return bool(self._watches)

    def scan_files_of(self, routine: str) -> None:
        """Queue a look at all files that a routine watches, and its start if there are any."""
        self._file_queue.add(*self._watches_of.get(routine, ()))

    def scan_files(self, watch: str) -> None:
        """Queue a look at the files of a watch, and the start of its routine if there are any."""
        self._file_queue.add(watch)

    async def _start_for_files(self, watches: Sequence[str]) -> None:
        """Start a run for the files of each watch that have settled; take the ledger's lock."""
        for name in watches:
            if name not in self._watches:  # the routine was changed since it was queued
                continue
            routine = self._watches[name].routine
            await self._forget_old_files(routine)
            files = await self._watcher.collect_settled(
                name, await self._journal.slots.get_seen_files(routine)
            )
            if not files:
                continue
            retry_at = None
            async with self._ledger.lock():
                if name in self._watches:  # else it was changed while we waited for the lock
                    retry_at = await self._start_or_wait(self._watches[name], files)
            if retry_at:
                self._schedule_scan(name, retry_at)

    async def _start_or_wait(
        self, watch: RoutineWatch, files: Mapping[str, str]
    ) -> datetime | None:
        """Start one run for settled files, by path with their versions; if it may not start now,
        return when to try again.

        Also None where an event will tell when to try again.
        """
        name, now = watch.routine, self._clock.now()
        if skip_reason := await self._ledger.skip_reason_now(name, [watch.entry]):
            retry_at = await self.find_retry_time(skip_reason.reason, name, watch.entry, now)
            log.info(
                "files.waiting",
                routine=name,
                files=len(files),
                reason=skip_reason.reason.value,
                rule=skip_reason.rule,
                until=retry_at.isoformat() if retry_at else None,
            )
            return retry_at
        claim = self._ledger.make_claim(
            name, "watch", now, event=_event_of(files), input={"paths": list(files)}, files=files
        )
        await self._ledger.claim_and_start([claim])
        return None

    async def find_retry_time(
        self, reason: Reason, name: str, entry: ScheduleEntry, now: datetime
    ) -> datetime | None:
        """Return when a reason not to start a routine may be gone; None where an event will tell,
        such as the end of another run.

        `entry` is the one of its schedule that would start it.
        """
        schedule, gate = self._ledger.schedules[name], self._ledger.routines[name].gate
        match reason:
            case Reason.PAUSED:
                return self._ledger.states[name].paused_until
            case Reason.QUIET_HOURS:
                return entry.next_opening(now)
            case Reason.BACKOFF:
                return self._ledger.backoff_until(name, now)
            case Reason.OVERLAP:
                return None  # the end of the other run
            case Reason.GATE if gate.idle:
                operator_seen = await self._journal.key_values.get(OPERATOR_SEEN)
                if operator_seen:
                    idle_at = datetime.fromisoformat(operator_seen) + gate.idle
                    if idle_at > now:
                        return idle_at
            case Reason.BUDGET:
                return _next_midnight(now, ZoneInfo(self._ledger.zone))
        # The other conditions of a gate count by the day of the routine.
        return _next_midnight(now, schedule.zone)

    async def _forget_old_files(self, name: str) -> None:
        """Forget the versions of files that are long gone, at most once a day."""
        now = self._clock.now()
        last_time = self._forgotten_at.get(name)
        # the clock may have been set back
        if last_time is None or abs(now - last_time) >= LOOK_PERIOD:
            present: dict[str, str] = {}
            for watch in self._watches_of.get(name, ()):
                present |= await self._watcher.list_matching(watch)
            if not present:
                return  # perhaps the folder is a disk that is not mounted now
            self._forgotten_at[name] = now
            await self._journal.slots.forget_files(name, present=present, before=now - FILE_MEMORY)

    # --- ends of other runs

    def queue_end(self, run: Run) -> None:
        """Queue the end of a run, for the routines that follow it and for its own files that wait.

        Called by the journal as soon as the end is written.
        """
        if run.routine in self.followers:
            self._ended_runs[run.id] = run
            self._end_queue.add(run.id)
        self.scan_files_of(run.routine)  # they may have waited for this run to end

    async def _start_after_ends(self, run_ids: Sequence[str]) -> None:
        """Start the followers of runs that have ended; the queue holds the ledger's lock."""
        for run_id in run_ids:
            run = self._ended_runs.get(run_id)
            if run is None:
                continue
            for name in self.followers.get(run.routine, ()):
                await self._start_after(name, run)
            del self._ended_runs[run_id]

    async def start_after_missed_ends(self, names: Iterable[str]) -> None:
        """Start those of these routines whose `after` fits a run that ended while no daemon ran."""
        now = self._clock.now()
        for name in names:
            if name not in self._ledger.schedules:
                continue
            triggers = [
                trigger for trigger in self._ledger.routines[name].triggers if trigger.after
            ]
            if not triggers:
                continue
            key = f"after:{name}"
            progress = await self._journal.key_values.get(key)
            since = self._ledger.states[name].baseline
            # A moment in the future was written while the clock was wrong.
            if progress and since < (until := datetime.fromisoformat(progress)) <= now:
                since = until
            for trigger in triggers:
                missed_runs = await self._journal.slots.find_missed_ends(
                    name, parents=trigger.after, statuses=STATUSES_BY_ON[trigger.on], since=since
                )
                for run in missed_runs:
                    await self._start_after(name, run)
            await self._journal.key_values.put(key, now.isoformat())

    async def _start_after(self, name: str, run: Run) -> None:
        """Start a routine if one of its triggers `after` waits for such an end of `run`, or record
        that it was skipped; once only for each run.
        """
        entries = [
            entry
            for trigger, entry in self._triggers_of(name)
            if run.routine in trigger.after and run.status in STATUSES_BY_ON[trigger.on]
        ]
        if not entries:
            return
        slot = run.ended or self._clock.now()
        if slot <= self._ledger.states[name].baseline:
            return
        if await self._journal.slots.get_run_of_event(name, run.id):
            return
        if skip := await self._ledger.skip_reason_now(name, entries):
            log.info(
                "slot.skipped",
                routine=name,
                after=run.id,
                reason=skip.reason.value,
                rule=skip.rule,
            )
            await self._journal.slots.skip_event(
                name, run.id, slot=slot, reason=skip.reason, rule=skip.rule
            )
            return
        event_input = {
            "routine": run.routine,
            "run": run.id,
            "status": run.status.value,
            "report": (run.report or "")[:MAX_REPORT_LENGTH],
        }
        await self._ledger.claim_and_start(
            [self._ledger.make_claim(name, "after", slot, event=run.id, input=event_input)]
        )

    # --- webhooks

    async def start_by_webhook(self, name: str, *, event: str, body: Any) -> Run:
        """Start a run by a webhook, or return the run that the same event has started.

        Raises NotFound if no webhook starts the routine, Refused if it may not start now.
        """
        ledger = self._ledger
        entries: list[ScheduleEntry] = []
        if name in ledger.schedules:
            entries = [entry for trigger, entry in self._triggers_of(name) if trigger.webhook]
        if not entries:
            raise NotFound(f"there is no webhook {name!r} here")
        # A name space of its own: a stranger must not get hold of the runs of other events.
        event = f"webhook {event}"
        if earlier_run := await self._journal.slots.get_run_of_event(name, event):
            return earlier_run
        now = self._clock.now()
        if skip_reason := await ledger.skip_reason_now(name, entries):
            await ledger.record_skip(name, now, skip_reason)
            reason, rule = REFUSALS[skip_reason.reason], skip_reason.rule or ""
            if rule.startswith(SKIP_RULE):
                reason = f"this is a day to skip ({rule})"
            raise Refused(f"{name} does not run now: {reason}; send it again later")
        runs = await ledger.claim_and_start(
            [ledger.make_claim(name, "webhook", now, event=event, input=body)]
        )
        if not runs:
            raise Refused(f"{name} has handled this event before; its run is not kept any more")
        return runs[0]


def input_by_hand(text: str, *, is_tainted: bool) -> Json:
    """Return the input of a run that a person starts with `text`.

    `is_tainted`: strangers may have written it. Raises Refused if it is empty or too long.
    """
    if not text.strip():
        raise Refused("the input is empty; leave it out to run without one")
    if len(text) > MAX_INPUT_CHARACTERS:
        raise Refused(
            f"the input has {len(text):,} characters; at most {MAX_INPUT_CHARACTERS:,} are taken. "
            "Put it into a file of the workspace instead, and name the file in the input"
        )
    return {"text": clean(text), "tainted": is_tainted}


def _event_of(versions: Mapping[str, str]) -> str:
    """Return an event id for versions of files, by path, that a person can read."""
    first_path, other_count = next(iter(versions)), len(versions) - 1
    digest = hashlib.blake2b(
        "\0".join(f"{path}\0{version}" for path, version in versions.items()).encode()
    )
    suffix = f" and {other_count} more" if other_count else ""
    return f"{first_path[:80]}{suffix} ({digest.hexdigest()[:16]})"


def _next_midnight(now: datetime, zone: Any) -> datetime:
    tomorrow = (now.astimezone(zone) + timedelta(days=1)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    return tomorrow.astimezone(now.tzinfo)


def _read_on_start(value: str | None) -> tuple[datetime | None, bool]:
    """Return the slot that a value of `meta` names, and whether it is accounted for."""
    if value is None:
        return None, False
    instant, _, note = value.partition(" ")
    return datetime.fromisoformat(instant), note == "done"
