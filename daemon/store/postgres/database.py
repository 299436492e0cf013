"""The journal on a PostgreSQL server: one writer in each process, and one of all of them at a time.

Theory of operation. The journal's works were written for a database with a single writer: they look
and then write. So every batch begins by taking the one lock of the database
(`pg_advisory_xact_lock`), and holds it until its commit. What SQLite promises by its file holds
between machines then: no work sees another half done, a slot or a step has one taker, the audit has
one last row. Each process still gathers what has come in meanwhile into one commit.

`synchronous_commit` is on for durable batches only; any commit outlives the death of our process, a
durable one that of the server too, and carries all before it. Where the server died and took the
last commits that nobody waited for with it, the fence and the count of steps (store/runs.py) tell a
run's owner, who then resumes from what there is.

A connection that breaks: a batch that did not come to its COMMIT is undone by the server, and is
done again as soon as there is a connection. If it broke in the COMMIT itself, nobody knows. So each
batch writes its number into our row of `store_writer`: after the lock is ours again the old
transaction is over, and the row tells whether it stands.
"""

# ruff: noqa: S608  what is put into statements is ours: an id, a number
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
from daemon.store.database import MIGRATIONS, Database, Work
from daemon.store.postgres.connection import (
    PostgresConnection,
    connect,
    place_of,
    refusal,
    unusable,
)
from daemon.store.postgres.migrations import LOCKED, migrate

log = structlog.get_logger()

T = TypeVar("T")
Item: TypeAlias = tuple[Work[Any], asyncio.Future[Any], bool | None]
Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]

# A restart of the server takes seconds; who waits longer is told that nothing of it was kept.
PATIENCE = 15.0
# More than the wait for a writer that was stopped while it held the lock, which the server ends
# after 5 s.
SILENCE = 20.0
_BETWEEN = 0.25  # seconds between two attempts to connect
# Writers that were killed leave a row behind; whoever opens the database sweeps.
_SWEEP = "DELETE FROM store_writer WHERE seen < now() - interval '1 day'"

