"""What runs took, for whoever wants to know what the next ones will take."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from daemon.store.repository import Repository

_LAST = """
SELECT input + output, active, (SELECT sum(cost) FROM spending WHERE run_id = run.id)
FROM run WHERE routine = ? AND ended IS NOT NULL AND status <> 'cancelled' ORDER BY id DESC LIMIT ?
"""


class Histories(Repository):
    """What runs took."""

    async def took(
        self, routines: Iterable[str], *, last: int = 100
    ) -> dict[str, list[tuple[int, float, float]]]:
        """Return (tokens, seconds, dollars) of the last runs of each routine; of an unknown price
        as 0.
        """
        names = list(routines)

        def work(connection: sqlite3.Connection) -> dict[str, list[tuple[int, float, float]]]:
            return {
                name: [
                    (tokens, active, (cost or 0) / 1e9)
                    for tokens, active, cost in connection.execute(_LAST, (name, last))
                ]
                for name in names
            }

        return await self._db.read(work)
