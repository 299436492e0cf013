"""One SQLite file, one thread that writes it, a few that read it.

Theory of operation. Exactly one connection writes: SQLite before 3.51.3 can corrupt a WAL that two connections
checkpoint, and a single writer never waits for a lock. Whoever wants to write hands over a function; the thread
takes all that have come in meanwhile into one transaction (group commit) and then answers all of them at once.

A commit survives kill -9 as it is (WAL, synchronous=NORMAL). A *durable* one survives power loss as well: its batch
is committed with synchronous=FULL, which also carries every earlier commit to the disk. SQLite syncs only when the
transaction dirtied a page, so a durable work must change a row; and the pragma is refused inside a transaction.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from daemon.errors import ConfigError, Fault, StoreFull

T = TypeVar("T")
Work: TypeAlias = Callable[[sqlite3.Connection], T]

MIGRATIONS = Path(__file__).parent / "sql"
MINIMUM = (3, 35, 0)  # RETURNING; Debian 11 has 3.34, Ubuntu 22.04 3.37
APPLICATION = 0x61677464  # "agtd": tells our file from somebody else's SQLite database
BATCH = 256  # more than that and the first in line waits noticeably for the last
READERS = 2  # reads are short; a second one keeps `list` from queuing behind a search of the memory

# Somebody with a `sqlite3` shell open may hold the write lock; SQLite's own back-off has been seen to take 2 s.
BUSY_MS = 15_000

# What can become of the file under a living daemon: told in words, and raised as StoreFull, because the answer is the
# same for each: nothing of this work was kept, nothing may be started on it, later ones may succeed again.
TROUBLES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the space left and the system's log",
    sqlite3.SQLITE_CANTOPEN: "the file can no longer be opened; check the folder and the limit on open files",
    sqlite3.SQLITE_READONLY: "the file has become read-only; check its owner and the mount",
    sqlite3.SQLITE_BUSY: "another program holds a lock on it; close that program",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; stop the daemon and restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is damaged; stop the daemon and restore a backup",
}


class Database:
    """Write through one thread, read through others; to be used from the event loop that opened it."""

    def __init__(self, path: Path, migrations: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self._migrations = migrations
        self._loop = loop
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._closing = False
        self._full = False
        # a daemon thread: a process that dies for another reason must not hang on it
        self._writer = threading.Thread(target=self._write_forever, name="store writer", daemon=True)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store reader")
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []

    @classmethod
    async def open(cls, path: Path, *, migrations: Path = MIGRATIONS) -> Database:
        """Open the database, create or bring its tables up to date; ConfigError says what is wrong with it."""
        self = cls(path, migrations, asyncio.get_running_loop())
        self._writer.start()
        await self._opened
        return self

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run `work` inside a transaction and return its result once that is committed.

        What it raises is raised here, and nothing of it is kept; its neighbours in the same commit are unharmed.
        StoreFull: the disk took it not, and perhaps not its neighbours. It runs in the writer's thread.
        """
        return await self.submit(work, durable=durable)

    def submit(self, work: Work[T], *, durable: bool = False) -> asyncio.Future[T]:
        """Do the same without awaiting: works are committed in the order of their submission."""
        if self._closing:
            raise RuntimeError("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((work, future, durable))
        return future

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a read-only connection, inside one snapshot that holds every write awaited before."""
        return await self._loop.run_in_executor(self._readers, self._read, work)

    async def close(self) -> None:
        """Commit what was submitted, then let go of the file."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        await asyncio.shield(self._closed)
        self._writer.join()

    # --- in the writer's thread

    def _write_forever(self) -> None:
        try:
            connection = open_writer(self.path, self._migrations)
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits open()
            self._answer([(self._opened, None, error)])
            return
        self._answer([(self._opened, None, None)])
        stop = False
        while not stop:
            batch: list[_Item] = []
            item = self._queue.get()
            while item is not None:
                batch.append(item)
                if len(batch) == BATCH:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            stop = item is None
            if batch:
                self._answer(self._commit(connection, batch))
        self._readers.shutdown()
        for reading in self._reading:
            reading.close()
        connection.close()
        self._answer([(self._closed, None, None)])

    def _commit(self, connection: sqlite3.Connection, batch: Sequence[_Item]) -> list[_Outcome]:
        try:
            self._set_full(connection, any(durable for _, _, durable in batch))
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [(future, *self._attempt(connection, work)) for work, future, _ in batch]
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001  carried to those who await these works
            with suppress(sqlite3.Error):  # there may be nothing left to roll back
                connection.execute("ROLLBACK")
            return [(future, None, explain(error, self.path)) for _, future, _ in batch]
        return outcomes

    def _attempt(self, connection: sqlite3.Connection, work: Work[Any]) -> tuple[Any, BaseException | None]:
        """Run one work so that its failure leaves its neighbours' changes alone."""
        connection.execute("SAVEPOINT work")
        try:
            result = work(connection)
        except BaseException as error:
            if not connection.in_transaction:
                raise  # the trouble was such that SQLite has rolled back the neighbours as well
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
            return None, explain(error, self.path)
        connection.execute("RELEASE work")
        return result, None

    def _set_full(self, connection: sqlite3.Connection, full: bool) -> None:
        if full != self._full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full

    def _answer(self, outcomes: list[_Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, outcomes)
        except RuntimeError:
            return  # the loop is gone, and with it everybody who waited

    # --- in a reader's thread

    def _read(self, work: Work[T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = open_reader(self.path)
                self._reading.append(connection)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise explain(error, self.path) from error


_Item: TypeAlias = tuple[Work[Any], asyncio.Future[Any], bool]
_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]


def _settle(outcomes: list[_Outcome]) -> None:
    """Resolve futures, on the loop; one whose waiter was cancelled is left alone."""
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def explain(error: BaseException, path: Path) -> BaseException:
    """Return what to raise instead of `error`: StoreFull with a remedy if the file is in trouble, else itself."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or (trouble := TROUBLES.get(code & 0xFF)) is None:
        return error
    full = StoreFull(f"{path}: {trouble} ({error})")
    full.__cause__ = error
    return full


def open_writer(path: Path, migrations: Path = MIGRATIONS) -> sqlite3.Connection:
    """Open the one connection that writes, with the tables as this version of the program knows them."""
    check_sqlite(sqlite3.sqlite_version_info)
    try:
        # Before SQLite sees it: it gives the WAL and its index the mode of the database.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror}", "check its folder, owner and mode") from error
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
    try:
        _tune(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise _unusable(path, f"its file system allows no write-ahead log (journal mode {mode})", "choose another")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 16777216")  # a WAL that grew in a rush is cut back to 16 MiB
        check_modules({name for (name,) in connection.execute("SELECT name FROM pragma_module_list")})
        migrate(connection, path, migrations)
    except sqlite3.Error as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise _unusable(path, f"is damaged ({error})", "restore a backup, or move it away to start anew") from error
        raise explain(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write; Database closes it from another thread than the one that uses it."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    _tune(connection)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _tune(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -8192")  # KiB, at most, for each of three connections
    # No mmap: there a read error of the disk is not an exception but a SIGBUS, and the daemon is to live through it.


def check_sqlite(version: tuple[int, ...]) -> None:
    """Raise ConfigError if this Python's SQLite is too old."""
    if version < MINIMUM:
        found, least = ".".join(map(str, version)), ".".join(map(str, MINIMUM))
        raise ConfigError(
            Fault(file="SQLite", key="", found=found, problem=f"at least {least} is needed", hint="use a newer Python")
        )


def check_modules(names: Collection[str]) -> None:
    """Raise ConfigError if this Python's SQLite lacks full-text search."""
    if "fts5" not in names:
        raise ConfigError(
            Fault(file="SQLite", key="", found="", problem="was built without FTS5", hint="use another build of Python")
        )


def migrate(connection: sqlite3.Connection, path: Path, migrations: Path = MIGRATIONS) -> None:
    """Run the migrations that the database has not seen, each with its record in one transaction.

    They are the files `NNN_name.sql`, in order. A released one is never edited: append another.
    """
    known = {int(file.name[:3]): file for file in sorted(migrations.glob("[0-9][0-9][0-9]_*.sql"))}
    _claim(connection, path)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration"
        " (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied INTEGER NOT NULL)"
    )
    applied = {version for (version,) in connection.execute("SELECT version FROM migration")}
    if newer := applied - set(known):
        raise _unusable(
            path,
            f"was written by a newer version of agentd (schema {max(newer)}, this one knows {max(known, default=0)})",
            "install that version again, or restore a backup made before the upgrade",
        )
    for version in sorted(set(known) - applied):
        file = known[version]
        try:
            connection.executescript("BEGIN IMMEDIATE;\n" + file.read_text(encoding="utf-8"))
            now = int(datetime.now(UTC).timestamp() * 1_000_000)
            connection.execute("INSERT INTO migration VALUES (?, ?, ?)", (version, file.stem[4:], now))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _claim(connection: sqlite3.Connection, path: Path) -> None:
    """Mark a new file as ours; ConfigError if it already is somebody else's."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION:
        return
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or tables:
        raise _unusable(path, "is a database of another program", "move it away, or choose another state folder")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _unusable(path: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError(Fault(file=str(path), key="", found="", problem=problem, hint=hint))
