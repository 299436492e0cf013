"""A process that starts the engine on a state folder and is killed at one of its writes, or lives to tell.

`python -m tests.victim FOLDER MOMENT [NUMBER before|after]`: killed -9 right before the commit of that write, or right
after it. Without a number it prints how many writes there were.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.engine import RoutineEngine
from daemon.models import Run
from daemon.routines import Loaded
from daemon.store.database import Database, Work
from daemon.store.journal import Journal
from tests.clockwork import HALF_HOURLY, Bell, routine


class Doomed(Database):
    """Dies at the write it was told."""

    fatal = -1
    where = ""
    writes = 0

    def submit(self, work: Work[Any], *, durable: bool = False, lazily: bool = False) -> asyncio.Future[Any]:
        number, self.writes = self.writes, self.writes + 1
        if number != self.fatal:
            return super().submit(work, durable=durable, lazily=lazily)
        if self.where == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        committed = super().submit(work, durable=durable, lazily=lazily)
        committed.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return committed


class Fixed:
    """A clock that stands still."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


ROUTINES = (
    routine("daily"),
    routine("pulse", HALF_HOURLY),
    routine("never", {"cron": "0 9 * * *", "catch_up": "none"}),
    routine("starting", {"on_start": True}),
    routine("paused", HALF_HOURLY),
)


async def main(folder: str, moment: str, fatal: str = "-1", where: str = "") -> None:
    clock = Fixed(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    database = await Doomed.open(Path(folder) / "agentd.db")
    assert isinstance(database, Doomed)
    database.fatal, database.where = int(fatal), where

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
        timer=Bell(),
        machine="box",
    )
    await engine.start(Loaded(routines={each.name: each for each in ROUTINES}))
    if not engine.states["paused"].paused:
        await engine.pause("paused", until=datetime(2026, 1, 2, 12, tzinfo=UTC))
    await engine.stop()
    sys.stdout.write(str(database.writes))
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
