"""A hundred runs at once, each waiting 200 ms for each of its two answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.bench import installation
from tests.bench.measure import (
    Bench,
    Effort,
    Row,
    Sample,
    Worker,
    in_turns,
    median,
    ms,
    percentile,
    ratio,
)
from tests.bench.vendor import Vendor

_WIDTH = 100
_REMEMBERED = 1000
_LATENCY = 0.2


def _rows(effort: Effort, kind: str = "open_source", *, news: bool = False) -> Iterable[Row]:
    runs_per_lane, width = effort.scaled(4), effort.furnished(_WIDTH)
    with tempfile.TemporaryDirectory() as folder, Vendor(_LATENCY, news=news) as vendor:
        config = installation.build(Path(folder) / "house", vendor.url, kind=kind, width=width)
        memory_items = effort.furnished(_REMEMBERED)
        with Worker(
            "tests.bench.installation:runs",
            config=str(config),
            width=width,
            memory_items=memory_items,
        ) as worker:
            worker.round(1)
            bodies = Path(folder) / "bodies.json"
            bodies.write_text(vendor.bodies)
            arguments = {
                "url": vendor.asked_at(installation.WAYS[kind][4]),
                "bodies": str(bodies),
                "width": width,
            }
            with Worker("tests.bench.floors:httpx2_crowd", **arguments) as floor:
                floor_samples, own_samples = in_turns(effort, runs_per_lane, floor, worker)
    yield Row(
        name=f"100 runs at once{_by(kind, news)}, runs/s / httpx2",
        floor=f"{median(map(_rate, floor_samples)):.0f} runs/s",
        ours=f"{median(map(_rate, own_samples)):.0f} runs/s",
        ratio=ratio([_rate(s) for s in own_samples], [_rate(s) for s in floor_samples]),
        bar=0.65,
        more_is_better=True,
        note=f"{ms(median(s.cpu / len(s.times) for s in own_samples))} CPU a run",
    )
    yield Row(
        name=f"100 runs at once{_by(kind, news)}, p99 / httpx2",
        floor=ms(median(percentile(s.times, 0.99) for s in floor_samples)),
        ours=ms(median(percentile(s.times, 0.99) for s in own_samples)),
        ratio=ratio(
            [percentile(s.times, 0.99) for s in own_samples],
            [percentile(s.times, 0.99) for s in floor_samples],
        ),
        bar=2,
    )


def _lag(effort: Effort) -> Iterable[Row]:
    width, memory_items = effort.furnished(_WIDTH), effort.furnished(_REMEMBERED)
    with tempfile.TemporaryDirectory() as folder, Vendor(_LATENCY) as vendor:
        config = installation.build(Path(folder) / "house", vendor.url, width=width)
        with Worker(
            "tests.bench.installation:lags",
            config=str(config),
            width=width,
            memory_items=memory_items,
        ) as worker:
            (rounds,) = in_turns(effort, effort.scaled(4), worker)
    late = [percentile(number.extra["late"], 0.99) for number in rounds]
    yield Row(
        name="100 runs at once, loop lag p99",
        ours=ms(median(late)),
        value=median(late) * 1000,
        note=f"ms; the longest {ms(max(max(number.extra['late']) for number in rounds))}",
    )


def _by(kind: str, news: bool) -> str:
    return ", each report new" if news else "" if kind == "open_source" else f", {kind}"


def _of(kind: str) -> Bench:
    return lambda effort: _rows(effort, kind)


def _rate(sample: Sample) -> float:
    return len(sample.times) / sample.wall


ROWS: dict[str, Bench] = {
    "crowd": _rows,
    "crowd-lag": _lag,
    # each run then has its texts put into the index, and looks for its own memories anew
    "crowd-news": lambda effort: _rows(effort, news=True),
    **{f"crowd:{kind}": _of(kind) for kind in installation.WAYS if kind != "open_source"},
}
