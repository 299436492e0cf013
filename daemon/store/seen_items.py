"""What routines have reported already: the seen-sets of `[dedupe]`."""

# ruff: noqa: S608  what is put into statements are marks; values are bound
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.errors import NotFound
from daemon.models import ReportedItem, digest_of
from daemon.store.repository import Repository
from daemon.store.rows import clean, from_microseconds, to_microseconds
from daemon.store.statements import Connection, placeholders

MARKS = 500  # values of one question; SQLite takes some thousands


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenItem:
    """An item that a routine has reported."""

    key: str
    """Empty where the run that reported it was forgotten."""
    title: str
    first: datetime
    last: datetime
    """When a run last found it."""
    times: int
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sightings:
    """What a run found, to be known as seen together with its end."""

    items: Sequence[ReportedItem]
    keep: timedelta
    """What no run has found for so long is forgotten."""


class SeenItemRepository(Repository):
    """The seen-sets.

    Table: novelty.
    """

    async def find_known(self, routine: str, digests: Sequence[str]) -> set[str]:
        """Return which of these the routine has reported."""

        def work(connection: Connection) -> set[str]:
            found: set[str] = set()
            for first in range(0, len(digests), MARKS):
                part = digests[first : first + MARKS]
                query = (
                    "SELECT digest FROM novelty WHERE routine = ? AND digest IN "
                    f"({placeholders(part)})"
                )
                found |= {digest for (digest,) in connection.execute(query, (routine, *part))}
            return found

        return await self._db.read(work)

    async def find(
        self, routine: str, *, limit: int = 50, offset: int = 0
    ) -> tuple[list[SeenItem], int]:
        """Return what a routine has reported, the latest first, and how many there are in all."""
        query = (
            "SELECT key, title, first, last, times, run_id FROM novelty WHERE routine = ?"
            " ORDER BY first DESC, digest LIMIT ? OFFSET ?"
        )

        def work(connection: Connection) -> tuple[list[SeenItem], int]:
            (count,) = connection.execute(
                "SELECT count(*) FROM novelty WHERE routine = ?", (routine,)
            ).fetchone()
            return [
                _item(*row) for row in connection.execute(query, (routine, limit, offset))
            ], count

        return await self._db.read(work)

    async def forget(self, routine: str, key: str | None = None) -> int:
        """Forget that a routine has reported something, or anything; return how many items that
        were. NotFound.
        """

        def work(connection: Connection) -> int:
            if key is None:
                return connection.execute(
                    "DELETE FROM novelty WHERE routine = ?", (routine,)
                ).rowcount
            values = (routine, digest_of(key))
            gone = connection.execute(
                "DELETE FROM novelty WHERE routine = ? AND digest = ?", values
            ).rowcount
            if not gone:
                raise NotFound(
                    (  # noqa: UP034
                        f"{routine} has reported no {key!r}; `agentctl seen {routine}` shows what "
                        "it has"
                    )
                )
            return gone

        return await self._db.write(work, durable=True)


def keep_sightings(
    connection: Connection, routine: str, run: str, found: Sightings, now: datetime
) -> None:
    """Write down what a run has reported, in the transaction that ends it."""
    at = to_microseconds(now)
    connection.executemany(
        "INSERT INTO novelty (routine, digest, key, title, first, last, run_id) VALUES (?, ?, ?, ?, "  # noqa: E501
        "?, ?, ?) ON CONFLICT (routine, digest) DO UPDATE SET last = excluded.last, times = "
        "novelty.times + 1",
        [
            (routine, each.digest, clean(each.key), clean(each.title), at, at, run)
            for each in found.items
        ],
    )
    connection.execute(
        "DELETE FROM novelty WHERE routine = ? AND last < ?",
        (routine, to_microseconds(now - found.keep)),
    )


def _item(key: str, title: str, first: int, last: int, times: int, run: str) -> SeenItem:
    return SeenItem(
        key=key,
        title=title,
        first=from_microseconds(first),
        last=from_microseconds(last),
        times=times,
        run=run,
    )
