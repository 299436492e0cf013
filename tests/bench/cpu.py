"""What a run of two calls costs beyond its two requests: everything on, CPU of all threads, no
latency.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench import installation
from tests.bench.history import fill, now
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, ratio
from tests.bench.vendor import Vendor

_REMEMBERED = 10_000
# Runs of one routine in the journal of a year: some 270 a day.
_PAST = 100_000


def _row(
    effort: Effort,
    name: str,
    bar: float | None = None,
    kind: str = "open_source",
    *,
    news: bool = False,
    memory_items: int = _REMEMBERED,
    **house_: Any,
) -> Iterable[Row]:
    """Compare runs with a process that sends the same two bodies through one bare httpx client.

    `memory_items` items are in memory; with `news` each run's report differs from those before it.
    """
    count = effort.scaled(80)
    with tempfile.TemporaryDirectory() as folder, Vendor(news=news) as vendor:
        config = installation.build(Path(folder) / "house", vendor.url, kind=kind, **house_)
        items = effort.furnished(memory_items) if memory_items else 0
        with Worker(
            "tests.bench.installation:runs", config=str(config), width=1, memory_items=items
        ) as worker:
            worker.round(2)
            bodies = Path(folder) / "bodies.json"
            bodies.write_text(vendor.bodies)  # the floor sends what we sent
            with Worker(
                "tests.bench.floors:httpx_calls",
                url=vendor.asked_at(installation.WAYS[kind][4]),
                bodies=str(bodies),
            ) as floor:
                floor_samples, own_samples = in_turns(effort, count, floor, worker)
        size = sum(len(json.dumps(body)) for body in json.loads(bodies.read_text()))
    yield Row(
        name=name,
        floor=f"{ms(median(s.cpu for s in floor_samples) / count)} CPU",
        ours=f"{ms(median(s.cpu for s in own_samples) / count)} CPU",
        ratio=ratio([s.cpu for s in own_samples], [s.cpu for s in floor_samples]),
        bar=bar,
        note=(
            f"two requests of {size / 2000:.1f} kB, "
            f"{ms(median(s.wall for s in own_samples) / count)} wall"
        ),
    )


def _growth(effort: Effort) -> Iterable[Row]:
    """Compare runs on a journal of a year with runs on an empty one: what a run costs should not
    grow with its past.
    """
    past, count = effort.furnished(_PAST), effort.scaled(40)
    with tempfile.TemporaryDirectory() as folder, Vendor(news=True) as vendor:
        empty = installation.build(Path(folder) / "empty", vendor.url)
        old = installation.build(Path(folder) / "old", vendor.url)
        asyncio.run(
            fill(
                old.parent / "state" / "agentd.db", past, end=now(), days=365, routines=["bench-0"]
            )
        )
        with (
            Worker(
                "tests.bench.installation:runs", config=str(empty), width=1, memory_items=0
            ) as floor,
            Worker(
                "tests.bench.installation:runs", config=str(old), width=1, memory_items=0
            ) as worker,
        ):
            floor_samples, own_samples = in_turns(effort, count, floor, worker)
    yield Row(
        name=f"the same after {past:,} runs / empty journal",
        floor=f"{ms(median(s.cpu for s in floor_samples) / count)} CPU",
        ours=f"{ms(median(s.cpu for s in own_samples) / count)} CPU",
        ratio=ratio([s.cpu for s in own_samples], [s.cpu for s in floor_samples]),
        bar=1.2,
    )


ROWS: dict[str, Bench] = {
    # the bar that users feel: a journal that was empty, and a report that is new each time
    "cpu-news": lambda effort: _row(
        effort, "2-call run, each report new / httpx", 4.0, news=True, memory_items=0
    ),
    "cpu-past": lambda effort: _growth(effort),
    "cpu-small": lambda effort: _row(effort, "2-call run, the same report each time / httpx"),
    "cpu-recall": lambda effort: _row(effort, "2-call run, not archived / httpx", memory="recall"),
    "cpu-36k": lambda effort: _row(effort, "2-call run, 36 kB prompt / httpx", prompt=30_000),
    "cpu-sdk": lambda effort: _row(effort, "2-call run by the SDK / httpx", kind="openai"),
}


def _of(kind: str) -> dict[str, Bench]:
    return {
        f"cpu-small:{kind}": lambda effort: _row(effort, f"2-call run, {kind} / httpx", kind=kind),
        f"cpu-36k:{kind}": lambda effort: _row(
            effort, f"the same, 36 kB, {kind} / httpx", kind=kind, prompt=30_000
        ),
    }


for _kind in installation.WAYS:
    if _kind != "open_source":
        ROWS |= _of(_kind)
