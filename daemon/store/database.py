"""One SQLite file, one thread that writes it, a few that read it.

Theory of operation. Exactly one connection writes: SQLite before 3.51.3 can corrupt a WAL that two
connections checkpoint, and a single writer never waits for a lock. Whoever wants to write hands
over a function; the thread takes all that have come in meanwhile into one transaction (group
commit) and then answers all of them at once.

A commit survives kill -9 as it is (WAL, synchronous=NORMAL). A *durable* one survives power loss as
well: its batch is committed with synchronous=FULL, which also carries every earlier commit to the
disk. SQLite syncs only when the transaction dirtied a page, so a durable work must change a row;
and the pragma is refused inside a transaction.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from daemon.errors import Refused, StoreDamaged, StoreFull
from daemon.store.connection import explain, open_reader, open_writer
from daemon.store.statements import Connection

if TYPE_CHECKING:
    from sqlmodel import Session

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]
Query: TypeAlias = "Callable[[Session], T]"

MIGRATIONS = Path(__file__).parent / "sql"
BATCH = 256  # works in one commit: with more, the first waits noticeably for the last
# Futures that are resolved in one turn of the loop: a run does a third of a millisecond of work
# with each.
ANSWERS_PER_TURN = 8
LAZY_DELAY = 0.02  # seconds that a lazy write waits for another one to share a commit with
READERS = 2  # reads are short; a second one keeps `list` from queuing behind a search of the memory


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
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._closing = False
        self._full = False
        self.when_refused: Callable[[StoreFull], None] = lambda fault: None
        """Called on the loop when a commit is refused for lack of room and the one before was not.
        """
        self._refusing = False
        self._outcomes: deque[_Outcome] = deque()
        """Results for futures that are not resolved yet; filled by the threads."""
        self._loop_woken = False
        """Whether the loop is about to read `_outcomes`."""
        self._pending: list[_Item] = []
        self.flushes = 0
        """How many times works were handed to the writer's thread.

        A work that was submitted at the present count is still pending, and can take more with it.
        """
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_deadline: float | None = None
        """When the pending works are flushed at the latest, by the clock of the loop.

        A flush before that leaves the timer as it is: setting a new one each time costs more.
        """
        self._flush_scheduled = False
        """Whether a flush is planned for the next turn of the loop."""
        # daemon threads: a process that dies for another reason must not hang on them
        self._writer = threading.Thread(
            target=self._write_forever, name="store writer", daemon=True
        )
        self._readers: list[_ReaderThread] = []

    @classmethod
    async def open(cls, path: Path, *, migrations: Path = MIGRATIONS) -> Database:
        """Open the database, create or bring its tables up to date; ConfigError says what is wrong
        with it.
        """
        self = cls(path, migrations, asyncio.get_running_loop())
        self._writer.start()
        await self._opened
        return self

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """Run `work` inside a transaction and return its result once that is committed.

        What it raises is raised here, and nothing of it is kept; its neighbours in the same commit
        are unharmed. StoreFull: the disk took it not, and perhaps not its neighbours. It runs in
        the writer's thread.
        """
        return await self.submit(work, durable=durable)

    def submit(
        self, work: Work[T], *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[T]:
        """Queue `work` and return the future of its result; works are committed in the order of
        their submission.

        With `lazily` the work shares the commit of the next one, at most LAZY_DELAY seconds later:
        a commit and waking the thread for it cost more than most works. Other works are handed to
        the thread in the next turn of the loop: the caller has more to do in this one, and a thread
        that runs meanwhile only takes the interpreter away from it.
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
            self._queue.put(works[start : start + BATCH])

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
        self._queue.put((work, future, None))
        return await future

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a read-only connection, inside one snapshot that holds every write awaited
        before.
        """
        return await self._ask(self._read, work)

    async def query(self, query: Query[T]) -> T:
        """Run `query` in a SQLModel session, inside one such snapshot: for what people ask.

        The first query imports SQLModel, in the reader's thread. Refused if it is not installed.
        """
        return await self._ask(self._query, query)

    async def _ask(self, method: Callable[[Connection, Any], T], work: Any) -> T:
        if self._closing:
            raise RuntimeError("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._reader().ask(method, work, future)
        return await future

    def _reader(self) -> _ReaderThread:
        """Return the reader with the fewest questions; of several that are free always the same
        one, whose cache is the warmest.
        """
        free = min(self._readers, key=_ReaderThread.behind, default=None)
        if free is None or (free.behind() and len(self._readers) < READERS):
            free = _ReaderThread(len(self._readers), self._read_forever)
            self._readers.append(free)
        return free

    async def close(self) -> None:
        """Commit what was submitted, then let go of the file."""
        if not self._closing:
            self._closing = True
            self._flush_now()
            if self._flush_timer is not None:
                self._flush_timer.cancel()
            self._queue.put(None)
        await asyncio.shield(self._closed)
        self._writer.join()

    # --- in the writer's thread

    def _write_forever(self) -> None:
        try:
            connection = self._open_writer()
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits open()
            self._answer([(self._opened, None, error)])
            return
        self._answer([(self._opened, None, None)])
        stop = False
        while not stop:
            batch: list[_Item] = []
            item = self._queue.get()
            while isinstance(item, list):
                batch += item
                if len(batch) >= BATCH:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            stop = item is None
            if batch:
                outcomes = self._commit(connection, batch)
                self._report_refusal(outcomes)
                self._answer(outcomes)
            if isinstance(item, tuple):
                self._answer([self._run_outside_transaction(connection, item)])
        for reader in self._readers:
            reader.questions.put(None)
        for reader in self._readers:
            reader.thread.join()
        self._close_writer(connection)
        self._answer([(self._closed, None, None)])

    def _report_refusal(self, outcomes: Sequence[_Outcome]) -> None:
        """Call `when_refused` if these outcomes are the first to fail for lack of room."""
        # a step that failed only because the one before it did has no cause of its own
        faults = (
            error for _, _, error in outcomes if isinstance(error, StoreFull) and error.__cause__
        )
        fault = next(faults, None)
        if fault and not self._refusing:
            with suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self.when_refused, fault)
        self._refusing = fault is not None

    def _open_writer(self) -> Connection:
        return open_writer(self.path, self._migrations)

    def _close_writer(self, connection: Connection) -> None:
        connection.close()

    def _commit(self, connection: Connection, batch: Sequence[_Item]) -> list[_Outcome]:
        try:
            self._set_full(connection, any(durable for _, _, durable in batch))
            outcomes = self._do_all(connection, batch)
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001  carried to those who await these works
            _roll_back(connection)
            if len(batch) > 1 and isinstance(explain(error, self.path), StoreDamaged):
                # perhaps only of what one of them uses; newer SQLite then refuses savepoints, too
                return [outcome for item in batch for outcome in self._commit(connection, [item])]
            return [(future, None, explain(error, self.path)) for _, future, _ in batch]
        return outcomes

    def _do_all(self, connection: Connection, batch: Sequence[_Item]) -> list[_Outcome]:
        """Run the works in one transaction; if one raises, run all again with a savepoint each.

        Works seldom raise, and a savepoint around each would cost more than many of them.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            return [(future, work(connection), None) for work, future, _ in batch]
        except BaseException:
            if len(batch) == 1:  # it has no neighbours
                raise
        _roll_back(connection)
        connection.execute("BEGIN IMMEDIATE")
        return [(future, *self._attempt(connection, work)) for work, future, _ in batch]

    def _attempt(self, connection: Connection, work: Work[Any]) -> tuple[Any, BaseException | None]:
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

    def _run_outside_transaction(self, connection: Connection, item: _Item) -> _Outcome:
        work, future, _ = item
        try:
            return future, work(connection), None
        except BaseException as error:  # noqa: BLE001  carried to whoever awaits it
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return future, None, explain(error, self.path)

    def _set_full(self, connection: Connection, full: bool) -> None:
        if full != self._full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full

    def _answer(self, outcomes: list[_Outcome]) -> None:
        self._outcomes.extend(outcomes)
        if self._loop_woken:
            return  # the loop has been woken, and has not come to it yet
        self._loop_woken = True
        try:
            self._loop.call_soon_threadsafe(self._resolve_futures)
        except RuntimeError:
            return  # the loop is gone, and with it everybody who waited

    # --- on the loop

    def _resolve_futures(self) -> None:
        """Resolve futures in their order, ANSWERS_PER_TURN in each turn of the loop: their waiters
        do much at once.
        """
        for _ in range(min(ANSWERS_PER_TURN, len(self._outcomes))):
            future, result, error = self._outcomes.popleft()
            if future.done():  # its waiter was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._loop_woken = False
        # looked at behind the line before: a thread that came between the two has left it to us
        if self._outcomes:
            self._loop_woken = True
            self._loop.call_soon(self._resolve_futures)

    # --- in a reader's thread

    def _read_forever(self, reader: _ReaderThread) -> None:
        connection: Connection | None = None
        while (item := reader.questions.get()) is not None:
            method, work, future = item
            result: Any = None
            error: BaseException | None = None
            try:
                connection = connection or self._open_reader()
                result = method(connection, work)
            except BaseException as caught:  # noqa: BLE001  carried to whoever awaits it
                error = self._explain(caught)
            reader.answered += 1
            self._answer([(future, result, error)])
            del (
                item,
                method,
                work,
                future,
                result,
                error,
            )  # what was found may be big, and the next question far off
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
            # whoever holds the error holds the cursors of its frames, and these this snapshot:
            # later reads would see it
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            connection.execute("ROLLBACK")

    def _query(self, connection: Connection, query: Query[T]) -> T:
        return run_in_session(connection, query)


