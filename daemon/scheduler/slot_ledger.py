"""The routines as the ledger of slots knows them: what is settled, and what becomes of the rest.

Identity is the slot. Whoever finds a slot above a routine's floor claims it in SQLite before
anybody runs it, and only one claim can succeed; so everything here may be asked again at any
moment, after any crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import structlog

from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.errors import NotFound, Refused
from daemon.models import Outcome, Reason, Run, Status
from daemon.runs.rehearsal.approved import approved
from daemon.scheduler.backoff import FailureBackoff
from daemon.scheduler.routine_times import named, schedule_of, starts_by_itself
from daemon.scheduler.skip_reasons import UNREHEARSED, Afford, Gates, SkipReason, anything, rule_of
from daemon.scheduler.slots import (
    SkippedSlots,
    SlotDecision,
    apart,
    between,
    settle,
    skipped,
    still_told,
)
from daemon.store.journal import Claim, Journal, Portion, RoutineState, SlotRow
from daemon.system.clock import Clock

log = structlog.get_logger()

# So many at a time: 10,000 at once would stall the loop.
SLICE = 250
# So many slices may be on their way to the disk: they share a commit, and the loop is not a second
# ahead of it.
AHEAD = 8
# A schedule key that no routine has: who comes back from it gets a new baseline.
FORGOTTEN = ""


def sliced(names: Iterable[str]) -> Iterator[list[str]]:
    """Return names in portions that the event loop can bear."""
    rest = iter(list(names))
    while some := list(islice(rest, SLICE)):
        yield some


class Ledger:
    """Settles slots and starts runs.

    Everything but looking needs `open()`, or `beside()` for a single run.
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
        anywhere: bool = False,
        afford: Afford = anything,
    ) -> None:
        """Make a ledger of no routines yet.

        `zone` is that of routines that name none; `machine` tells this machine from others, `host`
        is its name. `anywhere`: what is started here may live on any machine of several.
        """
        self._journal, self._submit, self._cancel, self.afford = journal, submit, cancel, afford
        self._clock = clock
        self.zone, self._machine, self.host, self._anywhere = zone, machine, host, anywhere
        self.up_since = clock.now()
        self.routines: Mapping[str, Routine] = {}
        self.schedules: dict[str, Schedule] = {}
        """Of the routines that start by themselves."""
        self.states: Mapping[str, RoutineState] = {}
        self._keys: dict[str, str] = {}
        self._unread: frozenset[str] = frozenset()
        self._floors: dict[str, datetime] = {}
        self._definitions: dict[str, str] = {}
        self._lock, self._door = asyncio.Lock(), asyncio.Lock()
        self._beside = 0
        """How many share the lock."""
        self._occupied: dict[str, tuple[str, ...]] | None = None
        """The runs under way, by routine, as they were seen since the ledger was opened."""
        self._patience, self._gates = FailureBackoff(journal.routines), Gates(journal)
        self.unrehearsed: set[str] = set()
        """Routines that are held back until a rehearsal was approved."""
        self._late = 0
        """Runs that come late and were started since the ledger was opened."""
        self._seen = self.up_since
        """The latest moment that the clock has shown since it was last put back."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let nobody else claim meanwhile, so that overlap is judged by what is really there."""
        async with self._lock:
            try:
                yield
            finally:
                self._occupied, self._late = None, 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Let nobody settle slots meanwhile, but others who start single runs: their claims then
        share a commit.
        """
        async with self._door:
            if not self._beside:
                await self._lock.acquire()
            self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1
            if not self._beside:
                self._lock.release()

    # --- definitions, baselines and floors

    async def take_up(
        self, routines: Mapping[str, Routine], *, fresh: Iterable[str], unread: Iterable[str]
    ) -> None:
        """Go over to these routines, of which `fresh` are new or changed.

        `unread` are those whose files say nothing at present, and which are not forgotten for that.
        """
        read = {name: routines[name] for name in fresh}
        keys, schedules, definitions = await asyncio.to_thread(
            self._read, read
        )  # half a second for 10,000
        keys = {name: keys.get(name) or self._keys[name] for name in routines}
        self._unread = frozenset(unread)
        self.states = await self._set_baselines(keys)
        await self._take_back(routines)
        self._keys, self.routines = keys, routines
        kept = routines.keys() - read.keys()
        for known in (self._floors, self._definitions, self.schedules):
            for name in known.keys() - kept:
                del known[name]
        self.schedules.update(schedules)
        self._definitions.update(definitions)
        self.unrehearsed -= read.keys() | (self.unrehearsed - routines.keys())
        for name in [name for name, routine in read.items() if routine.run.rehearse_first]:
            await self.is_held_back(name)
        await self.read_floors(schedules)
        await self._read_failures(read)

    async def is_held_back(self, name: str) -> bool:
        """Tell whether a routine has to be rehearsed, and approved of, before it may run."""
        routine = self.routines[name]
        if not routine.run.rehearse_first or await approved(self._journal.facts, routine):
            self.unrehearsed.discard(name)
            return False
        self.unrehearsed.add(name)
        return True

    def _read(
        self, routines: Mapping[str, Routine]
    ) -> tuple[dict[str, str], dict[str, Schedule], dict[str, str]]:
        keys: dict[str, str] = {}
        schedules: dict[str, Schedule] = {}
        for name, routine in routines.items():
            keys[name] = f"{routine.schedule_key} {routine.trigger.timezone or self.zone}"
            if routine.enabled and starts_by_itself(routine) and self.is_started_here(routine):
                schedules[name] = self.schedule(routine)
        return keys, schedules, {name: routine.dump() for name, routine in routines.items()}

    def schedule(self, routine: Routine) -> Schedule:
        """Return when a routine runs on this machine, whether it is enabled or not."""
        return schedule_of(routine, zone=self.zone, machine=self._machine)

    def is_started_here(self, routine: Routine) -> bool:
        """Tell whether a routine is started by this host."""
        return self._anywhere or named(routine.trigger.machines, self.host)

    def wants_first_run(self, name: str) -> bool:
        """Tell whether a routine is to run as soon as it is seen for the first time."""
        routine = self.routines[name]
        held = (
            self.states[name].paused_why is not None
        )  # it never ran: only a restore can have done that
        held = held or name in self.unrehearsed
        return routine.first_run and routine.enabled and self.is_started_here(routine) and not held

    async def _set_baselines(self, keys: Mapping[str, str]) -> dict[str, RoutineState]:
        """Start a new baseline where trigger, zone or enabling changed, and where the old one
        cannot be true.
        """
        states = await self._journal.routines.set_baselines(keys)
        now = self._clock.now()
        # Of the future is what was written while the clock was wrong; it would mute the routine
        # until then.
        untrue = [name for name in keys if states[name].baseline > now]
        gone = states.keys() - keys.keys() - self._unread
        gone = {name for name in gone if states[name].schedule_key != FORGOTTEN}
        if untrue or gone:
            await self._journal.routines.set_baselines(dict.fromkeys([*untrue, *gone], FORGOTTEN))
            states = await self._journal.routines.set_baselines(keys)
        return {name: states[name] for name in keys}

    async def realign(self) -> None:
        """Trust no baseline, no floor and no account of the future: the clock was set."""
        self.up_since = min(self.up_since, self._clock.now())
        self.states = await self._set_baselines(self._keys)
        await self._take_back(self.routines)
        await self.read_floors(self.schedules)

    async def _take_back(self, routines: Mapping[str, Routine]) -> None:
        """Leave nothing told of slots that are still to come by the clock as it now is."""
        now = self._seen = self._clock.now()

        def kept(row: SlotRow, baseline: datetime) -> Portion | None:
            told = Portion(first=row.first, last=row.last, count=row.count)
            routine = routines.get(row.routine)  # turned off, it has slots of the past all the same
            schedule = self.schedule(routine) if routine else None
            return still_told(schedule, told, now=now, baseline=baseline)

        await self._journal.slots.take_back(kept)

    async def read_floors(self, names: Iterable[str]) -> None:
        """Ask the ledger up to where these routines are settled."""
        now = self._clock.now()
        for some in sliced(names):
            due = {name: self.schedules[name].due(now) for name in some}
            self._floors.update({name: self.states[name].baseline for name in some})
            asked = [name for name, slot in due.items() if slot and slot > self._floors[name]]
            settled = await asyncio.gather(*map(self._journal.slots.get_accounted_until, asked))
            for name, until in zip(asked, settled, strict=True):
                if until and until > self._floors[name]:
                    self._floors[name] = until
            await asyncio.sleep(0)

    async def rename(self, old: str, new: str, move: Callable[[], None]) -> None:
        """Give a routine another name with its history; `move` renames its file.

        Refused while a run is under way.
        """
        await self.settle([old])
        if active := await self._journal.runs.find_active(old):
            raise Refused(f"a run of {old} is {active[0].status} (run {active[0].id}); wait for it")
        await self._journal.routines.rename(old, new)
        try:
            move()
        except BaseException:
            await self._journal.routines.rename(new, old)
            raise
        # Nothing is due under the old name any more; the new one is taken up when the files are
        # read again.
        self.routines = {name: routine for name, routine in self.routines.items() if name != old}
        self.states = {name: state for name, state in self.states.items() if name != old}
        for known in (self.schedules, self._keys, self._floors, self._definitions):
            known.pop(old, None)

    async def pause(
        self,
        name: str,
        *,
        until: datetime | None = None,
        length: timedelta | None = None,
        why: str | None = None,
    ) -> None:
        """Pause a routine until a moment, or for a while, after what is due has been settled as
        things stood.
        """
        await self.settle([name])
        if length is None:
            await self._journal.routines.pause(name, until=until, why=why)
        else:
            now = self._clock.now()
            await self._journal.routines.pause(name, until=now + length, since=now, why=why)
        await self._read_states()

    async def resume(self, name: str) -> None:
        """Let a routine go on from now, its failures forgiven."""
        await self.settle([name])
        await self._resume(name, self._clock.now())

    async def _resume(self, name: str, since: datetime) -> None:
        schedule = self.schedules.get(name)
        slot = schedule.prev(since) if schedule and self.states[name].paused else None
        if schedule and slot and slot > self._floors[name]:
            # among them those that `spread` would start after the pause: they lie before the new
            # baseline
            first = schedule.next(self._floors[name])
            await self._account([(name, skipped(slot, Reason.PAUSED, since=first))])
        await self._journal.routines.resume(name, since=since)
        await self._read_states()
        self._patience.forget(name)
        if name in self._floors:
            self._floors[name] = max(self._floors[name], self.states[name].baseline)

    async def heed(self) -> list[str]:
        """Read what another daemon on the database may have changed; return what goes on that was
        paused.
        """
        before = self.states
        await self._read_states()
        for name in self.states.keys() & self._floors.keys():
            self._floors[name] = max(self._floors[name], self.states[name].baseline)
        return [
            name for name, state in self.states.items() if before[name].paused and not state.paused
        ]

    async def _read_states(self) -> None:
        states = await self._journal.routines.get_states()
        self.states = {name: states[name] for name in self._keys}

    async def _end_pauses(self, names: Iterable[str], now: datetime) -> None:
        """Resume what was paused until a moment that has come, as of that moment."""
        for name in names:
            state = self.states[name]
            if state.paused and state.paused_until and not state.pausing(now):
                await self._resume(name, state.paused_until)
                log.info(
                    "routine.resumed", routine=name, paused_until=state.paused_until.isoformat()
                )

    # --- routines that keep failing

    async def ended(self, run: Run) -> None:
        """Take note of how a run ended: a routine that keeps failing rests longer and longer, then
        it is paused.

        It opens the ledger where it has to look into it: a hundred that end well do not wait for
        each other.
        """
        if self.is_content_with(run):
            return
        async with self.open():
            if run.routine in self.states:
                await self._read_failures([run.routine])

    def is_content_with(self, run: Run) -> bool:
        """Tell whether a run ended well; its routine's failures are forgotten then."""
        if run.status is Status.SUCCEEDED:
            self._patience.forget(run.routine)
        return run.status is Status.SUCCEEDED

    async def _read_failures(self, names: Iterable[str]) -> None:
        await self._patience.read(names, self.states)
        for name in names:
            if not self.states[name].paused and (
                why := self._patience.lost_with(self.routines[name])
            ):
                await self.pause(name, why=why)
                log.warning("routine.paused", routine=name, why=why, hint=f"agentctl resume {name}")

    def rests_until(self, name: str, now: datetime) -> datetime | None:
        """Return until when a routine is not to be started that has failed of late."""
        return self._patience.rests_until(self.routines[name], now)

    # --- settling slots

    async def settle(self, names: Iterable[str]) -> list[Run]:
        """Decide about everything due of these routines, write it down, and hand on the runs."""
        first, *rest = [*sliced(names)] or [[]]
        if not rest:
            return await self._write(await self._decide(first))
        runs: list[Run] = []
        writing: list[asyncio.Task[list[Run]]] = []
        try:
            for some in (
                first,
                *rest,
            ):  # the next ones are decided about while these are written down
                writing.append(asyncio.create_task(self._write(await self._decide(some))))
                await asyncio.sleep(0)
                if len(writing) == AHEAD:
                    runs += await writing.pop(0)
        finally:
            await asyncio.gather(*writing, return_exceptions=True)
        return [*runs, *(run for task in writing for run in task.result())]

    async def _decide(self, names: Sequence[str]) -> _Decided:
        if self._clock.now() < self._seen:  # put back, and nobody has told us yet
            await self.realign()
        now = self._seen = self._clock.now()
        stretches: list[tuple[str, SkippedSlots]] = []
        claims: list[Claim] = []
        floors: dict[str, datetime] = {}
        await self._end_pauses(names, now)
        await self._look(names)
        known: _Known = {}
        for name in names:
            settled = self._settled(name, now, known)
            if settled is None:
                continue
            floors[name] = settled.slot
            stretches += [(name, stretch) for stretch in settled.stretches]
            if settled.start is None:
                continue
            if found := await self._hindrance(name, now):
                stretches.append((name, skipped(settled.slot, found.reason, rule=found.rule)))
            else:
                claims.append(self._claim_of(name, settled, settled.start))
        return stretches, claims, floors

    async def _write(self, decided: _Decided) -> list[Run]:
        stretches, claims, floors = decided
        await self._account(stretches)
        runs = await self.start(claims)
        self._floors.update(floors)
        return runs

    def _settled(self, name: str, now: datetime, known: _Known) -> SlotDecision | None:
        schedule = self.schedules.get(name)
        if schedule is None:
            return None
        floor, paused = self._floors[name], self.states[name].pausing(now)
        like = id(schedule), floor, paused
        if like not in known:
            known[like] = settle(
                schedule, floor=floor, now=now, up_since=self.up_since, paused=paused
            )
        return known[like]

    async def _account(self, stretches: Sequence[tuple[str, SkippedSlots]]) -> None:
        if not stretches:
            return
        # Years of slots are counted day by day: not on the loop.
        counts = await asyncio.to_thread(
            lambda: [self._count(name, stretch) for name, stretch in stretches]
        )
        written = [
            self._journal.slots.account(
                name,
                first=stretch.first,
                last=stretch.last,
                count=count,
                outcome=stretch.outcome,
                reason=stretch.reason,
                rule=stretch.rule
                or rule_of(stretch.reason, self.routines[name], self.states[name]),
                between=partial(between, self.schedules[name]),
            )
            for (name, stretch), count in zip(stretches, counts, strict=True)
        ]
        for (name, stretch), new in zip(stretches, await asyncio.gather(*written), strict=True):
            tell = log.warning if stretch.outcome is Outcome.MISSED else log.info
            for portion in new:
                tell(
                    f"slot.{stretch.outcome}",
                    routine=name,
                    reason=stretch.reason.value,
                    first=portion.first.isoformat(),
                    last=portion.last.isoformat(),
                    count=portion.count,
                )

    def _count(self, name: str, stretch: SkippedSlots) -> int:
        return 1 + self.schedules[name].count(stretch.first, stretch.last)

    async def _hindrance(self, name: str, now: datetime) -> SkipReason | None:
        """Return why a slot that may start must not, as far as no tool and no model is needed to
        tell.
        """
        routine = self.routines[name]
        if name in self.unrehearsed:
            return SkipReason(reason=Reason.GATE, rule=UNREHEARSED)
        if self.rests_until(name, now):
            return self._hindered(name, Reason.NOT_BEFORE)
        if key := await self._gates.closed_by(
            routine, self.schedules[name], self.states[name], now
        ):
            return SkipReason(reason=Reason.GATE, rule=key)
        active = self._occupied.get(name) if self._occupied else None
        if active and overlaps(routine, active):
            return self._hindered(name, Reason.OVERLAP)
        cap = await self.afford(routine)
        return SkipReason(reason=Reason.BUDGET, rule=cap) if cap else None

    def _hindered(self, name: str, reason: Reason) -> SkipReason:
        return SkipReason(
            reason=reason, rule=rule_of(reason, self.routines[name], self.states[name])
        )

    async def hindrance_now(self, name: str) -> SkipReason | None:
        """Return why an event may not start a routine at this moment."""
        now = self._clock.now()
        await self._end_pauses([name], now)
        if self.states[name].pausing(now):
            return self._hindered(name, Reason.PAUSED)
        if not self.schedules[name].active(now):
            return self._hindered(name, Reason.QUIET_HOURS)
        await self._look([name])
        return await self._hindrance(name, now)

    async def _look(self, names: Iterable[str]) -> None:
        """See which runs are under way.

        One look serves all that are due together. What it shows of these routines may have ended
        since: look again.
        """
        if self._occupied is None or not self._occupied.keys().isdisjoint(names):
            self._occupied = await self._journal.runs.get_active_ids()

    async def look_alone(self, name: str) -> None:
        """Do so where nothing else is started with a routine: of a hundred others it has nothing to
        know.
        """
        self._occupied = {name: tuple(run.id for run in await self._journal.runs.find_active(name))}

    async def let_pass(self, name: str, slot: datetime, skip_reason: SkipReason) -> None:
        """Account for a moment at which a run was not started."""
        await self._account([(name, skipped(slot, skip_reason.reason, rule=skip_reason.rule))])

    # --- starting runs

    def _claim_of(self, name: str, settled: SlotDecision, outcome: Outcome) -> Claim:
        trigger = self.routines[name].trigger
        kind = "cron" if trigger.cron else "every" if trigger.every else "at"
        claim = self.claim(name, kind, settled.slot, outcome=outcome, lateness=settled.lateness)
        if outcome is Outcome.RAN:
            return claim
        place, self._late = self._late, self._late + 1
        return replace(claim, not_before=self._clock.now() + apart(place)) if place else claim

    def claim(
        self,
        name: str,
        trigger: str,
        slot: datetime,
        *,
        event: str | None = None,
        outcome: Outcome = Outcome.RAN,
        lateness: float = 0.0,
        input: Any = None,  # noqa: A002  the word for it
        files: Mapping[str, str] | None = None,
        beside: int | None = None,
    ) -> Claim:
        """Return what a run of the routine as it stands now needs to be written down."""
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
            beside=beside,
        )

    async def start(self, claims: Sequence[Claim]) -> list[Run]:
        """Claim slots in one durable transaction and hand on the runs of those that were free."""
        if not claims:
            return []
        opened = zip(claims, await self._journal.slots.open(claims), strict=True)
        started = [(claim, run) for claim, run in opened if run]
        for claim, run in started:
            if claim.outcome is not Outcome.RAN:
                slot = claim.slot.isoformat()
                log.info(
                    f"slot.{claim.outcome}",
                    routine=claim.routine,
                    slot=slot,
                    lateness=claim.lateness,
                )
            occupied = {} if self._occupied is None else self._occupied
            active = occupied.get(run.routine, ())
            if active and self.routines[run.routine].run.overlap == "cancel_previous":
                for previous in active:
                    with suppress(Refused, NotFound):  # it has ended in between
                        await self._cancel(previous)
            if run.id not in active:  # a look in between has seen it
                occupied[run.routine] = (*active, run.id)
            await self._submit(run)
        return [run for _, run in started]


# What is to be written down: slots without a run, slots with one, and how far that settles each
# routine.
_Decided: TypeAlias = tuple[list[tuple[str, SkippedSlots]], list[Claim], dict[str, datetime]]
# What is due at one moment, by schedule, floor and pause: those who share them share the answer.
_Known: TypeAlias = dict[tuple[int, datetime, bool], SlotDecision | None]
MOST_BESIDE: Mapping[str, int | None] = {"skip": 0, "queue_one": 1, "cancel_previous": None}


def most_beside(routine: Routine) -> int | None:
    """Return beside how many runs of a routine one more may be started; None: beside any."""
    return MOST_BESIDE[routine.run.overlap]


def overlaps(routine: Routine, active: Sequence[str]) -> bool:
    """Tell whether one run more would be too many."""
    most = most_beside(routine)
    return most is not None and len(active) > most
