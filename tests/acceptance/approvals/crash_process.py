"""A process that asks, is killed while it waits, is answered, and is killed again at each of its
writes up to the end.

`python -m tests.acceptance.approvals.crash_process FOLDER` prints a line of JSON for each death:
how often the approved call was made in all, and how the run ended once somebody started again. Each
life is a fork, so that the imports are paid for once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from daemon.models import ApprovalStatus, Run, Status
from daemon.store.journal import Journal
from daemon.testing import FakeClock
from tests.acceptance.crash_process import CrashingDatabase, fork
from tests.runs.approvals.conftest import START, ApprovalHarness, turn

SCRIPT = (turn(("send", {"text": "once"})), "Done.")
POLICY = 'version = 1\n[[rule]]\ntool = "send"\neffect = "ask"\n'


class MarkingHarness(ApprovalHarness):
    """A run context whose tool leaves a mark on the disk each time it is called."""

    def __init__(self, folder: Path, journal: Journal, clock: FakeClock) -> None:
        super().__init__(folder, journal, clock, SCRIPT)
        self.set_policy(POLICY)
        self.registry = type(self.registry)()

        def send(text: str) -> str:
            """Send."""
            with (folder / "effects").open("a") as file:
                file.write(f"{text}\n")
                file.flush()
                os.fsync(file.fileno())
            return "sent"

        self.registry.register("send", None, send)


async def life(
    folder: Path, number: int, where: str, live: Callable[[ApprovalHarness], Awaitable[None]]
) -> int:
    """Live on a folder; die at the write of that number; return how many writes there were."""
    database = await CrashingDatabase.open(folder / "agentd.db")
    assert isinstance(database, CrashingDatabase)
    clock = FakeClock(START)
    harness = MarkingHarness(folder, Journal(database, clock=clock.now), clock)
    database.fatal, database.where, database.writes = number, where, 0
    await live(harness)
    writes = database.writes
    await database.close()
    return writes


async def ask(harness: ApprovalHarness) -> None:
    """Get as far as the question, and be killed while it waits."""
    run = await harness.execute()
    assert run.status is Status.WAITING, run
    os.kill(os.getpid(), signal.SIGKILL)


async def answer(harness: ApprovalHarness) -> None:
    """Answer what is asked, unless that has been done, and live the run to its end."""
    await harness.journal.runs.recover("test")
    for approval in await harness.journal.approvals.find(status=ApprovalStatus.PENDING):
        await harness.approvals.approve(approval.id, by="uid 1000")
    (run,) = await harness.journal.runs.find()
    if not run.status.has_ended:
        await harness.execute(run)


def outcome_in(folder: Path) -> dict[str, object]:
    """Return what a person finds at the end."""

    async def look() -> tuple[Run, list[str]]:
        database = await CrashingDatabase.open(folder / "agentd.db")
        journal = Journal(database, clock=FakeClock(START).now)
        (run,) = await journal.runs.find()
        results = [
            step.body["text"]
            for step in await journal.runs.get_steps(run.id)
            if step.kind == "result"
        ]
        proof = await journal.audit.verify()
        assert proof.broken is None
        await database.close()
        return run, results

    run, results = asyncio.run(look())
    effects = folder / "effects"
    count = len(effects.read_text().splitlines()) if effects.exists() else 0
    return {"effects": count, "status": run.status.value, "told": results[0]}


def main(folder: Path) -> None:
    home, home_in_wait = folder / "home", folder / "waiting"
    home.mkdir()

    def run_fork(
        number: int, where: str, live: Callable[[ApprovalHarness], Awaitable[None]]
    ) -> int:
        return fork(lambda: life(home, number, where, live))

    assert run_fork(-1, "", ask) == -signal.SIGKILL
    home.rename(home_in_wait)

    def again() -> None:
        """Go back to where the run waits; at the same place, as an approval is bound to its
        folder.
        """
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(home_in_wait, home)

    again()
    writes = run_fork(-1, "", answer)
    lines = [{"number": -1, "where": "", **outcome_in(home)}]
    for number in range(writes):
        for where in ("before", "after"):
            again()
            assert run_fork(number, where, answer) == -signal.SIGKILL, (number, where)
            assert run_fork(-1, "", answer) >= 0
            lines.append({"number": number, "where": where, **outcome_in(home)})
    sys.stdout.write("\n".join(map(json.dumps, lines)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
