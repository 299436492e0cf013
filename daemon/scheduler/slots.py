"""What is due, and what becomes of it: decided from values, acted upon elsewhere.

A routine has a floor: the latest slot that is settled, or the baseline before which nothing counts.
Whatever lies above it up to now is settled in one go, whether a second or a month has passed: the
latest slot may still start, by the rules of the schedule, and the ones before it did not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.definitions.schedule import MOST_OPENINGS, Schedule
from daemon.models import Outcome, Reason
from daemon.runs.retry import hash_to_fraction
from daemon.store.slot_outcomes import Portion

# cron starts a minute's jobs anywhere within that minute; a busy loop or a quick restart is no
# lateness.
ON_TIME = timedelta(seconds=60)
INSTANT = timedelta(microseconds=1)
# Runs that come late start so far apart: after a night down, forty at once are a storm for the
# vendor and the machine.
APART = timedelta(seconds=3)
# What would start later than that starts together; by then the limits on runs at a time have it in
# hand.
LONGEST_APART = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedSlots:
    """Slots in a row that are not started, all for one reason."""

    first: datetime
    last: datetime
    outcome: Outcome
    reason: Reason
    rule: str | None = None
    """The key that decided it, with its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotDecision:
    """What becomes of the slots of one routine up to now."""

    slot: datetime
    """The latest one: the next floor."""
    stretches: tuple[SkippedSlots, ...] = ()
    start: Outcome | None = None
    """How the latest slot starts, if it may: on time, late or caught up."""
    lateness: float = 0.0
    """Seconds."""


def settle(
    schedule: Schedule, *, floor: datetime, now: datetime, up_since: datetime, paused: bool = False
) -> SlotDecision | None:
    """Decide about every slot after `floor` whose start has come; None if there is none.

    `up_since` tells a slot that came while the daemon was down from one that a sleeping machine let
    pass.
    """
    slot = schedule.due(now)
    if slot is None or slot <= floor:
        return None
    first = schedule.next(floor) or slot
    late = schedule.lateness(slot, now)
    on_time = late <= ON_TIME
    if paused:
        return SlotDecision(slot=slot, stretches=(skipped(slot, Reason.PAUSED, since=first),))
    if not on_time and not schedule.may_catch_up(slot, now):
        return SlotDecision(
            slot=slot, stretches=(_stretch(first, slot, Outcome.MISSED, Reason.DOWN),)
        )
    earlier: tuple[SkippedSlots, ...] = ()
    if first < slot:
        earlier = (
            _stretch(first, schedule.prev(slot - INSTANT) or first, Outcome.MISSED, Reason.DOWN),
        )
    # A slot on time is judged by its own instant, so that the last one before 22:00 may start a
    # moment after it.
    if not schedule.active(slot if on_time else now):
        return SlotDecision(slot=slot, stretches=(*earlier, skipped(slot, Reason.QUIET_HOURS)))
    start = (
        Outcome.RAN
        if on_time
        else Outcome.CAUGHT_UP
        if slot + schedule.delay < up_since
        else Outcome.LATE
    )
    return SlotDecision(slot=slot, stretches=earlier, start=start, lateness=late.total_seconds())


def between(schedule: Schedule, after: datetime, before: datetime) -> Portion | None:
    """Return the slots strictly between two moments, if there are any."""
    first, last = schedule.next(after), schedule.prev(before - INSTANT)
    if first is None or last is None or first > last:
        return None
    return Portion(first=first, last=last, count=1 + schedule.count(first, last))


def still_told(
    schedule: Schedule | None, told: Portion, *, now: datetime, baseline: datetime
) -> Portion | None:
    """Return what remains of slots that were told of as past, when the clock has been put back to
    among them.

    The latest slot up to now is judged anew, if it lies above the baseline and thus can be.
    """
    first, last = told.first, told.last
    if schedule and between(schedule, first - INSTANT, last + INSTANT) == told:
        due = schedule.due(now)
        return between(schedule, first - INSTANT, due if due and due > baseline else now + INSTANT)
    # They were slots of another schedule, of which nothing is known any more but that they were
    # evenly spread.
    return Portion(
        first=first, last=now, count=1 + (told.count - 1) * (now - first) // (last - first)
    )


def may_resume(schedule: Schedule, slot: datetime, down: timedelta) -> bool:
    """Tell whether a run that broke off is worth going on with, after the daemon was down for so
    long.

    Only the time down counts: a run that had been under way for an hour is no staler for that.
    """
    return down <= ON_TIME or schedule.may_catch_up(slot, slot + schedule.delay + down)


def apart(place: int) -> timedelta:
    """Return how long the late run at this place in the line waits, so that they do not all start
    at once.
    """
    return min(place * APART, LONGEST_APART)


def moments(schedule: Schedule, name: str, number: int, at: datetime) -> tuple[datetime, ...]:
    """Return the slots of the active hours around a moment at which a routine may speak that does
    so `number` times.

    One in each of so many equal parts of those hours, at random, but always the same for one name
    on one day: a restart draws no new lots. A part without a slot has none.
    """
    begin, end = schedule.window(at)
    length = (end - begin) / number
    day = begin.astimezone(schedule.zone).date()
    found = []
    for place in range(number):
        first = begin + place * length
        slot = schedule.prev(first + length * hash_to_fraction(f"{name}\0{day}\0{place}"))
        if slot is None or slot < first:
            slot = schedule.next(first - INSTANT)
        if slot is not None and slot < first + length and schedule.active(slot):
            found.append(slot)
    return tuple(found)


def next_moment(schedule: Schedule, name: str, number: int, after: datetime) -> datetime | None:
    """Return the first of these moments strictly after another one; None if there is none within
    reach.
    """
    day = after
    for _ in range(MOST_OPENINGS):
        for moment in moments(schedule, name, number, day):
            if moment > after:
                return moment
        _, end = schedule.window(day)
        following = schedule.opening.next(end - INSTANT, schedule.zone) if schedule.opening else end
        if following is None or schedule.next(day) is None:
            return None
        day = following
    return None


def skipped(
    slot: datetime, reason: Reason, *, since: datetime | None = None, rule: str | None = None
) -> SkippedSlots:
    """Return the account of a slot that was let pass, or of all from `since` to it."""
    return SkippedSlots(
        first=since or slot, last=slot, outcome=Outcome.SKIPPED, reason=reason, rule=rule
    )


def _stretch(first: datetime, last: datetime, outcome: Outcome, reason: Reason) -> SkippedSlots:
    return SkippedSlots(first=first, last=last, outcome=outcome, reason=reason)
