"""How fast steps are committed, against sqlite3 with nothing around it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.floors import Round
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ratio

_BODY = (
    "A step of the size that steps have: an answer of a model with a sentence or two, and a call. "
    * 6
)


@asynccontextmanager
async def steps(path: str, body: str, durable: bool, width: int) -> AsyncIterator[Round]:
    """Append steps to `width` runs at a time; each commit is awaited, as a run does it."""
    from daemon.models import Run, Step, StepKind, new_id
    from daemon.store.database import Database
    from daemon.store.journal import Claim, Journal

    database = await Database.open(Path(path))
    journal = Journal(database, clock=lambda: datetime.now(UTC))
    now = datetime.now(UTC)
    fields = {"definition": "{}", "trigger": "manual", "slot": now, "goal": "g"}
    claims = [Claim(routine=f"r{n}", event=new_id(), **fields) for n in range(width)]
    claimed_runs = [
        await journal.runs.claim(run.id, owner="bench")
        for run in await journal.slots.claim(claims)
        if run
    ]

    async def append_steps(run: Run, count: int) -> None:
        for _ in range(count):
            await journal.runs.append(
                run, Step(kind=StepKind.LLM, iteration=1, body={"text": body}), durable=durable
            )

    async def round_(count: int) -> None:
        await asyncio.gather(*(append_steps(run, count // width) for run in claimed_runs if run))

    yield round_
    await database.close()


def _row(
    effort: Effort, name: str, count: int, *, width: int, durable: bool = False
) -> Iterable[Row]:
    count = max(width, effort.scaled(count) // width * width)
    options = {"body": _BODY, "durable": durable}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        with (
            Worker("tests.bench.floors:raw_sqlite", path=str(where / "raw.db"), **options) as floor,
            Worker(
                "tests.bench.journal:steps", path=str(where / "agentd.db"), width=width, **options
            ) as worker,
        ):
            floor_samples, own_samples = in_turns(effort, count, floor, worker)
    yield Row(
        name=name,
        floor=f"{count / median(s.wall for s in floor_samples):,.0f} commits/s",
        ours=f"{count / median(s.wall for s in own_samples):,.0f} commits/s",
        ratio=ratio([count / s.wall for s in own_samples], [count / s.wall for s in floor_samples]),
    )


ROWS: dict[str, Bench] = {
    "journal-one": lambda effort: _row(effort, "journal, one run / sqlite3", 2000, width=1),
    "journal-many": lambda effort: _row(effort, "journal, 100 runs / sqlite3", 6000, width=100),
    "journal-durable": lambda effort: _row(
        effort, "journal, 100 runs, fsync / sqlite3", 2000, width=100, durable=True
    ),
}
