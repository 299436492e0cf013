"""The slot ledger: accounts for each slot exactly once, and starts the runs.

A slot is identified by routine and instant. A slot above its routine's floor is claimed in the
journal before its run starts, and only one claim can succeed. So everything here may be called
again at any moment, after any crash, without starting a slot twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import structlog

from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule, ScheduleEntry, describe_quiet
from daemon.errors import NotFound, Refused, StoreFull
from daemon.models import Outcome, Reason, Run, Status
from daemon.runs.rehearsal.approved import is_approved
from daemon.scheduler.backoff import FailureBackoff
from daemon.scheduler.routine_times import matches_host, schedule_of
from daemon.scheduler.skip_reasons import (
    UNREHEARSED,
    CapCheck,
    GateChecks,
    SkipReason,
    no_cap,
    rule_of,
)
from daemon.scheduler.slots import (
    SkippedSlots,
    SlotDecision,
    classify_slots,
    late_start_delay,
    make_skipped,
    remaining_slots,
    slots_between,
    split_missed,
)
from daemon.store.journal import Claim, Journal, SlotRange, SlotRow
from daemon.store.routines import RoutineState
from daemon.system.clock import Clock

log = structlog.get_logger()

# Routines that are processed before the event loop has its turn: 10,000 at once would stall it.
BATCH_SIZE = 250
# Batches that may be on their way to the disk at a time: they share a commit, and decisions are
# never more than about a second ahead of what is written.
MAX_BATCHES_IN_FLIGHT = 8
# A schedule key that no routine has: the next real key starts a new baseline.
NO_SCHEDULE_KEY = ""
# Reasons that hold for a period: the first slot that is skipped for one is logged, the others are
# told by `agentctl slots`.
REASONS_OF_PERIODS = frozenset({Reason.QUIET_HOURS, Reason.PAUSED, Reason.BACKOFF})
# How many runs of a routine may be active when another one is claimed, by its `overlap`; None: any
# number.
MAX_OTHER_RUNS: Mapping[str, int | None] = {"skip": 0, "queue_one": 1, "cancel_previous": None}


def in_batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield names in lists of at most BATCH_SIZE."""
    iterator = iter(list(names))
    while batch := list(islice(iterator, BATCH_SIZE)):
        yield batch


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchDecision:
    """What was decided about the due slots of a batch of routines, before it is written."""

    skipped: list[tuple[str, SkippedSlots]]
    """With the name of their routine."""
    claims: list[Claim]
    floors: dict[str, datetime]
    """The new floor of each routine that was due."""


