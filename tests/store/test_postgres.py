"""The journal on a server: what becomes of it when the server goes away, and what others may do
meanwhile.
"""

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
from daemon.store.opening import open_database
from daemon.store.tables import MetaRow
from daemon.testing import FakeClock
from tests.postgres import Server
from tests.store.conftest import Ledger, step


@pytest.fixture
async def db(tmp_path: Path, postgres_url: str) -> AsyncIterator[Any]:
    database = await open_database(tmp_path / "agentd.db", postgres_url)
    yield database
    await database.close()


@pytest.fixture
async def other(tmp_path: Path, postgres_url: str) -> AsyncIterator[Any]:
    """Another process, as far as the server can tell."""
    database = await open_database(tmp_path / "agentd.db", postgres_url)
    yield database
    await database.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own, to be killed; it keeps what a crash must keep."""
    made = Server(durable=True)
    yield made
    made.remove()


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
async def held(db: Database) -> AsyncIterator[None]:
    """Keep the writer at work, so that what is submitted meanwhile ends up in one batch."""
    entered, leave = threading.Event(), threading.Event()

    def work(connection: Any) -> None:
        entered.set()
        leave.wait()

    holding = db.submit(work)
    await asyncio.to_thread(entered.wait)
    yield
    leave.set()
    await holding


# --- commits


async def test_works_are_committed_together_and_in_order(db: Database) -> None:
    async with held(db):
        futures = [db.submit(put(number)) for number in range(BATCH)]
    assert await asyncio.gather(*futures) == list(range(BATCH))
    stamps = await db.read(
        lambda connection: connection.execute("SELECT DISTINCT xmin FROM meta").fetchall()
    )
    assert len(stamps) == 1, "one transaction"


async def test_a_work_that_fails_takes_nobody_down_with_it(db: Database) -> None:
    def fail(connection: Any) -> None:
        put(99)(connection)
        raise LookupError("mine alone")

    async with held(db):
        futures = [db.submit(work) for work in (put(1), fail, put(1), put(2))]
    told = await asyncio.gather(*futures, return_exceptions=True)
    assert (told[0], told[3]) == (1, 2)
    assert isinstance(told[1], LookupError)
    assert "violates unique constraint" in str(told[2])
    assert await db.read(keys) == [1, 2]


async def test_only_what_is_durable_waits_for_the_disk(db: Database) -> None:
    def how(connection: Any) -> str:
        (value,) = connection.execute("SHOW synchronous_commit").fetchone()
        return str(value)

    assert await db.write(how) == "off"
    assert await db.write(how, durable=True) == "on"
    async with held(db):
        both = [db.submit(how), db.submit(how, durable=True)]
    assert await asyncio.gather(*both) == ["on", "on"]


async def test_a_reader_sees_one_moment_and_cannot_write(db: Database) -> None:
    loop = asyncio.get_running_loop()

    def twice(connection: Any) -> tuple[list[int], list[int]]:
        before = keys(connection)
        asyncio.run_coroutine_threadsafe(db.write(put(1)), loop).result()
        return before, keys(connection)

    assert await db.read(twice) == ([], [])
    assert await db.read(keys) == [1]
    with pytest.raises(StoreFull, match="only reads"):
        await db.read(put(2))


async def test_two_processes_that_look_and_then_write_do_not_meet(
    db: Database, other: Database
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

    await asyncio.gather(*(each.write(count_up) for _ in range(50) for each in (db, other)))
    assert await db.read(
        lambda connection: connection.execute("SELECT value FROM meta").fetchall()
    ) == [("100",)]


async def test_each_slot_has_one_run_however_many_daemons_claim_it(
    db: Database, other: Database, clock: FakeClock
) -> None:
    ledgers = [Ledger(each, clock) for each in (db, other)]
    slots = [clock.now() + timedelta(minutes=number) for number in range(40)]
    claims = [(each.journal, each.claim(slot=slot)) for slot in slots for each in ledgers]
    opened = await asyncio.gather(*(journal.slots.open([claim]) for journal, claim in claims))
    assert sum(run is not None for (run,) in opened) == 40
    proof = await ledgers[0].journal.audit.prove()
    assert proof.broken is None


async def test_whoever_lets_the_lease_run_out_loses_the_run(
    db: Database, other: Database, clock: FakeClock
) -> None:
    mine, theirs = Ledger(db, clock), Ledger(other, clock)
    run = await mine.running()
    await mine.journal.runs.append(run, step(StepKind.LLM, number=1))
    assert await theirs.journal.runs.claim(run.id, owner="other") is None, "its owner is heard of"
    assert await theirs.journal.runs.recover("other") == []
    await mine.lapse()
    taken = await theirs.journal.runs.claim(run.id, owner="other")
    assert taken is not None
    assert taken.fence > run.fence
    with pytest.raises(Fenced):
        await mine.journal.runs.append(run, step(StepKind.LLM, number=2))
    with pytest.raises(Fenced):
        await mine.journal.runs.end(run.to(Status.SUCCEEDED))
    assert [each.body["number"] for each in await theirs.journal.runs.get_steps(run.id)] == [1]
    await theirs.journal.runs.end(taken.to(Status.SUCCEEDED))


async def test_whoever_comes_back_to_its_state_folder_goes_on_at_once(
    db: Database, other: Database, clock: FakeClock
) -> None:
    mine, again = Ledger(db, clock).journal, Ledger(other, clock).journal
    run = await Ledger(db, clock).queued()
    assert await mine.runs.claim(run.id, owner="here:box:1:a")
    assert await again.runs.recover("there:box:1:a") == []
    assert [each.id for each in await again.runs.recover("here:box:2:b")] == [run.id]


async def test_leases_are_measured_by_the_clock_of_the_server(
    db: Database, clock: FakeClock
) -> None:
    clock.advance(days=-4000)  # ours is wrong by years
    ledger = Ledger(db, clock)
    run = await ledger.running()

    def left(connection: Any) -> float:
        (seconds,) = connection.execute(
            "SELECT (lease_until - agentd_now()) / 1e6 FROM run WHERE id = ?", (run.id,)
        ).fetchone()
        return float(seconds)

    assert 0 < await db.read(left) <= 60


# --- the server goes away


async def test_what_was_acknowledged_outlives_a_crash_of_the_server(
    mortal: Database, server: Server, clock: FakeClock
) -> None:
    ledger = Ledger(mortal, clock)
    run = await ledger.running()
    for number in range(10):
        await ledger.journal.runs.append(run, step(number=number), durable=number == 7)
    await asyncio.to_thread(server.crash)
    kept = [each.body["number"] for each in await ledger.journal.runs.get_steps(run.id)]
    assert kept == list(range(len(kept)))
    assert len(kept) >= 8, "all up to the last durable one"
    # what was taken with it is noticed: the run goes on from what there is
    (told,) = await asyncio.gather(
        ledger.journal.runs.append(run, step(number=10)), return_exceptions=True
    )
    if len(kept) < 10:
        assert isinstance(told, StoreFull)
        assert "resumes from the ones before" in str(told)
    else:
        assert not isinstance(told, BaseException)


async def test_a_server_that_is_away_for_a_moment_is_waited_for(
    mortal: Database, server: Server
) -> None:
    await mortal.write(put(0))
    restarted = asyncio.create_task(asyncio.to_thread(server.crash))
    writes = [mortal.write(put(number), durable=True) for number in range(1, 60)]
    assert await asyncio.gather(*writes) == list(range(1, 60))
    await restarted
    assert set(range(1, 60)) <= set(await mortal.read(keys))


async def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_repeated(
    mortal: Any, server: Server
) -> None:
    """The server dies in the COMMIT: before it stood, or after it stood and before we heard of
    it.
    """
    asked = 0

    def count_up(connection: Any) -> int:
        connection.execute(
            "INSERT INTO told (run_id, event, text, at) VALUES ('x', ?, '', 0)", (str(asked),)
        )
        return asked

    await mortal.write(
        lambda connection: connection.control("ALTER TABLE told DROP CONSTRAINT told_run_id_fkey")
    )
    await mortal.write(lambda connection: connection.control("DROP INDEX told_event"))
    for asked in range(6):
        wire = mortal._connection
        said = wire.control

        def broken(
            statements: str, wire: Any = wire, said: Any = said, stood: bool = asked % 2 == 0
        ) -> Any:
            if statements == "COMMIT":
                if stood:
                    said("COMMIT")
                wire.driver.close()
            return said(statements)

        wire.control = broken
        assert await mortal.write(count_up, durable=True) == asked
    found = await mortal.read(
        lambda connection: connection.execute("SELECT event FROM told ORDER BY id").fetchall()
    )
    assert found == [(str(number),) for number in range(6)]


def test_a_server_that_says_nothing_for_long_is_given_up(postgres_url: str) -> None:
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


async def test_a_server_that_stays_away_is_said_and_found_again(
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


async def test_a_writer_that_is_stopped_in_its_commit_holds_up_nobody_for_long(
    db: Any, other: Database
) -> None:
    await db.write(
        lambda connection: connection.control("SET idle_in_transaction_session_timeout = '2s'")
    )
    stopped, go_on, times = threading.Event(), threading.Event(), 0

    def paused(connection: Any) -> None:
        nonlocal times
        put(1)(connection)
        times += 1
        if times == 1:
            stopped.set()
            go_on.wait()

    writing = asyncio.create_task(db.write(paused))
    await asyncio.to_thread(stopped.wait)
    await other.write(put(2))  # its lock was taken from the one that sleeps
    assert await other.read(keys) == [2]
    go_on.set()
    await writing  # done again from its beginning
    assert (times, await other.read(keys)) == (2, [1, 2])


# --- the tables


async def test_daemons_that_start_together_make_the_tables_once(
    postgres: Server, tmp_path: Path
) -> None:
    name = postgres.create()
    paths = [tmp_path / str(number) for number in range(4)]
    opened = await asyncio.gather(*(open_database(path, postgres.url(name)) for path in paths))
    applied = await opened[0].read(
        lambda each: each.execute("SELECT version FROM migration ORDER BY 1").fetchall()
    )
    assert [version for (version,) in applied] == sorted(
        int(file.name[:3]) for file in MIGRATIONS.glob("*.sql")
    )
    for each in opened:
        await each.close()
    postgres.drop(name)


async def test_a_database_of_a_newer_version_is_not_touched(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    db = await open_database(tmp_path / "x", postgres_url)
    await db.write(
        lambda connection: connection.execute("INSERT INTO migration VALUES (999, 'later', 0)")
    )
    await db.close()
    with pytest.raises(ConfigError, match=r"newer version of agentd \(schema 999, this one knows"):
        await open_database(tmp_path / "x", postgres_url)


async def test_the_tables_of_another_program_are_left_alone(
    postgres: Server, tmp_path: Path
) -> None:
    name = postgres.create()
    postgres.sql("CREATE TABLE theirs (x int)", name)
    with pytest.raises(ConfigError, match="holds the tables of another program"):
        await open_database(tmp_path / "x", postgres.url(name))
    postgres.drop(name)


async def test_a_server_that_is_not_there_is_told_in_one_line_without_the_password(
    tmp_path: Path,
) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseAway) as caught:
        await open_database(tmp_path / "x", "postgresql://me:hunter2hunter2@127.0.0.1:1/agentd")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("postgresql://127.0.0.1:1/agentd")
    assert "is away" in line
    assert "Connection refused" in line
    assert "hunter2" not in line
