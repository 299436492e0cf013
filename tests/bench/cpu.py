"""What a run of two calls costs beyond its two requests: everything on, CPU of all threads, no latency."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench import house
from tests.bench.measure import Bench, Effort, Row, Worker, in_turns, median, ms, ratio
from tests.bench.vendor import Vendor

_REMEMBERED = 10_000


def _row(
    effort: Effort, name: str, bar: float, kind: str = "open_source", *, news: bool = False, **house_: Any
) -> Iterable[Row]:
    count = effort.scaled(80)
    with tempfile.TemporaryDirectory() as folder, Vendor(news=news) as vendor:
        config = house.build(Path(folder) / "house", vendor.url, kind=kind, **house_)
        remembered = effort.furnished(_REMEMBERED)
        with Worker("tests.bench.house:runs", config=str(config), width=1, remembered=remembered) as ours:
            ours.round(2)
            bodies = Path(folder) / "bodies.json"
            bodies.write_text(vendor.bodies)  # the floor sends what we sent
            with Worker(
                "tests.bench.floors:httpx_calls", url=vendor.asked_at(house.WAYS[kind][4]), bodies=str(bodies)
            ) as floor:
                theirs, mine = in_turns(effort, count, floor, ours)
        size = sum(len(json.dumps(body)) for body in json.loads(bodies.read_text()))
    yield Row(
        name=name,
        floor=f"{ms(median(s.cpu for s in theirs) / count)} CPU",
        ours=f"{ms(median(s.cpu for s in mine) / count)} CPU",
        ratio=ratio([s.cpu for s in mine], [s.cpu for s in theirs]),
        bar=bar,
        note=f"two requests of {size / 2000:.1f} kB, {ms(median(s.wall for s in mine) / count)} wall",
    )


ROWS: dict[str, Bench] = {
    "cpu-small": lambda effort: _row(effort, "2-call run, CPU / httpx", 2.8),
    # a memory that learns something with each run has more to write, and has to look again at the next one
    "cpu-news": lambda effort: _row(effort, "2-call run, each report new / httpx", 2.8, news=True),
    "cpu-recall": lambda effort: _row(effort, "2-call run, not archived / httpx", 2.8, memory="recall"),
    "cpu-36k": lambda effort: _row(effort, "2-call run, 36 kB prompt / httpx", 2.5, prompt=30_000),
    "cpu-sdk": lambda effort: _row(effort, "2-call run by the SDK / httpx", 3.2, kind="openai"),
}


def _of(kind: str) -> dict[str, Bench]:
    return {
        f"cpu-small:{kind}": lambda effort: _row(effort, f"2-call run, {kind} / httpx", 3.2, kind=kind),
        f"cpu-36k:{kind}": lambda effort: _row(
            effort, f"the same, 36 kB, {kind} / httpx", 3.2, kind=kind, prompt=30_000
        ),
    }


for _kind in house.WAYS:
    if _kind != "open_source":
        ROWS |= _of(_kind)
