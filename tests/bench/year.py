"""`python -m tests.bench year`: a year of one installation in some minutes.

    python -m tests.bench year                 100,000 runs in 365 days
    python -m tests.bench year --runs 4000     the same year with fewer runs a day
    python -m tests.bench year --minutes 30    no longer than that: the last column is where it came

Twenty routines of several kinds run by their schedules under a clock that is moved from slot to
slot. Engine, journal, policy, injection check, memory and outbox are the daemon's own, config.toml
is the shipped one, and its retention is applied each night. Only the model is scripted
(reports.py), in this process, so no network is in the figures.

At 1,000, 10,000 and 100,000 runs everything that could grow with the past is measured and printed
as a Markdown table, each figure beside its ratio to the first. The exit code is 1 if a figure grew
that must not, or if facts of the first days are not found any more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import NamedTuple

from daemon.app.background import make_maintenance
from daemon.app.commands.backup import backup
from daemon.errors import NotFound
from daemon.models import Status
from daemon.testing import FakeClock, TestApp, tool_call
from tests.bench.measure import ROOT, ms
from tests.bench.reports import (
    ODD_REPORTS,
    ROUTINES,
    RUNS_PER_DAY,
    SILENCE,
    Kind,
    OddReport,
    OddReportPlan,
    Reporter,
    ReportWriter,
)
from tests.command_line import run_command
from tests.engine_harness import fire

DAYS = 365
MARKS = (1_000, 10_000, 100_000)
# Later than the clock of any machine that runs this: no timer of the scheduler is ever due, and
# nothing starts but what is started here.
BEGIN = datetime(2040, 1, 2, tzinfo=UTC)
NIGHT = timedelta(hours=3)
"""When the nightly maintenance is done, after midnight."""
# How often what is quick is measured.
REPEATS = 7
# Of the facts that were planted in the first days, how many must be found.
NEEDED = 5
# A figure that must not grow may be so many times the first one: twice leaves room for what else
# the machine does, and for caches that more data do not fit into.
MAX_RATIO = 2.0
# Seconds of CPU. A difference below it is no growth, whatever the ratio.
NOISE = 0.002

POLICY = """
version = 1
[[rule]]
tool = "file_read"
paths = ["readings/**"]
effect = "allow"
"""
ROUTINE = """
description = "{description}"
[trigger]
every = "{every}"
[run]
mode = "{mode}"
prompt = "{goal}"
memory = "recall+store"
{more}
[[deliver]]
to = "file"
path = "reports/{{routine}}/{{slot:%Y-%m-%d}}.md"
"""
# The model reads the readings by a call of its own, or has them in its prompt.
BY_CALL = 'tools = ["file_read"]'
BY_GATHER = """
[[gather]]
name = "readings"
tool = "file_read"
args = {{ path = "readings/{name}.txt" }}
"""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table."""

    name: str
    unit: str = "s"
    """s, bytes, or empty for a count."""
    why_it_grows: str = ""
    """Empty for what must not grow."""
    values: list[float] = field(default_factory=list)
    """One for each mark."""

    @property
    def has_grown(self) -> bool:
        """Tell whether a figure that must not grow did."""
        first, last = self.values[0], self.values[-1]
        is_noise = self.unit == "s" and last - first < NOISE
        return not self.why_it_grows and last > MAX_RATIO * first and not is_noise

    def show(self, mark: int) -> str:
        value, first = self.values[mark], self.values[0]
        match self.unit:
            case "s":
                text = ms(value) if value < 1 else f"{value:.2f} s"
            case "bytes":
                text = f"{value / 1e6:.1f} MB"
            case _:
                text = f"{value:g}"
        return (
            text if mark == 0 or not self.unit or not first else f"{text} (x {value / first:.1f})"
        )


class Cost(NamedTuple):
    """Seconds of something that was done."""

    cpu: float
    """Of all threads of this process."""
    wall: float


