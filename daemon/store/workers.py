"""The processes that share one database, their leases, and what becomes of runs whose process died.

Theory of operation. Each process has a heartbeat. In one commit it writes its row, renews the
leases of the runs it has claimed, queues all runs whose lease has expired, and learns which of its
own runs another process has or a person wants cancelled. All moments are the database's, so the
clocks of machines need not agree. One daemon leads: it stays the leader while it renews its lease.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from daemon.models import Json
from daemon.store.clock_corrections import MovedWaits, move_deliveries, move_waits
from daemon.store.connection import Connection
from daemon.store.database import Database, Repository
from daemon.store.rows import MICROSECOND, from_microseconds, to_microseconds
from daemon.store.runs import LEASE, RENEW, RunRepository
from daemon.system.clock import seconds_since_boot

# By how much the clocks of a cluster may differ; beyond that the doctor warns.
MAX_CLOCK_SKEW = timedelta(seconds=5)
# Microseconds after which a process that is not heard of is no longer listed.
LISTED_FOR = timedelta(days=1) // MICROSECOND


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A process that shares the database, as it was heard of last."""

    id: str
    kind: str
    """daemon or worker"""
    host: str
    pid: int
    version: str
    started: datetime
    seen: datetime
    running: int = 0
    """How many runs the process executes."""
    capacity: int = 0
    """How many runs the process executes at once; 0 if it only schedules."""
    is_leader: bool = False
    """Whether the process is the leader, which sends reports and does the maintenance for all."""
    capabilities: Json = field(default_factory=dict)
    """The names of the tools and MCP servers that the process has, which runs may need; empty where
    its version does not write them.
    """
    since_heartbeat: timedelta = timedelta()
    """By the clock of the database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRenewal:
    """What a process learns when it renews its leases."""

    lost_runs: Sequence[str]
    """Runs of this process that another process has claimed by now, or that have ended."""
    cancelled_runs: Sequence[str]
    """Runs of this process that a person wants stopped."""
    freed_runs: Sequence[str]
    """Runs of any process whose lease expired: they are queued again."""
    is_leader: bool
    waits: MovedWaits = field(default_factory=MovedWaits)
    """The waits that had begun while the clock was ahead."""


_WRITE_WORKER = """
INSERT INTO worker (id, kind, host, pid, version, started, seen, running, capacity, has)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, running = excluded.running, capacity = excluded.capacity,
    has = excluded.has
"""  # noqa: E501
# A sub-agent is claimed again by the process that claims its parent.
_FREE_EXPIRED = """
UPDATE run SET status = 'queued', fence = fence + 1, owner = NULL, lease_until = NULL
WHERE status = 'running' AND lease_until < ? AND trigger <> 'subagent' RETURNING id
"""
_LEAD = """
UPDATE worker SET leads = ? WHERE id = ? AND NOT EXISTS (SELECT 1 FROM worker WHERE leads > ? AND id <> ?) RETURNING id
"""  # noqa: E501


class WorkerRepository(Repository):
    """The processes that share the database, and the leases of the runs that they hold.

    Table: worker.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime], runs: RunRepository) -> None:
        super().__init__(db, clock=clock)
        self._runs = runs
        self._lease = runs.lease // MICROSECOND

    async def renew_leases(
        self,
        worker: Worker,
        *,
        may_lead: bool,
        repair: Callable[[Connection, int], None] | None = None,
    ) -> LeaseRenewal:
        """Write the row of this process, renew the leases of its runs and free expired runs.

        With `may_lead` the process becomes the leader unless another one is. `repair` is called in
        the transaction with the database's moment, in microseconds, once expired runs are freed.
        Durable, as fences move: a server that crashes must not forget a fence.
        """
        now, claimed_fences = to_microseconds(self._clock()), self._runs.claimed_fences
        asked_at = seconds_since_boot()
        capabilities = json.dumps(worker.capabilities, ensure_ascii=False)

        def work(connection: Connection) -> LeaseRenewal:
            database_now = connection.lease_clock(now)
            waits = move_waits(connection, database_now, skew=MAX_CLOCK_SKEW // MICROSECOND)
            self._shorten_leases_of_the_future(connection, database_now)
            connection.execute(
                _WRITE_WORKER,
                (
                    worker.id,
                    worker.kind,
                    worker.host,
                    worker.pid,
                    worker.version,
                    to_microseconds(worker.started),
                    database_now,
                    worker.running,
                    worker.capacity,
                    capabilities,
                ),
            )
            connection.execute("DELETE FROM worker WHERE seen < ?", (database_now - LISTED_FOR,))
            lost_runs, cancelled_runs = [], []
            lease_until = database_now + self._lease
            for run, fence in claimed_fences.items():
                row = connection.execute(RENEW, (lease_until, run, fence)).fetchone()
                if row is None:
                    lost_runs.append(run)
                elif row[0]:
                    cancelled_runs.append(run)
            freed_runs = [
                run for (run,) in connection.execute(_FREE_EXPIRED, (database_now,)).fetchall()
            ]
            if repair:
                repair(connection, database_now)
            is_leader = may_lead and bool(
                connection.execute(
                    _LEAD, (lease_until, worker.id, database_now, worker.id)
                ).fetchall()
            )
            if is_leader:
                waits = replace(waits, deliveries=move_deliveries(connection, now))
            return LeaseRenewal(
                lost_runs=lost_runs,
                cancelled_runs=cancelled_runs,
                freed_runs=freed_runs,
                is_leader=is_leader,
                waits=waits,
            )

        renewal = await self._db.write(work, durable=True)
        self._runs.note_renewal(claimed_fences.keys() - set(renewal.lost_runs), asked_at)
        renewal.waits.write_to_log()
        # A run that ended or was released here meanwhile was not lost to another process.
        current_fences = self._runs.claimed_fences
        return replace(
            renewal,
            lost_runs=[
                run for run in renewal.lost_runs if current_fences.get(run) == claimed_fences[run]
            ],
        )

    def _shorten_leases_of_the_future(self, connection: Connection, now: int) -> None:
        """Shorten the leases of processes whose last renewal was while the database's clock was
        ahead.

        They last one more lease from now on, in which a process that is alive renews them.
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
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> list[Worker]:
            database_now = _read_lease_clock(connection, now)
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
                    is_leader=row[9] > database_now,
                    capabilities=json.loads(row[10]),
                    since_heartbeat=max(0, database_now - row[6]) * MICROSECOND,
                )
                for row in rows
            ]

        return await self._db.read(work)


def _read_lease_clock(connection: Connection, own_time: int) -> int:
    """Return what `Connection.lease_clock` returns in a write: a read transaction on a server
    begins without asking for its time.
    """
    if not hasattr(connection, "driver"):  # SQLite has one process, and no clock of a server
        return own_time
    (now,) = connection.execute("SELECT agentd_now()").fetchone()
    return int(now)