class SlotLedger:
    """Account for the slots of all routines, and start runs.

    Whatever writes needs `lock()` held; a start of a single run may hold `lock_shared()` instead.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        submit: Callable[[Run], Awaitable[None]],
        cancel: Callable[[str], Awaitable[object]],
        clock: Clock,
        zone: str,
        machine: str,
        host: str,
        shared_journal: bool = False,
        find_used_up_cap: CapCheck = no_cap,
    ) -> None:
        """Make a ledger without routines.

        `submit` puts a run that was started into the run queue; `cancel` stops a run by its id.
        `zone` is the time zone of routines that name none, `machine` the machine id, `host` the
        host name. `shared_journal`: several machines share the journal, so a run may be executed on
        another machine than the one that starts it, and `machines` of a routine does not limit
        where it is started.
        """
        self._journal, self._submit, self._cancel = journal, submit, cancel
        self.find_used_up_cap = find_used_up_cap
        self._clock = clock
        self.zone, self._machine, self.host = zone, machine, host
        self._has_shared_journal = shared_journal
        self.up_since = clock.now()
        self.routines: Mapping[str, Routine] = {}
        self.schedules: dict[str, Schedule] = {}
        """Of the enabled routines that this host starts unattended."""
        self.states: Mapping[str, RoutineState] = {}
        self._schedule_keys: dict[str, str] = {}
        self._unreadable: frozenset[str] = frozenset()
        self.paced_starts: dict[str, datetime] = {}
        """When routines with a pace are started next, by name; none while a run is under way."""
        self._floors: dict[str, datetime] = {}
        self._definitions: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._sharing_lock = asyncio.Lock()
        """Held by a task that becomes a holder of `lock_shared()`, while it waits for `_lock`."""
        self._sharers = 0
        """Holders of `lock_shared()`."""
        self._active_runs: dict[str, tuple[str, ...]] | None = None
        """Ids of the unended runs, by routine; None: not read since the lock was taken."""
        self._unsubmitted: set[str] = set()
        """The routines of which a start has failed. Its runs may be committed all the same: they
        keep their routine from starting, and nobody would execute them before the next start of the
        daemon.
        """
        self._failure_backoff = FailureBackoff(journal.routines)
        self._gate_checks = GateChecks(journal)
        self.unrehearsed_routines: set[str] = set()
        """Routines that do not start until a rehearsal of them was approved."""
        self._late_starts = 0
        """Runs that start late and were claimed since the lock was taken."""
        self._logged_periods: dict[str, Reason] = {}
        """By routine, the reason of REASONS_OF_PERIODS for which its last slot was skipped."""
        self._refused_slots: dict[str, tuple[datetime, datetime]] = {}
        """By routine, the first and the last slot that a full disk refused to write."""
        self._latest_time = self.up_since
        """The latest time that the clock has shown since it was last put back."""

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Exclude all other claims meanwhile, so that no run starts after the active runs were read
        and an overlap was ruled out.
        """
        async with self._lock:
            try:
                yield
            finally:
                self._active_runs, self._late_starts = None, 0

    @asynccontextmanager
    async def lock_shared(self) -> AsyncIterator[None]:
        """Exclude holders of `lock()` meanwhile, but not other holders of `lock_shared()`: their
        claims share a commit.
        """
        async with self._sharing_lock:
            if not self._sharers:
                await self._lock.acquire()
            self._sharers += 1
        try:
            yield
        finally:
            self._sharers -= 1
            if not self._sharers:
                self._lock.release()

    # --- claims

    async def claim_and_start(self, claims: Sequence[Claim]) -> list[Run]:
        """Claim slots in one durable transaction, and submit the runs of those that were free.

        Returns these runs, in the order of their claims. With `overlap = "cancel_previous"` the
        earlier runs of a routine are cancelled.
        """
        if not claims:
            return []
        new_runs: list[Run] = []
        try:
            runs = await self._journal.slots.claim(claims)
            for claim, run in zip(claims, runs, strict=True):
                if run is None:  # another claim was first
                    continue
                new_runs.append(run)
                self._logged_periods.pop(claim.routine, None)
                self.paced_starts.pop(claim.routine, None)
                if claim.outcome is not Outcome.RAN:
                    log.info(
                        f"slot.{claim.outcome}",
                        routine=claim.routine,
                        slot=claim.slot.isoformat(),
                        lateness=claim.lateness,
                    )
                active_runs = {} if self._active_runs is None else self._active_runs
                active = active_runs.get(run.routine, ())
                if active and self.routines[run.routine].run.overlap == "cancel_previous":
                    for previous in active:
                        with suppress(Refused, NotFound):  # it has ended meanwhile
                            await self._cancel(previous)
                if run.id not in active:  # else it was read after the claim
                    active_runs[run.routine] = (*active, run.id)
                await self._submit(run)
        except BaseException:
            self._unsubmitted |= {claim.routine for claim in claims}
            raise
        return new_runs

    def make_claim(
        self,
        name: str,
        trigger: str,
        slot: datetime,
        *,
        event: str | None = None,
        outcome: Outcome = Outcome.RAN,
        lateness: float = 0.0,
        input: Any = None,  # noqa: A002  the name that routines and the API use
        files: Mapping[str, str] | None = None,
        max_other_runs: int | None = None,
    ) -> Claim:
        """Return the claim of a slot, with the routine as it is defined now.

        `event` identifies the slot instead of its instant. `files` maps paths to versions.
        `max_other_runs`: how many active runs of the routine there may be; None: any number.
        """
        return Claim(
            routine=name,
            definition=self._definitions.get(name) or self.routines[name].dump(),
            trigger=trigger,
            slot=slot,
            goal=self.routines[name].run.prompt,
            event=event,
            outcome=outcome,
            lateness=lateness,
            input=input,
            files=tuple(files.items()) if files else (),
            max_other_runs=max_other_runs,
        )

    async def submit_again(self, name: str) -> None:
        """Submit the queued runs of a routine once more, if that has failed; the run queue drops
        those that it has.
        """
        if name in self._unsubmitted:
            self._unsubmitted.discard(name)
            for run in await self._journal.runs.find_active(name):
                if run.status is Status.QUEUED:
                    await self._submit(run)

    # --- due slots

    async def process_due(self, names: Iterable[str]) -> list[Run]:
        """Account for every due slot of these routines, and start the runs; return the runs.

        The next batches are decided about while earlier ones are being written.
        """
        batches = list(in_batches(names)) or [[]]
        if len(batches) == 1:
            return await self._write(await self._decide_batch(batches[0]))
        runs: list[Run] = []
        writes: list[asyncio.Task[list[Run]]] = []
        try:
            for batch in batches:
                writes.append(asyncio.create_task(self._write(await self._decide_batch(batch))))
                await asyncio.sleep(0)
                if len(writes) == MAX_BATCHES_IN_FLIGHT:
                    runs += await writes.pop(0)
        finally:
            await asyncio.gather(*writes, return_exceptions=True)
        return [*runs, *(run for write in writes for run in write.result())]

    async def _decide_batch(self, names: Sequence[str]) -> BatchDecision:
        """Decide what becomes of the due slots of these routines; `_write` then writes it.

        The decision itself writes only what it rests on: a pause that has ended, and what has to be
        corrected after the clock was put back.
        """
        if self._clock.now() < self._latest_time:  # put back, and nobody has corrected that yet
            await self.correct_for_clock_change()
        now = self._latest_time = self._clock.now()
        # one that was removed or renamed while it was queued would keep all others from starting
        names = [name for name in names if name in self.states]
        await self._end_pauses(names, now)
        await self._read_active_runs(names)
        batch = BatchDecision(skipped=[], claims=[], floors={})
        # Routines that share schedule, floor and pause share the decision: of 10,000 hourly
        # routines it is made once.
        shared_decisions: dict[tuple[int, datetime, bool], SlotDecision | None] = {}
        for name in names:
            schedule = self.schedules.get(name)
            if schedule is None:
                continue
            floor, is_paused = self._floors[name], self.states[name].is_paused(now)
            key = (id(schedule), floor, is_paused)
            if key not in shared_decisions:
                shared_decisions[key] = classify_slots(
                    schedule, floor=floor, now=now, up_since=self.up_since, paused=is_paused
                )
            decision = shared_decisions[key]
            if decision is None:
                continue
            batch.floors[name] = decision.slot
            for slots in decision.skipped:
                refused_slots = self._refused_slots.get(name)
                if refused_slots and slots.outcome is Outcome.MISSED:
                    parts = split_missed(schedule, slots, refused_slots)
                    batch.skipped.extend((name, part) for part in parts)
                else:
                    batch.skipped.append((name, slots))
            if decision.start is None:
                continue
            if skip := await self._skip_reason(name, now):
                slots = make_skipped(decision.slot, skip.reason, rule=skip.rule)
                batch.skipped.append((name, slots))
            else:
                batch.claims.append(self._make_due_claim(name, decision, decision.start))
        return batch

    def _make_due_claim(self, name: str, decision: SlotDecision, outcome: Outcome) -> Claim:
        kind = self.schedules[name].kind(decision.slot)
        claim = self.make_claim(
            name, kind, decision.slot, outcome=outcome, lateness=decision.lateness
        )
        if outcome is Outcome.RAN:
            return claim
        first, last = self._refused_slots.get(name, (None, None))
        if first and last and first <= decision.slot <= last:
            claim = replace(claim, reason=Reason.DISK_FULL)
        index = self._late_starts
        self._late_starts += 1
        if index == 0:
            return claim
        return replace(claim, not_before=self._clock.now() + late_start_delay(index))

    async def _write(self, batch: BatchDecision) -> list[Run]:
        """Record the skipped slots of a batch, claim the others and start their runs; return these.

        The floors are raised last: slots whose record fails are decided about again.
        """
        try:
            await self._record_skipped(batch.skipped)
            runs = await self.claim_and_start(batch.claims)
        except StoreFull:
            for name, slot in batch.floors.items():
                first, _ = self._refused_slots.get(name, (slot, slot))
                self._refused_slots[name] = first, slot
            raise
        self._floors.update(batch.floors)
        for name in batch.floors:
            self._refused_slots.pop(name, None)
        return runs

    async def _record_skipped(self, entries: Sequence[tuple[str, SkippedSlots]]) -> None:
        """Write slots that are not started, each with the name of its routine, and log the new
        ones.
        """
        if not entries:
            return

        def counts_of_slots() -> list[int]:
            return [
                1 + self.schedules[name].count(slots.first, slots.last) for name, slots in entries
            ]

        # In a thread: years of slots are counted day by day.
        counts = await asyncio.to_thread(counts_of_slots)
        writes = [
            self._journal.slots.account(
                name,
                first=slots.first,
                last=slots.last,
                count=count,
                outcome=slots.outcome,
                reason=slots.reason,
                rule=slots.rule or rule_of(slots.reason, self.routines[name], self.states[name]),
                between=partial(slots_between, self.schedules[name]),
            )
            for (name, slots), count in zip(entries, counts, strict=True)
        ]
        for (name, slots), portions in zip(entries, await asyncio.gather(*writes), strict=True):
            write_line = log.warning if slots.outcome is Outcome.MISSED else log.info
            if slots.reason in REASONS_OF_PERIODS:
                # A routine that runs each ten seconds would fill the log of a night.
                if self._logged_periods.get(name) is slots.reason:
                    write_line = log.debug
                self._logged_periods[name] = slots.reason
            else:
                self._logged_periods.pop(name, None)
            for portion in portions:
                write_line(
                    f"slot.{slots.outcome}",
                    routine=name,
                    reason=slots.reason.value,
                    first=portion.first.isoformat(),
                    last=portion.last.isoformat(),
                    count=portion.count,
                )

    # --- what keeps a run from starting

    async def skip_reason_now(
        self, name: str, entries: Collection[ScheduleEntry]
    ) -> SkipReason | None:
        """Return why an event may not start a routine now; None if it may.

        `entries` are those of the routine's schedule that the event belongs to.
        """
        now = self._clock.now()
        await self._end_pauses([name], now)
        if self.states[name].is_paused(now):
            return self._skip_reason_by_rule(name, Reason.PAUSED)
        if not any(entry.is_active(now) for entry in entries):
            return SkipReason(reason=Reason.QUIET_HOURS, rule=describe_quiet(entries, now))
        await self._read_active_runs([name])
        return await self._skip_reason(name, now)

    async def record_skip(self, name: str, slot: datetime, skip_reason: SkipReason) -> None:
        """Record a moment at which an event did not start a run.

        While a slot of the schedule waits for its `spread`, only the log says so: the row would
        account for that slot, too, and it would not start.
        """
        await self.process_due([name])
        waiting_slot = self.schedules[name].next(self._floors[name])
        if waiting_slot and waiting_slot <= slot:
            reason, rule = skip_reason.reason.value, skip_reason.rule
            log.info("event.skipped", routine=name, reason=reason, rule=rule)
            return
        slots = make_skipped(slot, skip_reason.reason, rule=skip_reason.rule)
        await self._record_skipped([(name, slots)])

    async def _skip_reason(self, name: str, now: datetime) -> SkipReason | None:
        """Return why a slot that the schedule would start must be skipped; None if nothing that is
        known without a tool or a model keeps it from starting.
        """
        routine = self.routines[name]
        if name in self.unrehearsed_routines:
            return SkipReason(reason=Reason.GATE, rule=UNREHEARSED)
        if self.backoff_until(name, now):
            return self._skip_reason_by_rule(name, Reason.BACKOFF)
        if key := await self._gate_checks.find_closed_key(
            routine, self.schedules[name], self.states[name], now
        ):
            return SkipReason(reason=Reason.GATE, rule=key)
        active = self._active_runs.get(name) if self._active_runs else None
        if active and overlaps(routine, active):
            await self.submit_again(name)
            return self._skip_reason_by_rule(name, Reason.OVERLAP)
        cap = await self.find_used_up_cap(routine)
        return SkipReason(reason=Reason.BUDGET, rule=cap) if cap else None

    def _skip_reason_by_rule(self, name: str, reason: Reason) -> SkipReason:
        return SkipReason(
            reason=reason, rule=rule_of(reason, self.routines[name], self.states[name])
        )

    async def read_active_runs_of(self, name: str) -> None:
        """Read which runs of one routine are under way, where no other routine is started under
        this lock.
        """
        self._active_runs = {
            name: tuple(run.id for run in await self._journal.runs.find_active(name))
        }

    async def _read_active_runs(self, names: Iterable[str]) -> None:
        """Read which runs are under way, unless it is known since the lock was taken.

        One query serves all routines that are due together. Runs that it showed for one of `names`
        may have ended since, so then it is asked again.
        """
        if self._active_runs is None or not self._active_runs.keys().isdisjoint(names):
            self._active_runs = await self._journal.runs.get_active_ids()

    # --- routines, baselines and floors

    async def set_routines(
        self,
        routines: Mapping[str, Routine],
        *,
        changed_names: Iterable[str],
        unreadable: Iterable[str],
    ) -> None:
        """Replace the routines; `changed_names` are those that are new or changed.

        `unreadable` names those whose files have faults: their states are kept.
        """
        changed_routines = {name: routines[name] for name in changed_names}
        # In a thread: it takes half a second for 10,000 routines.
        schedule_keys, schedules, definitions = await asyncio.to_thread(
            self._derive, changed_routines
        )
        schedule_keys = {
            name: schedule_keys.get(name) or self._schedule_keys[name] for name in routines
        }
        # All that the journal may fail to say is asked before anything is replaced: a routine
        # without a state or a floor would keep those that are due with it from starting.
        unreadable_names, states = frozenset(unreadable), self.states
        # to read the states of ten thousand routines takes 50 ms
        if (
            self._has_shared_journal  # another machine may have paused a routine
            or unreadable_names != self._unreadable
            or schedule_keys != self._schedule_keys
            or not schedule_keys  # the journal may know routines whose files are gone
        ):
            states = await self._set_baselines(schedule_keys, unreadable_names)
        await self._drop_future_records(routines)
        floors = await self._find_floors(schedules, states)
        unrehearsed_names = {
            name
            for name, routine in changed_routines.items()
            if await self._is_unrehearsed(routine)
        }
        self._schedule_keys, self._unreadable = schedule_keys, unreadable_names
        self.routines, self.states = routines, states
        unchanged_names = routines.keys() - changed_routines.keys()
        for by_name in (self._floors, self._definitions, self.schedules):
            for name in by_name.keys() - unchanged_names:
                del by_name[name]
        self.schedules.update(schedules)
        self._definitions.update(definitions)
        self._floors.update(floors)
        self.unrehearsed_routines &= unchanged_names
        self.unrehearsed_routines |= unrehearsed_names
        await self._read_failures(changed_routines)

    async def set_unscheduled_routines(
        self, routines: Mapping[str, Routine], *, unreadable: Iterable[str]
    ) -> None:
        """Replace the routines and read their states, so that they can be paused, resumed and
        shown, without starting any of them by its schedule.
        """
        self._unreadable = frozenset(unreadable)
        self._schedule_keys, _, _ = await asyncio.to_thread(self._derive, routines)
        self.states = await self._set_baselines(self._schedule_keys, self._unreadable)
        self.routines = routines
        for name in routines:
            await self.check_rehearsal(name)

    async def check_rehearsal(self, name: str) -> bool:
        """Read whether a rehearsal of a routine must be approved before it may run, keep that in
        `unrehearsed_routines`, and return it.
        """
        if await self._is_unrehearsed(self.routines[name]):
            self.unrehearsed_routines.add(name)
            return True
        self.unrehearsed_routines.discard(name)
        return False

    async def _is_unrehearsed(self, routine: Routine) -> bool:
        if not routine.run.rehearse_first:
            return False
        return not await is_approved(self._journal.key_values, routine)

    async def rename(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Rename a routine with its history; `move` renames its file.

        Raises Refused while a run of it is under way, and what `move` raises, after the history has
        its old name again.
        """
        await self.process_due([old])
        if active := await self._journal.runs.find_active(old):
            raise Refused(f"a run of {old} is {active[0].status} (run {active[0].id}); wait for it")
        await self._journal.routines.rename(old, new)
        try:
            move()
        except BaseException:
            await self._journal.routines.rename(new, old)
            raise
        # Nothing is due under the old name any more. The new name comes in with the next reload.
        self.routines = {name: routine for name, routine in self.routines.items() if name != old}
        self.states = {name: state for name, state in self.states.items() if name != old}
        for by_name in (self.schedules, self._schedule_keys, self._floors, self._definitions):
            by_name.pop(old, None)

    def schedule(self, routine: Routine) -> Schedule:
        """Return the schedule of a routine on this machine, whether it is enabled or not."""
        return schedule_of(routine, zone=self.zone, machine=self._machine)

    def is_started_here(self, routine: Routine) -> bool:
        """Tell whether this host starts a routine."""
        return self._has_shared_journal or matches_host(routine.machines, self.host)

    def is_due_for_first_run(self, name: str) -> bool:
        """Tell whether a routine is to run as soon as it is read for the first time."""
        routine = self.routines[name]
        if not (routine.first_run and routine.enabled and self.is_started_here(routine)):
            return False
        if name in self.unrehearsed_routines:
            return False
        return not self.states[name].is_paused(self._clock.now())

    async def correct_for_clock_change(self) -> None:
        """Correct baselines, floors and records that lie in the future: the clock was set."""
        self.up_since = min(self.up_since, self._clock.now())
        self.states = await self._set_baselines(self._schedule_keys, self._unreadable)
        await self._drop_future_records(self.routines)
        self._floors.update(await self._find_floors(self.schedules, self.states))

    async def _find_floors(
        self, schedules: Mapping[str, Schedule], states: Mapping[str, RoutineState]
    ) -> dict[str, datetime]:
        """Return up to where the journal has accounted for the slots of the routines with these
        schedules.
        """
        now = self._clock.now()
        floors: dict[str, datetime] = {}
        for batch in in_batches(schedules):
            for name in batch:
                floors[name] = states[name].baseline
            # Only of routines with a slot since their baseline can the journal know any.
            due_names = [
                name for name in batch if (slot := schedules[name].due(now)) and slot > floors[name]
            ]
            latest_slots = await asyncio.gather(
                *map(self._journal.slots.get_accounted_until, due_names)
            )
            for name, slot in zip(due_names, latest_slots, strict=True):
                if slot and slot > floors[name]:
                    floors[name] = slot
            await asyncio.sleep(0)
        return floors

    def _derive(
        self, routines: Mapping[str, Routine]
    ) -> tuple[dict[str, str], dict[str, Schedule], dict[str, str]]:
        """Return the schedule keys, schedules and definitions as JSON text, each by routine."""
        schedule_keys: dict[str, str] = {}
        schedules: dict[str, Schedule] = {}
        for name, routine in routines.items():
            zones = dict.fromkeys(trigger.timezone or self.zone for trigger in routine.triggers)
            schedule_keys[name] = f"{routine.schedule_key} {' '.join(zones)}"
            if routine.enabled and routine.is_automatic and self.is_started_here(routine):
                schedules[name] = self.schedule(routine)
        definitions = {name: routine.dump() for name, routine in routines.items()}
        return schedule_keys, schedules, definitions

    async def _set_baselines(
        self, schedule_keys: Mapping[str, str], unreadable: frozenset[str]
    ) -> dict[str, RoutineState]:
        """Start a new baseline where trigger, zone or enabling changed, and where the old one lies
        in the future; return the state of each routine. The `unreadable` ones keep their state.
        """
        states = await self._journal.routines.set_baselines(schedule_keys)
        now = self._clock.now()
        # A baseline in the future was written while the clock was wrong; it would keep the routine
        # from starting until then.
        future_baselines = [name for name in schedule_keys if states[name].baseline > now]
        removed_names = [
            name
            for name in states.keys() - schedule_keys.keys() - unreadable
            if states[name].schedule_key != NO_SCHEDULE_KEY
        ]
        if future_baselines or removed_names:
            await self._journal.routines.set_baselines(
                dict.fromkeys([*future_baselines, *removed_names], NO_SCHEDULE_KEY)
            )
            states = await self._journal.routines.set_baselines(schedule_keys)
        return {name: states[name] for name in schedule_keys}

    async def _drop_future_records(self, routines: Mapping[str, Routine]) -> None:
        """Drop the records of skipped slots that are still to come by the clock as it now is."""
        now = self._latest_time = self._clock.now()

        def past_part(row: SlotRow, baseline: datetime) -> SlotRange | None:
            recorded_slots = SlotRange(first=row.first, last=row.last, count=row.count)
            # A routine that is disabled by now still has slots of the past.
            routine = routines.get(row.routine)
            schedule = self.schedule(routine) if routine else None
            return remaining_slots(schedule, recorded_slots, now=now, baseline=baseline)

        await self._journal.slots.reopen_future_slots(past_part)

    # --- pauses

    async def pause(
        self,
        name: str,
        *,
        until: datetime | None = None,
        length: timedelta | None = None,
        why: str | None = None,
    ) -> None:
        """Pause a routine until a moment, or for a length of time, or until it is resumed.

        Slots that are due already are processed first. `why` is set where not a person but the
        ledger pauses.
        """
        await self.process_due([name])
        if length is None:
            await self._journal.routines.pause(name, until=until, why=why)
        else:
            now = self._clock.now()
            await self._journal.routines.pause(name, until=now + length, since=now, why=why)
        await self._read_states()

    async def resume(self, name: str) -> None:
        """Let a routine start again from now on, and forget its failures."""
        await self.process_due([name])
        await self._end_pause(name, self._clock.now())

    async def refresh_states(self) -> list[str]:
        """Read what another daemon on the same database may have changed; return the routines that
        were paused and are not any more.
        """
        old_states = self.states
        await self._read_states()
        for name in self.states.keys() & self._floors.keys():
            self._floors[name] = max(self._floors[name], self.states[name].baseline)
        return [
            name
            for name, state in self.states.items()
            if old_states[name].paused and not state.paused
        ]

    async def _end_pause(self, name: str, since: datetime) -> None:
        """Let a routine start again from `since` on: record the slots of its pause as skipped, and
        forget its failures.
        """
        schedule = self.schedules.get(name)
        slot = schedule.prev(since) if schedule and self.states[name].paused else None
        if schedule and slot and slot > self._floors[name]:
            # With `spread` some of these slots would start only after the pause. The new baseline
            # is later than all of them, so nothing would record them afterwards.
            first = schedule.next(self._floors[name])
            await self._record_skipped([(name, make_skipped(slot, Reason.PAUSED, since=first))])
        await self._journal.routines.resume(name, since=since)
        await self._read_states()
        self._failure_backoff.forget(name)
        if name in self._floors:
            self._floors[name] = max(self._floors[name], self.states[name].baseline)

    async def _end_pauses(self, names: Iterable[str], now: datetime) -> None:
        """Resume those of these routines whose pause has ended, as of the end of the pause."""
        for name in names:
            state = self.states[name]
            if state.paused and state.paused_until and not state.is_paused(now):
                await self._end_pause(name, state.paused_until)
                log.info(
                    "routine.resumed", routine=name, paused_until=state.paused_until.isoformat()
                )

    async def _read_states(self) -> None:
        states = await self._journal.routines.get_states()
        # Another daemon of the cluster may have renamed a routine. This one learns of that by its
        # next reload; until then the state counts that it has read last.
        self.states = {name: states.get(name, self.states[name]) for name in self._schedule_keys}

    # --- routines that keep failing

    async def record_end(self, run: Run) -> None:
        """Count a failed run: its routine backs off for longer and longer, and is paused at last.

        Takes the lock itself, and only for a run that has not succeeded: those that have do not
        wait for each other.
        """
        if self.record_success(run):
            return
        async with self.lock():
            if run.routine in self.states:
                await self._read_failures([run.routine])

    def record_success(self, run: Run) -> bool:
        """Forget the failures of a routine if `run` succeeded; return whether it did."""
        if run.status is Status.SUCCEEDED:
            self._failure_backoff.forget(run.routine)
        return run.status is Status.SUCCEEDED

    def backoff_until(self, name: str, now: datetime) -> datetime | None:
        """Return until when a routine is not started because its last runs failed."""
        return self._failure_backoff.backoff_until(self.routines[name], now)

    async def _read_failures(self, names: Iterable[str]) -> None:
        """Read the failures in a row of these routines, and pause those that failed too often."""
        await self._failure_backoff.read_streaks(names, self.states)
        for name in names:
            if self.states[name].paused:
                continue
            if reason := self._failure_backoff.pause_reason(self.routines[name]):
                await self.pause(name, why=reason)
                log.warning(
                    "routine.paused", routine=name, why=reason, hint=f"agentctl resume {name}"
                )


def max_other_runs(routine: Routine) -> int | None:
    """Return how many runs of a routine may be active when another one is claimed; None: any
    number.
    """
    return MAX_OTHER_RUNS[routine.run.overlap]


def overlaps(routine: Routine, active: Sequence[str]) -> bool:
    """Tell whether another run of a routine is one too many, with these active run ids."""
    limit = max_other_runs(routine)
    return limit is not None and len(active) > limit
