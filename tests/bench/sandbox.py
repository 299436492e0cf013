"""What it costs to start a program in each sandbox, against bare execve in the same run."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from daemon.sandbox.bounds import Bounds
from daemon.sandbox.detection import BWRAP, choose
from daemon.sandbox.running import Running, run
from daemon.sandbox.sandbox import Sandbox
from daemon.sandbox.user import settle, tenant
from tests.bench.measure import Bench, Effort, Row

TRUE = "/usr/bin/true"
COUNT = 20


def sandbox(effort: Effort) -> Iterable[Row]:
    """Start `true` bare, under the supervisor alone, and in each sandbox that this machine has, by
    turns.
    """
    with tempfile.TemporaryDirectory(prefix="agentd-bench-") as place:
        folder = Path(place)
        folder.chmod(0o711)
        (folder / "workspace").mkdir()
        if user := tenant(folder / "workspace"):
            settle(folder / "workspace", user)
        cells = {"supervisor": Sandbox(level="off", user=user)}
        for rung, bwrap in {"bubblewrap": BWRAP, "landlock": ()}.items():
            found = asyncio.run(choose("prefer", folder, user, bwrap=bwrap))
            if found.level == rung:
                cells[rung] = found
        yield from _rows(cells, folder / "workspace", effort)


def _rows(cells: dict[str, Sandbox], workspace: Path, effort: Effort) -> Iterable[Row]:
    times: dict[str, list[float]] = {name: [] for name in ("bare", *cells)}
    for _ in range(effort.rounds * effort.scaled(COUNT)):
        times["bare"].append(_bare())
        for name, cell in cells.items():
            times[name].append(asyncio.run(_within(cell, workspace)))
    floor = statistics.median(times.pop("bare"))
    for name, taken in times.items():
        ours = statistics.median(taken)
        yield Row(
            name=f"start a program: {name}",
            ours=f"{ours * 1000:.1f} ms",
            floor=f"{floor * 1000:.1f} ms bare execve",
            ratio=ours / floor,
        )


def _bare() -> float:
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
    return time.perf_counter() - begin


async def _within(cell: Sandbox, workspace: Path) -> float:
    bounds = Bounds(workspace=str(workspace), folder=str(workspace))
    program = Running(path=TRUE, argv=[TRUE], cell=cell.cell(bounds))
    begin = time.perf_counter()
    ended = await run(
        [(";", [program])], folder=workspace, environment={}, seconds=20, output_bytes=1000
    )
    taken = time.perf_counter() - begin
    if ended.code:
        raise RuntimeError(ended.output.text() or f"it ended with exit code {ended.code}")
    return taken


ROWS: dict[str, Bench] = {"sandbox": sandbox}
