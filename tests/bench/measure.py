"""Processes that are measured in turns, and the rows that come of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long we are willing to measure."""

    rounds: int
    size: float
    """1.0 is the size at which ratios repeat."""
    around: float = 1.0
    """How much of what the bars speak of stands around: what is remembered, and who else is at
    work.
    """
    warmed: bool = True
    """The first round, in which everything is still cold, is not counted."""

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.size))

    def furnished(self, count: int) -> int:
        return max(1, round(count * self.around))


FULL = Effort(rounds=9, size=1.0)
QUICK = Effort(rounds=3, size=0.25)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    ours: str
    floor: str = ""
    ratio: float | None = None
    bar: float | None = None
    """What docs/performance.md promises; of the ratio if there is one, else of `value`."""
    value: float | None = None
    more_is_better: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        figure = self.ratio if self.ratio is not None else self.value
        if self.bar is None or figure is None:
            return ""
        good = figure >= self.bar if self.more_is_better else figure <= self.bar
        return "ok" if good else "MISSED"


Bench = Callable[[Effort], Iterable[Row]]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One round of one process."""

    wall: float
    cpu: float
    """Seconds of all its threads."""
    times: Sequence[float] = ()
    """Of the single runs."""
    extra: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A process that does rounds of something when told to: `module:factory` with these
    arguments.
    """

    def __init__(self, target: str, **arguments: Any) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.worker", target, json.dumps(arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._read()  # it is ready

    def round(self, count: int) -> Sample:
        """Have it done `count` times."""
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return Sample(**self._read())

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            last = self._errors.read()[-2000:]
            msg = f"the process under measurement ended with {code}:\n{last}"
            raise RuntimeError(msg)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=30)  # closes its stdin, which ends it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()


def in_turns(effort: Effort, count: int, *workers: Worker) -> list[list[Sample]]:
    """Let the workers take turns; return the rounds of each that count."""
    samples: list[list[Sample]] = [[] for _ in workers]
    for _ in range(effort.rounds + effort.warmed):
        for worker, sample in zip(workers, samples, strict=True):
            sample.append(worker.round(count))
    return [sample[effort.warmed :] for sample in samples]


def ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return statistics.median(
        own_value / floor_value for own_value, floor_value in zip(ours, floor, strict=True)
    )


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    sorted_values = sorted(values)
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def table(rows: Iterable[Row]) -> Iterable[str]:
    """Lay the rows out, line by line as they come."""
    widths = (34, 22, 22, 8, 9, 7)
    yield _line(("row", "floor", "agentd", "ratio", "bar", ""), widths)
    yield _line(tuple("-" * width for width in widths), widths)
    for row in rows:
        bar = "" if row.bar is None else f"{'>=' if row.more_is_better else '<='} {row.bar:g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        yield (
            f"{_line((row.name, row.floor, row.ours, ratio, bar, row.verdict), widths)}  {row.note}"
        ).rstrip()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
