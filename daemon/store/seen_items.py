"""The items that routines with `[dedupe]` have reported already."""

# ruff: noqa: S608  what is put into statements are marks; values are bound
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.errors import NotFound
from daemon.models import ReportedItem, digest_of
from daemon.store.connection import Connection, placeholders
from daemon.store.database import Repository
from daemon.store.rows import clean, from_microseconds, to_microseconds

VALUES_PER_STATEMENT = 500  # SQLite takes some thousands


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
class ReportedItemRecord:
    """The items that a run reported, new or known, to be recorded with its end."""

    items: Sequence[ReportedItem]
    keep: timedelta
    """Items that no run reported for so long are deleted."""


class SeenItemRepository(Repository):
    """The items that routines have reported.

    Table: novelty.
    """

    async def find_known(self, routine: str, digests: Sequence[str]) -> set[str]:
        """Return which of these digests belong to items that the routine has reported."""

        def work(connection: Connection) -> set[str]:
            known_digests: set[str] = set()
            for start in range(0, len(digests), VALUES_PER_STATEMENT):
                batch = digests[start : start + VALUES_PER_STATEMENT]
                query = (
                    "SELECT digest FROM novelty WHERE routine = ? AND digest IN "
                    f"({placeholders(batch)})"
                )
                known_digests |= {
                    digest for (digest,) in connection.execute(query, (routine, *batch))
                }
            return known_digests

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
            rows = connection.execute(query, (routine, limit, offset))
            return [_item(*row) for row in rows], count

        return await self._db.read(work)

    async def forget(self, routine: str, key: str | None = None) -> int:
        """Delete the item with this key, or all items, of a routine; return how many.

        Raises NotFound if the routine has reported no item with this key.
        """

        def work(connection: Connection) -> int:
            if key is None:
                return connection.execute(
                    "DELETE FROM novelty WHERE routine = ?", (routine,)
                ).rowcount
            values = (routine, digest_of(key))
            count = connection.execute(
                "DELETE FROM novelty WHERE routine = ? AND digest = ?", values
            ).rowcount
            if not count:
                raise NotFound(
                    f"{routine} has reported no {key!r};"
                    f" `agentctl seen {routine}` shows what it has"
                )
            return count

        return await self._db.write(work, durable=True)


def record_reported_items(
    connection: Connection, routine: str, run: str, record: ReportedItemRecord, now: datetime
) -> None:
    """Write the items that a run reported, in the transaction that ends it; delete old ones."""
    at = to_microseconds(now)
    connection.executemany(
        "INSERT INTO novelty (routine, digest, key, title, first, last, run_id) VALUES (?, ?, ?, ?, "  # noqa: E501
        "?, ?, ?) ON CONFLICT (routine, digest) DO UPDATE SET last = excluded.last, times = "
        "novelty.times + 1",
        [
            (routine, item.digest, clean(item.key), clean(item.title), at, at, run)
            for item in record.items
        ],
    )
    connection.execute(
        "DELETE FROM novelty WHERE routine = ? AND last < ?",
        (routine, to_microseconds(now - record.keep)),
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
