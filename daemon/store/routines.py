"""The state of a routine besides its file: its baseline, its pause, its failures in a row; and its
renaming.
"""

# ruff: noqa: S608  what is put into statements are names of our own tables; values are bound
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from daemon.errors import NotFound, Refused
from daemon.models import FAILURES
from daemon.store.connection import Connection, Row
from daemon.store.database import Database, Repository
from daemon.store.incidents import BY_HAND, waiting_subject, withheld_subject
from daemon.store.rows import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
    to_microseconds_or_none,
)
from daemon.store.runs import RunRepository

# The tables whose column `routine` is changed when a routine is renamed, and those in which the old
# name stays: the audit, as none of its rows may change, and archived runs, as the name is among the
# words of their full-text index.
RENAMED_TABLES = ("run", "slot", "seen", "approval", "quarantine", "spending", "novelty")
KEPT_TABLES = ("audit", "memory_run")
# The keys of the table meta that end with `:` and the name of a routine.
RENAMED_KEYS = ("on_start", "after", "rehearsed")
# Runs that are read to count failures in a row: nobody needs a higher number exactly.
MAX_STREAK_RUNS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineState:
    """What the journal has of a routine besides its file."""

    name: str
    schedule_key: str
    """The digest of trigger and zone (`Routine.schedule_key`): a new one starts a new baseline."""
    baseline: datetime
    """The moment since which slots count: none at or before it is due."""
    paused: bool
    paused_until: datetime | None = None
    """When the pause ends; None if it lasts until the routine is resumed."""
    paused_why: str | None = None
    """Why the daemon paused the routine; None where a person did."""
    failures_reset: datetime | None = None
    """When a pause last ended, by a person or by itself: failures before that count no more."""

    def is_paused(self, now: datetime) -> bool:
        """Return whether the pause holds at this moment."""
        return self.paused and (self.paused_until is None or now < self.paused_until)


@dataclass(frozen=True, kw_only=True, slots=True)
class Streak:
    """The failures in a row of a routine."""

    count: int
    last: datetime
    """When the last failed run ended."""
    detail: str = ""
    """Why the last failed run failed."""


