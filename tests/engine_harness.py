"""An engine on a real journal, whose time the test lets pass: one state folder, and the processes
that live on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from freezegun.api import FrozenDateTimeFactory

from daemon.definitions.routines.folder import FolderContents, RoutineChanges
from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.errors import ConfigError, Fault
from daemon.models import Run, Status
from daemon.scheduler.engine import RoutineEngine
from daemon.scheduler.routine_times import schedule_of
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.system.clock import SystemClock
from daemon.system.watch import DirectoryWatcher
from tests.empty_database import copy_empty_database

NINE = {"cron": "0 9 * * *"}
OURS = ("slot claims", "file claims", "chain claims", "pace claims", "clock set")
HALF_HOURLY = {"every": timedelta(minutes=30)}


def routine(
    name: str = "daily",
    trigger: dict[str, Any] | list[dict[str, Any]] | None = None,
    **more: Any,
) -> Routine:
    """Return a routine that says its name, every day at nine unless told otherwise."""
    run = {"prompt": f"say {name}", **more.pop("run", {})}
    return Routine.model_validate(
        {"name": name, "trigger": NINE if trigger is None else trigger, "run": run, **more}
    )


def folder_contents(*routines: Routine, faulty_names: Iterable[str] = ()) -> FolderContents:
    fault = Fault(file="x.toml", key="run.prompt", found="", problem="is missing")
    return FolderContents(
        routines={r.name: r for r in routines},
        faults={name: ConfigError(fault) for name in faulty_names},
    )


class FakeEventLoop(asyncio.AbstractEventLoop):
    """The event loop as APScheduler knows it: its one timer runs out when the test says so."""

    def __init__(self) -> None:
        self.timer_ends: datetime | None = None

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        seconds = round(delay, 3)  # a float that was made from two instants is not exact
        self.timer_ends, self._callback = datetime.now(UTC) + timedelta(seconds=seconds), callback
        return self

    def cancel(self) -> None:
        """Cancel the timer, whose handle we are, too."""
        self.timer_ends = None

    def end_timer(self) -> None:
        """Let the timer run out; APScheduler does what is due in the next turn of the real loop."""
        self._callback()


class EngineHarness:
    """One state folder, and the processes that live on it one after another."""

    def __init__(self, folder: Path, time: FrozenDateTimeFactory) -> None:
        self.folder, self.time = folder, time
        self.event_loop = FakeEventLoop()
        self.submitted_runs: list[Run] = []
        self.cancelled_ids: list[str] = []
        self.db: Database | None = None

    @property
    def next_start(self) -> datetime | None:
        """When APScheduler wakes up next; None if no routine starts by itself."""
        return self.event_loop.timer_ends

    async def boot(
        self,
        *routines: Routine,
        zone: str = "UTC",
        journal: Callable[..., Journal] = Journal,
        **more: Any,
    ) -> None:
        """Start a daemon, after whatever became of the last one."""
        await self.crash()
        self.db = await Database.open(copy_empty_database(self.folder / "agentd.db"))
        self.journal = journal(self.db, clock=SystemClock().now)
        self.engine = RoutineEngine(
            journal=self.journal,
            submit=self.submit,
            cancel=self.cancel,
            clock=SystemClock(),
            zone=zone,
            event_loop=self.event_loop,
            machine="box",
            host="box-1.example.org",
            workspace=self.folder / "workspace",
            directory_watcher=DirectoryWatcher(wake_every=0.05),
        )
        await self.engine.start(folder_contents(*routines, **more))
        await self.quiet()

    async def reload(
        self, *routines: Routine, zone: str | None = None, **more: Any
    ) -> RoutineChanges:
        changes = await self.engine.reload(folder_contents(*routines, **more), zone=zone)
        await self.quiet()
        return changes

    async def submit(self, run: Run) -> None:
        self.submitted_runs.append(run)

    async def cancel(self, run_id: str) -> Run:
        self.cancelled_ids.append(run_id)
        return await self.journal.runs.request_cancel(run_id)

    async def crash(self) -> None:
        """Let the process be gone; what it had committed stays."""
        if self.db:
            self.event_loop = FakeEventLoop()
            self.engine._triggers.close()
            await self.quiet()
            await self.db.close()
            self.db = None

    async def reach(self, moment: str) -> None:
        """Let time pass until then, with every ring on the way."""
        goal = at(moment)
        while self.next_start and self.next_start <= goal:
            self.time.move_to(max(self.next_start, datetime.now(UTC)))
            await self.ring()
        self.time.move_to(goal)

    async def ring(self) -> None:
        """Let APScheduler look at what is due."""
        self.event_loop.end_timer()
        await self.quiet()

    async def fire(self, name: str) -> None:
        """Let the job of a routine fire, whatever its fire time is."""
        fire(self.engine, name)
        await self.quiet()

    async def set_clock(self, moment: str) -> None:
        """Set the clock of the machine while the daemon runs."""
        self.time.move_to(at(moment))
        self.engine.handle_clock_change()
        await self.quiet()

    async def quiet(self) -> None:
        """Let the loop turn until the engine has done what it was rung for."""
        for _ in range(5):
            await asyncio.sleep(0)
            tasks = [task for task in asyncio.all_tasks() if task.get_name() in OURS]
            await asyncio.gather(*tasks)

    async def finish(self, *runs: Run) -> None:
        """Live these runs to a good end."""
        for run in runs:
            claimed_run = await self.journal.runs.claim(run.id, owner="test")
            assert claimed_run
            await self.journal.runs.end(
                claimed_run.to(Status.SUCCEEDED, ended=datetime.now(UTC), report="said")
            )

    async def rows(self, name: str | None = None) -> list[str]:
        """Return the ledger in words, oldest first."""
        return [
            f"{row.first:%d %H:%M}"
            + (f" to {row.last:%d %H:%M}, {row.count}" if row.count > 1 else "")
            + f" {row.outcome}"
            + (f" {row.reason}" if row.reason else "")
            for row in reversed(await self.journal.slots.find(name))
        ]

    @property
    def starts(self) -> list[str]:
        return [f"{run.routine} {run.slot:%d %H:%M}" for run in self.submitted_runs]


def fire(engine: RoutineEngine, name: str) -> None:
    """Call what APScheduler calls when a routine is due."""
    assert engine._scheduler
    job = engine._scheduler.get_job(name)
    job.func(*job.args)


def at(text: str) -> datetime:
    """Return a moment of January 2026, or the one that is written out."""
    return datetime.fromisoformat(
        text if "-" in text else f"2026-01-{text.replace(' ', 'T')}"
    ).replace(tzinfo=UTC)


def schedule_of_routine(definition: Routine) -> Schedule:
    """Return when a routine runs on a machine in UTC."""
    return schedule_of(definition, zone="UTC")
