"""Memory at a million texts: how fast they come in, how fast one is found, and whether the loop notices."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.floors import Round
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, percentile, ratio

if TYPE_CHECKING:
    from daemon.memory import Segment

_TEXTS = 1_000_000
_PER_RUN = 20
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

# Words as they are spread in any language (Zipf): the commonest hundred are what a list of stop-words holds, and no
# question consists of them.
_WORDS, _STOP, _LENGTH = 30_000, 100, 27


def _speech(seed: int) -> Iterator[list[str]]:
    """Yield endless texts as their words, the same for the same seed."""
    chance = random.Random(seed)
    words = [f"w{n}" for n in range(_WORDS)]
    weights = [1 / (n + 1) for n in range(_WORDS)]
    while True:
        pool = chance.choices(words, weights, k=_LENGTH * 1000)
        yield from (pool[n : n + _LENGTH] for n in range(0, len(pool), _LENGTH))


def _questions(seed: int) -> Iterator[str]:
    """Yield endless questions: six words that stand in one text, none of them a stop-word."""
    common = {f"w{n}" for n in range(_STOP)}
    for text in _speech(seed):
        yield " ".join([word for word in text if word not in common][:6])


def _runs(seed: int) -> Iterator[tuple[str, list[Segment], datetime]]:
    """Yield endless archived runs of twenty texts."""
    from daemon.memory import Segment
    from daemon.models import SegmentType

    speech, number = _speech(seed), 0
    while True:
        at = _BEGIN + timedelta(minutes=number)
        segments = [
            Segment(
                iteration=n // 4,
                segment=n % 4,
                type=SegmentType.RESPONSE,
                timestamp=at,
                text=" ".join(next(speech)),
                who="agent",
            )
            for n in range(_PER_RUN)
        ]
        yield f"run-{seed}-{number:09}", segments, at
        number += 1


@asynccontextmanager
async def raw(path: str) -> AsyncIterator[Round]:
    """Write archived runs with sqlite3 alone: the same rows and the same index, one transaction per 256 runs."""
    from daemon.memory import Memory, rows
    from daemon.memory.pieces import pieces
    from daemon.store import Database

    # the tables come from the migrations; nothing of the store is left when we write
    database = await Database.open(Path(path))
    await Memory(database, clock=lambda: _BEGIN).refresh()
    await database.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    source = _runs(1)

    async def round_(count: int) -> dict[str, Any]:
        batch = [next(source) for _ in range(count)]
        begin = time.perf_counter()
        for first in range(0, count, 256):
            connection.execute("BEGIN IMMEDIATE")
            for run, segments, at in batch[first : first + 256]:
                cut = list(pieces("chat", segments))
                moment = int(at.timestamp() * 1e6)
                rows.put_run(
                    connection,
                    run=run,
                    routine="chat",
                    goal="g",
                    status="succeeded",
                    started=moment,
                    ended=moment,
                    pieces=cut,
                )
            connection.execute("COMMIT")
        return {"extra": {"took": time.perf_counter() - begin}}

    yield round_
    connection.close()


@asynccontextmanager
async def archived(path: str, texts: int) -> AsyncIterator[Round]:
    """Archive runs by the memory of the daemon; with `texts`, that many are there already."""
    from daemon.memory import Memory
    from daemon.store import Database

    database = await Database.open(Path(path))
    memory = Memory(database, clock=lambda: datetime.now(UTC))
    await memory.refresh()
    source, questions = _runs(2), _questions(3)

    async def take_in(count: int) -> float:
        batch = [next(source) for _ in range(count)]
        begin = time.perf_counter()
        for first in range(0, count, 256):
            await asyncio.gather(
                *(
                    memory.archive(
                        run=run, routine="chat", goal="g", status="succeeded", segments=segments, started=at, ended=at
                    )
                    for run, segments, at in batch[first : first + 256]
                )
            )
        return time.perf_counter() - begin

    async def ask(count: int) -> tuple[list[float], float]:
        """Return how long each question took, and the longest time the loop did not come round meanwhile."""
        times: list[float] = []
        gaps = [0.0]
        watching = asyncio.create_task(_watch(gaps))
        for _ in range(count):
            begin = time.perf_counter()
            await memory.retrieve(next(questions), 10)
            times.append(time.perf_counter() - begin)
        watching.cancel()
        return times, max(gaps)

    for _ in range(texts // _PER_RUN // 1000):
        await take_in(1000)

    async def round_(count: int) -> dict[str, Any]:
        if not texts:
            return {"extra": {"took": await take_in(count)}}
        times, gap = await ask(count)
        return {"times": times, "extra": {"gap": gap}}

    yield round_
    await database.close()


async def _watch(gaps: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.0005)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now


def _inserts(effort: Effort) -> Iterable[Row]:
    count = effort.scaled(1024)
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker("tests.bench.recall:raw", path=f"{folder}/raw.db") as floor,
        Worker("tests.bench.recall:archived", path=f"{folder}/agentd.db", texts=0) as ours,
    ):
        theirs, mine = in_turns(effort, count, floor, ours)
    rate = [[count * _PER_RUN / s.extra["took"] for s in samples] for samples in (theirs, mine)]
    yield Row(
        name="memory, texts archived / sqlite3",
        floor=f"{median(rate[0]):,.0f} texts/s",
        ours=f"{median(rate[1]):,.0f} texts/s",
        ratio=ratio(rate[1], rate[0]),
        bar=0.8,
        more_is_better=True,
    )


def _recall(effort: Effort) -> Iterable[Row]:
    texts = effort.scaled(_TEXTS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker("tests.bench.recall:archived", path=f"{folder}/agentd.db", texts=texts) as ours,
    ):
        [mine] = in_turns(effort, effort.scaled(100), ours)
    times = [took for sample in mine for took in sample.times]
    gap = max(sample.extra["gap"] for sample in mine)
    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
    note = f"ms; {texts:,} texts"
    yield Row(name="memory, recall p50", ours=ms(p50), value=p50 * 1000, bar=25, note=note)
    yield Row(name="memory, recall p95", ours=ms(p95), value=p95 * 1000, bar=100, note=note)
    yield Row(name="memory, loop blocked meanwhile", ours=ms(gap), value=gap * 1000, bar=5, note="ms")


ROWS: dict[str, Bench] = {"memory-in": _inserts, "memory-recall": _recall}
