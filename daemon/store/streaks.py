"""How a routine has fared of late: its failures in a row, and how often it has been heard."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from daemon.store.repository import Repository
from daemon.store.rows import moment, stamp

# Ends that say that something is wrong with the routine. A cancelled run says nothing, nor does a
# gate that was closed.
FAILURES = ("failed", "timed_out", "interrupted")
# A person who tries a routine out must not have it paused for that.
BY_HAND = ("manual", "once", "rehearsal")
# So far back is looked; whoever has failed so often needs no exact number.
FARTHEST = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Streak:
    """Failures in a row, the last one at `last`."""

    count: int
    last: datetime
    detail: str = ""
    """Why the last one failed."""


class Streaks(Repository):
    """What the ends of a routine's last runs say."""

    async def streaks(self, since: Mapping[str, datetime | None]) -> dict[str, Streak]:
        """Return the failures in a row of each routine that has any; those before its moment count
        no more.
        """

        def work(connection: sqlite3.Connection) -> dict[str, Streak]:
            found = ((name, _streak(connection, name, moment)) for name, moment in since.items())
            return {name: streak for name, streak in found if streak}

        return await self._db.read(work)

    async def heard_since(self, routine: str, since: datetime) -> int:
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

        def work(connection: sqlite3.Connection) -> int:
            (number,) = connection.execute(query, 2 * (routine, stamp(since))).fetchone()
            return int(number)

        return await self._db.read(work)

    async def failing(self, names: Iterable[str]) -> list[str]:
        """Return those of the routines whose last run to end is no success, so that a closer look
        is worth it.
        """
        wanted = set(names)

        def work(connection: sqlite3.Connection) -> list[str]:
            return [name for (name,) in connection.execute(_LAST_NO_SUCCESS) if name in wanted]

        return await self._db.read(work)


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


def _streak(connection: sqlite3.Connection, routine: str, since: datetime | None) -> Streak | None:
    count, last, detail = 0, None, ""
    farthest = stamp(since) if since else 0
    for status, trigger, created, ended, why in connection.execute(_BACKWARDS, (routine, FARTHEST)):
        if status == "succeeded" or created <= farthest:
            break
        if status in FAILURES and trigger not in BY_HAND:
            count += 1
            if last is None:
                last, detail = moment(ended), why or ""
    return Streak(count=count, last=last, detail=detail) if last else None
