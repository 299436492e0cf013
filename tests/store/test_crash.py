"""Real processes under kill -9, full disks and strace."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.models import Status
from daemon.store.database import Database
from daemon.testing import FakeClock
from tests.store.conftest import START, Ledger

ROOT = Path(__file__).parents[2]


def writer(folder: Path, *arguments: int, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-m", "tests.store.writer", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("count", [1, 7, 40, 300])
async def test_kill_9_loses_no_acknowledged_step(tmp_path: Path, count: int) -> None:
    with writer(tmp_path, 50, 1_000_000) as process:
        run_id, *numbers = lines(process, 1 + count)
        process.kill()
        assert process.stdout is not None
        numbers += process.stdout.read().split()

    db = await Database.open(tmp_path / "agentd.db")
    assert await db.read(
        lambda connection: connection.execute("PRAGMA integrity_check").fetchall()
    ) == [("ok",)]
    journal = Ledger(db, FakeClock(START)).journal
    numbers_of_steps = [step.body["number"] for step in await journal.runs.get_steps(run_id)]
    assert numbers_of_steps == list(range(len(numbers_of_steps)))
    assert len(numbers_of_steps) >= len(numbers)

    (recovered_run,) = await journal.runs.recover("me")
    assert (recovered_run.id, recovered_run.status, recovered_run.attempt) == (
        run_id,
        Status.QUEUED,
        1,
    )
    claimed_run = await journal.runs.claim(run_id, owner="me")
    assert claimed_run is not None
    await journal.runs.end(claimed_run.to(Status.SUCCEEDED))
    await db.close()


async def test_a_run_stopped_by_a_full_disk_continues_at_its_step(
    tmp_path: Path,
) -> None:
    with writer(tmp_path, 100, 20, 200_000) as process:
        output, _ = process.communicate("room\n")
    assert process.returncode == 0
    run_id, *numbers = output.splitlines()
    (full,) = (line for line in numbers if line.startswith("full"))
    assert full.startswith("full agentd.db: the disk reports an error; check the space left")
    numbers.remove(full)
    assert numbers == [str(number) for number in range(120)]

    db = await Database.open(tmp_path / "agentd.db")
    numbers_of_steps = [
        step.body["number"]
        for step in await Ledger(db, FakeClock(START)).journal.runs.get_steps(run_id)
    ]
    assert numbers_of_steps == list(range(120))
    await db.close()


def syncs(folder: Path, plain: int, durable: int) -> int:
    folder.mkdir()
    trace = folder / "trace"
    strace = ("strace", "-f", "-e", "trace=fdatasync,fsync", "-o", str(trace))
    with writer(folder, plain, durable, before=strace) as process:
        assert process.stdin is not None
        process.stdin.close()
        lines(process, 1 + plain + durable)
    if process.returncode != 0 or "exited with 0" not in trace.read_text():
        pytest.skip("strace may not trace here (ptrace is forbidden)")
    return len(re.findall(r"sync\(\d+", trace.read_text()))


def test_only_a_durable_step_costs_a_sync(tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace: apt-get install strace")
    idle = syncs(tmp_path / "idle", 0, 0)
    assert syncs(tmp_path / "plain", 60, 0) == idle
    assert syncs(tmp_path / "durable", 60, 20) == idle + 20
