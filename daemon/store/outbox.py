"""The outbox: a row for each report and target, written in the commit that ends the run, until it
was delivered or given up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.errors import NotFound, Refused
from daemon.models import Delivery, DeliveryStatus, Json, Run
from daemon.store.connection import Connection, Row, placeholders
from daemon.store.database import Repository
from daemon.store.incidents import (
    IncidentSettings,
    close_incidents,
    decide_deliveries,
    enqueue_notice,
    send_to_other_target,
)
from daemon.store.rows import (
    DELIVERED_RUN_COLUMN_NAMES,
    DELIVERY_COLUMN_NAMES,
    PUT_VALUE,
    REPORT,
    clean,
    delivery_of,
    from_microseconds,
    from_microseconds_or_none,
    read_intact_rows,
    to_microseconds,
)

if TYPE_CHECKING:
    from sqlmodel import Session

_DIGEST_KEY = "digest"  # of the table meta
_COLUMNS = ", ".join(
    [
        *(f"o.{name}" for name in DELIVERY_COLUMN_NAMES),
        *(f"r.{name}" for name in DELIVERED_RUN_COLUMN_NAMES),
    ]
)
_DELIVERY = f"SELECT {_COLUMNS} FROM outbox AS o LEFT JOIN run AS r ON r.id = o.run_id"  # noqa: S608  our own words


class OutboxRepository(Repository):
    """Deliveries, and the digests among them.

    Table: outbox.
    """

    async def find_due(self, now: datetime) -> list[Delivery]:
        """Return the pending deliveries that are due, those longest due first."""
        return await self._find(
            "WHERE o.status = 'pending' AND o.next_at <= ? ORDER BY o.next_at, o.id",
            (to_microseconds(now),),
        )

    async def get_next_due(self, *, busy: Collection[str] = ()) -> datetime | None:
        """Return when the next delivery is due, None if none is pending; without those to targets
        that are `busy`.
        """
        others = f" AND target NOT IN ({placeholders(busy)})" if busy else ""

        def work(connection: Connection) -> datetime | None:
            (earliest,) = connection.execute(
                f"SELECT min(next_at) FROM outbox WHERE status = 'pending'{others}",  # noqa: S608  our own words
                tuple(busy),
            ).fetchone()
            return from_microseconds_or_none(earliest)

        return await self._db.read(work)

    async def mark_delivered(self, id_: int, receipt: str) -> None:
        """Write the receipt of a delivery; durable, since after a power loss it would be sent
        again.
        """
        await self._record_attempt(id_, DeliveryStatus.DELIVERED, receipt=receipt)

    async def mark_failed(self, id_: int, error: str, next_at: datetime | None) -> bool:
        """Write why an attempt failed, and when the next one is due; None gives the delivery up.

        Returns False, without a change, if the delivery was suppressed during the attempt.
        """
        status = DeliveryStatus.FAILED if next_at is None else DeliveryStatus.PENDING
        return await self._record_attempt(id_, status, error=error, next_at=next_at)

    async def is_pending(self, id_: int) -> bool:
        """Return whether a delivery is still to be sent."""

        def work(connection: Connection) -> bool:
            query = "SELECT 1 FROM outbox WHERE id = ? AND status = 'pending'"
            return connection.execute(query, (id_,)).fetchone() is not None

        return await self._db.read(work)

    async def leave_out(self, id_: int, reason: str, other_targets: Sequence[str]) -> None:
        """Suppress a delivery that nobody can or may get; an alert or another notice goes to the
        first of `other_targets`.
        """
        now = self._clock()

        def work(connection: Connection) -> None:
            connection.execute(
                "UPDATE outbox SET status = 'suppressed', next_at = NULL, error = ? WHERE id = ?",
                (clean(reason), id_),
            )
            for target in other_targets[:1]:
                send_to_other_target(connection, id_, target, now)

        await self._db.write(work, durable=True)

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
        """Make a failed or suppressed delivery pending again, with all its attempts.

        Raises NotFound; Refused if it was delivered.
        """
        changes, now = "status = 'pending', attempts = 0, next_at = ?, waits_since = ?", self._now()
        return await self._update(id_, changes, (now, now), refused_statuses=("delivered",))

    async def retry_now(self, targets: Collection[str]) -> int:
        """Make the pending deliveries to these targets due, which wait for their next attempt;
        return how many there are.
        """
        now = self._now()

        def work(connection: Connection) -> int:
            cursor = connection.execute(
                "UPDATE outbox SET next_at = ?, waits_since = ? WHERE status = 'pending'"  # noqa: S608  our own words
                f" AND next_at > ? AND target IN ({placeholders(targets)})",
                (now, now, now, *targets),
            )
            return int(cursor.rowcount)

        return await self._db.write(work)

    async def drop(self, id_: int) -> Delivery:
        """Suppress a delivery for good.

        Raises NotFound; Refused if it was delivered or is suppressed already.
        """
        changes = (
            "status = 'suppressed', next_at = NULL,"
            " error = coalesce(error || '; ', '') || 'dropped by a person'"
        )
        return await self._update(id_, changes, (), refused_statuses=("delivered", "suppressed"))

    async def get_digest_mark(self) -> datetime | None:
        """Return the end of the time that the last digest covers; None if there was none."""

        def work(connection: Connection) -> datetime | None:
            row = connection.execute(
                "SELECT value FROM meta WHERE key = ?", (_DIGEST_KEY,)
            ).fetchone()
            return from_microseconds(int(row[0])) if row else None

        return await self._db.read(work)

    async def add_digest(
        self, targets: Sequence[str], title: str, text: str, *, until: datetime, zone: str
    ) -> None:
        """Put a digest that covers the time up to `until` into the outbox, and write its mark, in
        one commit.
        """
        now = self._clock()

        def work(connection: Connection) -> None:
            connection.execute(PUT_VALUE, (_DIGEST_KEY, str(to_microseconds(until))))
            enqueue_notice(connection, targets, "digest", title, text, now, zone=zone)

        await self._db.write(work, durable=True)

    async def _update(
        self, id_: int, changes: str, values: Row, *, refused_statuses: Collection[str]
    ) -> Delivery:
        """Change a delivery by a person's wish, and return it as it is then."""

        def work(connection: Connection) -> Delivery:
            row = connection.execute(f"{_DELIVERY} WHERE o.id = ?", (id_,)).fetchone()
            if row is None:
                raise NotFound(
                    f"there is no delivery {id_}; `agentctl deliveries` shows what there is"
                )
            status = delivery_of(row).status
            if status in refused_statuses:
                raise Refused(f"delivery {id_} is {status} already")
            connection.execute(f"UPDATE outbox SET {changes} WHERE id = ?", (*values, id_))  # noqa: S608  our own words
            return delivery_of(connection.execute(f"{_DELIVERY} WHERE o.id = ?", (id_,)).fetchone())

        return await self._db.write(work, durable=True)

    async def _find(self, clauses: str, values: Row) -> list[Delivery]:
        def work(connection: Connection) -> list[Delivery]:
            rows = connection.execute(f"{_DELIVERY} {clauses}", values)
            return read_intact_rows(delivery_of, rows, "delivery")

        return await self._db.read(work)

    async def _record_attempt(
        self,
        id_: int,
        status: DeliveryStatus,
        *,
        receipt: str | None = None,
        error: str | None = None,
        next_at: datetime | None = None,
    ) -> bool:
        """Write how an attempt ended; return False if it failed and nobody waits for another one
        any more. Raises NotFound.
        """
        # of a failure, the moment is that of the last attempt, also where it is given up
        wait = (next_at and to_microseconds(next_at), None if error is None else self._now())
        values = (status, receipt and clean(receipt), error and clean(error), *wait, id_)

        def work(connection: Connection) -> bool:
            row = connection.execute(
                "SELECT target, status FROM outbox WHERE id = ?", (id_,)
            ).fetchone()
            if row is None:
                raise NotFound(f"there is no delivery {id_}")
            target, earlier_status = row
            has_arrived = status is DeliveryStatus.DELIVERED
            if earlier_status == DeliveryStatus.SUPPRESSED and not has_arrived:
                return False
            connection.execute(
                "UPDATE outbox SET attempts = attempts + 1, status = ?, receipt = ?, error = ?,"
                " next_at = ?, waits_since = ? WHERE id = ?",
                values,
            )
            if has_arrived:
                close_incidents(connection, f"target {target}", None, "UTC", self._clock())
            return True

        return await self._db.write(work, durable=status is DeliveryStatus.DELIVERED)


def enqueue(
    connection: Connection,
    run: Run,
    deliveries: Sequence[tuple[str, Json]],
    zone: str,
    incident_settings: IncidentSettings = IncidentSettings(),  # noqa: B008  frozen
) -> None:
    """Insert the deliveries (target, options) of a run, in the transaction that ends it.

    Those that are not to be sent are inserted as suppressed.
    """
    assert run.ended is not None  # noqa: S101  the caller has just ended it
    now = to_microseconds(run.ended)
    rows = []
    for target, options, status, reason in decide_deliveries(
        connection, run, deliveries, zone, incident_settings
    ):
        next_at = now if status is DeliveryStatus.PENDING else None
        text = json.dumps(options, separators=(",", ":"))
        rows.append((run.id, target, text, zone, status, now, next_at, next_at, reason, REPORT))
    connection.executemany(
        "INSERT INTO outbox (run_id, target, options, zone, status, created, next_at, waits_since,"
        " error, kind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
