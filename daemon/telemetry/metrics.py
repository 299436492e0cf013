"""Metrics as Prometheus text (https://prometheus.io/docs/instrumenting/exposition_formats).

Most counters and histograms count from the start of the process on. Figures of the journal, among
them the counters of tokens and costs, are read at each scrape. The lag of the event loop is
measured only while runs are under way, so that an idle daemon does not wake up.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from daemon.models import Run

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[Labels, float]

# Upper bounds of the buckets of histograms, in seconds.
LATENESS_BOUNDS = (1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
LAG_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
DURATION_BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
# Seconds between two measurements of the loop while runs are under way.
_MEASURE_INTERVAL = 0.25


@dataclass
class Histogram:
    """How often values fell under each bound: one count per bound, and one for values above all."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Yield (suffix, labels, value) for each line of the text; buckets are cumulative."""
        cumulative_count = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            cumulative_count += count
            yield "_bucket", {"le": "+Inf" if bound is None else f"{bound:g}"}, cumulative_count
        yield "_sum", {}, self.total
        yield "_count", {}, cumulative_count


class _LagMeter:
    """Measure how late the event loop is while at least one `with` block is open."""

    def __init__(self, lag: Histogram) -> None:
        self._lag, self._open_blocks = lag, 0
        self._tick: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._open_blocks += 1
        if self._open_blocks == 1:
            self._schedule()

    def __exit__(self, *_: object) -> None:
        self._open_blocks -= 1
        if not self._open_blocks and self._tick:
            self._tick.cancel()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + _MEASURE_INTERVAL
        self._tick = loop.call_at(due_at, self._measure, loop, due_at)

    def _measure(self, loop: asyncio.AbstractEventLoop, due_at: float) -> None:
        self._lag.add(loop.time() - due_at)
        self._schedule()


class Metrics:
    """What has happened since the start of the process."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, str]] = Counter()
        """Ended runs, by routine and status."""
        self.deliveries: Counter[tuple[str, str]] = Counter()
        """Attempts to deliver, by target and outcome."""
        self.lateness = Histogram(LATENESS_BOUNDS)
        self.duration = Histogram(DURATION_BOUNDS)
        self.lag = Histogram(LAG_BOUNDS)
        self._lag_meter = _LagMeter(self.lag)

    def count_run(self, run: Run, *, delay: timedelta = timedelta()) -> None:
        """Count a run that has ended; `delay` is by how much `spread` put off its start."""
        self.runs[run.routine, run.status.value] += 1
        if run.started is None:
            return
        if run.event is None:
            self.lateness.add(max(0.0, (run.started - run.slot - delay).total_seconds()))
        if run.ended is not None:
            # negative if the clock was set back during the run
            self.duration.add(max(0.0, (run.ended - run.started).total_seconds()))

    def count_delivery(self, target: str, outcome: str) -> None:
        """Count an attempt to deliver: delivered, put_off or failed."""
        self.deliveries[target, outcome] += 1

    def measure_lag(self) -> _LagMeter:
        """Return a context manager: the loop's lag is measured while at least one is open."""
        return self._lag_meter

    def render(self, journal_metrics: JournalMetrics) -> str:
        """Return all metrics as Prometheus text."""
        lines: list[str] = []
        for name, kind, help_text, samples in self._make_families(journal_metrics):
            lines += _render_family(
                name, kind, help_text, [("", labels, value) for labels, value in samples]
            )
        for name, help_text, histogram in (
            (
                "agentd_slot_lateness_seconds",
                "From a slot and its delay by spread to the start of its run.",
                self.lateness,
            ),
            ("agentd_run_duration_seconds", "From the start of a run to its end.", self.duration),
            (
                "agentd_loop_lag_seconds",
                "How late the event loop was while runs were under way.",
                self.lag,
            ),
        ):
            lines += _render_family(name, "histogram", help_text, histogram.samples())
        return "\n".join(lines) + "\n"

    def _make_families(
        self, journal_metrics: JournalMetrics
    ) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
        yield (
            "agentd_build_info",
            "gauge",
            "Which version runs.",
            [({"version": journal_metrics.version}, 1)],
        )
        yield (
            "agentd_start_time_seconds",
            "gauge",
            "When the process began.",
            [({}, journal_metrics.started)],
        )
        yield (
            "agentd_runs_total",
            "counter",
            "Runs that ended, by how.",
            [
                ({"routine": routine, "status": status}, count)
                for (routine, status), count in sorted(self.runs.items())
            ],
        )
        yield (
            "agentd_deliveries_total",
            "counter",
            "Attempts to deliver, by how they went.",
            [
                ({"target": target, "outcome": outcome}, count)
                for (target, outcome), count in sorted(self.deliveries.items())
            ],
        )
        yield (
            "agentd_active_runs",
            "gauge",
            "Runs that have not ended.",
            _samples_by("status", journal_metrics.runs),
        )
        yield (
            "agentd_queue_depth",
            "gauge",
            "Runs that wait for room.",
            [({}, journal_metrics.runs.get("queued", 0))],
        )
        yield (
            "agentd_outbox",
            "gauge",
            "Deliveries, by where they are.",
            _samples_by("status", journal_metrics.outbox),
        )
        yield "agentd_incidents", "gauge", "What is wrong now.", [({}, journal_metrics.incidents)]
        yield (
            "agentd_routines",
            "gauge",
            "Routines, by state.",
            _samples_by("state", journal_metrics.routines),
        )
        yield (
            "agentd_last_success_timestamp_seconds",
            "gauge",
            "When a routine last succeeded.",
            [
                ({"routine": name}, moment)
                for name, moment in sorted(journal_metrics.successes.items())
            ],
        )
        yield (
            "agentd_tokens_total",
            "counter",
            "Tokens of all calls to models on record.",
            [
                ({"provider": provider, "model": model, "kind": kind}, count)
                for (provider, model, kind), count in sorted(journal_metrics.tokens.items())
            ],
        )
        yield (
            "agentd_cost_dollars_total",
            "counter",
            "Cost in dollars of all calls to models on record whose price is known.",
            [
                ({"provider": provider, "model": model}, dollars)
                for (provider, model), dollars in sorted(journal_metrics.cost.items())
            ],
        )
        yield (
            "agentd_database_size_bytes",
            "gauge",
            "How big the database is.",
            [({}, journal_metrics.size)],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalMetrics:
    """Figures of the journal at the moment of a scrape."""

    version: str
    """The version of agentd."""
    started: float
    """When the process began, in seconds since 1970."""
    runs: Mapping[str, int]
    """Runs that have not ended, by status."""
    outbox: Mapping[str, int]
    """Deliveries, by status."""
    incidents: int
    """Open incidents."""
    routines: Mapping[str, int]
    """Routines, by state."""
    successes: Mapping[str, float]
    """When each routine last succeeded, in seconds since 1970."""
    tokens: Mapping[tuple[str, str, str], int]
    """Tokens, by provider, model and kind."""
    cost: Mapping[tuple[str, str], float]
    """Dollars, by provider and model."""
    size: int
    """Bytes of the database."""


def _samples_by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [({label: key}, count) for key, count in sorted(counts.items())]


def _render_family(
    name: str, kind: str, help_text: str, samples: Iterable[tuple[str, Labels, float]]
) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        labels_text = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        if labels_text:
            labels_text = "{" + labels_text + "}"
        # ten digits would round a counter: rates over it would be 0, then a jump
        number = f"{value:d}" if isinstance(value, int) else f"{value:.10g}"
        yield f"{name}{suffix}{labels_text} {number}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
