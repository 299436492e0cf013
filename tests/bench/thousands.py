"""Ten thousand routines: read from their files, and all due in the same instant."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.bench import installation
from tests.bench.floors import Round
from tests.bench.idle import await_the_end_of_the_start, cpu_of
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, ratio

MANY = 10_000
_EVERY = 20  # seconds: how often all are due
_ROUTINE = """description = "Number {number}"
[trigger]
every = "{every}"
timezone = "Europe/Berlin"
active_days = "mon-sun"
[run]
mode = "collect-then-summarise"
prompt = \"\"\"Write what happened on machine {number}
in the last hours.\"\"\"
timeout = "10m"
[[gather]]
name = "host"
tool = "sysinfo"
args = {{ parts = ["load", "memory", "disks"] }}
[[deliver]]
to = "file"
path = "reports/{{routine}}/{{slot:%Y-%m-%d}}.md"
"""


def write_routines(folder: Path, count: int, every: str = f"{_EVERY}s") -> list[str]:
    """Write so many routines that are due in the same instants; return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"routine-{number:05}" for number in range(count)]
    for number, name in enumerate(names):
        (folder / f"{name}.toml").write_text(_ROUTINE.format(number=number, every=every))
    return names


@asynccontextmanager
async def load_routines(folder: str) -> AsyncIterator[Round]:
    """Load a folder of routines in a thread, as the daemon does, and watch how long the loop has to
    wait for it.
    """
    from daemon.definitions.routines.folder import load_folder

    async def round_(count: int) -> dict[str, Any]:
        worst = 0.0
        for _ in range(count):
            task = asyncio.create_task(asyncio.to_thread(load_folder, Path(folder)))
            worst = max(worst, await _longest_gap(task))
            result = await task
            if result.faults:
                raise RuntimeError(str(next(iter(result.faults.values()))))
        return {"extra": {"stall": worst}}

    yield round_


async def _longest_gap(task: asyncio.Task[Any]) -> float:
    """Return the longest time that the loop did not come round while the task ran."""
    worst, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.0005)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    return worst


@asynccontextmanager
async def all_due(folder: str, state: str) -> AsyncIterator[Round]:
    """Let every routine of a folder be due in one instant, again and again, on the real clock and
    alarm.
    """
    from daemon.definitions.routines.folder import load_folder
    from daemon.models import Run
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.database import Database
    from daemon.store.journal import Journal
    from daemon.system.clock import SystemClock
    from daemon.telemetry.log import configure
    from daemon.telemetry.redaction import Secrets

    configure(level="info", console=False, file=Path(state) / "agentd.jsonl", secrets=Secrets())
    clock = SystemClock()
    database = await Database.open(Path(state) / "agentd.db")
    journal = Journal(database, clock=clock.now)
    submit_times: list[float] = []
    all_there = asyncio.Event()

    async def submit(run: Run) -> None:
        submit_times.append(time.time())
        if len(submit_times) == len(engine.routines):
            all_there.set()

    async def cancel(run_id: str) -> None:
        raise NotImplementedError

    engine = RoutineEngine(journal=journal, submit=submit, cancel=cancel, clock=clock, zone="UTC")
    await engine.start(load_folder(Path(folder)))

    async def round_(count: int) -> dict[str, Any]:
        # else these slots are skipped, as the runs of the last ones are not over
        statement = "UPDATE run SET status = 'cancelled' WHERE status = 'queued'"
        await database.write(lambda connection: connection.execute(statement))
        submit_times.clear()
        all_there.clear()
        instant = (time.time() // _EVERY + 1) * _EVERY
        await asyncio.sleep(max(0.0, instant - 0.2 - time.time()))
        task = asyncio.create_task(asyncio.wait_for(all_there.wait(), 60))
        stall = await _longest_gap(task)
        await task
        return {"extra": {"stall": stall, "last": submit_times[-1] - instant}}

    yield round_
    await engine.stop()
    await database.close()


def _load(effort: Effort) -> Iterable[Row]:
    count = effort.scaled(MANY)
    with tempfile.TemporaryDirectory() as folder:
        routines = Path(folder) / "routines"
        write_routines(routines, count)
        with (
            Worker("tests.bench.floors:toml_folder", folder=str(routines)) as floor,
            Worker("tests.bench.thousands:load_routines", folder=str(routines)) as worker,
        ):
            floor_samples, own_samples = in_turns(effort, 1, floor, worker)
    yield Row(
        name=f"load {count:,} routines / tomllib",
        floor=ms(median(s.wall for s in floor_samples)),
        ours=ms(median(s.wall for s in own_samples)),
        ratio=ratio([s.wall for s in own_samples], [s.wall for s in floor_samples]),
        note=f"the loop waited {ms(max(s.extra['stall'] for s in own_samples))} at most",
    )


def _due(effort: Effort) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        routines, state = Path(folder) / "routines", Path(folder) / "state"
        write_routines(routines, MANY)
        state.mkdir(mode=0o700)
        with Worker(
            "tests.bench.thousands:all_due", folder=str(routines), state=str(state)
        ) as worker:
            [samples] = in_turns(effort, 1, worker)
    stall, last = (
        median(s.extra["stall"] for s in samples),
        median(s.extra["last"] for s in samples),
    )
    yield Row(
        name=f"{MANY:,} due at once: stall",
        ours=ms(stall),
        value=stall * 1000,
        bar=50,
        note="of the loop, ms",
    )
    yield Row(
        name=f"{MANY:,} due at once: last one",
        ours=ms(last),
        value=last * 1000,
        bar=1000,
        note="enqueued, ms",
    )


def _one_edited(effort: Effort) -> Iterable[Row]:
    """Measure the daemon's CPU from the moment one routine file of many is written until its new
    text is in force.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = installation.build(Path(folder) / "h", "http://127.0.0.1:9", width=1)
        count = effort.scaled(MANY)
        routines = config.parent / "routines"
        write_routines(routines, count, every="20h")  # none is due meanwhile
        with installation.Daemon(config) as daemon:
            await_the_end_of_the_start(config)
            cpu_times = []
            for number in range(effort.rounds):
                path = routines / "bench-0.toml"
                title = f'description = "Edit {number}"'
                text = re.sub(r"^description = .*$", title, path.read_text(), flags=re.MULTILINE)
                begin = cpu_of(daemon.pid)
                path.write_text(text)
                until = time.monotonic() + 120
                while f'"Edit {number}"'.encode() not in daemon.ask("/v1/routines/bench-0"):
                    if time.monotonic() > until:
                        raise RuntimeError(
                            "two minutes after a routine file was edited its old text is in force"
                        )
                    time.sleep(0.5)
                cpu_times.append(cpu_of(daemon.pid) - begin)
    took = median(cpu_times)
    yield Row(
        name=f"one file of {count:,} edited",
        ours=f"{ms(took)} CPU",
        value=took * 1000,
        bar=150,
        note="ms",
    )


ROWS: dict[str, Bench] = {
    "routines-load": _load,
    "routines-due": _due,
    "routines-edit": _one_edited,
}
