"""The journal on PostgreSQL: outages of the server, and several processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from daemon.errors import ConfigError, DatabaseAway, Fenced, StoreFull
from daemon.models import Status, StepKind
from daemon.store.database import BATCH, MIGRATIONS, Database, Work
from daemon.store.journal import Journal
from daemon.store.opening import open_database
from daemon.store.tables import MetaRow
from daemon.system.clock import seconds_since_boot
from daemon.testing import FakeClock
from tests.postgres import Server
from tests.store.conftest import Ledger, step


@pytest.fixture
async def db(tmp_path: Path, postgres_url: str) -> AsyncIterator[Any]:
    database = await open_database(tmp_path / "agentd.db", postgres_url)
    yield database
    await database.close()


@pytest.fixture
async def other_db(tmp_path: Path, postgres_url: str) -> AsyncIterator[Any]:
    """Another process, as far as the server can tell."""
    database = await open_database(tmp_path / "agentd.db", postgres_url)
    yield database
    await database.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own, to be killed; it keeps what a crash must keep."""
    new_server = Server(durable=True)
    yield new_server
    new_server.remove()


@pytest.fixture
async def mortal(tmp_path: Path, server: Server) -> AsyncIterator[Any]:
    database = await open_database(tmp_path / "agentd.db", server.url(server.create()))
    yield database
    await database.close()


def put(number: int) -> Work[int]:
    def work(connection: Any) -> int:
        connection.execute("INSERT INTO meta VALUES (?, '')", (str(number),))
        return number

    return work


def keys(connection: Any) -> list[int]:
    return sorted(int(key) for (key,) in connection.execute("SELECT key FROM meta"))


@asynccontextmanager
async def block_writer(db: Database) -> AsyncIterator[None]:
    """Keep the writer at work, so that what is submitted meanwhile ends up in one batch."""
    has_entered, may_leave = threading.Event(), threading.Event()

    def work(connection: Any) -> None:
        has_entered.set()
        may_leave.wait()

    write = db.submit(work)
    await asyncio.to_thread(has_entered.wait)
    yield
    may_leave.set()
    await write


# --- commits


async def test_writes_of_a_batch_are_committed_together_in_order(db: Database) -> None:
    async with block_writer(db):
        futures = [db.submit(put(number)) for number in range(BATCH)]
    assert await asyncio.gather(*futures) == list(range(BATCH))
    stamps = await db.read(
        lambda connection: connection.execute("SELECT DISTINCT xmin FROM meta").fetchall()
    )
    assert len(stamps) == 1, "one transaction"


async def test_a_failed_write_does_not_affect_other_writes_of_its_batch(db: Database) -> None:
    def fail(connection: Any) -> None:
        put(99)(connection)
        raise LookupError("mine alone")

    async with block_writer(db):
        futures = [db.submit(work) for work in (put(1), fail, put(1), put(2))]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert (results[0], results[3]) == (1, 2)
    assert isinstance(results[1], LookupError)
    assert "violates unique constraint" in str(results[2])
    assert await db.read(keys) == [1, 2]


async def test_only_durable_writes_use_synchronous_commit(db: Database) -> None:
    def how(connection: Any) -> str:
        (value,) = connection.execute("SHOW synchronous_commit").fetchone()
        return str(value)

    assert await db.write(how) == "off"
    assert await db.write(how, durable=True) == "on"
    async with block_writer(db):
        writes = [db.submit(how), db.submit(how, durable=True)]
    assert await asyncio.gather(*writes) == ["on", "on"]


async def test_a_read_sees_one_snapshot_and_cannot_write(db: Database) -> None:
    loop = asyncio.get_running_loop()

    def twice(connection: Any) -> tuple[list[int], list[int]]:
        before = keys(connection)
        asyncio.run_coroutine_threadsafe(db.write(put(1)), loop).result()
        return before, keys(connection)

    assert await db.read(twice) == ([], [])
    assert await db.read(keys) == [1]
    with pytest.raises(StoreFull, match="only reads"):
        await db.read(put(2))


