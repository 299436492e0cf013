"""What people told runs that were under way."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from daemon.models import Run
from daemon.store.repository import Repository
from daemon.store.rows import clean, runs_in, stamp

# 'ask' and a session make a range of the index over events: '0' follows '/'.
_TURNS = (
    "WHERE id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
    " AND id < ? ORDER BY id DESC LIMIT ?"
)
_CHILDREN = (
    "WHERE status IN ('queued', 'running', 'waiting')"
    " AND id IN (SELECT run_id FROM slot WHERE routine = ? AND event >= ? AND event < ?)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMessage:
    """One message to a run."""

    id: int
    run: str
    text: str


class Messages(Repository):
    """Messages to runs, and the runs that belong together by the beginning of their events."""

    async def tell(self, run: str, text: str, *, event: str) -> RunMessage | None:
        """Keep a message for a run, durably; the same event gives the same message.

        None if the run has ended.
        """

        def work(connection: sqlite3.Connection) -> RunMessage | None:
            known = connection.execute(
                "SELECT id, text FROM told WHERE run_id = ? AND event = ?", (run, event)
            )
            if row := known.fetchone():
                return RunMessage(id=row[0], run=run, text=row[1])
            alive = connection.execute(
                "SELECT 1 FROM run WHERE id = ? AND status IN ('queued', 'running', 'waiting')",
                (run,),
            )
            if alive.fetchone() is None:
                return None
            (number,) = connection.execute(
                "INSERT INTO told (run_id, event, text, at) VALUES (?, ?, ?, ?) RETURNING id",
                (run, event, clean(text), stamp(self._clock())),
            ).fetchone()
            return RunMessage(id=int(number), run=run, text=clean(text))

        return await self._db.write(work, durable=True)

    async def told(self, run: str | None = None) -> list[RunMessage]:
        """Return what a run was told, or all runs that have not ended, in order; heard or not."""
        where = (
            "run_id = ?"
            if run
            else "run_id IN (SELECT id FROM run WHERE status IN ('queued', 'running', 'waiting'))"
        )
        query = f"SELECT id, run_id, text FROM told WHERE {where} ORDER BY id"  # noqa: S608  # both halves are ours

        def work(connection: sqlite3.Connection) -> list[RunMessage]:
            rows = connection.execute(query, (run,) if run else ())
            return [RunMessage(id=number, run=name, text=text) for number, name, text in rows]

        return await self._db.read(work)

    async def turns(self, routine: str, session: str, *, before: str, limit: int) -> list[Run]:
        """Return the runs whose event begins with `session/`, before a run, newest first."""
        values = (routine, f"{session}/", f"{session}0", before, limit)
        return await self._db.read(lambda connection: runs_in(connection, _TURNS, values))

    async def children(self, routine: str, parent: str) -> list[Run]:
        """Return the runs of a routine that a run has begun and that have not ended."""
        values = (routine, f"{parent}/", f"{parent}0")
        return await self._db.read(lambda connection: runs_in(connection, _CHILDREN, values))
