"""Which slots are due, and whether they start: decided from values; slot_ledger.py acts on it.

A slot is one moment at which a routine is due. A routine's floor is its latest slot that is
accounted for, or its baseline if that is later: no slot at or before the floor is looked at again.
All slots above the floor up to now are classified in one go, whether a second or a month has
passed: the latest one may still start, by the rules of the schedule, and the earlier ones are
missed or skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from daemon.definitions.schedule import MOST_OPENINGS, Schedule
from daemon.models import Outcome, Reason
from daemon.runs.retry import hash_to_fraction
from daemon.store.rows import MICROSECOND
from daemon.store.slots import SlotRange

# cron starts a minute's jobs anywhere within that minute; a busy event loop or a quick restart of
# the daemon does not make a slot late.
ON_TIME_TOLERANCE = timedelta(seconds=60)
# Runs that start late are spaced by this much: after a night down, forty at once would overrun the
# vendor and the machine.
LATE_START_INTERVAL = timedelta(seconds=3)
# Runs that would be delayed for longer than this start together: by then the limit on concurrent
# runs spaces them.
MAX_LATE_START_DELAY = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedSlots:
    """Consecutive slots of one routine that are not started, all for one reason."""

    first: datetime
    last: datetime
    outcome: Outcome
    """SKIPPED or MISSED."""
    reason: Reason
    rule: str | None = None
    """The key of the routine that decided so, with its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotDecision:
    """What becomes of the slots of one routine between its floor and now."""

    slot: datetime
    """The latest of these slots: the next floor."""
    skipped: tuple[SkippedSlots, ...] = ()
    """The slots that do not start, in order of time."""
    start: Outcome | None = None
    """How `slot` starts: RAN (on time), LATE or CAUGHT_UP; None if it does not."""
    lateness: float = 0.0
    """Seconds by which `slot` starts late."""


def classify_slots(
    schedule: Schedule, *, floor: datetime, now: datetime, up_since: datetime, paused: bool = False
) -> SlotDecision | None:
    """Classify all slots in (floor, now]: the latest may start, earlier ones are missed or skipped.

    Returns None if no slot of that time is due. `up_since` tells a slot that came while the daemon
    was down (CAUGHT_UP) from one that a suspended machine let pass (LATE). Datetimes are aware, in
    UTC.
    """
    slot = schedule.due(now)
    if slot is None or slot <= floor:
        return None
    first = schedule.next(floor) or slot
    lateness = schedule.lateness(slot, now)
    on_time = lateness <= ON_TIME_TOLERANCE
    if paused:
        return SlotDecision(slot=slot, skipped=(make_skipped(slot, Reason.PAUSED, since=first),))
    if not on_time and not schedule.may_catch_up(slot, now):
        return SlotDecision(slot=slot, skipped=(_make_missed(first, slot),))
    missed_slots: tuple[SkippedSlots, ...] = ()
    if first < slot:
        missed_slots = (_make_missed(first, schedule.prev(slot - MICROSECOND) or first),)
    # A slot on time is judged by its own instant, so that the last one before 22:00 may start a
    # moment after it.
    moment = slot if on_time else now
    if not schedule.is_active(moment, slot=slot):
        rule = schedule.quiet_rule(moment, slot=slot)
        skipped_slots = make_skipped(slot, Reason.QUIET_HOURS, rule=rule)
        return SlotDecision(slot=slot, skipped=(*missed_slots, skipped_slots))
    if on_time:
        start = Outcome.RAN
    elif slot + schedule.delay < up_since:
        start = Outcome.CAUGHT_UP
    else:
        start = Outcome.LATE
    return SlotDecision(
        slot=slot, skipped=missed_slots, start=start, lateness=lateness.total_seconds()
    )


def slots_between(schedule: Schedule, after: datetime, before: datetime) -> SlotRange | None:
    """Return the slots strictly between two moments; None if there are none."""
    first, last = schedule.next(after), schedule.prev(before - MICROSECOND)
    if first is None or last is None or first > last:
        return None
    return SlotRange(first=first, last=last, count=1 + schedule.count(first, last))


