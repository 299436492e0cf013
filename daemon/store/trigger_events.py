"""What starts runs besides the clock: files that came to rest, runs that ended, and what such an
event said.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Any

from daemon.models import Outcome, Reason, Run, Status
from daemon.store.repository import Repository
from daemon.store.rows import decode, runs_in, stamp

_UNANSWERED = """
WHERE routine IN (%s) AND status IN (%s) AND ended > ?
    AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.routine = ? AND slot.event = run.id)
ORDER BY ended, id
"""


class TriggerEvents(Repository):
    """The inputs of runs, the files that runs were given, and ends that nobody has answered yet."""

    async def input_of(self, run_id: str) -> Any:
        """Return what the event of a run brought along; None if nothing."""

        def work(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(
                "SELECT body FROM input WHERE run_id = ?", (run_id,)
            ).fetchone()
            return None if row is None else row[0]

        body = await self._db.read(work)
        return None if body is None else decode(body)

    async def seen_files(self, routine: str) -> set[tuple[str, str]]:
        """Return each (path, version) that a run of the routine was given."""

        def work(connection: sqlite3.Connection) -> set[tuple[str, str]]:
            return set(
                connection.execute("SELECT path, version FROM seen WHERE routine = ?", (routine,))
            )

        return await self._db.read(work)

    async def forget_files(
        self, routine: str, *, present: Collection[str], before: datetime
    ) -> None:
        """Forget the files given to runs before then, except those that are still present."""

        def work(connection: sqlite3.Connection) -> None:
            old = connection.execute(
                "SELECT path FROM seen WHERE routine = ? AND at < ?", (routine, stamp(before))
            )
            gone = {path for (path,) in old} - set(present)
            connection.executemany(
                "DELETE FROM seen WHERE routine = ? AND path = ? AND at < ?",
                [(routine, path, stamp(before)) for path in gone],
            )

        await self._db.write(work)

    async def unanswered(
        self,
        routine: str,
        *,
        parents: Collection[str],
        statuses: Collection[Status],
        since: datetime,
    ) -> list[Run]:
        """Return the runs of the parents that ended so since then and have no slot in this routine,
        oldest first.
        """
        condition = _UNANSWERED % (", ".join("?" * len(parents)), ", ".join("?" * len(statuses)))
        values = (*parents, *statuses, stamp(since), routine)
        return await self._db.read(lambda connection: runs_in(connection, condition, values))

    async def let_pass(
        self, routine: str, event: str, *, slot: datetime, reason: Reason, rule: str | None = None
    ) -> None:
        """Account for an event that starts no run, so that it never will; nothing if it has its
        slot already.
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO slot (routine, first, last, event, outcome, reason, rule) VALUES (?, "
                "?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (routine, stamp(slot), stamp(slot), event, Outcome.SKIPPED, reason, rule),
            )

        await self._db.write(work, durable=True)
