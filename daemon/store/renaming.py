"""A routine gets another name, and everything that is known of it goes along."""

# ruff: noqa: S608  what is put into statements are names of our own tables; values are bound
from __future__ import annotations

import sqlite3

from daemon.errors import Refused
from daemon.store.incidents import waiting_subject
from daemon.store.repository import Repository

# Not the audit, which proves that none of its rows was changed, and not what is remembered of runs:
# there the name is among the words by which they are found.
TABLES = ("run", "slot", "seen", "approval", "quarantine", "spending", "novelty")
STAYS = ("audit", "memory_run")
FACTS = ("on_start", "after", "rehearsed")


class Renaming(Repository):
    """Renames routines."""

    async def rename(self, old: str, new: str) -> None:
        """Let what is known of one routine be known of another; Refused if there was one of that
        name.
        """

        def work(connection: sqlite3.Connection) -> None:
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
