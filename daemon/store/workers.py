"""Who lives, and what becomes of the runs of the dead, where several processes share the store.

Theory of operation. Each process beats: in one commit it writes its row, renews the leases of the
runs it lives, queues the runs of those who let theirs run out, and learns which of its own are no
longer its own or are to be cancelled. All moments are the database's: the clocks of machines need
not agree. Of all daemons one leads, for as long as it beats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from daemon.models import Json
from daemon.store.clock_corrections import MovedWaits, move_deliveries, move_waits
from daemon.store.database import Database
from daemon.store.repository import Repository
from daemon.store.rows import MICROSECOND, from_microseconds, to_microseconds
from daemon.store.runs import LEASE, RunRepository
from daemon.store.statements import Connection

SKEW = (
    timedelta(seconds=5) // MICROSECOND
)  # by so much the clocks of a fleet may differ, as doctor takes it
FORGOTTEN = (
    timedelta(days=1) // MICROSECOND
)  # microseconds after which a silent process is not listed any more


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A process that shares the store, as it was heard of last."""

    id: str
    kind: str
    """daemon or worker"""
    host: str
    pid: int
    version: str
    started: datetime
    seen: datetime
    running: int = 0
    """How many runs it lives."""
    capacity: int = 0
    """How many it would live at once; 0: it only hands on."""
    leads: bool = False
    """It does what one daemon of all has to do: it sends reports and keeps house."""
    has: Json = field(default_factory=dict)
    """What it has that runs may need: names of tools and MCP servers; nothing where its version
    does not say.
    """
    silent: timedelta = timedelta()
    """How long nothing has been heard of it, by the clock of the database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRenewal:
    """What a process learns when it says that it lives."""

    lost: Sequence[str]
    """Runs that it lived and that are somebody else's, or ended, by now."""
    cancelled: Sequence[str]
    """Runs of its own that are to be stopped."""
    freed: Sequence[str]
    """Runs that were taken from the dead, and wait for somebody."""
    leads: bool
    waits: MovedWaits = field(default_factory=MovedWaits)
    """What waited for an instant that a wrong clock had named."""


_ALIVE = """
INSERT INTO worker (id, kind, host, pid, version, started, seen, running, capacity, has)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, running = excluded.running, capacity = excluded.capacity,
    has = excluded.has
"""  # noqa: E501
_RENEW = (
    "UPDATE run SET lease_until = ? WHERE id = ? AND fence = ? AND status = 'running' RETURNING "
    "cancel"
)
# A sub-agent is taken up by whoever takes up its parent.
_EXPIRED = """
UPDATE run SET status = 'queued', fence = fence + 1, owner = NULL, lease_until = NULL
WHERE status = 'running' AND lease_until < ? AND trigger <> 'subagent' RETURNING id
"""
_LEAD = """
UPDATE worker SET leads = ? WHERE id = ? AND NOT EXISTS (SELECT 1 FROM worker WHERE leads > ? AND id <> ?) RETURNING id
"""  # noqa: E501


class WorkerRepository(Repository):
    """The processes that share the store, and the leases of the runs that they hold.

    Table: worker.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs
        self._lease = runs.lease // MICROSECOND

    async def beat(
        self,
        me: Worker,
        *,
        may_lead: bool,
        heal: Callable[[Connection, int], None] | None = None,
    ) -> LeaseRenewal:
        """Say that a process lives, renew its leases and take what the dead have left; `heal` is
        done in between.

        Durable, as a fence moves: a server that crashes must not forget that.
        """
        now, mine = to_microseconds(self._clock()), self._runs.held
        has = json.dumps(me.has, ensure_ascii=False)

        def work(connection: Connection) -> LeaseRenewal:
            there = connection.lease_clock(now)
            waits = move_waits(connection, there, skew=SKEW)
            self._end_leases_of_the_future(connection, there)
            row = (
                me.id,
                me.kind,
                me.host,
                me.pid,
                me.version,
                to_microseconds(me.started),
                there,
                me.running,
                me.capacity,
            )
            connection.execute(_ALIVE, (*row, has))
            connection.execute("DELETE FROM worker WHERE seen < ?", (there - FORGOTTEN,))
            lost, cancelled = [], []
            for run, fence in mine.items():
                found = connection.execute(_RENEW, (there + self._lease, run, fence)).fetchone()
                if found is None:
                    lost.append(run)
                elif found[0]:
                    cancelled.append(run)
            freed = [run for (run,) in connection.execute(_EXPIRED, (there,)).fetchall()]
            if heal:
                heal(connection, there)
            leads = may_lead and bool(
                connection.execute(_LEAD, (there + self._lease, me.id, there, me.id)).fetchall()
            )
            if leads:
                waits = replace(waits, deliveries=move_deliveries(connection, now))
            return LeaseRenewal(
                lost=lost, cancelled=cancelled, freed=freed, leads=leads, waits=waits
            )

        beat = await self._db.write(work, durable=True)
        beat.waits.write_to_log()
        # one that ended, or was let go of, while this was under way is lost to nobody
        held = self._runs.held
        return LeaseRenewal(
            lost=[run for run in beat.lost if held.get(run) == mine[run]],
            cancelled=beat.cancelled,
            freed=beat.freed,
            leads=beat.leads,
            waits=beat.waits,
        )

    def _end_leases_of_the_future(self, connection: Connection, now: int) -> None:
        """Shorten the leases of processes that were heard of last while the clock of the database
        was ahead.

        They keep them for as long as they may take to beat again. Who lives renews its leases with
        that beat.
        """
        until = now + max(self._lease, LEASE // MICROSECOND)
        for (id_,) in connection.execute("SELECT id FROM worker WHERE seen > ?", (now,)).fetchall():
            connection.execute(
                (
                    "UPDATE run SET lease_until = ? WHERE owner = ? AND status = 'running' AND "
                    "lease_until > ?"
                ),
                (until, id_, until),
            )
            connection.execute(
                (
                    "UPDATE worker SET seen = ?, leads = CASE WHEN leads > ? THEN ? ELSE leads END "
                    "WHERE id = ?"
                ),
                (now, until, until, id_),
            )

    async def remove(self, id_: str) -> None:
        """Take a process off the list, as it ends."""
        await self._db.write(
            lambda connection: connection.execute("DELETE FROM worker WHERE id = ?", (id_,))
        )

    async def find(self) -> list[Worker]:
        """Return the processes that were heard of within a day, oldest first."""
        ours = to_microseconds(self._clock())

        def work(connection: Connection) -> list[Worker]:
            there = _clock_of(connection, ours)
            rows = connection.execute(
                "SELECT id, kind, host, pid, version, started, seen, running, capacity, leads, has "
                "FROM worker"
                " ORDER BY started, id"
            ).fetchall()
            return [
                Worker(
                    id=row[0],
                    kind=row[1],
                    host=row[2],
                    pid=row[3],
                    version=row[4],
                    started=from_microseconds(row[5]),
                    seen=from_microseconds(row[6]),
                    running=row[7],
                    capacity=row[8],
                    leads=row[9] > there,
                    has=json.loads(row[10]),
                    silent=max(0, there - row[6]) * MICROSECOND,
                )
                for row in rows
            ]

        return await self._db.read(work)


def _clock_of(connection: Connection, ours: int) -> int:
    """Return the moment by the clock of the database, in a read, which begins without asking for
    it.
    """
    if not hasattr(connection, "driver"):
        return ours
    (there,) = connection.execute("SELECT agentd_now()").fetchone()
    return int(there)