class RoutineRepository(Repository):
    """The states of routines.

    Table: routine.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs

    async def get_states(self) -> dict[str, RoutineState]:
        """Return the state of every routine that the daemon ever read, by name."""
        return await self._db.read(_read_states)

    async def set_baselines(self, keys: Mapping[str, str]) -> dict[str, RoutineState]:
        """Start a new baseline for each routine that is new or has another schedule key; return all
        states.

        `keys` are the schedule keys by routine. Routines without one keep their state. While a
        restored backup is on hold, new routines begin paused.
        """
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> dict[str, RoutineState]:
            old_keys = dict(connection.execute("SELECT name, schedule_key FROM routine").fetchall())
            connection.executemany(
                "INSERT INTO routine (name, schedule_key, baseline, paused, paused_why)"
                " VALUES (?, ?, ?, (SELECT count(*) FROM meta WHERE key = 'hold'),"
                " (SELECT value FROM meta WHERE key = 'hold'))"
                " ON CONFLICT (name) DO UPDATE"
                " SET schedule_key = excluded.schedule_key, baseline = excluded.baseline",
                [(name, key, now) for name, key in keys.items() if old_keys.get(name) != key],
            )
            return _read_states(connection)

        return await self._db.write(work, durable=True)

    async def pause(
        self,
        routine: str,
        *,
        until: datetime | None = None,
        since: datetime | None = None,
        why: str | None = None,
    ) -> None:
        """Pause a routine, or change how long it is paused. Raises NotFound.

        `since` is when a pause for a length of time begins, which is moved if the clock is set
        back; None for a pause until a date, which is not.
        """
        values = (to_microseconds_or_none(until), to_microseconds_or_none(since), why, routine)
        changes = "paused = 1, paused_until = ?, paused_since = ?, paused_why = ?"
        await self._change(routine, f"{changes} WHERE name = ?", values)

    async def resume(self, routine: str, *, since: datetime | None = None) -> None:
        """End the pause of a routine as of now or `since`, which becomes its baseline, and reset
        its count of failures. Raises NotFound.
        """
        now = to_microseconds(self._clock())
        resumed_at = to_microseconds_or_none(since) or now
        values = (resumed_at, resumed_at, now, routine)
        # A baseline after the end of the pause stays: the routine was edited or disabled since.
        baseline = "CASE WHEN paused = 1 AND baseline < ? THEN ? ELSE baseline END"
        changes = (
            f"baseline = {baseline}, forgiven = ?, paused = 0, paused_until = NULL,"
            " paused_since = NULL, paused_why = NULL"
        )
        await self._change(routine, f"{changes} WHERE name = ?", values)

    async def end_hold(self) -> None:
        """End the hold of a restored backup: new routines do not begin paused any more."""

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM meta WHERE key = 'hold'")

        await self._db.write(work)

    async def _change(self, routine: str, changes: str, values: Row) -> None:
        def work(connection: Connection) -> None:
            if connection.execute(f"UPDATE routine SET {changes}", values).rowcount == 0:
                raise NotFound(f"there is no routine {routine!r}")

        await self._db.write(work, durable=True)

    # --- failures in a row, and reports

    async def get_streaks(self, since: Mapping[str, datetime | None]) -> dict[str, Streak]:
        """Return the failures in a row of each routine that has any.

        `since` has a moment for each routine: failures of runs created up to then do not count.
        """

        def work(connection: Connection) -> dict[str, Streak]:
            streaks = {}
            for name, moment in since.items():
                if streak := _read_streak(connection, name, moment):
                    streaks[name] = streak
            return streaks

        return await self._db.read(work)

    async def count_runs_with_report(self, routine: str, since: datetime) -> int:
        """Return how many runs created since then reached people with a report, or still may.

        These are active runs, runs whose report is delivered or pending, and successes with a
        report of routines that deliver to nobody. Pings and notices are no reports.
        """
        is_report = (
            "run_id = run.id AND coalesce(kind, 'report') = 'report'"
            ' AND options NOT LIKE \'%"ping":"%\''
        )
        query = (
            "SELECT count(*) FROM run WHERE routine = ? AND created >= ? AND id > coalesce("
            "(SELECT id FROM run WHERE routine = ? AND created < ? ORDER BY id DESC LIMIT 1), '')"
            " AND (status IN ('queued', 'running', 'waiting')"
            f" OR EXISTS (SELECT 1 FROM outbox WHERE {is_report}"
            " AND status IN ('delivered', 'pending'))"
            " OR status = 'succeeded' AND silent = 0"
            f" AND NOT EXISTS (SELECT 1 FROM outbox WHERE {is_report}))"
        )

        def work(connection: Connection) -> int:
            (count,) = connection.execute(query, 2 * (routine, to_microseconds(since))).fetchone()
            return int(count)

        return await self._db.read(work)

    async def find_failing(self, names: Iterable[str]) -> list[str]:
        """Return those of the routines whose newest run has not succeeded: only these can have
        failures in a row.
        """
        name_set = set(names)

        def work(connection: Connection) -> list[str]:
            rows = connection.execute(_NEWEST_IS_NO_SUCCESS)
            return [name for (name,) in rows if name in name_set]

        return await self._db.read(work)

    # --- renaming

    async def rename(self, old: str, new: str) -> None:
        """Give the state and history of a routine another name.

        Raises Refused if there is or was a routine of that name.
        """

        def work(connection: Connection) -> None:
            if connection.execute("SELECT 1 FROM routine WHERE name = ?", (new,)).fetchone():
                raise Refused(
                    f"there was a routine {new!r} before, and its history is kept;"
                    " choose another name"
                )
            connection.execute("UPDATE routine SET name = ? WHERE name = ?", (new, old))
            for table in RENAMED_TABLES:
                connection.execute(f"UPDATE {table} SET routine = ? WHERE routine = ?", (new, old))
            subjects = [
                (f"routine {new}", f"routine {old}"),
                (waiting_subject(new), waiting_subject(old)),
                (withheld_subject(new), withheld_subject(old)),
            ]
            connection.executemany("UPDATE incident SET subject = ? WHERE subject = ?", subjects)
            for key in RENAMED_KEYS:
                connection.execute(
                    "UPDATE meta SET key = ? WHERE key = ?", (f"{key}:{new}", f"{key}:{old}")
                )

        await self._db.write(work, durable=True)
        self._runs.drop_cached_successes()


def _read_states(connection: Connection) -> dict[str, RoutineState]:
    rows = connection.execute(
        "SELECT name, schedule_key, baseline, paused, paused_until, paused_why, forgiven"
        " FROM routine"
    )
    return {
        name: RoutineState(
            name=name,
            schedule_key=key,
            baseline=from_microseconds(baseline),
            paused=bool(paused),
            paused_until=from_microseconds_or_none(until),
            paused_why=why,
            failures_reset=from_microseconds_or_none(forgiven),
        )
        for name, key, baseline, paused, until, why, forgiven in rows
    }


# One seek for each routine instead of a walk through the history; see runs.py. Without a join:
# SQLite may read a joined table as a whole, to filter by it.
_NEWEST_IS_NO_SUCCESS = """
WITH RECURSIVE name (routine) AS (
    SELECT min(routine) FROM run
    UNION ALL
    SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
)
SELECT name.routine FROM name
WHERE (SELECT status FROM run WHERE run.routine = name.routine ORDER BY id DESC LIMIT 1) <> 'succeeded'
"""  # noqa: E501

_NEWEST_RUNS = (
    'SELECT status, "trigger", created, ended, detail FROM run WHERE routine = ?'
    " ORDER BY id DESC LIMIT ?"
)


def _read_streak(connection: Connection, routine: str, since: datetime | None) -> Streak | None:
    count, last, detail = 0, None, ""
    reset = to_microseconds(since) if since else 0
    rows = connection.execute(_NEWEST_RUNS, (routine, MAX_STREAK_RUNS))
    for status, trigger, created, ended, why in rows:
        if status == "succeeded" or created <= reset:
            break
        if status in FAILURES and trigger not in BY_HAND:
            count += 1
            if last is None:
                last, detail = from_microseconds(ended), why or ""
    return Streak(count=count, last=last, detail=detail) if last else None