class Year:
    """An installation that lives a year, and what is measured of it."""

    def __init__(
        self,
        folder: Path,
        *,
        runs: int,
        days: int = DAYS,
        marks: Sequence[int] = MARKS,
        seconds: float = inf,
    ) -> None:
        """`runs` in so many `days`, but no longer than so many real `seconds`."""
        self._deadline = time.monotonic() + seconds
        self.marks = sorted({mark for mark in marks if mark < runs} | {runs})
        self._folder = folder
        self.app = TestApp(folder, config=_shipped_config(), clock=FakeClock(BEGIN))
        self.app.write("policy.toml", POLICY)
        # of the schedules in reports.py, so that the runs fill the days
        self._stretch = RUNS_PER_DAY * days / runs
        for routine in ROUTINES:
            self.app.write_routine(routine.name, _routine_file(routine, self._stretch))
        self._writers = {routine.name: ReportWriter(routine) for routine in ROUTINES}
        # all odd reports are written before the first mark, so that each mark asks the same
        first_days = timedelta(days=days * self.marks[0] / runs)
        self._plan = OddReportPlan(BEGIN, BEGIN + first_days * 0.9)
        self.planted_times: dict[OddReport, datetime] = {}
        """When each odd report was written."""
        self.progress: list[tuple[int, int]] = []
        """Runs and days at which everything was measured."""
        self.costs: deque[Cost] = deque(maxlen=200)
        """Of the last runs."""
        self.nights: deque[Cost] = deque(maxlen=14)
        """Of the maintenance of the last nights."""
        self.figures: dict[str, Figure] = {}

    async def live(self) -> None:
        """Live the year, and measure at each mark."""
        readings = self.app.workspace / "readings"
        readings.mkdir(parents=True)
        async with self._open():
            await self._run_all_commands()  # what they import is not growth
        run_count, night, next_slots = 0, BEGIN + NIGHT, []
        for mark in self.marks:
            async with self._open():
                engine = self.app.daemon.scheduling.engine
                if not next_slots:
                    next_slots = [
                        (engine.next_slots(routine.name, 1)[0], routine) for routine in ROUTINES
                    ]
                    heapq.heapify(next_slots)
                # all that are due at one moment: a start would catch up on those left
                while next_slots[0][0] <= self.app.clock.now() or (
                    run_count < mark and time.monotonic() < self._deadline
                ):
                    slot, routine = next_slots[0]
                    while night <= slot:
                        self.app.clock.move_to(night)
                        self.nights.append(await _cost(self._maintain))
                        night += timedelta(days=1)
                    self.app.clock.move_to(slot)
                    await self._run(routine, slot)
                    following = engine.next_slots(routine.name, 1)[0]
                    heapq.heapreplace(next_slots, (following, routine))
                    run_count += 1
                await self._measure_open()
            await self._measure_closed()
            self.progress.append((run_count, (self.app.clock.now() - BEGIN).days))
            sys.stderr.write("\n".join(self.table()) + "\n\n")
            if run_count < mark:
                break

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        """Start the daemon on the folder, with its engine."""
        async with self.app:
            daemon = self.app.daemon
            await daemon.scheduling.engine.start(await daemon.reloader.load_routines())
            try:
                yield
            finally:
                await daemon.scheduling.engine.stop()

    async def _run(self, routine: Reporter, slot: datetime) -> None:
        """Start the due slot of a routine, and wait until its report has arrived."""
        odd = self._plan.take(routine, slot)
        report = self._writers[routine.name].write(slot, odd)
        if odd:
            self.planted_times[odd] = slot
        path = f"readings/{routine.name}.txt"
        (self.app.workspace / path).write_text(report.result)
        replies = [report.text] if _gathers(routine) else [_read_call(path), report.text]
        self.app.model.enqueue(*replies)

        async def run() -> None:
            fire(self.app.daemon.scheduling.engine, routine.name)
            claims = [task for task in asyncio.all_tasks() if task.get_name() == "slot claims"]
            await asyncio.gather(*claims)
            (row,) = await self.app.daemon.store.journal.slots.find(routine.name, limit=1)
            if row.run is None or row.last != slot:
                raise RuntimeError(f"{routine.name} did not start at {slot.isoformat()}")
            ended_run = await self.app.finish(row.run)
            if ended_run.status is not Status.SUCCEEDED:
                raise RuntimeError(f"{routine.name} {ended_run.status}: {ended_run.detail}")
            await self.app.daemon.delivery.outbox.flush()

        self.costs.append(await _cost(run))
        self.app.model.calls.clear()

    async def _maintain(self) -> None:
        """Do once what the daemon does once a day."""
        daemon = self.app.daemon
        memory, journal = make_maintenance(
            daemon.installation, daemon.settings, daemon.clock, daemon.store, daemon.runs.queue
        )
        await memory.examine()
        await memory.retain()
        await journal.check()
        await journal.apply_retention()

    # --- what is measured

    def _add(self, name: str, value: float, unit: str = "s", why_it_grows: str = "") -> None:
        figure = Figure(name=name, unit=unit, why_it_grows=why_it_grows)
        self.figures.setdefault(name, figure).values.append(value)

    async def _measure_open(self) -> None:
        """Measure what needs the daemon to be there."""
        self._add("CPU of a run", _median_cpu(self.costs))
        wall = statistics.median(cost.wall for cost in self.costs)
        self._add(
            "wall time of a run", wall, why_it_grows="not judged: the machine does other things"
        )
        self._add("CPU of recall, the routine's own goal", await self._cost_of_own_goals())
        hits, cost = await self._find_planted()
        self._add(f"of {len(ODD_REPORTS)} facts of the first days, found in ten hits", hits, "")
        reason = "texts with its words are compared, up to 20,000"
        self._add("CPU of recall, a person's question", cost, why_it_grows=reason)
        gc.collect()
        self._add("resident memory", _resident(), "bytes")
        for name, costs in (await self._run_all_commands()).items():
            self._add(f"CPU of `agentctl {name}`", _least_cpu(costs), "s", _COMMANDS[name])
        self._add(
            "CPU of the dearest night of two weeks",
            max((cost.cpu for cost in self.nights), default=0.0),
            why_it_grows="up to 64 MB the whole database is checked, then a seventh of it a night",
        )

    async def _measure_closed(self) -> None:
        """Measure what needs the daemon to be stopped."""
        starts = []
        for _ in range(3):
            app = self._open()
            starts.append(await _cost(app.__aenter__))
            await app.__aexit__(None, None, None)
        self._add("CPU of a start, without imports", _least_cpu(starts))
        database = self.app.state / "agentd.db"
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (index,) = connection.execute(
                "SELECT sum(length(block)) FROM memory_fts_data"
            ).fetchone()
        self._add(
            "database",
            database.stat().st_size,
            "bytes",
            "5 kB a run for ever, 5 kB more for `steps`",
        )
        self._add("of it the index of memory", index, "bytes", "the words of each new report")

        def copy() -> None:
            config, file = self.app.daemon.settings.config, self._folder / "backup.db"
            backup(self.app.state, file, config, progress=lambda _: None)
            file.unlink()

        cost = await _cost(lambda: asyncio.to_thread(copy))
        self._add("`agentctl backup`, wall time", cost.wall, why_it_grows="it copies the database")

    async def _cost_of_own_goals(self) -> float:
        """Return the median CPU with which a routine's goal is recalled, over all routines."""
        memory, costs = self.app.daemon.store.memory, []
        for routine in ROUTINES * REPEATS:
            approach = f"routine:{routine.name}:approach"
            costs.append(await _cost(lambda r=routine, a=approach: memory.recall(r.goal, a)))
        return _median_cpu(costs)

    async def _find_planted(self) -> tuple[int, float]:
        """Return how many of the planted facts are found in ten hits, and the median CPU of it."""
        memory, hit_count = self.app.daemon.store.memory, 0
        costs = [
            await _cost(lambda odd=odd: memory.retrieve(odd.question, 10))
            for odd in ODD_REPORTS * REPEATS
        ]
        for odd in ODD_REPORTS:
            hits = await memory.retrieve(odd.question, 10)
            hit_count += any(odd.sentence in hit.content for hit in hits)
        return hit_count, _median_cpu(costs)

    async def _run_all_commands(self) -> dict[str, list[Cost]]:
        """Run each command some times, over the socket and in this process; return their costs."""
        costs: dict[str, list[Cost]] = {name: [] for name in _COMMANDS}
        async with self.app.serve_api() as socket:
            env = {"AGENTD_SOCKET": str(socket), "PATH": os.defpath, "HOME": str(self._folder)}
            for _ in range(REPEATS):
                for name in _COMMANDS:

                    async def run(name: str = name) -> None:
                        result = await run_command(
                            "agentctl", *name.split(), env=env, cwd=self._folder
                        )
                        if result.code:
                            raise NotFound(f"agentctl {name}: {result.err or result.out}")

                    costs[name].append(await _cost(run))
        return costs

    # --- the table

    def table(self) -> list[str]:
        """Return the figures as the lines of a Markdown table."""
        columns = [f"{runs:,} runs, day {day}" for runs, day in self.progress]
        lines = [
            "| what | " + " | ".join(columns) + " | why it grows |",
            "|---|" + "--:|" * len(columns) + "---|",
        ]
        for figure in self.figures.values():
            cells = [figure.show(mark) for mark in range(len(self.progress))]
            lines.append(f"| {figure.name} | {' | '.join(cells)} | {figure.why_it_grows or '–'} |")
        return lines

    def faults(self) -> list[str]:
        """Return what grew that must not, and whether too few facts are found."""
        faults = [
            f"{figure.name} has grown from {figure.show(0)} to {figure.show(-1)}"
            for figure in self.figures.values()
            if figure.unit and figure.has_grown
        ]
        counts = [figure for figure in self.figures.values() if not figure.unit]
        return faults + [
            f"{figure.name}: {figure.values[-1]:g}, fewer than {NEEDED}"
            for figure in counts
            if figure.values[-1] < NEEDED
        ]


