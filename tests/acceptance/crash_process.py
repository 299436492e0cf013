"""A process that starts the engine on a state folder and is killed at each of its writes in turn.

`python -m tests.acceptance.crash_process FOLDER` prints a line of JSON for each death, right before
the commit of a write or right after it: how the process ended, and what the ledger tells once
somebody has started again. Each life is a fork, so that the imports are paid for once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.definitions.routines.folder import FolderContents
from daemon.models import Run
from daemon.scheduler.engine import RoutineEngine
from daemon.store.database import Database, Work
from daemon.store.journal import Journal
from daemon.testing import FakeClock
from tests.engine_harness import HALF_HOURLY, FakeEventLoop, at, routine

BEFORE, AFTER = "2026-01-01T08:00", "2026-01-04T13:00"  # an outage of three days


class CrashingDatabase(Database):
    """A database whose process is killed at one of its writes."""

    fatal = -1
    where = ""
    writes = 0

    def submit(
        self, work: Work[Any], *, durable: bool = False, lazily: bool = False
    ) -> asyncio.Future[Any]:
        number, self.writes = self.writes, self.writes + 1
        if number != self.fatal:
            return super().submit(work, durable=durable, lazily=lazily)
        if self.where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        future = super().submit(work, durable=durable, lazily=lazily)
        future.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return future


ROUTINES = (
    routine("daily"),
    routine("pulse", HALF_HOURLY),
    routine("never", {"cron": "0 9 * * *", "catch_up": "none"}),
    routine("starting", {"on_start": True}),
    routine("paused", HALF_HOURLY),
)


def fork(life: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Live in a process of its own; return how many writes there were, or -9."""
    reader, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.write(tell, str(asyncio.run(life())).encode())
        os._exit(0)
    os.close(tell)
    _, status = os.waitpid(child, 0)
    reply = os.read(reader, 100)
    os.close(reader)
    return int(reply) if reply else os.waitstatus_to_exitcode(status)


async def life(folder: Path, moment: str, number: int, where: str) -> int:
    """Start the engine, pause a routine and stop; die at the write of that number; return how many
    there were.
    """
    clock = FakeClock(at(moment))
    database = await CrashingDatabase.open(folder / "agentd.db")
    assert isinstance(database, CrashingDatabase)
    database.fatal, database.where = number, where

    async def submit(run: Run) -> None:
        """Leave it queued: whoever starts next finds it there."""

    async def cancel(run_id: str) -> None:
        raise NotImplementedError(run_id)

    engine = RoutineEngine(
        journal=Journal(database, clock=clock.now),
        submit=submit,
        cancel=cancel,
        clock=clock,
        zone="UTC",
        event_loop=FakeEventLoop(),
        machine="box",
    )
    await engine.start(
        FolderContents(routines={definition.name: definition for definition in ROUTINES})
    )
    if not engine.states["paused"].paused:
        await engine.pause("paused", until=datetime(2026, 1, 2, 12, tzinfo=UTC))
    await engine.stop()
    writes = database.writes
    await database.close()
    return writes


def start_engine(folder: Path, moment: str, number: int = -1, where: str = "") -> int:
    """Start the engine in a process of its own; return how many writes it made, or -9."""
    return fork(lambda: life(folder, moment, number, where))


async def ledger(folder: Path) -> dict[str, list[str]]:
    """Return what the ledger tells of each routine, in words."""
    database = await Database.open(folder / "agentd.db")
    journal = Journal(database, clock=lambda: at(AFTER))
    rows_by_routine = {}
    names = [definition.name for definition in ROUTINES]
    for name in names:
        rows = reversed(await journal.slots.find(name))
        rows_by_routine[name] = [
            f"{row.first:%d %H:%M}-{row.last:%d %H:%M} x{row.count} {row.outcome}" for row in rows
        ]
    runs = await journal.runs.find(limit=1000)
    assert len({(run.routine, run.slot, run.event) for run in runs}) == len(runs), (
        "a slot ran twice"
    )
    assert len(runs) == len(await journal.runs.find_active())
    await database.close()
    return rows_by_routine


def main(folder: Path) -> None:
    before = folder / "before the outage"
    before.mkdir()
    assert start_engine(before, BEFORE) >= 0

    def outage(number: int = -1, where: str = "") -> int:
        """Be down for three days, die there as told, and start again; return how many writes there
        were, or -9.
        """
        home = shutil.copytree(before, folder / f"{number} {where}")
        came_to = start_engine(home, AFTER, number, where)
        assert start_engine(home, AFTER) >= 0
        death = {
            "number": number,
            "where": where,
            "ended": came_to,
            "ledger": asyncio.run(ledger(home)),
        }
        sys.stdout.write(json.dumps(death) + "\n")
        shutil.rmtree(home)
        return came_to

    for number in range(outage()):
        for where in ("before", "after"):
            outage(number, where)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
