"""Reports on their way: one row per target, committed with the end of the run, until it arrived or
was given up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.errors import NotFound, Refused
from daemon.models import Delivery, DeliveryStatus, Json, Report, Run, Status, Taint
from daemon.store.incidents import REPORT, Alerting, judge, kind_of, over, put_message
from daemon.store.repository import Repository
from daemon.store.rows import (
    KEEP_FACT,
    clean,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from daemon.store.statements import Connection, Row, placeholders

if TYPE_CHECKING:
    from sqlmodel import Session

_MARK = "digest"
_DELIVERY = """
SELECT o.id, o.run_id, r.routine, o.target, o.kind, o.options, o.zone, o.status, o.attempts, o.next_at, o.receipt,
    o.error, o.created, r.slot, r.status, r.report, r.detail, r.taint
FROM outbox AS o LEFT JOIN run AS r ON r.id = o.run_id
"""  # noqa: E501


class OutboxRepository(Repository):
    """Deliveries, and the digests among them.

    Table: outbox.
    """

    async def find_due(self, now: datetime) -> list[Delivery]:
        """Return what is to be sent by now, longest due first."""
        return await self._find(
            "WHERE o.status = 'pending' AND o.next_at <= ? ORDER BY o.next_at, o.id",
            (to_microseconds(now),),
        )

    async def get_next_due(self) -> datetime | None:
        """Return when the next delivery is due, None if none is pending."""

        def work(connection: Connection) -> datetime | None:
            (earliest,) = connection.execute(
                "SELECT min(next_at) FROM outbox WHERE status = 'pending'"
            ).fetchone()
            return from_microseconds_or_none(earliest)

        return await self._db.read(work)

    async def mark_delivered(self, id_: int, receipt: str) -> None:
        """Write down that it arrived; durable, since after a power loss it would be sent again."""
        await self._settle(id_, DeliveryStatus.DELIVERED, receipt=receipt)

    async def mark_failed(self, id_: int, error: str, next_at: datetime | None) -> None:
        """Write down why it did not arrive, and when to try again; None gives it up."""
        status = DeliveryStatus.FAILED if next_at is None else DeliveryStatus.PENDING
        await self._settle(id_, status, error=error, next_at=next_at)

    async def find(
        self, *, run: str | None = None, status: DeliveryStatus | None = None, limit: int = 50
    ) -> list[Delivery]:
        """Return deliveries, newest first; those of one run, or in one status."""

        def query(session: Session) -> list[Delivery]:
            from daemon.store.queries.deliveries import find_deliveries

            return find_deliveries(session, run, status, limit)

        return await self._db.query(query)

    async def find_of_runs(self, runs: Collection[str]) -> list[Delivery]:
        """Return the deliveries of these runs, newest first."""
        return await self._find(
            f"WHERE o.run_id IN ({placeholders(runs)}) ORDER BY o.id DESC", tuple(runs)
        )

    async def send_again(self, id_: int) -> Delivery:
        """Give a delivery that failed or was withheld its full patience again; Refused if it has
        arrived. NotFound.
        """
        changes, now = "status = 'pending', attempts = 0, next_at = ?, waits_since = ?", self._now()
        return await self._redirect(id_, changes, (now, now), refused=("delivered",))

    async def drop(self, id_: int) -> Delivery:
        """Give a delivery up for good: it is neither sent nor shown as trouble any more; Refused if
        it has arrived.
        """
        changes = (
            "status = 'suppressed', next_at = NULL, error = coalesce(error || '; ', '') || 'dropped "  # noqa: E501
            "by a person'"
        )
        return await self._redirect(id_, changes, (), refused=("delivered", "suppressed"))

    async def get_digest_mark(self) -> datetime | None:
        """Return up to when digests were told; None if there never was one."""

        def work(connection: Connection) -> datetime | None:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (_MARK,)).fetchone()
            return from_microseconds(int(row[0])) if row else None

        return await self._db.read(work)

    async def add_digest(
        self, targets: Sequence[str], title: str, text: str, *, until: datetime, zone: str
    ) -> None:
        """Send a digest to these targets, and take note of it, in one commit."""
        now = self._clock()

        def work(connection: Connection) -> None:
            connection.execute(KEEP_FACT, (_MARK, str(to_microseconds(until))))
            put_message(connection, targets, "digest", title, text, now, zone=zone)

        await self._db.write(work, durable=True)

    async def _redirect(
        self, id_: int, changes: str, values: Row, *, refused: Collection[str]
    ) -> Delivery:
        def work(connection: Connection) -> Delivery:
            row = connection.execute(f"{_DELIVERY} WHERE o.id = ?", (id_,)).fetchone()
            if row is None:
                raise NotFound(
                    f"there is no delivery {id_}; `agentctl deliveries` shows what there is"
                )
            found = _delivery_of(row)
            if found.status in refused:
                raise Refused(f"delivery {id_} is {found.status} already")
            connection.execute(f"UPDATE outbox SET {changes} WHERE id = ?", (*values, id_))  # noqa: S608  our own words
            return _delivery_of(
                connection.execute(f"{_DELIVERY} WHERE o.id = ?", (id_,)).fetchone()
            )

        return await self._db.write(work, durable=True)

    async def _find(self, rest: str, values: Row) -> list[Delivery]:
        def work(connection: Connection) -> list[Delivery]:
            return [_delivery_of(row) for row in connection.execute(f"{_DELIVERY} {rest}", values)]

        return await self._db.read(work)

    async def _settle(
        self,
        id_: int,
        status: DeliveryStatus,
        *,
        receipt: str | None = None,
        error: str | None = None,
        next_at: datetime | None = None,
    ) -> None:
        wait = (None, None) if next_at is None else (to_microseconds(next_at), self._now())
        values = (status, receipt and clean(receipt), error and clean(error), *wait, id_)

        def work(connection: Connection) -> None:
            changed = connection.execute(
                "UPDATE outbox SET attempts = attempts + 1, status = ?, receipt = ?, error = ?, "
                "next_at = ?,"
                " waits_since = ? WHERE id = ?",
                values,
            )
            if changed.rowcount == 0:
                raise NotFound(f"there is no delivery {id_}")
            if status is DeliveryStatus.DELIVERED:
                (target,) = connection.execute(
                    "SELECT target FROM outbox WHERE id = ?", (id_,)
                ).fetchone()
                over(connection, f"target {target}", None, "UTC", self._clock())

        await self._db.write(work, durable=status is DeliveryStatus.DELIVERED)


def enqueue(
    connection: Connection,
    run: Run,
    deliveries: Sequence[tuple[str, Json]],
    zone: str,
    alerting: Alerting = Alerting(),  # noqa: B008  frozen
) -> None:
    """Add a run's deliveries, in the transaction that ends it; what is not to be sent is kept for
    the record.
    """
    assert run.ended is not None  # noqa: S101  the caller has just ended it
    now = to_microseconds(run.ended)
    connection.executemany(
        "INSERT INTO outbox (run_id, target, options, zone, status, created, next_at, waits_since, "
        "error, kind)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(run.id, target, json.dumps(options, separators=(",", ":")), zone, status, now),
                *((now, now) if status is DeliveryStatus.PENDING else (None, None)),
                *(why, REPORT),
            )
            for target, options, status, why in judge(connection, run, deliveries, zone, alerting)
        ],
    )


def _delivery_of(row: Row) -> Delivery:
    (
        id_, run, routine, target, kind, options, zone, status, attempts, next_at, receipt, error,
        created, slot, run_status, report, detail, taint,
    ) = row  # fmt: skip
    frozen = json.loads(options)
    return Delivery(
        id=id_,
        run=run or "",
        routine=routine or "",
        target=target,
        content=kind_of(kind, frozen),
        options=frozen,
        status=DeliveryStatus(status),
        attempts=attempts,
        created=from_microseconds(created),
        next_at=from_microseconds_or_none(next_at),
        receipt=receipt,
        error=error,
        report=Report(
            run=run or "",
            routine=routine or "",
            slot=from_microseconds(created if slot is None else slot),
            status=Status(run_status or Status.SUCCEEDED),
            text=report if report is not None else detail or "",
            scheduled_zone=zone,
            taint=Taint(taint or ""),
        ),
    )
