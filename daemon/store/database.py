"""One SQLite file, one thread that writes it, a few that read it.

Theory of operation. Exactly one connection writes: SQLite before 3.51.3 can corrupt a WAL that two
connections checkpoint, and a single writer never waits for a lock. A write is a function of that
connection, a *work*. The writer's thread runs all works that were submitted meanwhile in one
transaction (group commit) and then resolves their futures.

A commit survives kill -9 as it is (WAL, synchronous=NORMAL). A *durable* one survives power loss as
well: its batch is committed with synchronous=FULL, which also carries every earlier commit to the
disk. SQLite syncs only when the transaction dirtied a page, so a durable work must change a row;
and the pragma is refused inside a transaction.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from daemon.errors import Refused, StateLost, StoreDamaged, StoreFull
from daemon.store.connection import Connection, explain, open_reader, open_writer
from daemon.store.rows import to_microseconds

if TYPE_CHECKING:
    from sqlmodel import Session


T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]
Query: TypeAlias = "Callable[[Session], T]"

MIGRATIONS = Path(__file__).parent / "sql"
BATCH = 256  # works in one commit: with more, the first waits noticeably for the last
# Futures that are resolved in one turn of the loop: a task that goes on takes a third of a
# millisecond.
FUTURES_PER_TURN = 8
LAZY_DELAY = 0.02  # seconds that a lazy write waits for another one to share a commit with
READERS = 2  # threads: reads are short; with two, `list` does not wait for a search of the memory


class Database:
    """Write through one thread, read through others; to be used from the event loop that opened
    it.
    """

    shared: ClassVar[bool] = False
    """Whether other processes write it as well (store/postgres/database.py)."""

    def __init__(self, path: Path, migrations: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self.place = f"{path} (SQLite)"
        self._migrations = migrations
        self._loop = loop
        self._queue: queue.SimpleQueue[list[_Item] | _Item | None] = queue.SimpleQueue()
        """Lists of works to commit, single works to run outside a transaction; None: stop."""
        self._queued: deque[list[_Item] | _Item] = deque()
        """What is in the queue, each until it is in hand: the thread may fail between the two."""
        self._stopping = False
        """Whether the queue ends with None."""
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._failed: asyncio.Future[None] = loop.create_future()
        self._closing = False
        self._works_in_hand: list[_Item] = []
        """What the writer's thread has taken out of its queue and not resolved yet."""
        self._file: tuple[int, int] | None = None
        """Device and inode of the file that was opened."""
        self._is_synchronous_full = False
        self.when_refused: Callable[[StoreFull], None] = lambda fault: None
        """Called on the loop when a commit is refused for lack of room and the one before was not.
        """
        self._refusing = False
        """Whether the last commit was refused for lack of room."""
        self._outcomes: deque[_Outcome] = deque()
        """Results for futures that are not resolved yet; filled by the threads."""
        self._loop_woken = False
        """Whether the loop is about to read `_outcomes`."""
        self._pending: list[_Item] = []
        self.flushes = 0
        """How many times works were handed to the writer's thread.

        A work that was submitted at the present count is still pending: runs.py adds steps to it.
        """
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_deadline: float | None = None
        """When the pending works are flushed at the latest, by the clock of the loop.

        A flush before that leaves the timer as it is: setting a new one each time costs more.
        """
        self._flush_scheduled = False
        """Whether a flush is planned for the next turn of the loop."""
        # daemon threads: the end of the process does not wait for them
        self._writer = threading.Thread(
            target=self._write_forever, name="store writer", daemon=True
        )
        self._readers: list[_ReaderThread] = []

    @classmethod
    async def open(cls, path: Path, *, migrations: Path = MIGRATIONS) -> Database:
        """Open the database at `path`, and create or migrate its tables. Raises ConfigError."""
        database = cls(path, migrations, asyncio.get_running_loop())
        database._writer.start()
        await database._opened
        return database

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run `work` inside a transaction and return its result once that is committed.

        `work` runs in the writer's thread. What it raises is raised here, and its changes are
        rolled back, but not those of other works in the same commit. Raises StoreFull if the disk
        did not take the commit.
        """
        return await self.submit(work, durable=durable)

    def submit(
        self, work: Work[T], *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[T]:
        """Queue `work` and return the future of its result; works are committed in the order of
        their submission.

        With `lazily` the work shares the commit of the next one, at most LAZY_DELAY seconds later:
        a commit and waking the thread for it cost more than most works. Other works are handed to
        the thread in the next turn of the loop, so that the thread does not compete with the caller
        for the interpreter in this one.
        """
        if self._closing:
            raise RuntimeError("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending.append((work, future, durable))
        if not lazily:
            self.flush()
        elif self._flush_deadline is None:
            self._flush_deadline = self._loop.time() + LAZY_DELAY
            if self._flush_timer is None:
                self._flush_timer = self._loop.call_at(self._flush_deadline, self._flush_when_due)
        return future

    def flush(self) -> None:
        """Hand the pending works to the writer's thread in the next turn of the loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_now)

    def _flush_when_due(self) -> None:
        self._flush_timer = None
        if self._flush_deadline is None:
            return
        if self._loop.time() < self._flush_deadline:
            self._flush_timer = self._loop.call_at(self._flush_deadline, self._flush_when_due)
        else:
            self._flush_now()

    def _flush_now(self) -> None:
        self._flush_scheduled, self._flush_deadline = False, None
        self.flushes += 1
        works, self._pending = self._pending, []
        for start in range(0, len(works), BATCH):
            self._put(works[start : start + BATCH])

    def _put(self, works: list[_Item] | _Item) -> None:
        self._queued.append(works)
        self._queue.put(works)

    async def drain(self) -> None:
        """Wait until every work submitted so far is committed or refused."""
        await self.run_outside_transaction(lambda _connection: None)

    async def run_outside_transaction(self, work: Work[T]) -> T:
        """Run `work` on the writing connection outside any transaction, as VACUUM and checkpoints
        need it.
        """
        if self._closing:
            raise RuntimeError("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._flush_now()
        self._put((work, future, None))
        return await future

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a read-only connection, inside one snapshot that holds every write awaited
        before.
        """
        return await self._run_in_reader(self._read, work)

    async def query(self, query: Query[T]) -> T:
        """Run `query` in a SQLModel session, inside one snapshot; for what people ask.

        The first query imports SQLModel, in the reader's thread. Raises Refused if it is not
        installed.
        """
        return await self._run_in_reader(self._query, query)

    async def _run_in_reader(self, method: Callable[[Connection, Any], T], work: Any) -> T:
        if self._closing:
            raise RuntimeError("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._choose_reader().submit(method, work, future)
        return await future

    def _choose_reader(self) -> _ReaderThread:
        """Return the reader with the fewest pending reads: of several idle ones the first, whose
        cache is the warmest. Starts another one if all are busy, up to READERS.
        """
        reader = min(self._readers, key=_ReaderThread.pending_count, default=None)
        if reader is None or (reader.pending_count() and len(self._readers) < READERS):
            reader = _ReaderThread(len(self._readers), self._read_forever)
            self._readers.append(reader)
        return reader

    async def wait_for_failure(self) -> None:
        """Wait until this database can be used no more.

        Raises StateLost if its file is gone or another one, RuntimeError if a thread has failed.
        """
        try:
            await asyncio.shield(self._failed)
        except StateLost:
            raise
        except Exception as error:
            raise RuntimeError("a thread of the database has failed") from error

    async def close(self) -> None:
        """Commit the submitted works, then close the connections and threads."""
        if not self._closing:
            self._closing = True
            self._flush_now()
            if self._flush_timer is not None:
                self._flush_timer.cancel()
            self._stopping = True
            self._queue.put(None)
        await asyncio.shield(self._closed)
        self._writer.join()

    # --- in the writer's thread

    def _write_forever(self) -> None:
        try:
            connection = self._open_writer()
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits open()
            self._deliver([(self._opened, None, error)])
            return
        try:
            self._deliver([(self._opened, None, None)])
            self._commit_forever(connection)
        except BaseException as error:  # noqa: BLE001  the daemon ends on it, see wait_for_failure
            self._refuse_forever(error)
        for reader in self._readers:
            reader.stop()
        for reader in self._readers:
            reader.thread.join()
        self._close_writer(connection)
        self._deliver([(self._closed, None, None)])

    def _commit_forever(self, connection: Connection) -> None:
        """Commit what comes, until the queue says to stop."""
        stop = False
        while not stop:
            batch: list[_Item] = []
            item, taken_count = self._queue.get(), 1
            while isinstance(item, list):
                batch += item
                if len(batch) >= BATCH:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                taken_count += 1
            stop = item is None
            self._works_in_hand = [*batch, item] if isinstance(item, tuple) else batch
            if stop:
                taken_count -= 1  # None, which `_queued` does not have
            for _ in range(taken_count):
                self._queued.popleft()
            if batch:
                outcomes = self._commit(connection, batch)
                if any(durable for _, _, durable in batch):
                    outcomes = self._refuse_if_replaced(outcomes)
                self._report_refusal(outcomes)
                self._deliver(outcomes)
            if isinstance(item, tuple):
                self._deliver([self._run_outside_transaction(connection, item)])
            self._works_in_hand = []

    def _refuse_forever(self, error: BaseException) -> None:
        """Refuse what is in hand and what comes, until the queue says to stop: nobody must wait for
        a thread that has ended.
        """
        self._fail(error)
        works, stopping = self._works_in_hand, False
        while True:
            while self._queued:
                items = self._queued.popleft()
                works += items if isinstance(items, list) else [items]
            problem = f"{self.place}: the thread that writes has failed: {error!r}"
            self._deliver([(future, None, StoreFull(problem)) for _, future, _ in works])
            if stopping:
                return
            works, stopping = [], self._stopping  # asked before the last look at what is queued
            if not stopping:
                self._queue.get()

    def _refuse_if_replaced(self, outcomes: list[_Outcome]) -> list[_Outcome]:
        """Return the outcomes, or errors in their place where the file is gone or another one: what
        was committed to it is lost, and must not be acknowledged.
        """
        if self._file is None or self._file == _identify(self.path):
            return outcomes
        self._fail(StateLost(str(self.path.parent)))
        return [(future, None, StateLost(str(self.path.parent))) for future, _, _ in outcomes]

    def _fail(self, error: BaseException) -> None:
        """Have `wait_for_failure` raise this; safe in any thread."""
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._set_failure, error)

    def _report_refusal(self, outcomes: Sequence[_Outcome]) -> None:
        """Call `when_refused` if a work failed for lack of room, and none of the commit before."""
        # a step that was refused only because an earlier one was has no cause of its own
        errors = [
            error for _, _, error in outcomes if isinstance(error, StoreFull) and error.__cause__
        ]
        if errors and not self._refusing:
            with suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self.when_refused, errors[0])
        self._refusing = bool(errors)

    def _open_writer(self) -> Connection:
        connection = open_writer(self.path, self._migrations)
        self._file = _identify(self.path)
        return connection

    def _close_writer(self, connection: Connection) -> None:
        connection.close()

    def _commit(self, connection: Connection, batch: Sequence[_Item]) -> list[_Outcome]:
        try:
            self._set_synchronous(connection, full=any(durable for _, _, durable in batch))
            outcomes = self._run_works(connection, batch)
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001  carried to those who await these works
            _roll_back(connection)
            reason = explain(error, self.path)
            if len(batch) > 1 and (
                isinstance(reason, StoreDamaged) or not isinstance(reason, StoreFull)
            ):
                # Perhaps only one of them reads a damaged page, or writes to a damaged index: each
                # gets a transaction of its own, as newer SQLite refuses savepoints then.
                return [outcome for item in batch for outcome in self._commit(connection, [item])]
            return [(future, None, explain(error, self.path)) for _, future, _ in batch]
        return outcomes

    def _run_works(self, connection: Connection, batch: Sequence[_Item]) -> list[_Outcome]:
        """Run the works in one transaction; if one raises, run all again with a savepoint each.

        Works seldom raise, and a savepoint around each would cost more than many of them. Leaves
        the transaction open: the caller commits it.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            return [(future, work(connection), None) for work, future, _ in batch]
        except BaseException:
            if len(batch) == 1:  # no other work has to be saved
                raise
        _roll_back(connection)
        connection.execute("BEGIN IMMEDIATE")
        return [(future, *self._attempt(connection, work)) for work, future, _ in batch]

    def _attempt(self, connection: Connection, work: Work[Any]) -> tuple[Any, BaseException | None]:
        """Run one work in a savepoint, so that its failure keeps the changes of other works."""
        connection.execute("SAVEPOINT work")
        try:
            result = work(connection)
        except BaseException as error:
            if not connection.in_transaction:
                raise  # SQLite has rolled back the whole transaction, as for a full disk
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
            return None, explain(error, self.path)
        connection.execute("RELEASE work")
        return result, None

    def _run_outside_transaction(self, connection: Connection, item: _Item) -> _Outcome:
        work, future, _ = item
        try:
            return future, work(connection), None
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits it
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return future, None, explain(error, self.path)

    def _set_synchronous(self, connection: Connection, *, full: bool) -> None:
        if full != self._is_synchronous_full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._is_synchronous_full = full

    def _deliver(self, outcomes: list[_Outcome]) -> None:
        """Have the loop resolve the futures of these outcomes; safe in any thread."""
        self._outcomes.extend(outcomes)
        if self._loop_woken:
            return  # `_resolve_futures` is scheduled already, and will find them
        try:
            self._loop_woken = True
            self._loop.call_soon_threadsafe(self._resolve_futures)
        except RuntimeError:
            return  # the loop is closed, so nobody waits for the futures
        except BaseException:  # such as a MemoryError: the next outcomes wake the loop
            self._loop_woken = False
            raise

    # --- on the loop

    def _set_failure(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # `once` has nobody who waits for it

    def _resolve_futures(self) -> None:
        """Resolve futures in their order, at most FUTURES_PER_TURN in one turn of the loop."""
        for _ in range(min(FUTURES_PER_TURN, len(self._outcomes))):
            future, result, error = self._outcomes.popleft()
            if future.done():  # its waiter was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._loop_woken = False
        # Only now: a thread that added outcomes before the line above has not scheduled a call.
        if self._outcomes:
            self._loop_woken = True
            self._loop.call_soon(self._resolve_futures)

    # --- in a reader's thread

    def _read_forever(self, reader: _ReaderThread) -> None:
        try:
            self._answer_reads(reader)
        except BaseException as error:  # noqa: BLE001  the daemon ends on it, see wait_for_failure
            self._fail(error)
            if reader.in_hand:
                reader.queued.appendleft(reader.in_hand)
            stopping = False
            while True:  # nobody must wait for a thread that has ended
                while reader.queued:
                    failure = StoreFull(f"{self.place}: a thread that reads has failed: {error!r}")
                    self._deliver([(reader.queued.popleft()[2], None, failure)])
                if stopping:
                    return
                stopping = reader.stopping  # asked before the last look at what is queued
                if not stopping:
                    reader.reads.get()

    def _answer_reads(self, reader: _ReaderThread) -> None:
        connection: Connection | None = None
        try:
            while (item := reader.reads.get()) is not None:
                reader.in_hand = item
                reader.queued.popleft()
                method, work, future = item
                result: Any = None
                error: BaseException | None = None
                try:
                    connection = connection or self._open_reader()
                    result = method(connection, work)
                except BaseException as caught:  # noqa: BLE001  carried to whoever awaits it
                    error = self._explain(caught)
                reader.completed_count += 1
                self._deliver([(future, result, error)])
                # the result may be large, and the next read far off
                reader.in_hand = None
                del item, method, work, future, result, error
        finally:
            if connection is not None:
                connection.close()

    def _open_reader(self) -> Connection:
        return open_reader(self.path)

    def _explain(self, error: BaseException) -> BaseException:
        return explain(error, self.path)

    def _read(self, connection: Connection, work: Work[T]) -> T:
        connection.execute("BEGIN")
        try:
            return work(connection)
        except BaseException as error:
            # The frames of the traceback hold cursors, and these the snapshot: later reads on this
            # connection would see it as long as somebody holds the error.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            connection.execute("ROLLBACK")

    def _query(self, connection: Connection, query: Query[T]) -> T:
        return run_in_session(connection, query)


def run_in_session(connection: Connection, query: Query[T]) -> T:
    """Run `query` in a SQLModel session over `connection`, in one snapshot.

    Raises Refused if SQLModel is not installed, and what the connection itself raises.
    """
    try:
        from daemon.store.queries.session import run_query  # 20 MiB, for the queries of people
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("daemon"):
            raise
        command = "pip install -c constraints.txt -e ."
        raise Refused(
            f"the package {error.name} is not installed; install agentd again: {command}"
        ) from error
    return run_query(connection.engine, query)


def _identify(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  a commit does this, and a Path takes as long again
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _roll_back(connection: Connection) -> None:
    with suppress(sqlite3.Error):  # there may be nothing left to roll back
        connection.execute("ROLLBACK")


class _ReaderThread:
    """A thread that reads, and the queue of its reads; None in the queue stops it."""

    def __init__(self, number: int, read_forever: Callable[[_ReaderThread], None]) -> None:
        self.reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self.queued: deque[_Read] = deque()
        """What is in the queue, each until it is in hand: the thread may fail between the two."""
        self.stopping = False
        """Whether the queue ends with None."""
        self.in_hand: _Read | None = None
        """The read that the thread answers now."""
        self._submitted_count = 0
        self.completed_count = 0
        """Counted by the thread, the submitted ones by the loop: so no lock is needed."""
        self.thread = threading.Thread(
            target=read_forever, args=(self,), name=f"store reader {number}", daemon=True
        )
        self.thread.start()

    def submit(
        self, method: Callable[[Connection, Any], Any], work: Any, future: asyncio.Future[Any]
    ) -> None:
        self._submitted_count += 1
        submitted_read = (method, work, future)
        self.queued.append(submitted_read)
        self.reads.put(submitted_read)

    def stop(self) -> None:
        """Have the thread end once it has answered what was submitted."""
        self.stopping = True
        self.reads.put(None)

    def pending_count(self) -> int:
        """Return how many submitted reads are not completed."""
        return self._submitted_count - self.completed_count


# A work, the future of its result, and whether its commit is durable; None: without a transaction.
_Item: TypeAlias = tuple[Work[Any], asyncio.Future[Any], bool | None]
# The method of Database that reads, the work or query for it, and the future of the result.
_Read: TypeAlias = tuple[Callable[[Connection, Any], Any], Any, asyncio.Future[Any]]
# The future of a work, and its result or error.
_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]


class Repository:
    """The base class of the repositories, which read and write some tables each.

    `clock` gives the moments that they write.
    """

    def __init__(self, db: Database, *, clock: Callable[[], datetime]) -> None:
        self._db = db
        self._clock = clock

    @property
    def shared(self) -> bool:
        """Whether other processes write the same database."""
        return self._db.shared

    def _now(self) -> int:
        return to_microseconds(self._clock())
