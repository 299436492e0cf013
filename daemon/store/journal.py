"""The journal: slots, runs, steps, deliveries, and all else that is needed after a restart.

Three rules, which group commit (database.py) makes cheap: a step whose loss would repeat something
is committed before the next action; what must survive power loss is committed durably before it is
acted upon or acknowledged; nothing else waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from daemon.store.approvals import ApprovalRepository
from daemon.store.audit import AuditRepository
from daemon.store.chat_messages import ChatMessageRepository
from daemon.store.clock_corrections import MovedWaits, move_deliveries, move_waits
from daemon.store.connection import Connection
from daemon.store.database import Database
from daemon.store.history import HistoryRepository
from daemon.store.incidents import IncidentRepository, IncidentSettings
from daemon.store.key_values import KeyValueRepository
from daemon.store.outbox import OutboxRepository
from daemon.store.records import DayOutcomes
from daemon.store.routines import RoutineRepository, RoutineState, Streak
from daemon.store.rows import to_microseconds
from daemon.store.runs import LEASE, RunMessage, RunRepository
from daemon.store.seen_items import SeenItemRepository
from daemon.store.slots import Claim, SlotRange, SlotRepository, SlotRow
from daemon.store.spending import SpendingRepository
from daemon.store.workers import WorkerRepository

__all__ = [
    "Claim",
    "DayOutcomes",
    "Journal",
    "RoutineState",
    "RunMessage",
    "SlotRange",
    "SlotRow",
    "Streak",
]


class Journal:
    """The repositories of one database, by what they keep."""

    def __init__(
        self,
        db: Database,
        *,
        clock: Callable[[], datetime],
        incident_settings: IncidentSettings = IncidentSettings(),  # noqa: B008  frozen
        lease: timedelta = LEASE,
        in_turn: bool = False,
    ) -> None:
        """`lease`: how long a claim holds without a renewal, where daemons share the database.

        `in_turn`: a run is claimed only while no other run of its routine is running or waits.
        """
        self._db, self._clock, self._in_turn = db, clock, in_turn
        self.key_values = KeyValueRepository(db, clock=clock)
        self.incidents = IncidentRepository(db, clock=clock, settings=incident_settings)
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
        self.chat_messages = ChatMessageRepository(db, clock=clock)

    @property
    def shared(self) -> bool:
        """Whether other processes write the same database."""
        return self._db.shared

    async def move_waits(self) -> MovedWaits:
        """Move every wait that began while the clock was ahead, and log what was moved.

        To be called at start, before anything that waits is read, and when the clock was set.
        """
        now = to_microseconds(self._clock())

        def work(connection: Connection) -> MovedWaits:
            # where several machines share the database, its clock decides
            moved_waits = move_waits(
                connection, connection.lease_clock(now) if self._in_turn else now
            )
            return replace(moved_waits, deliveries=move_deliveries(connection, now))

        moved_waits = await self._db.write(work)
        moved_waits.write_to_log()
        return moved_waits