# The last one: a process that was stopped in the middle of its work comes back to a session that is
# gone.
_BROKEN = (
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
        self.patience = PATIENCE
        self.wait = timedelta()
        self.when_away: Callable[[str], None] = lambda problem: None
        self._me = new_id()
        self._batch = 0
        self._away = False
        self._wire: PostgresConnection | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        path: Path,
        *,
        wait: timedelta = timedelta(),
        when_away: Callable[[str], None] = lambda problem: None,
    ) -> PostgresDatabase:
        """Open the database of that URL, bring its tables up to date; ConfigError says what is
        wrong with it.

        `path` is where SQLite's file would be: the state folder stays the home of everything else.
        A server that is away is waited for as long as `wait`, then DatabaseAway; `when_away` is
        told before each pause, in the writer's thread.
        """
        self = cls(url, path, asyncio.get_running_loop())
        self.wait, self.when_away = wait, when_away
        self._writer.start()
        await self._opened
        return self

    # --- in the writer's thread

    def _open_writer(self) -> Any:
        deadline = time.monotonic() + self.wait.total_seconds()
        while True:
            try:
                self._wire = self._connect_and_migrate()
            except psycopg.Error as error:
                problem = refusal(error)
                if problem is not None:
                    raise unusable(
                        self.url, problem, "mend [store] url, or the rights on the server"
                    ) from error
                if not isinstance(error, _BROKEN):
                    raise
                self._lost(error)
                problem = _first_line(error)
                if time.monotonic() >= deadline:
                    waited = f", waited for {self.wait.total_seconds():g} s" if self.wait else ""
                    raise DatabaseAway(
                        f"{self.place} is away{waited} ({problem}); start the server, or mend "
                        "[store] url;"
                        " a service manager starts agentd again"
                    ) from error
                self.when_away(problem)
                time.sleep(_BETWEEN)
            else:
                self._back()
                return self._wire

    def _connect_and_migrate(self) -> PostgresConnection:
        wire = connect(self.url)
        try:
            migrate(wire, self.url)
            wire.control(_SWEEP)
        except BaseException:
            wire.close()
            raise
        return wire

    def _close_writer(self, connection: Any) -> None:
        if self._wire is not None:
            with suppress(psycopg.Error):
                self._wire.control(f"DELETE FROM store_writer WHERE id = '{self._me}'")
            self._wire.close()

    def _commit(self, connection: Any, batch: Sequence[Item]) -> list[Outcome]:
        patience = time.monotonic() + (0.0 if self._away else self.patience)
        durable = any(full for _, _, full in batch)
        self._batch += 1
        outcomes: list[Outcome] | None = None
        while True:
            try:
                wire = self._connected()
                if outcomes is not None and self._stands(wire):
                    return outcomes
                outcomes = None
                found = self._do(wire, batch, durable)
                outcomes = found  # from here on the commit may stand, whatever we hear of it
                wire.control("COMMIT")
            except BaseException as error:  # noqa: BLE001  carried to those who await these works
                if not isinstance(error, _BROKEN) or isinstance(error, psycopg.errors.DiskFull):
                    self._undo()
                    return [(future, None, explain(error, self.place)) for _, future, _ in batch]
                self._lost(error)
                if time.monotonic() >= patience:
                    return [(future, None, explain(error, self.place)) for _, future, _ in batch]
                time.sleep(_BETWEEN)
            else:
                return outcomes

    def _do(self, wire: PostgresConnection, batch: Sequence[Item], durable: bool) -> list[Outcome]:
        """Do the works in one transaction; should one fail, all again, each one kept from harming
        its neighbours.
        """
        self._begin(wire, durable)
        if len(batch) == 1:
            return [(batch[0][1], batch[0][0](wire), None)]
        try:
            return [(future, work(wire), None) for work, future, _ in batch]
        except BaseException as error:
            if isinstance(error, _BROKEN):
                raise
        wire.control("ROLLBACK")
        self._begin(wire, durable)
        return [(future, *self._attempt(wire, work)) for work, future, _ in batch]

    def _attempt(self, connection: Any, work: Work[Any]) -> tuple[Any, BaseException | None]:
        wire: PostgresConnection = connection
        wire.control("SAVEPOINT work")
        try:
            result = work(connection)
        except BaseException as error:
            if isinstance(error, _BROKEN):
                raise
            wire.control("ROLLBACK TO work")
            wire.control("RELEASE work")
            return None, explain(error, self.place)
        wire.control("RELEASE work")
        return result, None

    def _begin(self, wire: PostgresConnection, durable: bool) -> None:
        """Begin a batch: one message, in which the lock is waited for."""
        wire.driver.patience = SILENCE
        answers = wire.control(
            f"BEGIN; SET LOCAL synchronous_commit = {'on' if durable else 'off'}; {LOCKED};"
            f" INSERT INTO store_writer (id, batch) VALUES ('{self._me}', {self._batch})"
            " ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, seen = now() RETURNING "
            "agentd_now()"
        )
        while answers.nextset():
            pass
        (wire.now,) = answers.fetchone()

    def _connected(self) -> PostgresConnection:
        if self._wire is None:
            self._wire = connect(self.url)
            self._back()
        return self._wire

    def _back(self) -> None:
        if self._away:
            self._away = False
            log.info("database.back", database=self.place)

    def _stands(self, wire: PostgresConnection) -> bool:
        """Tell whether the batch of which we heard no answer was committed: once the lock is ours,
        it is over.
        """
        with wire.driver.transaction():
            wire.control(LOCKED)
            row = wire.control(f"SELECT batch FROM store_writer WHERE id = '{self._me}'").fetchone()
        return row is not None and row[0] == self._batch

    def _lost(self, error: BaseException) -> None:
        if not self._away:
            self._away = True
            log.error("database.away", database=self.place, problem=_first_line(error))
        wire, self._wire = self._wire, None
        if wire is not None:
            with suppress(*_BROKEN):
                wire.close()

    def _undo(self) -> None:
        if self._wire is not None:
            with suppress(psycopg.Error):  # a broken one is noticed by the next batch
                self._wire.control("ROLLBACK")

    def _alone(self, connection: Any, item: Item) -> Outcome:
        work, future, _ = item
        try:
            wire = self._connected()
            wire.driver.patience = None  # writing whole tables anew takes its time
            return future, work(wire), None
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits it
            if isinstance(error, _BROKEN):
                self._lost(error)
            else:
                self._undo()
            return future, None, explain(error, self.place)

    # --- in a reader's thread

    def _open_reader(self) -> Any:
        return ReadConnection(self.url)

    def _read(self, connection: Any, work: Work[T]) -> T:
        reader: ReadConnection = connection
        patience = time.monotonic() + (0.0 if self._away else self.patience)
        while True:
            try:
                found = reader.read(work)
            except _BROKEN:
                reader.close()
                if time.monotonic() >= patience:
                    raise
                time.sleep(_BETWEEN)
            else:
                self._back()
                return found

    def _explain(self, error: BaseException) -> BaseException:
        return explain(error, self.place)


class ReadConnection:
    """A connection for reads, made anew where it broke: what only looks can be done again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._wire: PostgresConnection | None = None

    def read(self, work: Work[T]) -> T:
        """Run a work in a snapshot that holds every commit before it."""
        if self._wire is None:
            self._wire = connect(self._url)
            self._wire.driver.patience = 4 * SILENCE  # a look may be long
            # it holds up nobody, and may think long between two looks
            self._wire.control("SET idle_in_transaction_session_timeout = '10min'")
        wire = self._wire
        wire.control("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            return work(wire)
        finally:
            if not wire.broken:
                wire.control("ROLLBACK")

    def close(self) -> None:
        """Let go of it; the next read connects anew."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


def explain(error: BaseException, place: str) -> BaseException:
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
    elif isinstance(error, _BROKEN):
        problem = "it cannot be reached"
    else:
        return error
    full = StoreFull(f"{place}: {problem} ({_first_line(error)})")
    full.__cause__ = error
    return full


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
