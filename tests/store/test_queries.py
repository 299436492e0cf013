"""Queries for people run in one snapshot, use indexes, and import SQLModel only when needed."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, insert, text
from sqlmodel import Session, col, func, select

from daemon.errors import Refused, StoreDamaged, StoreFull
from daemon.models import ApprovalStatus, DeliveryStatus, Status
from daemon.store.database import Database
from daemon.store.queries import approvals, audit, deliveries, history, incidents, runs, spending
from daemon.store.tables import MetaRow, RunRow
from tests.store.conftest import START, Ledger, in_a_file


def count_runs(session: Session) -> int:
    return session.exec(select(func.count(col(RunRow.id)))).one()


async def test_a_query_sees_one_snapshot_with_all_earlier_writes(
    db: Database, ledger: Ledger
) -> None:
    await ledger.queue_run()
    has_read, has_written = threading.Event(), threading.Event()

    def count_twice(session: Session) -> tuple[int, int]:
        first = count_runs(session)
        has_read.set()
        has_written.wait()
        return first, count_runs(session)

    counts = asyncio.ensure_future(db.query(count_twice))
    await asyncio.to_thread(has_read.wait)
    await ledger.queue_run()
    has_written.set()
    assert await counts == (1, 1)
    assert await db.query(count_runs) == 2


async def test_a_query_cannot_write(db: Database) -> None:
    with pytest.raises(StoreFull, match="read"):
        await db.query(lambda session: session.exec(insert(MetaRow).values(key="a", value="")))
    assert await db.query(lambda session: session.exec(select(MetaRow.key)).all()) == []


async def test_a_failed_query_leaves_no_old_snapshot(db: Database, ledger: Ledger) -> None:
    await ledger.queue_run()
    await ledger.queue_run()

    def fail_halfway(session: Session) -> None:
        rows = session.exec(select(RunRow))
        raise ValueError(f"{next(iter(rows)).id} is not to my taste")

    with pytest.raises(ValueError, match="taste") as error:
        await db.query(fail_halfway)
    await ledger.queue_run()
    assert await db.query(count_runs) == 3
    assert await db.read(lambda connection: connection.execute("SELECT id FROM run").fetchall())
    assert error.value


@in_a_file
async def test_a_query_of_a_damaged_database_explains_the_remedy(
    db: Database, ledger: Ledger
) -> None:
    await ledger.queue_run()
    statement = "SELECT rootpage FROM sqlite_master WHERE name = 'run'"
    page: int = await db.read(lambda connection: connection.execute(statement).fetchone()[0])
    await db.run_outside_transaction(lambda connection: connection.truncate_log())
    await db.close()
    with db.path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    damaged_database = await Database.open(db.path)
    with pytest.raises(StoreDamaged, match=r"the file is damaged; stop the daemon and restore"):
        await damaged_database.query(lambda session: session.exec(select(RunRow)).all())
    await damaged_database.close()


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
async def test_a_query_is_repeated_on_a_new_connection(db: Database, ledger: Ledger) -> None:
    await ledger.queue_run()
    assert await db.query(count_runs) == 1
    end_others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await db.write(lambda connection: connection.execute(end_others).fetchall())
    assert await db.query(count_runs) == 1


async def test_a_query_without_sqlmodel_names_the_package(
    db: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await ledger.queue_run()
    monkeypatch.setitem(sys.modules, "sqlmodel", None)
    monkeypatch.delitem(sys.modules, "daemon.store.queries.session")
    with pytest.raises(Refused, match=r"^the package sqlmodel is not installed; install .*pip"):
        await ledger.journal.runs.find()
    assert await ledger.journal.runs.get(run.id) == run


_LIFE = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from daemon.models import Status, Step, StepKind
from daemon.store.journal import Claim, Journal
from daemon.store.opening import open_database

async def live():
    db = await open_database(Path(sys.argv[1]))
    journal = Journal(db, clock=lambda: datetime.now(UTC))
    claim = Claim(routine="daily", definition="{}", trigger="cron", slot=datetime.now(UTC), goal="")
    (run,) = await journal.slots.claim([claim])
    run = await journal.runs.claim(run.id, owner="me")
    await journal.runs.append(run, Step(kind=StepKind.LLM, iteration=1, body={}))
    await journal.approvals.find_of_run(run.id)
    await journal.runs.end(run.to(Status.SUCCEEDED, report="done"), [("file", {})])
    for delivery in await journal.outbox.find_due(datetime.now(UTC)):
        await journal.outbox.mark_delivered(delivery.id, "there")
    await journal.outbox.find_of_runs([run.id])
    await journal.runs.get_last_by_routine(["daily"])
    await journal.history.count()
    await journal.history.get_metrics()
    await journal.incidents.find_open()
    print("sqlmodel" in sys.modules, "sqlalchemy" in sys.modules)
    await journal.runs.find()
    print("sqlmodel" in sys.modules)
    await db.close()

asyncio.run(live())
"""


