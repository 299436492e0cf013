"""Why a slot that is due does not start, with the key of the routine that decides it.

All reasons here are found without a tool and without a model: pause, active hours, backoff after
failures, gate, overlap and budget. What of a gate needs a tool is checked by the run.
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
from daemon.scheduler.slots import random_moments
from daemon.store.journal import Journal, RoutineState
from daemon.system.clock import midnight

# The key, in the table `meta` of the journal, of when a person last changed something by agentctl
# or the API.
OPERATOR_SEEN = "operator_seen"
# The rule by which a routine is skipped until a person has approved a rehearsal of it.
UNREHEARSED = "rehearse_first = true, and no rehearsal of it as it is now was approved"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipReason:
    """Why a slot does not start."""

    reason: Reason
    rule: str | None = None
    """The key of the routine that decided it, with its value."""


def rule_of(reason: Reason, routine: Routine, state: RoutineState) -> str | None:
    """Return the key behind a reason, with its value; None for a reason that several keys can
    have, such as GATE, and for QUIET_HOURS, of which the schedule knows the key.
    """
    run = routine.run
    match reason:
        case Reason.OVERLAP:
            return f'overlap = "{run.overlap}"'
        case Reason.PAUSED:
            return state.paused_why
        case Reason.BACKOFF:
            first, longest = format_duration(run.retry.backoff), format_duration(run.retry.max)
            return f'backoff = "{first}", doubling up to max = "{longest}"'
    return None


def moments_rule(number: int) -> str:
    """Return the rule of a gate that is open at `number` random moments a day."""
    return f"moments = {number}"


CapCheck: TypeAlias = Callable[[Routine], Awaitable[str | None]]
"""Return the cap on money or tokens that leaves no room for a run of a routine; None if none."""


async def no_cap(_routine: Routine) -> str | None:
    """Return None: where no caps are configured, none is ever used up."""
    return None


class GateChecks:
    """The conditions of `[gate]` that need only the clock and the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find_closed_key(
        self, routine: Routine, schedule: Schedule, state: RoutineState, now: datetime
    ) -> str | None:
        """Return the key that keeps the gate closed, with its value; None if none does.

        A gate that is open here may still be closed by its command or by `changed`.
        """
        gate = routine.gate
        if gate.moments is not None and not await self._moment_has_come(
            routine, schedule, state, now
        ):
            return moments_rule(gate.moments)
        if gate.idle is not None:
            operator_seen = await self._journal.key_values.get(OPERATOR_SEEN)
            # A moment in the future was written while the clock was wrong.
            if (
                operator_seen
                and timedelta(0) <= now - datetime.fromisoformat(operator_seen) < gate.idle
            ):
                return f'idle = "{format_duration(gate.idle)}"'
        if gate.max_per_day is not None:
            begin = midnight(now, schedule.zone).astimezone(UTC)
            if (
                await self._journal.routines.count_runs_with_report(routine.name, begin)
                >= gate.max_per_day
            ):
                return f"max_per_day = {gate.max_per_day}"
        return None

    async def _moment_has_come(
        self, routine: Routine, schedule: Schedule, state: RoutineState, now: datetime
    ) -> bool:
        """Tell whether a random moment of the routine has come that no report was made for yet."""
        number = routine.gate.moments or 0
        past_moments = [
            moment
            for moment in random_moments(schedule, routine.name, number, now)
            if moment <= now
        ]
        # Only the last moment is open: after hours of downtime the routine starts once, not once
        # for each moment that it missed.
        if not past_moments or past_moments[-1] <= state.baseline:
            return False
        count = await self._journal.routines.count_runs_with_report(routine.name, past_moments[-1])
        return count == 0
