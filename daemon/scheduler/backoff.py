"""The backoff of routines: one whose runs fail starts later and later, and is paused at last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from daemon.definitions.routines.routine import Routine
from daemon.runs.retry import backoff_delay
from daemon.store.routines import RoutineRepository, RoutineState, Streak


class FailureBackoff:
    """Count the failures in a row of each routine.

    The counts are kept in memory; after a restart they are read from the journal.
    """

    def __init__(self, routines: RoutineRepository) -> None:
        self._routines = routines
        self._streaks: dict[str, Streak] = {}
        """By routine; only those whose last run failed."""

    def forget(self, name: str) -> None:
        """Forget the failures of a routine: its next slot may start."""
        self._streaks.pop(name, None)

    async def read_streaks(self, names: Iterable[str], states: Mapping[str, RoutineState]) -> None:
        """Read from the journal how often in a row each of these routines has failed."""
        failing_routines = await self._routines.find_failing(names)
        for name in names:
            self.forget(name)
        self._streaks.update(
            await self._routines.get_streaks(
                {name: states[name].failures_reset for name in failing_routines}
            )
        )

    def pause_reason(self, routine: Routine) -> str | None:
        """Return why a routine is to be paused; None as long as it has failed less often in a row
        than its `pause_after`.
        """
        streak = self._streaks.get(routine.name)
        pause_after = routine.run.retry.pause_after
        if streak is None or not pause_after or streak.count < pause_after:
            return None
        return (
            f"{streak.count} runs in a row failed, the last one: "
            f"{streak.detail or 'it did not say why'}"
        )

    def backoff_until(self, routine: Routine, now: datetime) -> datetime | None:
        """Return until when a routine is not started because its last runs failed; None if it may
        start.
        """
        streak = self._streaks.get(routine.name)
        if streak is None:
            return None
        retry = routine.run.retry
        until = streak.last + backoff_delay(streak.count, retry.backoff, retry.max)
        # A failure in the future was written while the clock was wrong.
        return until if streak.last <= now < until else None
