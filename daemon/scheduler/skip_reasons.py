"""What keeps a slot from starting though its time has come, each with the key that decides it.

Everything here is told without a tool and without a model: pause, hours, rest after failures, gate,
overlap and budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.definitions.values import format_duration
from daemon.models import Reason
from daemon.scheduler.slots import moments
from daemon.store.journal import Journal, RoutineState
from daemon.system.clock import midnight

OPERATOR_SEEN = "operator_seen"
# The key that holds a routine back which nobody has seen at work yet.
UNREHEARSED = "rehearse_first = true, and no rehearsal of it as it is now was approved"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipReason:
    """Why a slot does not start."""

    reason: Reason
    rule: str | None = None
    """The key that decided, with its value."""


def rule_of(reason: Reason, routine: Routine, state: RoutineState) -> str | None:
    """Return the key that decides where the reason alone tells which one it is."""
    trigger, run = routine.trigger, routine.run
    match reason:
        case Reason.OVERLAP:
            return f'overlap = "{run.overlap}"'
        case Reason.QUIET_HOURS:
            hours = f'active_hours = "{trigger.active_hours}"' if trigger.active_hours else ""
            days = f'active_days = "{trigger.active_days}"' if trigger.active_days else ""
            return " and ".join(filter(None, (hours, days))) or None
        case Reason.PAUSED:
            return state.paused_why
        case Reason.NOT_BEFORE:
            first, most = format_duration(run.retry.backoff), format_duration(run.retry.max)
            return f'backoff = "{first}", doubling up to max = "{most}"'
    return None


def moments_rule(number: int) -> str:
    """Return the key by which a slot waits for one of so many moments of its day, with its
    value.
    """
    return f"moments = {number}"


Afford: TypeAlias = Callable[[Routine], Awaitable[str | None]]
"""Asks which cap on money leaves no room for a run of a routine; None if there is room."""


async def anything(_routine: Routine) -> str | None:
    """Cap nothing."""
    return None


class Gates:
    """What of `[gate]` needs only the clock and the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def closed_by(
        self, routine: Routine, schedule: Schedule, state: RoutineState, now: datetime
    ) -> str | None:
        """Return the key that keeps the gate closed; None if it is open, as far as can be told by
        now.
        """
        gate = routine.gate
        if gate.moments is not None and not await self._moment_has_come(
            routine, schedule, state, now
        ):
            return moments_rule(gate.moments)
        if gate.idle is not None:
            seen = await self._journal.facts.recall(OPERATOR_SEEN)
            # Seen in the future: the clock was wrong, then or now.
            if seen and timedelta(0) <= now - datetime.fromisoformat(seen) < gate.idle:
                return f'idle = "{format_duration(gate.idle)}"'
        if gate.max_per_day is not None:
            begin = midnight(now, schedule.zone).astimezone(UTC)
            if await self._journal.routines.count_heard(routine.name, begin) >= gate.max_per_day:
                return f"max_per_day = {gate.max_per_day}"
        return None

    async def _moment_has_come(
        self, routine: Routine, schedule: Schedule, state: RoutineState, now: datetime
    ) -> bool:
        """Tell whether one of the routine's moments has come that no report has used up."""
        number = routine.gate.moments or 0
        passed = [each for each in moments(schedule, routine.name, number, now) if each <= now]
        # Only the last one is open: who was away or busy for hours is not greeted twice in a row
        # for that.
        if not passed or passed[-1] <= state.baseline:
            return False
        return await self._journal.routines.count_heard(routine.name, passed[-1]) == 0