# Commands that are measured, and why one may take longer with the years.
_COMMANDS = {
    "list": "",
    "runs": "",
    "usage": "the calls of 30 days are added up; level from then on",
    "forecast": "",
    "why watcher-00": "",
    "next": "",
    "status": "all runs, deliveries and steps are counted",
    "metrics": "all deliveries are counted",
}


def _shipped_config() -> str:
    """Return the shipped config.toml with the scripted model in it."""
    text = (ROOT / "config.toml").read_text()
    provider_line = 'provider = "offline"'
    assert provider_line in text
    model = '[providers.scripted]\nkind = "scripted"\n'
    return text.replace(provider_line, 'provider = "scripted"\ntimezone = "Europe/Berlin"') + model


def _routine_file(routine: Reporter, stretch: float) -> str:
    more = BY_GATHER.format(name=routine.name) if _gathers(routine) else BY_CALL
    if routine.kind is Kind.HEARTBEAT:
        more = f'silent_token = "{SILENCE}"\n{more}'
    return ROUTINE.format(
        description=f"{routine.kind.value} {routine.number}",
        every=f"{round(routine.every.total_seconds() * stretch)}s",
        mode="collect-then-summarise" if _gathers(routine) else "agent",
        goal=routine.goal,
        more=more,
    )


def _gathers(routine: Reporter) -> bool:
    return routine.kind in (Kind.HEARTBEAT, Kind.TABLE)


