"""What is kept of a routine besides its file: its baseline, its pause, its failures in a row, its
name.
"""

# ruff: noqa: S608  what is put into statements are names of our own tables; values are bound
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from daemon.errors import NotFound, Refused
from daemon.store.database import Database
from daemon.store.incidents import BY_HAND, FAILURES, waiting_subject
from daemon.store.repository import Repository
from daemon.store.rows import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
    to_microseconds_or_none,
)
from daemon.store.runs import RunRepository
from daemon.store.statements import Connection, Row

# Not the audit, which proves that none of its rows was changed, and not what is remembered of runs:
# there the name is among the words by which they are found.
TABLES = ("run", "slot", "seen", "approval", "quarantine", "spending", "novelty")
STAYS = ("audit", "memory_run")
FACTS = ("on_start", "after", "rehearsed")
# So far back is looked; whoever has failed so often needs no exact number.
FARTHEST = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutineState:
    """What the record keeps of a routine besides its file."""

    name: str
    schedule_key: str
    baseline: datetime
    """No slot at or before it is due."""
    paused: bool
    paused_until: datetime | None = None
    """When it goes on by itself."""
    paused_why: str | None = None
    """Set where it was the daemon that paused it, not a person."""
    forgiven: datetime | None = None
    """Failures up to then count no more."""

    def pausing(self, now: datetime) -> bool:
        """Tell whether the pause holds at this moment."""
        return self.paused and (self.paused_until is None or now < self.paused_until)


@dataclass(frozen=True, kw_only=True, slots=True)
class Streak:
    """Failures in a row, the last one at `last`."""

    count: int
    last: datetime
    detail: str = ""
    """Why the last one failed."""