async def test_read_then_write_transactions_of_two_processes_are_serialized(
    db: Database, other_db: Database
) -> None:
    def count_up(connection: Any) -> None:
        row = connection.execute("SELECT value FROM meta WHERE key = 'n'").fetchone()
        number = int(row[0]) + 1 if row else 1
        connection.execute(
            (
                "INSERT INTO meta VALUES ('n', ?) ON CONFLICT (key) DO UPDATE SET value = "
                "excluded.value"
            ),
            (str(number),),
        )

    await asyncio.gather(
        *(database.write(count_up) for _ in range(50) for database in (db, other_db))
    )
    assert await db.read(
        lambda connection: connection.execute("SELECT value FROM meta").fetchall()
    ) == [("100",)]


async def test_a_slot_claimed_by_several_daemons_has_one_run(
    db: Database, other_db: Database, clock: FakeClock
) -> None:
    ledgers = [Ledger(database, clock) for database in (db, other_db)]
    slots = [clock.now() + timedelta(minutes=number) for number in range(40)]
    claims = [(ledger.journal, ledger.claim(slot=slot)) for slot in slots for ledger in ledgers]
    opened_runs = await asyncio.gather(*(journal.slots.claim([claim]) for journal, claim in claims))
    assert sum(run is not None for (run,) in opened_runs) == 40
    proof = await ledgers[0].journal.audit.verify()
    assert proof.broken is None


async def test_a_process_with_an_expired_lease_loses_its_run(
    db: Database, other_db: Database, clock: FakeClock
) -> None:
    own_ledger, other_ledger = Ledger(db, clock), Ledger(other_db, clock)
    run = await own_ledger.start_run()
    await own_ledger.journal.runs.append(run, step(StepKind.LLM, number=1))
    assert await other_ledger.journal.runs.claim(run.id, owner="other") is None, (
        "its owner is heard of"
    )
    assert await other_ledger.journal.runs.recover("other") == []
    await own_ledger.lapse()
    claimed_run = await other_ledger.journal.runs.claim(run.id, owner="other")
    assert claimed_run is not None
    assert claimed_run.fence > run.fence
    with pytest.raises(Fenced):
        await own_ledger.journal.runs.append(run, step(StepKind.LLM, number=2))
    with pytest.raises(Fenced):
        await own_ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    assert [step.body["number"] for step in await other_ledger.journal.runs.get_steps(run.id)] == [
        1
    ]
    await other_ledger.journal.runs.end(claimed_run.to(Status.SUCCEEDED))


async def test_a_process_that_stood_still_past_its_lease_learns_before_it_asks_a_model(
    db: Database, other_db: Database, clock: FakeClock
) -> None:
    own_journal = Journal(db, clock=clock.now, lease=timedelta(seconds=0.2))
    other_ledger = Ledger(other_db, clock)
    queued_run = await Ledger(db, clock).queue_run()
    run = await own_journal.runs.claim(queued_run.id, owner="own")
    assert run is not None
    own_journal.runs.note_renewal([run.id], seconds_since_boot())
    await own_journal.runs.confirm_lease(run)  # it holds: nobody is asked
    own_journal.runs.note_renewal([run.id], seconds_since_boot() - 1)
    await own_journal.runs.confirm_lease(run)  # it ran out, and nobody took the run: renewed
    await Ledger(db, clock).lapse()
    assert await other_ledger.journal.runs.claim(run.id, owner="other")
    own_journal.runs.note_renewal([run.id], seconds_since_boot() - 1)
    with pytest.raises(Fenced):
        await own_journal.runs.confirm_lease(run)


