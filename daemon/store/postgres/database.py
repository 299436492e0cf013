"""The journal on a PostgreSQL server: one writer in each process, of which one at a time writes.

The works of the journal assume a single writer: they read, and then write what follows from it. So
each batch first takes one lock of the whole database (`pg_advisory_xact_lock`), and holds it until
its commit. Between machines this has the effect of SQLite's file lock: no work sees another half
done, a slot or a step has one taker, the audit has one last row. As in SQLite, each process commits
all works that have come in meanwhile as one batch.

`synchronous_commit` is on for durable batches only. Any commit survives the death of this process;
a durable one, and all before it, also that of the server. If the server loses its last commits, a
run's owner notices by the fence and the count of steps (store/runs.py), and resumes from the steps
that are left.

If the connection breaks before the COMMIT of a batch, the server undoes the batch, and it is
executed again with the next connection. If it breaks during the COMMIT, either may have happened.
So each batch writes its number into this process's row of `store_writer`: once the lock is taken
again, the old transaction is over, and the row tells whether it was committed.
"""

# ruff: noqa: S608  statements are built of constants, an id and a number only
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import psycopg
import structlog

from daemon.errors import DatabaseAway, StoreFull
from daemon.models import new_id
from daemon.store.database import MIGRATIONS, Database, Query, Work, run_in_session
from daemon.store.postgres.connection import (
    BEGIN_READ,
    PostgresConnection,
    connect,
    explain_refusal,
    make_unusable_error,
    place_of,
)
from daemon.store.postgres.migrations import LOCKED, migrate

log = structlog.get_logger()

T = TypeVar("T")
Item: TypeAlias = tuple[Work[Any], asyncio.Future[Any], bool | None]
Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]

# Seconds to try to reconnect: a restart of the server takes less. After that a write is refused.
RECONNECT_TIMEOUT = 15.0
# Seconds for an answer: more than the wait for a writer that was stopped while it held the lock,
# whose session the server ends after 5 s.
ANSWER_TIMEOUT = 20.0
_RECONNECT_PAUSE = 0.25  # seconds between two attempts to connect
# Writers that were killed leave their row in the table.
_DELETE_OLD_WRITERS = "DELETE FROM store_writer WHERE seen < now() - interval '1 day'"

# IdleInTransactionSessionTimeout: a process that was stopped in the middle of a transaction resumes
# after the server has ended its session.
_CONNECTION_ERRORS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


