"""The journal: what was due, what was run, what each run did and where its report went.

Everything the daemon knows across a restart stands here. Three rules (the writer in database.py
keeps them cheap): a step whose loss would repeat something is committed before the next action;
what must survive power loss is committed durably before it is acted upon or acknowledged; nothing
else waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from daemon.store.approvals import ApprovalRepository
from daemon.store.audit import AuditRepository
from daemon.store.clock_corrections import MovedWaits, move_deliveries, move_waits
from daemon.store.database import Database
from daemon.store.facts import FactRepository
from daemon.store.history import HistoryRepository
from daemon.store.incidents import Alerting, IncidentRepository
from daemon.store.outbox import OutboxRepository
from daemon.store.records import Day
from daemon.store.routines import RoutineRepository, RoutineState, Streak
from daemon.store.rows import to_microseconds
from daemon.store.runs import LEASE, RunMessage, RunRepository
from daemon.store.seen_items import SeenItemRepository
from daemon.store.slot_claims import Claim
from daemon.store.slots import Portion, SlotRepository, SlotRow
from daemon.store.spending import SpendingRepository
from daemon.store.statements import Connection
from daemon.store.workers import WorkerRepository

__all__ = ["Claim", "Day", "Journal", "Portion", "RoutineState", "RunMessage", "SlotRow", "Streak"]


class Journal:
    """The repositories of one database, by what they keep."""

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        alerting: Alerting = Alerting(),  # noqa: B008  frozen
        lease: timedelta = LEASE,
        in_turn: bool = False,
    ) -> None:
        """`lease`: how long a run stays its owner's who is not heard of, where several daemons
        share the store.

        `in_turn`: runs of a routine are claimed one at a time, whoever asks.
        """
        self._db, self._clock, self._in_turn = db, clock, in_turn
        self.facts = FactRepository(db, clock=clock)
        self.incidents = IncidentRepository(db, clock=clock, alerting=alerting)
        self.runs = RunRepository(
            db, clock=clock, incidents=self.incidents, lease=lease, in_turn=in_turn
        )
        self.approvals = ApprovalRepository(
            db, clock=clock, runs=self.runs, incidents=self.incidents
        )
        self.slots = SlotRepository(db, clock=clock, runs=self.runs)
        self.routines = RoutineRepository(db, clock=clock, runs=self.runs)
        self.workers = WorkerRepository(db, clock=clock, runs=self.runs)
        self.outbox = OutboxRepository(db, clock=clock)
        self.spending = SpendingRepository(db, clock=clock)
        self.audit = AuditRepository(db, clock=clock)
        self.seen_items = SeenItemRepository(db, clock=clock)
        self.history = HistoryRepository(db, clock=clock)

    @property
    def shared(self) -> bool:
        """Whether other processes write here as well."""
        return self._db.shared

    async def move_waits(self) -> MovedWaits:
        """Move every wait that began while the clock was ahead, and log what was moved.

        To be called at start, before anything that waits is read, and when the clock was set.
        """
        ours = to_microseconds(self._clock())

        def work(connection: Connection) -> MovedWaits:
            # of several machines none knows the time better than the database that they share
            moved = move_waits(connection, connection.lease_clock(ours) if self._in_turn else ours)
            return replace(moved, deliveries=move_deliveries(connection, ours))

        moved = await self._db.write(work)
        moved.write_to_log()
        return moved