def test_only_a_query_imports_sqlmodel(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-c", _LIFE, str(tmp_path / "agentd.db")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.split() == ["False", "False", "True"]


_UTC = ZoneInfo("UTC")
_DAYS = [START + timedelta(days=number) for number in range(8)]
QUERIES: list[Callable[[Session], Any]] = [
    lambda session: runs.find_runs(session, None, None, None, 5),
    lambda session: runs.find_runs(session, "daily", None, "02", 5),
    lambda session: runs.find_runs(session, None, Status.FAILED, "02", 5),
    lambda session: deliveries.find_deliveries(session, None, None, 5),
    lambda session: deliveries.find_deliveries(session, "01", None, 5),
    lambda session: deliveries.find_deliveries(session, None, DeliveryStatus.FAILED, 5),
    lambda session: incidents.find_incidents(session, closed=False, limit=5),
    lambda session: approvals.find_approvals(session, "01", None, None, 5),
    lambda session: approvals.find_approvals(session, None, ApprovalStatus.PENDING, None, 5),
    lambda session: audit.find_entries(session, None, 9, 5),
    lambda session: audit.find_entries(session, "01", None, 5),
    lambda session: audit.get_chain_part(session, 0, 5),
    lambda session: audit.find_quarantined(session, "02", 5),
    lambda session: spending.find_calls(session, "01"),
    lambda session: spending.sum_by(session, "routine", START, _UTC),
    lambda session: spending.sum_by(session, "model", START, _UTC),
    lambda session: spending.sum_by(session, "day", START, _UTC),
    lambda session: spending.sum_by_day(session, _DAYS),
    lambda session: history.get_days(session, _DAYS),
    lambda session: history.get_usage_of_runs(session, ["daily"], 5),
]
_LARGE = "run|step|slot|outbox|spending|audit"


async def test_queries_read_no_large_table_from_end_to_end(db: Database) -> None:
    """SQLite walks outbox and audit in the order of their numbers, and stops at the limit."""

    def explain(session: Session) -> list[tuple[str, str]]:
        statements: list[tuple[str, Any]] = []
        connection = session.connection()
        note = lambda *event: statements.append((event[2], event[3]))  # noqa: E731
        event.listen(connection, "before_cursor_execute", note)
        for query in QUERIES:
            query(session)
        event.remove(connection, "before_cursor_execute", note)
        if db.shared:
            session.connection().execute(text("SET LOCAL enable_seqscan = off"))
        word = "EXPLAIN" if db.shared else "EXPLAIN QUERY PLAN"
        return [
            (statement, " | ".join(str(row[-1]) for row in plan))
            for statement, values in statements
            for plan in [connection.exec_driver_sql(f"{word} {statement}", values).all()]
        ]

    plans = await db.query(explain)
    assert len(plans) > len(QUERIES)
    if db.shared:
        scan = re.compile(rf"Seq Scan on ({_LARGE})\b")
    else:
        scan = re.compile(rf"SCAN ({_LARGE})\b(?! USING (COVERING )?INDEX)")
    scans = {
        (match.group(1), statement) for statement, plan in plans for match in scan.finditer(plan)
    }
    in_order = {("outbox", "ORDER BY outbox.id DESC"), ("audit", "ORDER BY audit.seq")}
    unlisted_scans = [
        (table, statement)
        for table, statement in scans
        if not any(table == large_table and order in statement for large_table, order in in_order)
    ]
    assert not unlisted_scans
