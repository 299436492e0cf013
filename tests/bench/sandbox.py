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
from daemon.sandbox.detection import BWRAP, choose_sandbox
from daemon.sandbox.running import PreparedProgram, run
from daemon.sandbox.sandbox import Sandbox
from daemon.sandbox.user import find_program_user, give_workspace_to_user
from tests.bench.measure import Bench, Effort, Row

TRUE = "/usr/bin/true"
COUNT = 20


def sandbox(effort: Effort) -> Iterable[Row]:
    """Start `true` bare, under the supervisor alone, and in each sandbox that this machine has, by
    turns.
    """
    with tempfile.TemporaryDirectory(prefix="agentd-bench-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o711)
        (folder / "workspace").mkdir()
        if user := find_program_user(folder / "workspace"):
            give_workspace_to_user(folder / "workspace", user)
        cells = {"supervisor": Sandbox(level="off", user=user)}
        for rung, bwrap in {"bubblewrap": BWRAP, "landlock": ()}.items():
            sandbox = asyncio.run(choose_sandbox("prefer", folder, user, bwrap=bwrap))
            if sandbox.level == rung:
                cells[rung] = sandbox
        yield from _rows(cells, folder / "workspace", effort)


def _rows(cells: dict[str, Sandbox], workspace: Path, effort: Effort) -> Iterable[Row]:
    times: dict[str, list[float]] = {name: [] for name in ("bare", *cells)}
    for _ in range(effort.rounds * effort.scaled(COUNT)):
        times["bare"].append(_bare())
        for name, cell in cells.items():
            times[name].append(asyncio.run(_within(cell, workspace)))
    floor = statistics.median(times.pop("bare"))
    for name, durations in times.items():
        seconds = statistics.median(durations)
        yield Row(
            name=f"start a program: {name}",
            ours=f"{seconds * 1000:.1f} ms",
            floor=f"{floor * 1000:.1f} ms bare execve",
            ratio=seconds / floor,
        )


def _bare() -> float:
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
    return time.perf_counter() - begin


async def _within(cell: Sandbox, workspace: Path) -> float:
    bounds = Bounds(workspace=str(workspace), folder=str(workspace))
    program = PreparedProgram(path=TRUE, argv=[TRUE], cell=cell.cell(bounds))
    begin = time.perf_counter()
    process = await run(
        [(";", [program])], folder=workspace, environment={}, seconds=20, output_bytes=1000
    )
    seconds = time.perf_counter() - begin
    if process.code:
        raise RuntimeError(process.output.text() or f"it ended with exit code {process.code}")
    return seconds


ROWS: dict[str, Bench] = {"sandbox": sandbox}