def run_in_session(connection: Connection, query: Query[T]) -> T:
    """Run `query` in a SQLModel session over `connection`, in one snapshot.

    Refused if SQLModel is not installed; any other error as the connection itself raises it.
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
    return run_query(connection, query)


def _roll_back(connection: Connection) -> None:
    with suppress(sqlite3.Error):  # there may be nothing left to roll back
        connection.execute("ROLLBACK")


class _ReaderThread:
    """A thread that reads, and the questions it has been asked."""

    def __init__(self, number: int, read_forever: Callable[[_ReaderThread], None]) -> None:
        self.questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._asked = 0
        self.answered = 0
        """Counted by the thread, the asked ones by the loop: neither has to wait for the other."""
        self.thread = threading.Thread(
            target=read_forever, args=(self,), name=f"store reader {number}", daemon=True
        )
        self.thread.start()

    def ask(
        self, method: Callable[[Connection, Any], Any], work: Any, future: asyncio.Future[Any]
    ) -> None:
        self._asked += 1
        self.questions.put((method, work, future))

    def behind(self) -> int:
        """Return how many questions it has still to answer."""
        return self._asked - self.answered


# The last one says whether its commit is durable; None: it wants no transaction around it.
_Item: TypeAlias = tuple[Work[Any], asyncio.Future[Any], bool | None]
# A method that reads, what it runs on the reader's connection, and the future of its result.
_Question: TypeAlias = tuple[Callable[[Connection, Any], Any], Any, asyncio.Future[Any]]
_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]
