"""What is due, and what becomes of it: decided from values, acted upon elsewhere.

A routine has a floor: the latest slot that is settled, or the baseline before which nothing counts. Whatever lies
above it up to now is settled in one go, whether a second or a month has passed: the latest slot may still start, by
the rules of the schedule, and the ones before it did not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.models import Outcome, Reason
from daemon.schedule import Schedule

# cron starts a minute's jobs anywhere within that minute; a busy loop or a quick restart is no lateness.
ON_TIME = timedelta(seconds=60)
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Slots in a row that are not started, all for one reason."""

    first: datetime
    last: datetime
    outcome: Outcome
    reason: Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What becomes of the slots of one routine up to now."""

    slot: datetime
    """The latest one: the next floor."""
    stretches: tuple[Stretch, ...] = ()
    start: Outcome | None = None
    """How the latest slot starts, if it may: on time, late or caught up."""
    lateness: float = 0.0
    """Seconds."""


def settle(
    schedule: Schedule, *, floor: datetime, now: datetime, up_since: datetime, paused: bool = False
) -> Settled | None:
    """Decide about every slot after `floor` whose start has come; None if there is none.

    `up_since` tells a slot that came while the daemon was down from one that a sleeping machine let pass.
    """
    slot = schedule.due(now)
    if slot is None or slot <= floor:
        return None
    first = schedule.next(floor) or slot
    late = schedule.lateness(slot, now)
    on_time = late <= ON_TIME
    if paused:
        return Settled(slot=slot, stretches=(skipped(slot, Reason.PAUSED, since=first),))
    if not on_time and not schedule.may_catch_up(slot, now):
        return Settled(slot=slot, stretches=(_stretch(first, slot, Outcome.MISSED, Reason.DOWN),))
    earlier: tuple[Stretch, ...] = ()
    if first < slot:
        earlier = (_stretch(first, schedule.prev(slot - INSTANT) or first, Outcome.MISSED, Reason.DOWN),)
    # A slot on time is judged by its own instant, so that the last one before 22:00 may start a moment after it.
    if not schedule.active(slot if on_time else now):
        return Settled(slot=slot, stretches=(*earlier, skipped(slot, Reason.QUIET_HOURS)))
    start = Outcome.RAN if on_time else Outcome.CAUGHT_UP if slot + schedule.delay < up_since else Outcome.LATE
    return Settled(slot=slot, stretches=earlier, start=start, lateness=late.total_seconds())


def may_resume(schedule: Schedule, slot: datetime, down: timedelta) -> bool:
    """Tell whether a run that broke off is worth going on with, after the daemon was down for so long.

    Only the time down counts: a run that had been under way for an hour is no staler for that.
    """
    return down <= ON_TIME or schedule.may_catch_up(slot, slot + schedule.delay + down)


def skipped(slot: datetime, reason: Reason, *, since: datetime | None = None) -> Stretch:
    """Return the account of a slot that was let pass, or of all from `since` to it."""
    return _stretch(since or slot, slot, Outcome.SKIPPED, reason)


def _stretch(first: datetime, last: datetime, outcome: Outcome, reason: Reason) -> Stretch:
    return Stretch(first=first, last=last, outcome=outcome, reason=reason)
