"""How late a routine fires: wall clock minus the instant it was due, with a thousand and ten
thousand of them.

Through the real alarm, engine and journal, up to where its run is passed to the run queue. And what
one question to the crontab engine costs.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from tests.bench.floors import Round
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, percentile

_EVERY = 20  # seconds
# As awkward as people write them, in a zone whose clock changes.
_LINES = (
    "30 8 * * 1-5",
    "*/15 * * * *",
    "0 9 L * *",
    "15 2 * * *",
    "0 0 13 * fri",
    "5 4 * * sun",
    "0 */2 1-7 * *",
)
_ZONE = "Europe/Berlin"


# Slots are skipped while the runs of the last ones are not over.
def _cancel(run: str, connection: Connection) -> object:
    return connection.execute("UPDATE run SET status = 'cancelled' WHERE id = ?", (run,))


def _cancel_all(connection: Connection) -> object:
    return connection.execute("UPDATE run SET status = 'cancelled' WHERE status = 'queued'")


@asynccontextmanager
async def firing(count: int, spread: bool, state: str) -> AsyncIterator[Round]:
    """Let so many routines be due every 20 s, all in one instant or spread over that time."""
    from daemon.definitions.routines.folder import FolderContents
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Run
    from daemon.scheduler.engine import RoutineEngine
    from daemon.scheduler.routine_times import schedule_of
    from daemon.store.database import Database
    from daemon.store.journal import Journal
    from daemon.system.clock import SystemClock
    from daemon.telemetry.log import configure
    from daemon.telemetry.redaction import Secrets

    configure(level="info", console=False, file=Path(state) / "agentd.jsonl", secrets=Secrets())
    trigger = {
        "every": f"{_EVERY}s",
        "spread": f"{_EVERY}s" if spread else "0s",
        "catch_up": "none",
    }
    routines = {
        name: Routine.model_validate({"name": name, "trigger": trigger, "run": {"prompt": "x"}})
        for name in (f"routine-{number:05}" for number in range(count))
    }
    delays = {
        name: schedule_of(routine, zone="UTC", machine="box").delay
        for name, routine in routines.items()
    }
    clock = SystemClock()
    database = await Database.open(Path(state) / "agentd.db")
    late: list[float] = []

    async def submit(run: Run) -> None:
        late.append(time.time() - (run.slot + delays[run.routine]).timestamp())
        if spread:
            database.submit(partial(_cancel, run.id))

    async def cancel(run_id: str) -> None:
        raise NotImplementedError

    journal = Journal(database, clock=clock.now)
    engine = RoutineEngine(
        journal=journal, submit=submit, cancel=cancel, clock=clock, zone="UTC", machine="box"
    )
    await engine.start(FolderContents(routines=routines))

    async def round_(_count: int) -> dict[str, Any]:
        await database.write(_cancel_all)
        late.clear()
        async with asyncio.timeout(3 * _EVERY):
            while len(late) < count:
                await asyncio.sleep(0.2)
        return {"extra": {"p50": percentile(late, 0.5), "p99": percentile(late, 0.99)}}

    yield round_
    await engine.stop()
    await database.close()


def _fire(effort: Effort) -> Iterable[Row]:
    for count in (1_000, 10_000):
        for spread in (True, False):
            with tempfile.TemporaryDirectory() as state:
                Path(state).chmod(0o700)
                with Worker(
                    "tests.bench.fire:firing", count=count, spread=spread, state=state
                ) as worker:
                    [samples] = in_turns(Effort(rounds=min(3, effort.rounds), size=1), 1, worker)
            p50, p99 = (median(sample.extra[key] for sample in samples) for key in ("p50", "p99"))
            how = f"spread over {_EVERY} s" if spread else "in one instant"
            yield Row(name=f"fire {count:,} {how}", ours=f"p50 {ms(p50)}", note=f"p99 {ms(p99)}")


@asynccontextmanager
async def ask_crontab() -> AsyncIterator[Round]:
    """Ask the crontab engine for the slots around moments all over a year."""
    from datetime import UTC, datetime, timedelta
    from zoneinfo import ZoneInfo

    from daemon.definitions.cron import parse

    crons, zone = [parse(line) for line in _LINES], ZoneInfo(_ZONE)
    start = datetime(2026, 1, 1, tzinfo=UTC)

    async def round_(count: int) -> dict[str, Any]:
        for number in range(count):
            moment = start + timedelta(minutes=number * 997 % 525_600)
            cron = crons[number % len(crons)]
            cron.next(moment, zone)
            cron.prev(moment, zone)
        return {}

    yield round_


def _crontab(effort: Effort) -> Iterable[Row]:
    count = effort.scaled(20_000)
    with Worker("tests.bench.fire:ask_crontab") as worker:
        [samples] = in_turns(effort, count, worker)
    seconds = median(sample.wall for sample in samples) / count / 2
    yield Row(
        name="crontab: next or prev",
        ours=f"{seconds * 1e6:.3g} µs",
        value=seconds * 1e6,
        bar=100,
        note="a call",
    )


ROWS: dict[str, Bench] = {"crontab": _crontab, "fire": _fire}