def remaining_slots(
    schedule: Schedule | None, recorded_slots: SlotRange, *, now: datetime, baseline: datetime
) -> SlotRange | None:
    """Return those of the `recorded_slots` that are past at `now`, which lies among them.

    For use after the clock was put back: slots that are still to come are not accounted for any
    more. Nor is the latest slot up to now, if it lies above the baseline: it is classified anew.
    None if nothing remains.
    """
    first, last = recorded_slots.first, recorded_slots.last
    before = first - MICROSECOND
    if schedule and slots_between(schedule, before, last + MICROSECOND) == recorded_slots:
        due_slot = schedule.due(now)
        until = due_slot if due_slot and due_slot > baseline else now + MICROSECOND
        return slots_between(schedule, before, until)
    # These were slots of an earlier schedule, of which only their number and range is known: count
    # as if they had been evenly spread.
    return SlotRange(
        first=first,
        last=now,
        count=1 + (recorded_slots.count - 1) * (now - first) // (last - first),
    )


def may_resume(schedule: Schedule, slot: datetime, downtime: timedelta) -> bool:
    """Tell whether an interrupted run is worth going on with after the daemon was down.

    Only the downtime counts as lateness: a run that had been under way for an hour before is no
    staler for that.
    """
    start = slot + schedule.delay + downtime
    return downtime <= ON_TIME_TOLERANCE or schedule.may_catch_up(slot, start)


def late_start_delay(index: int) -> timedelta:
    """Return how long the run at `index` (from 0) of those that start late together is delayed."""
    return min(index * LATE_START_INTERVAL, MAX_LATE_START_DELAY)


def random_moments(
    schedule: Schedule, name: str, number: int, at: datetime
) -> tuple[datetime, ...]:
    """Return the slots at which a routine with `moments = number` may start in the active hours
    around `at`, in order.

    The active hours are cut into `number` equal parts, and one slot is drawn from each; a part
    without a slot has none. The draw depends on name and day only, so a restart changes nothing.
    """
    begin, end = schedule.window(at)
    length = (end - begin) / number
    day = begin.astimezone(schedule.zone).date()
    drawn_slots = []
    for index in range(number):
        first = begin + index * length
        slot = schedule.prev(first + length * hash_to_fraction(f"{name}\0{day}\0{index}"))
        if slot is None or slot < first:
            slot = schedule.next(first - MICROSECOND)
        if slot is not None and slot < first + length and schedule.is_active(slot, slot=slot):
            drawn_slots.append(slot)
    return tuple(drawn_slots)


def next_random_moment(
    schedule: Schedule, name: str, number: int, after: datetime
) -> datetime | None:
    """Return the first of a routine's random moments strictly after `after`.

    None if the schedule has no slot left, or none of them falls into the next 400 active times.
    """
    day = after
    for _ in range(MOST_OPENINGS):
        for moment in random_moments(schedule, name, number, day):
            if moment > after:
                return moment
        _, end = schedule.window(day)
        next_day = schedule.next_window(end)
        if next_day is None or schedule.next(day) is None:
            return None
        day = next_day
    return None


def split_missed(
    schedule: Schedule, missed_slots: SkippedSlots, refused_range: tuple[datetime, datetime]
) -> list[SkippedSlots]:
    """Return missed slots in order of time, those for which the disk was too full with that reason.

    `refused_range` are the first and the last slot of the routine that a full disk refused to
    write.
    """
    first, last = refused_range
    parts = (
        (
            missed_slots.reason,
            missed_slots.first - MICROSECOND,
            min(first, missed_slots.last + MICROSECOND),
        ),
        (
            Reason.DISK_FULL,
            max(first, missed_slots.first) - MICROSECOND,
            min(last, missed_slots.last) + MICROSECOND,
        ),
        (
            missed_slots.reason,
            max(last, missed_slots.first - MICROSECOND),
            missed_slots.last + MICROSECOND,
        ),
    )
    return [
        replace(missed_slots, first=slots.first, last=slots.last, reason=reason)
        for reason, after, before in parts
        if (slots := slots_between(schedule, after, before))
    ]


def make_skipped(
    slot: datetime, reason: Reason, *, since: datetime | None = None, rule: str | None = None
) -> SkippedSlots:
    """Return the record of a skipped slot, or of all slots from `since` to it."""
    return SkippedSlots(
        first=since or slot, last=slot, outcome=Outcome.SKIPPED, reason=reason, rule=rule
    )


def _make_missed(first: datetime, last: datetime) -> SkippedSlots:
    return SkippedSlots(first=first, last=last, outcome=Outcome.MISSED, reason=Reason.DOWN)