class RoutineRepository(Repository):
    """The states of routines.

    Table: routine.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs

    async def get_states(self) -> dict[str, RoutineState]:
        """Return what is kept of every routine ever seen, by name."""
        return await self._db.read(_states)

    async def set_baselines(self, keys: Mapping[str, str]) -> dict[str, RoutineState]:
        """Start a new baseline for each routine that is new or has another schedule key; return all
        states.

        Routines that are not named keep what they have.
        """
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> dict[str, RoutineState]:
            known = dict(connection.execute("SELECT name, schedule_key FROM routine").fetchall())
            connection.executemany(
                "INSERT INTO routine (name, schedule_key, baseline, paused, paused_why) VALUES (?, "
                "?, ?,"
                # after a restore even what is new stands still
                " (SELECT count(*) FROM meta WHERE key = 'hold'), (SELECT value FROM meta WHERE key "  # noqa: E501
                "= 'hold'))"
                " ON CONFLICT (name) DO UPDATE SET schedule_key = excluded.schedule_key, baseline = "  # noqa: E501
                "excluded.baseline",
                [(name, key, now) for name, key in keys.items() if known.get(name) != key],
            )
            return _states(connection)

        return await self._db.write(work, durable=True)

    async def pause(
        self,
        routine: str,
        *,
        until: datetime | None = None,
        since: datetime | None = None,
        why: str | None = None,
    ) -> None:
        """Pause a routine, or change how long it is paused. NotFound.

        `since` is when a pause of so many hours began; None for one until a date, which no wrong
        clock moves.
        """
        values = (to_microseconds_or_none(until), to_microseconds_or_none(since), why, routine)
        changes = "paused = 1, paused_until = ?, paused_since = ?, paused_why = ?"
        await self._change(routine, f"{changes} WHERE name = ?", values)

    async def resume(self, routine: str, *, since: datetime | None = None) -> None:
        """Let a routine go on from now, or `since`: what fell due until then stays past.

        NotFound.
        """
        now = to_microseconds(self._clock())
        resumed = to_microseconds_or_none(since) or now
        values = (resumed, resumed, now, routine)
        # the baseline may be later than the end of the pause: it was edited or turned off in
        # between
        baseline = "CASE WHEN paused = 1 AND baseline < ? THEN ? ELSE baseline END"
        changes = (
            f"baseline = {baseline}, forgiven = ?, paused = 0, paused_until = NULL, paused_since = "
            "NULL"
        )
        await self._change(routine, f"{changes}, paused_why = NULL WHERE name = ?", values)

    async def end_hold(self) -> None:
        """End the hold that a restore put on everything: what is new from now on is not paused."""

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM meta WHERE key = 'hold'")

        await self._db.write(work)

    async def _change(self, routine: str, changes: str, values: Row) -> None:
        def work(connection: Connection) -> None:
            if connection.execute(f"UPDATE routine SET {changes}", values).rowcount == 0:
                raise NotFound(f"there is no routine {routine!r}")

        await self._db.write(work, durable=True)

    # --- how a routine has fared of late

    async def get_streaks(self, since: Mapping[str, datetime | None]) -> dict[str, Streak]:
        """Return the failures in a row of each routine that has any; those before its moment count
        no more.
        """

        def work(connection: Connection) -> dict[str, Streak]:
            found = ((name, _streak(connection, name, moment)) for name, moment in since.items())
            return {name: streak for name, streak in found if streak}

        return await self._db.read(work)

    async def count_heard(self, routine: str, since: datetime) -> int:
        """Return how many runs created since then were heard, or still may be.

        Heard is what was delivered, or succeeded with something to say where nothing is to be
        delivered to anybody.
        """
        query = (
            "SELECT count(*) FROM run WHERE routine = ? AND created >= ? AND id > coalesce("
            "(SELECT id FROM run WHERE routine = ? AND created < ? ORDER BY id DESC LIMIT 1), '')"
            " AND (status IN ('queued', 'running', 'waiting')"
            " OR EXISTS (SELECT 1 FROM outbox WHERE run_id = run.id AND status IN ('delivered', "
            "'pending'))"
            " OR status = 'succeeded' AND silent = 0 AND NOT EXISTS (SELECT 1 FROM outbox WHERE "
            "run_id = run.id))"
        )

        def work(connection: Connection) -> int:
            (number,) = connection.execute(query, 2 * (routine, to_microseconds(since))).fetchone()
            return int(number)

        return await self._db.read(work)

    async def find_failing(self, names: Iterable[str]) -> list[str]:
        """Return those of the routines whose last run to end is no success, so that a closer look
        is worth it.
        """
        wanted = set(names)

        def work(connection: Connection) -> list[str]:
            return [name for (name,) in connection.execute(_LAST_NO_SUCCESS) if name in wanted]

        return await self._db.read(work)

    # --- another name

    async def rename(self, old: str, new: str) -> None:
        """Let what is known of one routine be known of another; Refused if there was one of that
        name.
        """

        def work(connection: Connection) -> None:
            if connection.execute("SELECT 1 FROM routine WHERE name = ?", (new,)).fetchone():
                raise Refused(
                    (  # noqa: UP034
                        f"there was a routine {new!r} before, and its history is kept; choose "
                        "another name"
                    )
                )
            connection.execute("UPDATE routine SET name = ? WHERE name = ?", (new, old))
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET routine = ? WHERE routine = ?", (new, old))
            subjects = [
                (f"routine {new}", f"routine {old}"),
                (waiting_subject(new), waiting_subject(old)),
            ]
            connection.executemany("UPDATE incident SET subject = ? WHERE subject = ?", subjects)
            for fact in FACTS:
                connection.execute(
                    "UPDATE meta SET key = ? WHERE key = ?", (f"{fact}:{new}", f"{fact}:{old}")
                )

        await self._db.write(work, durable=True)
        self._runs.forget_cached_successes()


def _states(connection: Connection) -> dict[str, RoutineState]:
    return {
        name: RoutineState(
            name=name,
            schedule_key=key,
            baseline=from_microseconds(baseline),
            paused=bool(paused),
            paused_until=from_microseconds_or_none(until),
            paused_why=why,
            forgiven=from_microseconds_or_none(forgiven),
        )
        for name, key, baseline, paused, until, why, forgiven in connection.execute(
            (  # noqa: UP034
                "SELECT name, schedule_key, baseline, paused, paused_until, paused_why, forgiven "
                "FROM routine"
            )
        )
    }


# One seek per routine instead of a walk through the history; see runs.py.
_LAST_NO_SUCCESS = """
WITH RECURSIVE name (routine) AS (
    SELECT min(routine) FROM run
    UNION ALL
    SELECT (SELECT min(routine) FROM run WHERE routine > name.routine) FROM name WHERE name.routine IS NOT NULL
)
SELECT name.routine FROM name JOIN run ON run.id = (SELECT max(id) FROM run WHERE routine = name.routine)
WHERE run.status <> 'succeeded'
"""  # noqa: E501

_BACKWARDS = (
    'SELECT status, "trigger", created, ended, detail FROM run WHERE routine = ? ORDER BY id DESC '
    "LIMIT ?"
)


def _streak(connection: Connection, routine: str, since: datetime | None) -> Streak | None:
    count, last, detail = 0, None, ""
    farthest = to_microseconds(since) if since else 0
    for status, trigger, created, ended, why in connection.execute(_BACKWARDS, (routine, FARTHEST)):
        if status == "succeeded" or created <= farthest:
            break
        if status in FAILURES and trigger not in BY_HAND:
            count += 1
            if last is None:
                last, detail = from_microseconds(ended), why or ""
    return Streak(count=count, last=last, detail=detail) if last else None
