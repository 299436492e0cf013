"""What starts runs besides the clock: files that came to rest, webhooks, and runs of other routines
that ended.

Each event has an id that is unique for its routine in the ledger (file versions, the sender's id,
the run before), so that everything here may be asked again after any crash. What may not start now
is treated by its nature: files wait, as they still lie there; the end of another run passes like a
slot, with its reason; a webhook is refused, as its sender can come again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog

from daemon.errors import NotFound, Refused
from daemon.models import Reason, Run, Status
from daemon.scheduler.skip_reasons import OPERATOR_SEEN
from daemon.scheduler.slot_ledger import Ledger, most_beside
from daemon.store.journal import Journal
from daemon.system.clock import Clock
from daemon.system.settled_files import Watch

log = structlog.get_logger()

FAILED = frozenset({Status.FAILED, Status.TIMED_OUT, Status.INTERRUPTED})
# What `on` of a trigger means. A skipped run has done nothing that somebody could come after.
ENDS = {
    "succeeded": frozenset({Status.SUCCEEDED}),
    "failed": FAILED,
    "ended": FAILED | {Status.SUCCEEDED, Status.CANCELLED},
}
# A report may be a book; whoever wants all of it finds the run by its id.
LONGEST_REPORT = 20_000
ON_START_AT_MOST = timedelta(hours=1)
# How long the version of a file that is gone is remembered, in case it comes back.
REMEMBERED = timedelta(days=90)

WHY_NOT = {
    Reason.PAUSED: "it is paused",
    Reason.QUIET_HOURS: "it is outside its active hours",
    Reason.NOT_BEFORE: "it rests after a failure",
    Reason.GATE: "its gate is closed",
    Reason.BUDGET: "its budget is spent",
    Reason.OVERLAP: "a run of it is under way",
}


class Triggers:
    """Starts runs by events. Everything but looking needs the ledger open."""

    def __init__(self, ledger: Ledger, journal: Journal, clock: Clock) -> None:
        self._ledger, self._journal, self._clock = ledger, journal, clock
        self.watches: dict[str, Watch] = {}
        """By routine."""
        self.children: dict[str, list[str]] = {}
        """Those that come after a routine."""

    def take_up(self) -> None:
        """Go over to the routines that the ledger has now."""
        self.watches, self.children = {}, {}
        for name in self._ledger.schedules:
            trigger = self._ledger.routines[name].trigger
            if trigger.watch:
                self.watches[name] = Watch(
                    globs=trigger.watch, settle=trigger.settle.total_seconds()
                )
            for parent in trigger.after:
                self.children.setdefault(parent, []).append(name)

    # --- by hand, at first sight, at the start of the daemon

    async def run_now(self, name: str, *, event: str, trigger: str) -> Run:
        """Start a run by an event, which gets the same run however often it comes.

        Refused where a run of it is under way, or where it may spend no more. Unlike all the rest
        here, it opens the ledger itself.
        """
        if self._ledger.routines[name].run.rehearse_first and await self._ledger.is_held_back(name):
            raise Refused(
                (  # noqa: UP034
                    f"{name} is held back until a rehearsal of it was approved: agentctl rehearse "
                    f"{name}"
                )
            )
        if cap := await self._ledger.afford(self._ledger.routines[name]):
            if earlier := await self._journal.slots.get_run_of_event(name, event):
                return earlier
            raise Refused(
                f"{name} may spend no more for now: {cap}; agentctl usage shows what was spent"
            )
        most, now = most_beside(self._ledger.routines[name]), self._clock.now()
        async with self._ledger.beside() if most is not None else self._ledger.open():
            if most is None:  # those under way are to be cancelled
                await self._ledger.look_alone(name)
            if trigger == "manual":
                # in one commit with the claim
                seen = self._journal.facts.remember(OPERATOR_SEEN, now.isoformat(), lazily=True)
            runs = await self._ledger.start(
                [self._ledger.claim(name, trigger, now, event=event, beside=most)]
            )
            if trigger == "manual":
                await seen
        if runs:
            return runs[0]
        if earlier := await self._journal.slots.get_run_of_event(name, event):
            return earlier
        for active in await self._journal.runs.find_active(name):
            raise Refused(
                f"{name} is {active.status} already (run {active.id}); wait for it,"
                f" or stop it: agentctl cancel {active.id}"
            )
        raise Refused(f"a run of {name} has ended at this very moment; ask again")

    async def start_of_daemon(self) -> None:
        """Start what runs when the daemon starts, unless it did so less than an hour ago."""
        ledger = self._ledger
        for name in [name for name, schedule in ledger.schedules.items() if schedule.on_start]:
            key = f"on_start:{name}"
            slot, done = _remembered(await self._journal.facts.recall(key))
            if slot is None or not ledger.up_since - ON_START_AT_MOST < slot <= ledger.up_since:
                slot, done = ledger.up_since, False
                await self._journal.facts.remember(key, slot.isoformat())
            if done:
                continue
            # Not done: this is the hour's first start, or the one before died between these lines.
            if skip_reason := await ledger.hindrance_now(name):
                await ledger.let_pass(name, slot, skip_reason)
            else:
                await ledger.start(
                    [ledger.claim(name, "on_start", slot, event=f"on_start {slot.isoformat()}")]
                )
            await self._journal.facts.remember(key, f"{slot.isoformat()} done")

    async def first_runs(self, names: Iterable[str]) -> None:
        """Run once what wants that and has never run."""
        ledger = self._ledger
        wanting = [name for name in names if ledger.wants_first_run(name)]
        if wanting:
            ran, now = await self._journal.runs.get_last_by_routine(), self._clock.now()
            fresh = [name for name in wanting if name not in ran]
            await ledger.start(
                [ledger.claim(name, "first_run", now, event="first_run") for name in fresh]
            )

    # --- files

    async def files(self, name: str, versions: Mapping[str, str]) -> datetime | None:
        """Start one run for files that have come to rest; else return when to try again, None if
        that will be told.
        """
        now = self._clock.now()
        if skip_reason := await self._ledger.hindrance_now(name):
            again = await self._opens(name, skip_reason.reason, now)
            waiting = {"routine": name, "files": len(versions), "reason": skip_reason.reason.value}
            log.info("files.waiting", **waiting, rule=skip_reason.rule, until=_iso(again))
            return again
        event, told = _event_of(versions), {"paths": list(versions)}
        await self._ledger.start(
            [self._ledger.claim(name, "watch", now, event=event, input=told, files=versions)]
        )
        return None

    async def forget_files(self, name: str, present: Iterable[str]) -> None:
        """Forget versions of files that are long gone."""
        await self._journal.slots.forget_files(
            name, present=set(present), before=self._clock.now() - REMEMBERED
        )

    async def _opens(self, name: str, reason: Reason, now: datetime) -> datetime | None:
        """Return when what stands in the way may be gone, where no event will tell."""
        schedule, gate = self._ledger.schedules[name], self._ledger.routines[name].gate
        match reason:
            case Reason.PAUSED:
                return self._ledger.states[name].paused_until
            case Reason.QUIET_HOURS:
                return schedule.opening.next(now, schedule.zone) if schedule.opening else None
            case Reason.NOT_BEFORE:
                return self._ledger.rests_until(name, now)
            case Reason.GATE if gate.idle and (
                seen := await self._journal.facts.recall(OPERATOR_SEEN)
            ):
                idle = datetime.fromisoformat(seen) + gate.idle
                return idle if idle > now else _midnight(now, schedule.zone)
            case Reason.OVERLAP:
                return None
        return _midnight(now, schedule.zone)

    # --- ends of other runs

    async def ended(self, run: Run) -> None:
        """Start what comes after a run that has ended."""
        for name in self.children.get(run.routine, ()):
            if run.status in ENDS[self._ledger.routines[name].trigger.on]:
                await self._answer(name, run)

    async def missed_ends(self, names: Iterable[str]) -> None:
        """Answer the ends that nobody has answered, because the process died before it could."""
        now = self._clock.now()
        for name in names:
            schedule, trigger = (
                self._ledger.schedules.get(name),
                self._ledger.routines[name].trigger,
            )
            if schedule is None or not trigger.after:
                continue
            key = f"after:{name}"
            answered = await self._journal.facts.recall(key)
            since = self._ledger.states[name].baseline
            # Of the future: the clock was wrong then, or is now.
            if answered and since < (until := datetime.fromisoformat(answered)) <= now:
                since = until
            parents, statuses = trigger.after, ENDS[trigger.on]
            for run in await self._journal.slots.find_unanswered(
                name, parents=parents, statuses=statuses, since=since
            ):
                await self._answer(name, run)
            await self._journal.facts.remember(key, now.isoformat())

    async def _answer(self, name: str, run: Run) -> None:
        slot = run.ended or self._clock.now()
        if slot <= self._ledger.states[name].baseline or await self._journal.slots.get_run_of_event(
            name, run.id
        ):
            return
        if found := await self._ledger.hindrance_now(name):
            log.info(
                "slot.skipped",
                routine=name,
                after=run.id,
                reason=found.reason.value,
                rule=found.rule,
            )
            await self._journal.slots.skip_event(
                name, run.id, slot=slot, reason=found.reason, rule=found.rule
            )
            return
        report = (run.report or "")[:LONGEST_REPORT]
        told = {"routine": run.routine, "run": run.id, "status": run.status.value, "report": report}
        await self._ledger.start(
            [self._ledger.claim(name, "after", slot, event=run.id, input=told)]
        )

    # --- webhooks

    async def hook(self, name: str, *, event: str, body: Any) -> Run:
        """Start a run by a webhook, or return the one that this event has started.

        NotFound, Refused.
        """
        ledger = self._ledger
        if name not in ledger.schedules or not ledger.routines[name].trigger.webhook:
            raise NotFound(f"there is no webhook {name!r} here")
        # a name space of its own: a stranger must not get hold of other events' runs
        event = f"webhook {event}"
        if earlier := await self._journal.slots.get_run_of_event(name, event):
            return earlier
        now = self._clock.now()
        if skip_reason := await ledger.hindrance_now(name):
            await ledger.let_pass(name, now, skip_reason)
            raise Refused(
                f"{name} does not run now: {WHY_NOT[skip_reason.reason]}; send it again later"
            )
        runs = await ledger.start([ledger.claim(name, "webhook", now, event=event, input=body)])
        if not runs:
            raise Refused(f"{name} has handled this event before; its run is not kept any more")
        return runs[0]


def _event_of(versions: Mapping[str, str]) -> str:
    """Return an id for these versions of files that a person can read."""
    first, more = next(iter(versions)), len(versions) - 1
    digest = hashlib.blake2b(
        "\0".join(f"{path}\0{version}" for path, version in versions.items()).encode()
    )
    return f"{first[:80]}{f' and {more} more' if more else ''} ({digest.hexdigest()[:16]})"


def _midnight(now: datetime, zone: Any) -> datetime:
    tomorrow = (now.astimezone(zone) + timedelta(days=1)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    return tomorrow.astimezone(now.tzinfo)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _remembered(value: str | None) -> tuple[datetime | None, bool]:
    if value is None:
        return None, False
    instant, _, done = value.partition(" ")
    return datetime.fromisoformat(instant), done == "done"
