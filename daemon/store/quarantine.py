"""What was kept from the models because it gave them orders: readable by a person, for a while."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from daemon.errors import NotFound
from daemon.models import new_id
from daemon.store import audit
from daemon.store.repository import Repository
from daemon.store.rows import (
    AFTER_EVERY_ID,
    SHORTEST_PART,
    Row,
    clean,
    decode,
    deflate,
    encode,
    moment,
)

# Evidence, not an archive: of what comes every hour a person reads one.
MOST = 1_000

_COLUMNS = "id, run_id, routine, call_id, tool, reason, at, body"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One text that no model has seen."""

    id: str
    run: str
    routine: str
    call_id: str
    tool: str
    reason: str
    at: datetime
    text: str


class Quarantine(Repository):
    """The texts that were kept from the models."""

    async def quarantine(
        self, *, run: str, routine: str, call_id: str, tool: str, reason: str, text: str
    ) -> str:
        """Keep a text; return the id under which a person finds it."""
        now, id_ = self._now(), new_id()
        body = deflate(encode({"text": text}))

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"INSERT INTO quarantine ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  a constant
                (id_, run, routine, call_id, tool, clean(reason), now, body),
            )
            connection.execute(
                (
                    "DELETE FROM quarantine WHERE id <= (SELECT id FROM quarantine ORDER BY id DESC "  # noqa: E501
                    "LIMIT 1 OFFSET ?)"
                ),
                (MOST,),
            )
            audit.note(
                connection,
                "quarantined",
                now,
                run=run,
                routine=routine,
                call_id=call_id,
                tool=tool,
                body={"quarantine": id_, "reason": reason, "result": audit.digest(text)},
            )

        await self._db.write(work)
        return id_

    async def quarantined(self, *, limit: int = 50, before: str | None = None) -> list[Kept]:
        """Return what is kept, newest first."""
        return await self._kept(
            "WHERE id < ? ORDER BY id DESC LIMIT ?", (before or AFTER_EVERY_ID, limit)
        )

    async def quarantined_text(self, id_or_part: str) -> Kept:
        """Return the text of that id; its beginning or its end (>= 4 characters) is enough.

        NotFound.
        """
        part = id_or_part.upper()
        found: list[Kept] = []
        if len(part) >= SHORTEST_PART:
            rest = "WHERE (id >= ? AND id < ?) OR substr(id, ?) = ? ORDER BY id DESC LIMIT 2"
            found = await self._kept(rest, (part, part + AFTER_EVERY_ID, -len(part), part))
        if len(found) != 1:
            told = "there is no such text" if not found else "several texts have such an id"
            raise NotFound(f"{told}: {id_or_part!r}; `agentctl quarantine` shows what is kept")
        return found[0]

    async def _kept(self, rest: str, values: Row) -> list[Kept]:
        def work(connection: sqlite3.Connection) -> list[Kept]:
            return [
                _kept_of(row)
                for row in connection.execute(f"SELECT {_COLUMNS} FROM quarantine {rest}", values)  # noqa: S608  constants
            ]

        return await self._db.read(work)


def _kept_of(row: Row) -> Kept:
    id_, run, routine, call_id, tool, reason, at, body = row
    return Kept(
        id=id_,
        run=run,
        routine=routine,
        call_id=call_id,
        tool=tool,
        reason=reason,
        at=moment(at),
        text=str(decode(body)["text"]),
    )
