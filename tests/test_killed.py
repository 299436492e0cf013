"""kill -9 of a real process at every single write of the ledger: no slot twice, none unaccounted for."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from pathlib import Path

from daemon.store.database import Database
from daemon.store.journal import Journal
from tests.clockwork import at
from tests.victim import ROUTINES

ROOT = Path(__file__).parents[1]


async def start(folder: Path, moment: str, *how: str) -> int:
    """Start the engine in a process of its own; return how many writes it made, or -9."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.victim", str(folder), moment, *how),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), complaint.decode()
    return process.returncode or int(out.splitlines()[-1])


async def ledger(folder: Path) -> dict[str, list[str]]:
    """Return what the ledger tells of each routine, in words."""
    database = await Database.open(folder / "agentd.db")
    journal = Journal(database, clock=lambda: at("04 13:00"))
    told = {}
    for name in (each.name for each in ROUTINES):
        rows = reversed(await journal.slots(name))
        told[name] = [f"{row.first:%d %H:%M}-{row.last:%d %H:%M} x{row.count} {row.outcome}" for row in rows]
    runs = await journal.runs(limit=1000)
    assert len({(run.routine, run.slot, run.event) for run in runs}) == len(runs), "a slot ran twice"
    assert len(runs) == len(await journal.active())
    await database.close()
    return told


async def test_whatever_write_it_is_killed_at_the_next_start_makes_it_whole(tmp_path: Path) -> None:
    before = tmp_path / "before the outage"
    before.mkdir()
    await start(before, "2026-01-01T08:00")

    async def outage(name: str, *how: str) -> tuple[int, dict[str, list[str]]]:
        """Be down from the first to the fourth, die there as told, and start again."""
        folder = shutil.copytree(before, tmp_path / name)
        writes = await start(folder, "2026-01-04T13:00", *how)
        await start(folder, "2026-01-04T13:00")
        return writes, await ledger(folder)

    writes, expected = await outage("unharmed")
    assert expected["daily"] == ["01 09:00-03 09:00 x3 missed", "04 09:00-04 09:00 x1 caught_up"]
    assert expected["never"] == ["01 09:00-04 09:00 x4 missed"]
    assert expected["starting"] == ["01 08:00-01 08:00 x1 ran", "04 13:00-04 13:00 x1 skipped"]
    assert expected["pulse"][-1] == "04 13:00-04 13:00 x1 ran"
    assert [row.split()[-1] for row in expected["paused"]] == ["skipped", "missed", "ran"]
    deaths = [(str(number), where) for number in range(writes) for where in ("before", "after")]
    gate = asyncio.Semaphore(2)

    async def die(number: str, where: str) -> None:
        async with gate:
            killed, told = await outage(f"{where}-{number}", number, where)
        assert killed == -signal.SIGKILL
        assert told == expected, f"killed {where} write {number}"

    await asyncio.gather(*(die(*each) for each in deaths))