class PostgresDatabase(Database):
    """Write through one thread, read through others, on a server that other processes use as
    well.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(path, MIGRATIONS, loop)
        self.url = url
        self.place = place_of(url)
        self.reconnect_timeout = RECONNECT_TIMEOUT
        self.wait = timedelta()
        """How long the first connection is tried."""
        self.when_away: Callable[[str], None] = lambda problem: None
        self._writer_id = new_id()
        self._batch_number = 0
        self._away = False
        """Whether the last attempt to reach the server failed."""
        self._connection: PostgresConnection | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        path: Path,
        *,
        wait: timedelta = timedelta(),
        when_away: Callable[[str], None] = lambda problem: None,
    ) -> PostgresDatabase:
        """Connect to the database of `url` and migrate its tables.

        `path` is where SQLite's file would be: everything else stays in the state folder.
        `when_away` is called with the problem before each pause, in the writer's thread.
        Raises ConfigError if the database cannot be used, DatabaseAway if its server does not
        answer within `wait`.
        """
        database = cls(url, path, asyncio.get_running_loop())
        database.wait, database.when_away = wait, when_away
        database._writer.start()
        await database._opened
        return database

    # --- in the writer's thread

    def _open_writer(self) -> Any:
        deadline = time.monotonic() + self.wait.total_seconds()
        while True:
            try:
                self._connection = self._connect_and_migrate()
            except psycopg.Error as error:
                problem = explain_refusal(error)
                if problem is not None:
                    raise make_unusable_error(
                        self.url, problem, "mend [store] url, or the rights on the server"
                    ) from error
                if not isinstance(error, _CONNECTION_ERRORS):
                    raise
                self._mark_away(error)
                problem = _first_line(error)
                if time.monotonic() >= deadline:
                    wait_text = f", waited for {self.wait.total_seconds():g} s" if self.wait else ""
                    raise DatabaseAway(
                        f"{self.place} is away{wait_text} ({problem}); start the server, or mend "
                        "[store] url;"
                        " a service manager starts agentd again"
                    ) from error
                self.when_away(problem)
                time.sleep(_RECONNECT_PAUSE)
            else:
                self._mark_back()
                return self._connection

    def _connect_and_migrate(self) -> PostgresConnection:
        connection = connect(self.url)
        try:
            migrate(connection, self.url)
            connection.control(_DELETE_OLD_WRITERS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close_writer(self, connection: Any) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.control(f"DELETE FROM store_writer WHERE id = '{self._writer_id}'")
            self._connection.close()

    def _commit(self, connection: Any, batch: Sequence[Item]) -> list[Outcome]:
        deadline = time.monotonic() + (0.0 if self._away else self.reconnect_timeout)
        durable = any(is_durable for _, _, is_durable in batch)
        self._batch_number += 1
        outcomes: list[Outcome] | None = None
        while True:
            try:
                connection = self._ensure_connected()
                if outcomes is not None and self._is_committed(connection):
                    return outcomes
                outcomes = None
                results = self._run_batch(connection, batch, durable)
                # From here on the batch may be committed, even without an answer.
                outcomes = results
                connection.control("COMMIT")
            except BaseException as error:  # noqa: BLE001  carried to those who await these works
                if not isinstance(error, _CONNECTION_ERRORS) or isinstance(
                    error, psycopg.errors.DiskFull
                ):
                    self._roll_back()
                    return [(future, None, explain(error, self.place)) for _, future, _ in batch]
                self._mark_away(error)
                if time.monotonic() >= deadline:
                    return [(future, None, explain(error, self.place)) for _, future, _ in batch]
                time.sleep(_RECONNECT_PAUSE)
            else:
                return outcomes

    def _run_batch(
        self, connection: PostgresConnection, batch: Sequence[Item], durable: bool
    ) -> list[Outcome]:
        """Run the works in one transaction; if one raises, run all again with a savepoint each.

        Leaves the transaction open: the caller commits it.
        """
        self._begin_batch(connection, durable)
        if len(batch) == 1:
            return [(batch[0][1], batch[0][0](connection), None)]
        try:
            return [(future, work(connection), None) for work, future, _ in batch]
        except BaseException as error:
            if isinstance(error, _CONNECTION_ERRORS):
                raise
        connection.control("ROLLBACK")
        self._begin_batch(connection, durable)
        return [(future, *self._attempt(connection, work)) for work, future, _ in batch]

    def _attempt(self, connection: Any, work: Work[Any]) -> tuple[Any, BaseException | None]:
        connection.control("SAVEPOINT work")
        try:
            result = work(connection)
        except BaseException as error:
            if isinstance(error, _CONNECTION_ERRORS):
                raise
            connection.control("ROLLBACK TO work")
            connection.control("RELEASE work")
            return None, explain(error, self.place)
        connection.control("RELEASE work")
        return result, None

    def _begin_batch(self, connection: PostgresConnection, durable: bool) -> None:
        """Begin a transaction, wait for the database's lock and write the batch's number, all in
        one message; take the server's time for leases.
        """
        connection.driver.answer_timeout = ANSWER_TIMEOUT
        answers = connection.control(
            f"BEGIN; SET LOCAL synchronous_commit = {'on' if durable else 'off'}; {LOCKED};"
            " INSERT INTO store_writer (id, batch)"
            f" VALUES ('{self._writer_id}', {self._batch_number})"
            " ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, seen = now() RETURNING "
            "agentd_now()"
        )
        while answers.nextset():
            pass
        (connection.now,) = answers.fetchone()

    def _ensure_connected(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = connect(self.url)
            self._mark_back()
        return self._connection

    def _mark_back(self) -> None:
        if self._away:
            self._away = False
            log.info("database.back", database=self.place)

    def _is_committed(self, connection: PostgresConnection) -> bool:
        """Return whether the present batch was committed, after its COMMIT got no answer.

        Waits for the database's lock first: the lost transaction holds it until it has ended.
        """
        with connection.driver.transaction():
            connection.control(LOCKED)
            row = connection.control(
                f"SELECT batch FROM store_writer WHERE id = '{self._writer_id}'"
            ).fetchone()
        return row is not None and row[0] == self._batch_number

    def _mark_away(self, error: BaseException) -> None:
        if not self._away:
            self._away = True
            log.error("database.away", database=self.place, problem=_first_line(error))
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*_CONNECTION_ERRORS):
                connection.close()

    def _roll_back(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):  # a broken one is noticed by the next batch
                self._connection.control("ROLLBACK")

    def _run_outside_transaction(self, connection: Any, item: Item) -> Outcome:
        work, future, _ = item
        try:
            connection = self._ensure_connected()
            connection.driver.answer_timeout = None  # writing whole tables anew takes its time
            return future, work(connection), None
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits it
            if isinstance(error, _CONNECTION_ERRORS):
                self._mark_away(error)
            else:
                self._roll_back()
            return future, None, explain(error, self.place)

    # --- in a reader's thread

    def _open_reader(self) -> Any:
        return ReadConnection(self.url)

    def _read(self, connection: Any, work: Work[T]) -> T:
        reader: ReadConnection = connection
        return self._repeat(reader, lambda: reader.read(work))

    def _query(self, connection: Any, query: Query[T]) -> T:
        reader: ReadConnection = connection
        return self._repeat(reader, lambda: reader.query(query))

    def _repeat(self, reader: ReadConnection, read: Callable[[], T]) -> T:
        """Read, again over a new connection if one is lost, for at most `reconnect_timeout`."""
        deadline = time.monotonic() + (0.0 if self._away else self.reconnect_timeout)
        while True:
            try:
                result = read()
            except _CONNECTION_ERRORS:
                reader.close()
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RECONNECT_PAUSE)
            else:
                self._mark_back()
                return result

    def _explain(self, error: BaseException) -> BaseException:
        return explain(error, self.place)


class ReadConnection:
    """A connection for reads that connects again after it was closed: reads can be repeated."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: PostgresConnection | None = None

    def read(self, work: Work[T]) -> T:
        """Run `work` in a read-only snapshot that holds every commit before it."""
        connection = self._ensure_connected()
        connection.control(BEGIN_READ)
        try:
            return work(connection)
        finally:
            if not connection.broken:
                connection.control("ROLLBACK")

    def query(self, query: Query[T]) -> T:
        """Run `query` in a session, in such a snapshot."""
        return run_in_session(self._ensure_connected(), query)

    def _ensure_connected(self) -> PostgresConnection:
        if self._connection is None:
            self._connection = connect(self._url)
            self._connection.driver.answer_timeout = 4 * ANSWER_TIMEOUT  # reads may be long
            # a reader holds no lock, and its work may take long between two statements
            self._connection.control("SET idle_in_transaction_session_timeout = '10min'")
        return self._connection

    def close(self) -> None:
        """Close the connection; the next read connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def explain(error: BaseException, server: str) -> BaseException:
    """Return what to raise instead of `error`: StoreFull with a remedy if the server is in trouble,
    else itself.
    """
    if isinstance(error, (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)):
        problem = "the disk of the server is full; make room"
    elif isinstance(error, (psycopg.errors.ReadOnlySqlTransaction,)):
        problem = "the server only reads (a standby, perhaps); connect to the one that writes"
    elif isinstance(
        error, (psycopg.errors.IoError, psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted)
    ):
        problem = "the server reports an error of its disk; see its log"
    elif isinstance(error, _CONNECTION_ERRORS):
        problem = "it cannot be reached"
    else:
        return error
    full = StoreFull(f"{server}: {problem} ({_first_line(error)})")
    full.__cause__ = error
    return full


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
