"""What a person waits for: `agentctl list` and `status`; and what a request to the control API,
and a run through it, cost the daemon.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench import installation
from tests.bench.history import fill, now
from tests.bench.idle import await_the_end_of_the_start, cpu_of
from tests.bench.measure import Bench, Effort, Row, Worker, median, ms, ratio
from tests.bench.thousands import MANY, write_routines
from tests.bench.vendor import Vendor


def _took(argv: Sequence[str], config: Path) -> float:
    begin = time.perf_counter()
    subprocess.run(
        argv, env=installation.environment(config), check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - begin


def _verb(effort: Effort, verb: str) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        config = installation.build(Path(folder) / "h", "http://127.0.0.1:9", width=5)
        empty_command, command = [sys.executable, "-c", "pass"], installation.agentctl(verb)
        with installation.Daemon(config):
            _took(empty_command, config), _took(command, config)
            times = [
                (_took(empty_command, config), _took(command, config))
                for _ in range(effort.rounds * 4)
            ]
    floor_times, own_times = [pair[0] for pair in times], [pair[1] for pair in times]
    note = "" if Path(command[0]).name == "agentctl" else "without the installed script"
    yield Row(
        name=f"agentctl {verb} / python -c pass",
        floor=ms(median(floor_times)),
        ours=ms(median(own_times)),
        ratio=ratio(own_times, floor_times),
        bar=2.8,
        note=note,
    )


def _list_of_many(effort: Effort) -> Iterable[Row]:
    """List routines of which each has run before: the first page, and all of them."""
    count = effort.scaled(MANY)
    with tempfile.TemporaryDirectory() as folder:
        config = installation.build(Path(folder) / "h", "http://127.0.0.1:9", width=1)
        names = write_routines(config.parent / "routines", count, every="20h")
        journal = config.parent / "state" / "agentd.db"
        asyncio.run(fill(journal, count, end=now(), days=1, routines=names))
        command = installation.agentctl("list")
        with installation.Daemon(config):
            await_the_end_of_the_start(config)
            pages = []
            with installation.Connection(config) as connection:
                for _ in range(effort.rounds):
                    begin = time.perf_counter()
                    connection.get("/v1/routines?limit=200")
                    pages.append(time.perf_counter() - begin)
            took = median(_took(command, config) for _ in range(effort.rounds))
    page = median(pages)
    yield Row(
        name=f"first page of {count:,} routines",
        ours=ms(page),
        value=page * 1000,
        bar=150,
        note="ms",
    )
    yield Row(name=f"agentctl list, {count:,} routines", ours=ms(took))


def _request(effort: Effort) -> Iterable[Row]:
    """Measure the daemon's CPU for one request on a connection that stays open, as the page and
    `top` keep theirs.
    """
    count = effort.scaled(400)
    with tempfile.TemporaryDirectory() as folder:
        config = installation.build(Path(folder) / "h", "http://127.0.0.1:9", width=5)
        with installation.Daemon(config) as daemon, installation.Connection(config) as connection:
            connection.get("/v1/routines/bench-0")
            cpu_times = []
            for _ in range(effort.rounds):
                begin = cpu_of(daemon.pid)
                for _ in range(count):
                    connection.get("/v1/routines/bench-0")
                cpu_times.append((cpu_of(daemon.pid) - begin) / count)
    seconds = median(cpu_times)
    yield Row(
        name="a request to the control API",
        ours=f"{ms(seconds)} CPU",
        value=seconds * 1000,
        bar=0.8,
        note="ms",
    )


def _run(effort: Effort) -> Iterable[Row]:
    """Compare runs that are started, followed and read through the control socket, as `agentctl
    run` does it, with the same runs started inside the process.
    """
    count = effort.scaled(40)
    with tempfile.TemporaryDirectory() as folder, Vendor() as vendor:
        served = installation.build(Path(folder) / "served", vendor.url)
        inside = installation.build(Path(folder) / "inside", vendor.url)
        own_times, floor_times = [], []
        with (
            Worker(
                "tests.bench.installation:runs", config=str(inside), width=1, memory_items=0
            ) as floor,
            installation.Daemon(served) as daemon,
        ):
            await_the_end_of_the_start(served)
            for _ in range(effort.rounds + effort.warmed):
                floor_times.append(floor.round(count).cpu / count)
                begin = cpu_of(daemon.pid)
                for _ in range(count):
                    with installation.Connection(served) as connection:
                        run = json.loads(connection.post("/v1/routines/bench-0/run"))["id"]
                        connection.get(f"/v1/runs/{run}/events")  # up to its end
                        status = json.loads(connection.get(f"/v1/runs/{run}"))["status"]
                    if status != "succeeded":
                        raise RuntimeError(f"run {run} {status}")
                own_times.append((cpu_of(daemon.pid) - begin) / count)
    own_times, floor_times = own_times[effort.warmed :], floor_times[effort.warmed :]
    yield Row(
        name="2-call run through the control socket / in process",
        floor=f"{ms(median(floor_times))} CPU",
        ours=f"{ms(median(own_times))} CPU",
        ratio=ratio(own_times, floor_times),
        bar=1.6,
    )


ROWS: dict[str, Bench] = {
    "list": lambda effort: _verb(effort, "list"),
    "status": lambda effort: _verb(effort, "status"),
    "list-many": _list_of_many,
    "api": _request,
    "api-run": _run,
}