def _read_call(path: str) -> dict[str, object]:
    return tool_call("file_read", path=path)


async def _cost(action: Callable[[], Awaitable[object]]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    await action()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def _median_cpu(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.cpu for cost in costs)


def _least_cpu(costs: Sequence[Cost]) -> float:
    """Return the least: what other programs do to the caches of the machine makes each dearer."""
    return min(cost.cpu for cost in costs)


def _resident() -> int:
    """Return the bytes that this process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench year",
        description="Live a simulated year, and measure what grows with it.",
    )
    parser.add_argument("--runs", type=int, default=MARKS[-1], help="how many runs in all")
    parser.add_argument("--days", type=int, default=DAYS, help="in how many days")
    parser.add_argument("--minutes", type=float, default=inf, help="stop after so long")
    parser.add_argument("--keep", type=Path, help="a new folder, which stays, for the installation")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="agentd-year-"))
    folder.mkdir(mode=0o700, exist_ok=not options.keep)
    begin = time.perf_counter()
    try:
        year = Year(folder, runs=options.runs, days=options.days, seconds=options.minutes * 60)
        asyncio.run(year.live())
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    sys.stdout.write("\n".join(year.table()) + "\n")
    sys.stderr.write(f"took {time.perf_counter() - begin:.0f} s\n")
    for fault in (faults := year.faults()):
        sys.stderr.write(f"FAILED: {fault}\n")
    return 1 if faults else 0
