"""Routines that keep failing: how long they rest, and when there is no hope for them without a
person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from daemon.definitions.routines.routine import Routine
from daemon.runs.retry import backoff_delay
from daemon.store.journal import Journal, RoutineState, Streak


class FailureBackoff:
    """Remembers the routines whose last runs failed; the journal knows them after a restart."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._streaks: dict[str, Streak] = {}

    def forget(self, name: str) -> None:
        """Hold nothing against a routine any more."""
        self._streaks.pop(name, None)

    async def read(self, names: Iterable[str], states: Mapping[str, RoutineState]) -> None:
        """Ask the journal which of these routines fail at present, and how often in a row."""
        failing = await self._journal.failing(names)
        for name in names:
            self.forget(name)
        self._streaks.update(
            await self._journal.streaks({name: states[name].forgiven for name in failing})
        )

    def lost_with(self, routine: Routine) -> str | None:
        """Return why a routine is to be paused; None as long as it may try again."""
        streak, after = self._streaks.get(routine.name), routine.run.retry.pause_after
        if streak is None or not after or streak.count < after:
            return None
        return (
            f"{streak.count} runs in a row failed, the last one: "
            f"{streak.detail or 'it did not say why'}"
        )

    def rests_until(self, routine: Routine, now: datetime) -> datetime | None:
        """Return until when a routine is not to be started that has failed of late."""
        if (streak := self._streaks.get(routine.name)) is None:
            return None
        retry = routine.run.retry
        until = streak.last + backoff_delay(streak.count, retry.backoff, retry.max)
        # A failure of the future is one from a time when the clock was wrong.
        return until if streak.last <= now < until else None
