"""The journal: what was due, what was run, what each run did and where its report went.

Everything the daemon knows across a restart stands here. Three rules (the writer in database.py
keeps them cheap): a step whose loss would repeat something is committed before the next action;
what must survive power loss is committed durably before it is acted upon or acknowledged; nothing
else waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

from daemon.models import Json, Run
from daemon.store.approvals import ApprovalRepository
from daemon.store.audit import Audit
from daemon.store.daily import Day, Days
from daemon.store.digests import Digests
from daemon.store.leases import Leases
from daemon.store.metrics import MetricsRepository
from daemon.store.outbox import Deliveries
from daemon.store.policies import Policies
from daemon.store.quarantine import Quarantine
from daemon.store.renaming import Renaming
from daemon.store.rows import KEEP_FACT
from daemon.store.run_history import Histories
from daemon.store.run_messages import Messages, RunMessage
from daemon.store.run_store import RunStore
from daemon.store.seen_items import Novelty
from daemon.store.slot_outcomes import Accounts, Portion, SlotRow
from daemon.store.slots import Claim, RoutineState, Slots
from daemon.store.spending import Spending
from daemon.store.streaks import Streak, Streaks
from daemon.store.trigger_events import TriggerEvents

__all__ = ["Claim", "Day", "Journal", "Portion", "RoutineState", "RunMessage", "SlotRow", "Streak"]


class Journal(
    Slots,
    Accounts,
    TriggerEvents,
    ApprovalRepository,
    Leases,
    Streaks,
    Days,
    Messages,
    Deliveries,
    Spending,
    Quarantine,
    Policies,
    Audit,
    MetricsRepository,
    Novelty,
    Digests,
    Histories,
    Renaming,
    RunStore,
):
    """The record of slots, what became of them (slot_outcomes.py), events (trigger_events.py), runs
    and steps, what they wait for (approvals.py), deliveries (outbox.py), messages
    (run_messages.py), money (spending.py), what was kept from models (quarantine.py) and of all
    calls (audit.py).
    """

    async def open_slots(self, claims: Sequence[Claim]) -> list[Run | None]:
        """Give each claim its slot and a queued run, all or none of them.

        None where the slot is taken, or where more runs are unended than the claim may stand
        beside.
        """
        runs = await super().open_slots(claims)
        self._keep_fresh(run for run in runs if run)
        return runs

    async def rename(self, old: str, new: str) -> None:
        """Let what is known of one routine be known of another; Refused if there was one of that
        name.
        """
        await super().rename(old, new)
        self.look_again()

    def remember(self, key: str, value: str, *, lazily: bool = False) -> asyncio.Future[None]:
        """Keep a small fact over restarts; `lazily`, with whatever is written next."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(KEEP_FACT, (key, value))

        return self._db.submit(work, lazily=lazily)

    async def recall(self, key: str) -> str | None:
        """Return a fact that was kept."""

        def work(connection: sqlite3.Connection) -> str | None:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return row and str(row[0])

        return await self._db.read(work)

    async def counts(self) -> Json:
        """Return how much there is: runs and deliveries by status, steps, and the bytes of the
        database.
        """

        def work(connection: sqlite3.Connection) -> Json:
            (pages,) = connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            )
            return {
                "runs": dict(
                    connection.execute("SELECT status, count(*) FROM run GROUP BY status")
                ),
                "deliveries": dict(
                    connection.execute("SELECT status, count(*) FROM outbox GROUP BY status")
                ),
                "steps": connection.execute("SELECT count(*) FROM step").fetchone()[0],
                "bytes": pages[0],
            }

        return await self._db.read(work)
