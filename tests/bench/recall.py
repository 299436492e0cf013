"""Memory at ten thousand and at a million texts: how fast they come in and are found, beside
sqlite3 doing the same.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.floors import Round
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, percentile, ratio

if TYPE_CHECKING:
    from daemon.memory.segments import Segment

_PER_RUN = 20
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

# Words as they are spread in any language (Zipf): the commonest hundred are what a list of
# stop-words holds, and no question consists of them.
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
    from daemon.memory.segments import Segment
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
                speaker="agent",
            )
            for n in range(_PER_RUN)
        ]
        yield f"run-{seed}-{number:09}", segments, at
        number += 1


@asynccontextmanager
async def raw(path: str) -> AsyncIterator[Round]:
    """Write archived runs with sqlite3 alone: the same rows and the same index, one transaction per
    256 runs.
    """
    from daemon.memory import rows
    from daemon.memory.memory import Memory
    from daemon.memory.segments import make_segment_parts
    from daemon.store.database import Database

    # the tables come from the migrations; nothing of the store is left when we write
    database = await Database.open(Path(path))
    await Memory(database, clock=lambda: _BEGIN).open()
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
                cut = list(make_segment_parts("chat", segments))
                moment = int(at.timestamp() * 1e6)
                rows.put_run(
                    connection,
                    run=run,
                    routine="chat",
                    goal="g",
                    status="succeeded",
                    started=moment,
                    ended=moment,
                    parts=cut,
                )
            connection.execute("COMMIT")
        return {"extra": {"took": time.perf_counter() - begin}}

    yield round_
    connection.close()


@asynccontextmanager
async def archive_texts(path: str, texts: int) -> AsyncIterator[Round]:
    """Archive runs by the memory of the daemon; with `texts`, that many are there before the first
    round.
    """
    from daemon.memory.memory import Memory
    from daemon.store.database import Database

    database = await Database.open(Path(path))
    memory = Memory(database, clock=lambda: datetime.now(UTC))
    await memory.open()
    source = _runs(2)

    async def take_in(count: int) -> float:
        batch = [next(source) for _ in range(count)]
        begin = time.perf_counter()
        for first in range(0, count, 256):
            await asyncio.gather(
                *(
                    memory.archive(
                        run=run,
                        routine="chat",
                        goal="g",
                        status="succeeded",
                        segments=segments,
                        started=at,
                        ended=at,
                    )
                    for run, segments, at in batch[first : first + 256]
                )
            )
        return time.perf_counter() - begin

    texts_left = texts // _PER_RUN
    while texts_left > 0:
        await take_in(min(texts_left, 1000))
        texts_left -= 1000

    async def round_(count: int) -> dict[str, Any]:
        return {"extra": {"took": await take_in(count)}}

    yield round_
    await database.close()


@asynccontextmanager
async def ask_memory(path: str) -> AsyncIterator[Round]:
    """Ask the memory of the daemon; the first round also tells how long opening it and the first
    answer took.
    """
    import daemon.memory.memory
    import daemon.store.database

    questions = _questions(3)
    first = next(questions)
    begin = time.perf_counter()
    database = await daemon.store.database.Database.open(Path(path))
    memory = daemon.memory.memory.Memory(database, clock=lambda: datetime.now(UTC))
    await memory.open()
    open_seconds = time.perf_counter() - begin
    await memory.retrieve(first, 10)
    answer_seconds = time.perf_counter() - begin

    async def round_(count: int) -> dict[str, Any]:
        batch = [next(questions) for _ in range(count)]
        sample = await _time_answers(lambda question: memory.retrieve(question, 10), batch)
        sample["extra"] |= {
            "opened": open_seconds,
            "answered": answer_seconds,
            "resident": _resident(),
        }
        return sample

    yield round_
    await database.close()


@asynccontextmanager
async def ask_memory_raw(path: str) -> AsyncIterator[Round]:
    """Ask the same of sqlite3 alone: the index's ten best rows for any of the words, and their
    texts.
    """
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
    questions = _questions(3)
    next(questions)

    def ask(question: str) -> None:
        match = " OR ".join(f'"{word}"' for word in question.split())
        rows = connection.execute(
            (
                "SELECT rowid FROM memory_fts WHERE memory_fts MATCH ? ORDER BY bm25(memory_fts) "
                "LIMIT 10"
            ),
            (match,),
        )
        marks = ", ".join(str(id_) for (id_,) in rows)
        connection.execute(f"SELECT text FROM memory_segment WHERE id IN ({marks})").fetchall()

    async def round_(count: int) -> dict[str, Any]:
        return await _time_answers(
            lambda question: asyncio.to_thread(ask, question),
            [next(questions) for _ in range(count)],
        )

    yield round_
    connection.close()


def _resident() -> float:
    """Return the MiB that this process holds."""
    for line in (
        Path("/proc/self/status").read_text().splitlines()
        if Path("/proc/self/status").exists()
        else ()
    ):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def _time_answers(
    ask: Callable[[str], Awaitable[object]], questions: Iterable[str]
) -> dict[str, Any]:
    """Return how long each question took, and the longest time we ourselves kept the loop from
    coming round.
    """
    times: list[float] = []
    gaps = [0.0]
    with _measure_queueing() as queue_seconds:
        watch_task = asyncio.create_task(_watch(gaps, queue_seconds))
        for question in questions:
            begin = time.perf_counter()
            await ask(question)
            times.append(time.perf_counter() - begin)
        watch_task.cancel()
    return {"times": times, "extra": {"gap": max(gaps)}}


async def _watch(gaps: list[float], queue_seconds: Callable[[], float]) -> None:
    last, last_wait = time.perf_counter(), queue_seconds()
    while True:
        await asyncio.sleep(0.0005)
        now, wait = time.perf_counter(), queue_seconds()
        gaps.append(now - last - (wait - last_wait))
        last, last_wait = time.perf_counter(), queue_seconds()


@contextmanager
def _measure_queueing() -> Iterator[Callable[[], float]]:
    """Yield what tells how long our threads have stood ready to run while others had the
    processors.

    That is not our doing: neither where the loop itself stood there, nor where the thread did that
    it waited for.
    """
    files = [os.open(path, os.O_RDONLY) for path in Path("/proc/self/task").glob("*/schedstat")]
    try:
        yield lambda: sum(int(os.pread(file, 100, 0).split()[1]) for file in files) / 1e9
    finally:
        for file in files:
            os.close(file)


def _inserts(effort: Effort) -> Iterable[Row]:
    count = effort.scaled(1024)
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker("tests.bench.recall:raw", path=f"{folder}/raw.db") as floor,
        Worker("tests.bench.recall:archive_texts", path=f"{folder}/agentd.db", texts=0) as worker,
    ):
        floor_samples, own_samples = in_turns(effort, count, floor, worker)
    rate = [
        [count * _PER_RUN / s.extra["took"] for s in samples]
        for samples in (floor_samples, own_samples)
    ]
    yield Row(
        name="memory, texts archived / sqlite3",
        floor=f"{median(rate[0]):,.0f} texts/s",
        ours=f"{median(rate[1]):,.0f} texts/s",
        ratio=ratio(rate[1], rate[0]),
        bar=0.8,
        more_is_better=True,
    )


def _recall(effort: Effort, name: str, texts: int, bars: dict[str, float]) -> Iterable[Row]:
    """Measure a store of so many texts, whose number is not scaled down by less than the effort
    asks.
    """
    texts = max(_PER_RUN, effort.scaled(texts))
    count = effort.scaled(100)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/agentd.db"
        with Worker("tests.bench.recall:archive_texts", path=path, texts=texts):
            pass
        with (
            Worker("tests.bench.recall:ask_memory_raw", path=path) as floor,
            Worker("tests.bench.recall:ask_memory", path=path) as worker,
        ):
            floor_samples, own_samples = in_turns(effort, count, floor, worker)
    note = f"{texts:,} texts"
    raw_times = [took for sample in floor_samples for took in sample.times]
    times = [took for sample in own_samples for took in sample.times]
    for share in (0.5, 0.95):
        p, raw_p = percentile(times, share), percentile(raw_times, share)
        bar = bars.get(f"p{share * 100:.0f}")
        label = f"memory {name}, recall p{share * 100:.0f}"
        yield Row(
            name=label, floor=ms(raw_p), ours=ms(p), value=p * 1000, bar=bar, note=f"ms; {note}"
        )
    extra = own_samples[-1].extra
    for measure, key in (("opened", "opened"), ("opened, first answer", "answered")):
        value = extra[key]
        yield Row(
            name=f"memory {name}, {measure}",
            ours=ms(value),
            value=value * 1000,
            bar=bars.get(key),
            note=f"ms; {note}",
        )
    resident = extra["resident"]
    yield Row(
        name=f"memory {name}, resident",
        ours=f"{resident:.0f} MiB",
        value=resident,
        note=f"MiB; {note}",
    )
    # of each round the longest, and of those the median: a processor that the machine itself lends
    # away cannot be told
    gap, raw_gap = (
        median(sample.extra["gap"] for sample in samples)
        for samples in (own_samples, floor_samples)
    )
    label = f"memory {name}, loop not coming round"
    yield Row(name=label, floor=ms(raw_gap), ours=ms(gap), value=gap * 1000, note="ms, while asked")


def _recall_small(effort: Effort) -> Iterable[Row]:
    yield from _recall(effort, "10k", 10_000, {})


def _recall_big(effort: Effort) -> Iterable[Row]:
    yield from _recall(effort, "1M", 1_000_000, {"p95": 25})


ROWS: dict[str, Bench] = {
    "memory-in": _inserts,
    "memory-10k": _recall_small,
    "memory-1M": _recall_big,
}