async def test_a_restarted_daemon_recovers_its_own_runs_at_once(
    db: Database, other_db: Database, clock: FakeClock
) -> None:
    old_journal, new_journal = Ledger(db, clock).journal, Ledger(other_db, clock).journal
    run = await Ledger(db, clock).queue_run()
    assert await old_journal.runs.claim(run.id, owner="here:box:1:a")
    assert await new_journal.runs.recover("there:box:1:a") == []
    assert [
        recovered_run.id for recovered_run in await new_journal.runs.recover("here:box:2:b")
    ] == [run.id]


async def test_leases_are_measured_by_the_clock_of_the_server(
    db: Database, clock: FakeClock
) -> None:
    clock.advance(days=-4000)  # ours is wrong by years
    ledger = Ledger(db, clock)
    run = await ledger.start_run()

    def read_lease_seconds(connection: Any) -> float:
        (seconds,) = connection.execute(
            "SELECT (lease_until - agentd_now()) / 1e6 FROM run WHERE id = ?", (run.id,)
        ).fetchone()
        return float(seconds)

    assert 0 < await db.read(read_lease_seconds) <= 60


# --- the server goes away


async def test_acknowledged_steps_survive_a_crash_of_the_server(
    mortal: Database, server: Server, clock: FakeClock
) -> None:
    ledger = Ledger(mortal, clock)
    run = await ledger.start_run()
    for number in range(10):
        await ledger.journal.runs.append(run, step(number=number), durable=number == 7)
    await asyncio.to_thread(server.crash)
    step_numbers = [record.body["number"] for record in await ledger.journal.runs.get_steps(run.id)]
    assert step_numbers == list(range(len(step_numbers)))
    assert len(step_numbers) >= 8, "all up to the last durable one"
    # what was taken with it is noticed: the run goes on from what there is
    (result,) = await asyncio.gather(
        ledger.journal.runs.append(run, step(number=10)), return_exceptions=True
    )
    if len(step_numbers) < 10:
        assert isinstance(result, StoreFull)
        assert "resumes from the ones before" in str(result)
    else:
        assert not isinstance(result, BaseException)


async def test_writes_wait_for_a_server_that_restarts(mortal: Database, server: Server) -> None:
    await mortal.write(put(0))
    restart = asyncio.create_task(asyncio.to_thread(server.crash))
    writes = [mortal.write(put(number), durable=True) for number in range(1, 60)]
    assert await asyncio.gather(*writes) == list(range(1, 60))
    await restart
    assert set(range(1, 60)) <= set(await mortal.read(keys))


async def test_a_commit_with_a_lost_answer_is_applied_exactly_once(
    mortal: Any, server: Server
) -> None:
    """The server dies in the COMMIT: before it stood, or after it stood and before we heard of
    it.
    """
    commits = 0

    def count_up(connection: Any) -> int:
        connection.execute(
            "INSERT INTO told (run_id, event, text, at) VALUES ('x', ?, '', 0)", (str(commits),)
        )
        return commits

    await mortal.write(
        lambda connection: connection.control("ALTER TABLE told DROP CONSTRAINT told_run_id_fkey")
    )
    await mortal.write(lambda connection: connection.control("DROP INDEX told_event"))
    for commits in range(6):
        wire = mortal._connection
        control = wire.control

        def lose_answer(
            statements: str,
            wire: Any = wire,
            control: Any = control,
            stood: bool = commits % 2 == 0,
        ) -> Any:
            if statements == "COMMIT":
                if stood:
                    control("COMMIT")
                wire.driver.close()
            return control(statements)

        wire.control = lose_answer
        assert await mortal.write(count_up, durable=True) == commits
    events = await mortal.read(
        lambda connection: connection.execute("SELECT event FROM told ORDER BY id").fetchall()
    )
    assert events == [(str(number),) for number in range(6)]


