"""The journal as a whole: stored values, counts, and queries that use indexes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from daemon.models import DeliveryStatus, Status
from daemon.store.connection import SqliteConnection, migrate
from daemon.store.database import MIGRATIONS, Query, Work, run_in_session
from daemon.store.journal import Journal
from daemon.testing import FakeClock
from tests.store.conftest import START, Ledger, step

T = TypeVar("T")


async def test_stored_values_are_recalled_by_name(ledger: Ledger) -> None:
    assert await ledger.journal.key_values.get("operator") is None
    await ledger.journal.key_values.put("operator", "08:00")
    await ledger.journal.key_values.put("operator", "09:00")
    assert await ledger.journal.key_values.get("operator") == "09:00"


async def test_the_journal_counts_runs_steps_deliveries_and_bytes(ledger: Ledger) -> None:
    await ledger.queue_run()
    run = await ledger.start_run()
    await ledger.journal.runs.append(run, step(), step())
    await ledger.journal.runs.end(run.to(Status.FAILED), [("file", {}), ("log", {})])
    counts = await ledger.journal.history.count()
    assert counts["runs"] == {"failed": 1, "queued": 1}
    assert counts["deliveries"] == {"pending": 2}
    assert counts["steps"] == 2
    assert counts["bytes"] > 4096


class ExplainingDatabase:
    """Stands where a Database stands, and notes how SQLite goes about each read."""

    def __init__(self, connection: SqliteConnection) -> None:
        self.connection = connection
        self.plans: list[str] = []

    async def read(self, work: Work[T]) -> T:
        return self._explain(lambda: work(self.connection))

    async def query(self, query: Query[T]) -> T:
        return self._explain(lambda: run_in_session(self.connection, query))

    def _explain(self, ask: Callable[[], T]) -> T:
        statements: list[str] = []
        self.connection.set_trace_callback(statements.append)
        result = ask()
        self.connection.set_trace_callback(None)
        for statement in statements:
            if statement in ("BEGIN", "ROLLBACK"):
                continue
            self.plans += [
                row[3] for row in self.connection.execute(f"EXPLAIN QUERY PLAN {statement}")
            ]
        return result


@pytest.fixture
def explaining_database() -> Iterator[ExplainingDatabase]:
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=SqliteConnection)
    migrate(connection, Path("agentd.db"), MIGRATIONS)
    yield ExplainingDatabase(connection)
    connection.close()


async def test_everyday_queries_use_indexes(explaining_database: ExplainingDatabase) -> None:
    journal = Journal(explaining_database, clock=FakeClock(START).now)  # type: ignore[arg-type]  # it only reads
    await journal.runs.get_last_by_routine(["daily"])
    await journal.runs.find_active()
    await journal.runs.find(limit=5)
    await journal.runs.find("daily", limit=5)
    await journal.runs.find(status=Status.FAILED, before="01", limit=5)
    await journal.runs.get_last("daily", statuses={Status.SUCCEEDED, Status.FAILED})
    await journal.runs.get_steps("01")
    await journal.routines.count_runs_with_report("daily", START - timedelta(days=1))
    await journal.slots.find("daily")
    await journal.slots.find()
    await journal.slots.get_accounted_until("daily")
    await journal.slots.get_run_of_event("daily", "client:1")
    await journal.outbox.find_due(START)
    await journal.outbox.get_next_due()
    await journal.outbox.find_of_runs(["01", "02"])
    await journal.outbox.find(run="01")
    await journal.outbox.find(limit=5)
    await journal.outbox.find(status=DeliveryStatus.FAILED)
    await journal.key_values.get("operator")
    await journal.runs.get_input("01")
    await journal.slots.get_seen_files("daily")
    await journal.slots.find_missed_ends(
        "daily", parents=["one", "two"], statuses={Status.SUCCEEDED}, since=START
    )
    # a walk along an index, or along the order asked for, ends at the limit; these two are of a few
    # rows at most
    harmless = ("SCAN name", "USING INDEX", "USING COVERING INDEX", "SCAN CONSTANT ROW")
    walks = [
        plan
        for plan in explaining_database.plans
        if "SCAN" in plan and not any(word in plan for word in harmless)
    ]
    assert walks == ["SCAN outbox"], (
        "only the listing of the latest deliveries goes by the table itself, backwards"
    )
