"""One thread writes in batches, and acknowledged writes are in the file."""

from __future__ import annotations

import asyncio
import ctypes
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon.errors import ConfigError, StoreDamaged, StoreFull
from daemon.store.connection import check_features, check_sqlite, open_reader
from daemon.store.database import BATCH, FUTURES_PER_TURN, Database, Work


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """SQLite's alone: test_postgres.py has the other one."""
    database = await Database.open(tmp_path / "agentd.db")
    yield database
    await database.close()


def put(number: int) -> Work[int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO meta VALUES (?, '')", (str(number),))
        return number

    return work


def keys(connection: sqlite3.Connection) -> list[int]:
    return [int(key) for (key,) in connection.execute("SELECT key FROM meta ORDER BY rowid")]


@asynccontextmanager
async def block_writer(db: Database) -> AsyncIterator[None]:
    """Keep the writer at work, so that what is submitted meanwhile ends up in one batch."""
    has_entered, may_leave = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        has_entered.set()
        may_leave.wait()

    write = db.submit(work)
    await asyncio.to_thread(has_entered.wait)
    yield
    may_leave.set()
    await write


async def trace(db: Database) -> list[str]:
    """Return a list that every statement of the writer will be added to."""
    statements: list[str] = []
    await db.write(lambda connection: connection.set_trace_callback(statements.append))
    statements.clear()
    return statements


async def test_committed_rows_are_visible_to_every_reader(db: Database) -> None:
    assert await db.write(put(1)) == 1
    assert await db.read(keys) == [1]


async def test_writes_are_committed_in_the_order_of_submission(db: Database) -> None:
    futures = [db.submit(put(number)) for number in range(1_000)]
    await futures[-1]
    assert all(future.done() for future in futures)
    assert await db.read(keys) == list(range(1_000))


async def test_twenty_producers_share_their_commits(db: Database) -> None:
    statements = await trace(db)

    async def produce(start: int) -> None:
        for number in range(start, start + 50):
            await db.write(put(number))

    await asyncio.gather(*(produce(start) for start in range(0, 1_000, 50)))
    assert sorted(await db.read(keys)) == list(range(1_000))
    assert statements.count("COMMIT") <= 500


async def test_a_batch_takes_pending_writes_up_to_its_limit(db: Database) -> None:
    statements = await trace(db)
    async with block_writer(db):
        futures = [db.submit(put(number)) for number in range(2 * BATCH + 1)]
    await futures[-1]
    assert statements.count("COMMIT") == 1 + 3


async def test_a_failed_write_does_not_affect_other_writes_of_its_batch(db: Database) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        put(99)(connection)
        raise LookupError("mine alone")

    async with block_writer(db):
        futures = [db.submit(work) for work in (put(1), fail, put(1), put(2))]
    assert await futures[0] == 1
    with pytest.raises(LookupError, match="mine alone"):
        await futures[1]
    with pytest.raises(sqlite3.IntegrityError):
        await futures[2]
    assert await futures[3] == 2
    assert await db.read(keys) == [1, 2]


async def test_a_cancelled_waiter_does_not_change_the_order_of_writes(db: Database) -> None:
    async with block_writer(db):
        first, second, third = (
            asyncio.ensure_future(db.write(put(number))) for number in (1, 2, 3)
        )
        await asyncio.sleep(0)
        second.cancel()
    assert [await first, await third] == [1, 3]
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await db.read(keys) == [1, 2, 3]


async def test_only_a_batch_with_a_durable_write_syncs_the_disk(db: Database) -> None:
    statements = await trace(db)
    await db.write(put(1))
    await db.write(put(2))
    async with block_writer(db):
        futures = [db.submit(put(number), durable=number == 4) for number in (3, 4, 5)]
    await asyncio.gather(*futures)
    await db.write(put(6), durable=True)
    await db.write(put(7))
    await db.write(put(8))
    markers = [line.split("VALUES")[1][1:4] if "INSERT" in line else line for line in statements]
    story = [line for line in markers if line.startswith(("PRAGMA", "COMMIT", "('"))]
    assert story == [
        *("('1", "COMMIT", "('2", "COMMIT"),
        "COMMIT",  # the one that held the writer
        *("PRAGMA synchronous = FULL", "('3", "('4", "('5", "COMMIT"),
        *("('6", "COMMIT"),
        *("PRAGMA synchronous = NORMAL", "('7", "COMMIT", "('8", "COMMIT"),
    ]


async def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises(StoreFull, match="read-only"):
        await db.read(put(1))
    assert await db.read(keys) == []


async def test_a_read_sees_one_snapshot_during_writes(db: Database) -> None:
    loop = asyncio.get_running_loop()

    def twice(connection: sqlite3.Connection) -> tuple[list[int], list[int]]:
        before = keys(connection)
        asyncio.run_coroutine_threadsafe(db.write(put(1)), loop).result()
        return before, keys(connection)

    assert await db.read(twice) == ([], [])
    assert await db.read(keys) == [1]


async def test_closing_commits_submitted_writes_and_ends_the_thread(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "agentd.db")
    futures = [db.submit(put(number)) for number in range(600)]
    await asyncio.gather(db.close(), db.close())
    assert all(future.done() for future in futures)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agentd.db"]
    with pytest.raises(RuntimeError, match="closed"):
        await db.write(put(1))
    again = await Database.open(db.path)
    assert await again.read(keys) == list(range(600))
    await again.close()


async def test_database_files_are_private(db: Database) -> None:
    await db.write(put(1))
    files = list(db.path.parent.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_a_database_file_readable_by_others_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "agentd.db"
    path.touch()
    path.chmod(0o664)
    await (await Database.open(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- trouble with the file


async def test_a_full_disk_fails_only_the_write(db: Database) -> None:
    def big(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta VALUES ('big', ?)", ("x" * 1_000_000,))

    def limit(pages: int) -> Work[object]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    await db.write(put(1))
    (pages,) = await db.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    await db.write(limit(pages + 20))
    async with block_writer(db):
        futures = [db.submit(work) for work in (put(2), big, put(3))]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(results[1], StoreFull)
    assert str(results[1]).startswith(f"{db.path}: the disk is full; make room")
    # what was acknowledged is there, what was refused is not
    numbers = [
        number
        for number, result in zip((2, 3), (results[0], results[2]), strict=True)
        if result == number
    ]
    assert await db.read(
        lambda connection: connection.execute("SELECT key FROM meta").fetchall()
    ) == [(str(number),) for number in (1, *numbers)]
    await db.write(limit(1_000_000))
    await db.write(big)
    await db.write(put(4))


async def test_a_lock_of_another_program_is_reported_and_writes_continue_after_its_end(
    db: Database,
) -> None:
    await db.write(lambda connection: connection.execute("PRAGMA busy_timeout = 0").fetchone())
    other_connection = sqlite3.connect(db.path, isolation_level=None)
    other_connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFull, match="another program holds a lock on it; close that program"):
        await db.write(put(1))
    other_connection.execute("ROLLBACK")
    other_connection.close()
    await db.write(put(1))


def test_a_reader_of_a_damaged_file_leaves_no_connection_open(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with pytest.raises(sqlite3.DatabaseError) as error:
        open_reader(tmp_path / "broken.db")
    (frame,) = (entry.frame for entry in error.traceback if entry.name == "open_reader")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        frame.f_locals["connection"].execute("SELECT 1")


async def test_a_file_that_is_no_database_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "agentd.db"
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(ConfigError) as error:
        await Database.open(path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}: is damaged")
    assert "restore a backup" in line


async def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "agentd.db"
    await (await Database.open(path)).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(ConfigError, match="is damaged"):
        await Database.open(path)


async def test_a_lack_of_memory_when_the_loop_is_woken_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, loop = await Database.open(tmp_path / "agentd.db"), asyncio.get_running_loop()
    wake_loop, errors = loop.call_soon_threadsafe, [MemoryError()]

    def wake_or_fail(*arguments: Any) -> asyncio.Handle:
        if threading.current_thread() is not threading.main_thread() and errors:
            raise errors.pop()
        return wake_loop(*arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", wake_or_fail)
    async with asyncio.timeout(60):
        await db.write(lambda connection: None)  # it was committed before the error
        with pytest.raises(RuntimeError, match="a thread of the database has failed"):
            await db.wait_for_failure()
        await db.close()


@pytest.mark.parametrize("thread_name", ["store writer", "store reader 0"])
async def test_nobody_waits_for_what_a_failing_thread_has_just_taken(
    tmp_path: Path, thread_name: str
) -> None:
    for number in range(10):
        db = await Database.open(tmp_path / f"{number}.db")
        await db.read(lambda connection: None)
        (thread,) = (thread for thread in threading.enumerate() if thread.name == thread_name)
        # it is raised when the thread has taken its next work, and has not looked at it yet
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(MemoryError)
        )
        ask = db.write if thread_name == "store writer" else db.read
        async with asyncio.timeout(60):
            with pytest.raises(StoreFull, match=r"thread that \w+ has failed: MemoryError"):
                await ask(lambda connection: None)
            with pytest.raises(RuntimeError, match="a thread of the database has failed"):
                await db.wait_for_failure()
            await db.close()


async def test_a_database_whose_record_of_migrations_is_lost_is_damaged(tmp_path: Path) -> None:
    """As of a page that the disk gave back empty: its tables are there, and are not made anew."""
    path = tmp_path / "agentd.db"
    await (await Database.open(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM migration")
        connection.commit()
    with pytest.raises(StoreDamaged, match=r"is damaged.* \(table \w+ already exists\)"):
        await Database.open(path)


async def test_a_changed_name_in_the_schema_is_damage(db: Database) -> None:
    """As of one byte that was flipped, in which SQLite sees nothing wrong."""
    await db.write(lambda connection: connection.execute("ALTER TABLE meta RENAME value TO walue"))
    for statement in ("SELECT value FROM meta", "UPDATE meta SET value = ''"):

        def work(connection: sqlite3.Connection, statement: str = statement) -> None:
            connection.execute(statement)

        with pytest.raises(StoreDamaged, match=r"file is damaged; .* \(no such column: value\)"):
            await (db.read if statement.startswith("SELECT") else db.write)(work)


async def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agentd.db"
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    with pytest.raises(ConfigError, match="is a database of another program"):
        await Database.open(path)


async def test_a_missing_database_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened: No such file or directory"):
        await Database.open(tmp_path / "absent" / "agentd.db")


def test_an_old_sqlite_is_refused_with_both_versions() -> None:
    check_sqlite((3, 35, 0))
    with pytest.raises(ConfigError, match=r"at least 3\.35\.0 is needed \(found 3\.34\.1\)"):
        check_sqlite((3, 34, 1))


@pytest.mark.parametrize(
    ("feature", "function", "arguments"), [("FTS5", "fts5_source_id", 0), ("JSON", "json", 1)]
)
def test_a_sqlite_without_full_text_search_or_json_is_refused(
    feature: str, function: str, arguments: int
) -> None:
    def no_such_function(*_: str) -> None:
        raise NotImplementedError

    with closing(sqlite3.connect(":memory:")) as connection:
        check_features(connection)
        connection.create_function(function, arguments, no_such_function)
        with pytest.raises(ConfigError, match=f"without {feature}"):
            check_features(connection)


# --- migrations


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "001_first.sql").write_text("CREATE TABLE first (x);\nINSERT INTO first VALUES (1);")
    return folder


async def tables(path: Path, migrations: Path) -> list[str]:
    db = await Database.open(path, migrations=migrations)
    try:
        return await db.read(
            lambda connection: [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
        )
    finally:
        await db.close()


async def test_each_migration_is_run_once_and_in_order(tmp_path: Path, migrations: Path) -> None:
    path = tmp_path / "agentd.db"
    assert await tables(path, migrations) == ["migration", "first"]
    (migrations / "010_tenth.sql").write_text("CREATE TABLE tenth AS SELECT * FROM second;")
    (migrations / "002_second.sql").write_text("CREATE TABLE second AS SELECT * FROM first;")
    assert await tables(path, migrations) == ["migration", "first", "second", "tenth"]
    assert await tables(path, migrations) == ["migration", "first", "second", "tenth"]
    with closing(open_reader(path)) as reader:
        rows = reader.execute("SELECT version, name FROM migration").fetchall()
    assert rows == [(1, "first"), (2, "second"), (10, "tenth")]


async def test_a_failed_migration_is_rolled_back(tmp_path: Path, migrations: Path) -> None:
    path = tmp_path / "agentd.db"
    await tables(path, migrations)
    broken_migration = migrations / "002_second.sql"
    broken_migration.write_text("CREATE TABLE second (x);\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreDamaged, match="no such table: nowhere"):
        await tables(path, migrations)
    broken_migration.write_text("CREATE TABLE second (x);")
    assert await tables(path, migrations) == ["migration", "first", "second"]


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path, migrations: Path) -> None:
    path = tmp_path / "agentd.db"
    await tables(path, migrations)
    newer = migrations / "002_second.sql"
    newer.write_text("CREATE TABLE second (x);")
    await tables(path, migrations)
    newer.unlink()
    with pytest.raises(
        ConfigError, match=r"newer version of agentd \(schema 2, this one knows 1\); install that"
    ) as refusal:
        await tables(path, migrations)
    assert f"such as {path}.before-upgrade-001" in str(refusal.value)


async def test_an_upgrade_keeps_one_copy_of_the_database_before_it(tmp_path: Path) -> None:
    path, steps = tmp_path / "agentd.db", tmp_path / "sql"
    steps.mkdir()
    (steps / "001_first.sql").write_text("CREATE TABLE a (x);")
    await (await Database.open(path, migrations=steps)).close()
    assert list(tmp_path.glob("*.before-*")) == [], "a new database has nothing before it"
    for number in (2, 3):
        (steps / f"00{number}_next.sql").write_text(f"CREATE TABLE b{number} (x);")
        with structlog.testing.capture_logs() as upgrades:
            await (await Database.open(path, migrations=steps)).close()
        [copy] = tmp_path.glob("*.before-*")
        assert {"event": "database.upgraded", "schema": number, "was": number - 1}.items() <= (
            upgrades[-1].items()
        )
        assert copy.name == f"agentd.db.before-upgrade-00{number - 1}"
        assert copy.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy)) as old:
            assert old.execute("SELECT max(version) FROM migration").fetchone() == (number - 1,)
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("SELECT max(version) FROM migration").fetchone() == (3,)


async def test_a_lazy_write_joins_the_next_commit(db: Database) -> None:
    statements = await trace(db)
    riding = db.submit(put(1), lazily=True)
    assert await db.write(put(2)) == 2
    assert await riding == 1
    assert statements.count("COMMIT") == 1
    assert await db.read(keys) == [1, 2]


async def test_a_lazy_write_is_committed_without_a_later_write(
    db: Database,
) -> None:
    assert await db.submit(put(1), lazily=True) == 1
    assert await db.read(keys) == [1]


async def test_a_lazy_write_is_committed_before_closing(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "agentd.db")
    riding = db.submit(put(1), lazily=True)
    await db.close()
    assert await riding == 1
    with closing(open_reader(tmp_path / "agentd.db")) as connection:
        assert keys(connection) == [1]


async def test_results_of_a_batch_are_delivered_in_order_without_blocking_the_event_loop(
    db: Database,
) -> None:
    results: list[int] = []
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(results) < 100:
            asyncio.get_running_loop().call_soon(turn)

    async with block_writer(db):
        futures = [db.submit(put(number)) for number in range(100)]
        for future in futures:
            future.add_done_callback(lambda future: results.append(future.result()))
    turn()
    await asyncio.gather(*futures)
    assert results == list(range(100))
    assert turns > 100 // FUTURES_PER_TURN


async def test_sequential_reads_use_one_reader_and_concurrent_reads_two(
    db: Database,
) -> None:
    def here(connection: sqlite3.Connection) -> str:
        return threading.current_thread().name

    assert {await db.read(here) for _ in range(5)} == {"store reader 0"}
    busy, go_on = threading.Event(), threading.Event()

    def long(connection: sqlite3.Connection) -> str:
        busy.set()
        go_on.wait(120)
        return here(connection)

    first = asyncio.create_task(db.read(long))
    await asyncio.to_thread(busy.wait, 120)
    assert await db.read(here) == "store reader 1"
    go_on.set()
    assert await first == "store reader 0"
    assert await db.read(here) == "store reader 0"


async def test_a_failed_read_leaves_no_old_snapshot(db: Database) -> None:
    for number in range(3):
        await db.write(put(number))

    def halfway(connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT * FROM meta")
        raise ValueError(f"{rows.fetchone()} is not to my taste")

    with pytest.raises(ValueError, match="taste") as error:
        await db.read(halfway)
    await db.write(put(3))
    assert await db.read(keys) == [0, 1, 2, 3]
    assert error.value
