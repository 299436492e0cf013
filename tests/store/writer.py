"""A process for others to watch or kill: it lives a run, step by step, and says what it has been
promised.

    python -m tests.store.writer PLAIN DURABLE [LIMIT] < …

It opens a run in ./agentd.db, appends PLAIN steps and then DURABLE ones, and prints the number of
each step once its commit is acknowledged. With LIMIT no file may grow beyond that many bytes until
a line comes in on stdin.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from datetime import UTC, datetime
from pathlib import Path

from daemon.errors import StoreFull
from daemon.models import Run, Step, StepKind
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal


async def write(plain: int, durable: int, limit: int | None) -> None:
    db = await Database.open(Path("agentd.db"))
    journal = Journal(db, clock=lambda: datetime.now(UTC))
    claim = Claim(
        routine="daily", definition="{}", trigger="cron", slot=datetime.now(UTC), goal="go"
    )
    (queued_run,) = await journal.slots.claim([claim])
    assert queued_run
    run = await journal.runs.claim(queued_run.id, owner="child")
    assert run
    say(run.id)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for number in range(plain + durable):
        run = await append(journal, run, number, durable=number >= plain)
        say(str(number))
    await db.close()


async def append(journal: Journal, run: Run, number: int, *, durable: bool) -> Run:
    """Append one step; when the disk is full say so, wait for room, and go on as a resumed run
    does.
    """
    step = Step(kind=StepKind.CALL, iteration=1, body={"number": number, "text": "x" * 2_000})
    try:
        await journal.runs.append(run, step, durable=durable)
    except StoreFull as full:
        say(f"full {full}")
        sys.stdin.readline()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        claimed_run = await journal.runs.claim((await journal.runs.suspend(run)).id, owner="child")
        assert claimed_run
        await journal.runs.append(claimed_run, step, durable=durable)
        return claimed_run
    return run


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    asyncio.run(write(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else None))