def test_a_statement_on_a_silent_server_times_out(postgres_url: str) -> None:
    """psycopg says so by an error of its own, whose class is private."""
    import psycopg

    from daemon.store.postgres.connection import connect

    connection = connect(postgres_url)
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.control("SELECT 1 / 0")
    connection.driver.answer_timeout = 0.2
    with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.2 s"):
        connection.control("SELECT pg_sleep(60)")
    assert connection.broken
    connection.close()


async def test_an_unreachable_server_is_reported_and_used_again_after_its_return(
    mortal: Any, server: Server
) -> None:
    mortal.reconnect_timeout = 0.3
    await asyncio.to_thread(server.stop)
    try:
        with pytest.raises(StoreFull, match=r"cannot be reached"):
            await mortal.write(put(1))
        with pytest.raises(StoreFull, match=r"cannot be reached"):
            await mortal.read(keys)
        with pytest.raises(StoreFull, match=r"cannot be reached"):
            await mortal.query(lambda session: session.exec(select(MetaRow.key)).all())
    finally:
        await asyncio.to_thread(server.start)
    mortal.reconnect_timeout = 60
    await mortal.write(put(2))
    assert await mortal.read(keys) == [2], "what was refused is not there"
    assert await mortal.query(lambda session: session.exec(select(MetaRow.key)).all()) == ["2"]


async def test_a_writer_paused_in_a_transaction_delays_others_only_briefly(
    db: Any, other_db: Database
) -> None:
    await db.write(
        lambda connection: connection.control("SET idle_in_transaction_session_timeout = '2s'")
    )
    has_stopped, may_go_on, times = threading.Event(), threading.Event(), 0

    def put_and_pause(connection: Any) -> None:
        nonlocal times
        put(1)(connection)
        times += 1
        if times == 1:
            has_stopped.set()
            may_go_on.wait()

    write = asyncio.create_task(db.write(put_and_pause))
    await asyncio.to_thread(has_stopped.wait)
    await other_db.write(put(2))  # its lock was taken from the one that sleeps
    assert await other_db.read(keys) == [2]
    may_go_on.set()
    await write  # done again from its beginning
    assert (times, await other_db.read(keys)) == (2, [1, 2])


# --- the tables


async def test_daemons_starting_together_create_the_tables_once(
    postgres: Server, tmp_path: Path
) -> None:
    name = postgres.create()
    paths = [tmp_path / str(number) for number in range(4)]
    databases = await asyncio.gather(*(open_database(path, postgres.url(name)) for path in paths))
    versions = await databases[0].read(
        lambda connection: connection.execute("SELECT version FROM migration ORDER BY 1").fetchall()
    )
    assert [version for (version,) in versions] == sorted(
        int(file.name[:3]) for file in MIGRATIONS.glob("*.sql")
    )
    for database in databases:
        await database.close()
    postgres.drop(name)


async def test_a_database_of_a_newer_version_is_refused(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    db = await open_database(tmp_path / "x", postgres_url)
    await db.write(
        lambda connection: connection.execute("INSERT INTO migration VALUES (999, 'later', 0)")
    )
    await db.close()
    with pytest.raises(ConfigError, match=r"newer version of agentd \(schema 999, this one knows"):
        await open_database(tmp_path / "x", postgres_url)


async def test_the_tables_of_another_program_are_refused(postgres: Server, tmp_path: Path) -> None:
    name = postgres.create()
    postgres.sql("CREATE TABLE theirs (x int)", name)
    with pytest.raises(ConfigError, match="holds the tables of another program"):
        await open_database(tmp_path / "x", postgres.url(name))
    postgres.drop(name)


async def test_an_unreachable_server_is_reported_in_one_line_without_the_password(
    tmp_path: Path,
) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseAway) as error:
        await open_database(tmp_path / "x", "postgresql://me:hunter2hunter2@127.0.0.1:1/agentd")
    (line,) = str(error.value).splitlines()
    assert line.startswith("postgresql://127.0.0.1:1/agentd")
    assert "is away" in line
    assert "Connection refused" in line
    assert "hunter2" not in line
