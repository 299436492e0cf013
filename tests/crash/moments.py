"""What kill -9 would leave, at each moment of the life of a process.

Theory of operation. A process that is killed leaves the bytes of the journal's files and what it
has done in the world, and nothing else. So it need not die for us to see what comes after: while it
lives on, both are copied at a moment, and a life that begins from the copy is the life after a
death at that moment. The moments are those before and after each of its commits. Before one the
process is left alone for a while: whatever it does without waiting for that commit, it has done by
then. What rides with others goes into one commit with them, or has one of its own: both are lived
through.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from daemon.models import Run
from daemon.store.database import LAZY_DELAY, Database
from tests.crash.process import SLOT, Process, Settings
from tests.crash.scenario import CrashScenario

TURNS = 40  # of the loop that a process has for what it does without waiting for a commit
LONGEST = 300  # seconds of a life, where a hundredth is usual
FILES = ("agentd.db", "agentd.db-wal")


@dataclass
class Moment:
    """What is there if the process dies now."""

    where: str
    write: int
    """The commit that it is about."""
    files: dict[str, bytes]
    scenario: CrashScenario
    interrupted_calls: set[tuple[str, str]] = field(default_factory=set)
    """The calls that were under way at deaths before it."""

    def begin(self, folder: Path) -> CrashScenario:
        """Return the scenario of the process that comes next."""
        folder.mkdir()
        for name, body in self.files.items():
            (folder / name).write_bytes(body)
        scenario = self.scenario.as_it_is()
        scenario.folder = folder
        return scenario

    def tear(self, after: Moment, at: float) -> Moment | None:
        """Return the moment in the middle of a commit: so much of what it writes has been written;
        None: nothing is.
        """
        whole, written_bytes = after.files[FILES[1]], len(self.files.get(FILES[1], b""))
        if len(whole) <= written_bytes or self.files[FILES[0]] != after.files[FILES[0]]:
            return None
        cut = written_bytes + int(at * (len(whole) - written_bytes))
        return Moment(
            f"{self.where}, torn", self.write, {**self.files, FILES[1]: whole[:cut]}, self.scenario
        )


@dataclass
class Witness:
    """The database of a process that is looked at around its commits."""

    inner: Database
    scenario: CrashScenario
    is_watched: Callable[[int], bool] = lambda number: True
    """Which commits are looked at, by their number."""
    rides: bool = True
    """Whether what nobody waits for waits for company, as it does in truth, or each work has a
    commit of its own.
    """
    shared: bool = False
    stops_at: int | None = None
    """The commit before which the process stands still until it may go on."""
    moments: list[Moment] = field(default_factory=list)
    writes: int = 0
    has_stopped: asyncio.Event = field(default_factory=asyncio.Event)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.path = self.inner.path
        self._queue: list[_Item] = []
        self.flushes = 0
        self._line: deque[list[_Item]] = deque()
        self._flush_timer: asyncio.Handle | None = None
        self.at_work: asyncio.Task[None] | None = None

    def submit(
        self, work: Any, *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._queue.append((work, durable, answer))
        if not self.rides:
            self._flush_now()
        elif self._flush_timer is None:
            self._flush_timer = loop.call_later(LAZY_DELAY, self._flush_now)
        if self.rides and not lazily:
            self.flush()
        return answer

    def flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._flush_timer = asyncio.get_running_loop().call_soon(self._flush_now)

    async def write(self, work: Any, *, durable: bool = False) -> Any:
        return await self.submit(work, durable=durable)

    async def read(self, work: Any) -> Any:
        return await self.inner.read(work)

    async def query(self, query: Any) -> Any:
        return await self.inner.query(query)

    async def drain(self) -> None:
        self._flush_now()
        if self.at_work:
            await asyncio.wait([self.at_work])

    async def close(self) -> None:
        """Commit what is left."""
        await self.drain()
        await self.inner.close()

    def _flush_now(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self.flushes += 1
        if self._queue:
            self._line.append(self._queue)
            self._queue = []
        if self._line and (self.at_work is None or self.at_work.done()):
            self.at_work = asyncio.ensure_future(self._commit_all())

    async def _commit_all(self) -> None:
        while self._line:
            batch = self._line.popleft()
            number, self.writes = self.writes, self.writes + 1
            is_watched = self.is_watched(number)
            if is_watched:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                self._look("before", number)
            if number == self.stops_at:
                self.has_stopped.set()
                await self.may_go_on.wait()
            writes = [self.inner.submit(work, durable=durable) for work, durable, _ in batch]
            await asyncio.wait(writes)
            if is_watched:
                self._look("after", number)
            for write, (_, _, answer) in zip(writes, batch, strict=True):
                if answer.done():
                    write.exception()
                elif fault := write.exception():
                    answer.set_exception(fault)
                else:
                    answer.set_result(write.result())

    def _look(self, where: str, number: int) -> None:
        """Copy what is there; between two commits nobody writes to the files."""
        last = self.moments[-1] if self.moments else None
        if (
            last
            and where == "before"
            and last.write == number - 1
            and last.scenario.same_as(self.scenario)
        ):
            return  # nothing has happened since the commit before: it is the same death
        files = {
            name: (self.path.parent / name).read_bytes()
            for name in FILES
            if (self.path.parent / name).exists()
        }
        if last and files[FILES[0]] == last.files[FILES[0]]:
            files[FILES[0]] = last.files[FILES[0]]  # held once
        self.moments.append(
            Moment(f"{where} write {number}", number, files, self.scenario.as_it_is())
        )


async def life(
    scenario: CrashScenario,
    settings: Settings,
    *,
    is_watched: Callable[[int], bool] | None = None,
    rides: bool = True,
    slot: datetime = SLOT,
) -> tuple[Run, Sequence[Moment]]:
    """Live a scenario until all is done; return what became of the run, and the moments that are
    watched.
    """
    database = await Database.open(scenario.file)
    witness = Witness(database, scenario, is_watched, rides) if is_watched else None
    process = Process(scenario, settings, witness or database, slot=slot)
    last_look = asyncio.get_running_loop().call_later(LONGEST - 5, _print_what_is_waited_for)
    try:
        async with asyncio.timeout(LONGEST):
            run = await process.work()
    finally:
        last_look.cancel()
        await _put_away(witness or database)
    return run, witness.moments if witness else ()


def _print_what_is_waited_for() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


async def _put_away(*databases: Any) -> None:
    """Let nothing of a process be left but what it has submitted."""
    at_work = {database.at_work for database in databases if isinstance(database, Witness)}
    tasks = asyncio.all_tasks() - {asyncio.current_task(), *at_work}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for database in databases:
        await database.close()


async def overtaken(
    scenario: CrashScenario, settings: Settings, *, stops_at: int, wakes_at: int
) -> Run | None:
    """Live a scenario with a process that stands still before one of its commits, and is taken for
    dead by another.

    It goes on when that one has come to its own commit `wakes_at`, which waits for what becomes of
    it. None if it is done before it comes to a standstill.
    """
    async with asyncio.timeout(LONGEST):
        witness = Witness(
            await Database.open(scenario.file), scenario, _never, shared=True, stops_at=stops_at
        )
        takeover = Witness(
            await Database.open(scenario.file), scenario, _never, shared=True, stops_at=wakes_at
        )
        try:
            process = Process(scenario, settings, witness)
            life = asyncio.ensure_future(process.work())
            if not await _either(life, witness.has_stopped):
                return None
            for _ in range(TURNS):
                await asyncio.sleep(0)
            takeover_life = asyncio.ensure_future(
                Process(scenario, settings, takeover, seat=1).work()
            )
            await _either(takeover_life, takeover.has_stopped)
            witness.may_go_on.set()
            await witness.drain()
            await process.executor.wait_until_idle()
            takeover.may_go_on.set()
            await life
            return await takeover_life
        finally:
            witness.may_go_on.set()
            takeover.may_go_on.set()
            await _put_away(witness, takeover)


async def _either(work: asyncio.Future[Any], stop_event: asyncio.Event) -> bool:
    """Wait until a process is done or stands still; tell whether it does."""
    wait = asyncio.ensure_future(stop_event.wait())
    await asyncio.wait((work, wait), return_when=asyncio.FIRST_COMPLETED)
    wait.cancel()
    return stop_event.is_set()


def _never(_number: int) -> bool:
    return False


class ScenarioFolders:
    """Makes the folders of scenarios: on a disk that is quick, where there is one."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings, self._count = folder, settings, 0

    def new(self) -> Path:
        """Return the path of a folder for a new scenario, which is not made yet."""
        self._count += 1
        return self.folder / str(self._count)

    def after(self, moment: Moment) -> CrashScenario:
        return moment.begin(self.new())


# The last one is who waits for it.
_Item: TypeAlias = tuple[Any, bool, asyncio.Future[Any]]
