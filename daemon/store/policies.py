"""The policies that were in force: a run that is played again is judged by the one that judged it
then.
"""

from __future__ import annotations

import sqlite3

from daemon.store.repository import Repository


class Policies(Repository):
    """The texts of policies, each once."""

    def keep_policy(self, hash_: str, text: str) -> None:
        """Keep the text of a policy; one that is kept already costs nothing, and nobody waits for
        it.
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO policy (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (hash_, text),
            )

        # a disk that takes nothing shows itself in the first write that matters
        self._db.submit(work, lazily=True).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    async def policy_text(self, hash_: str) -> str | None:
        """Return the text of a policy that was in force; None if it was before they were kept."""

        def work(connection: sqlite3.Connection) -> str | None:
            row = connection.execute("SELECT body FROM policy WHERE hash = ?", (hash_,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)
