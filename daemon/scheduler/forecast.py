"""Forecast tokens, dollars and seconds of the coming days from the earlier runs of each routine.

Theory of operation: the earlier runs of a routine are a sample of what its next run will use; runs
that a gate skipped, which cost nothing, are part of it. A day with n starts uses the sum of n
draws: on average n times the mean, and in nineteen of twenty days less than that plus 1.645
standard deviations, which grow with the root of n. For a single start the sample itself gives both
figures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from math import sqrt
from zoneinfo import ZoneInfo

# Of a normal distribution, 95 % lie below the mean plus so many standard deviations.
_Z95 = 1.645
# Minutes in which several routines start are listed up to this number; further ones are counted.
MAX_NAMED_COLLISIONS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUsage:
    """What one run used."""

    tokens: float
    dollars: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageRange:
    """A middle value (the median of one draw, the mean of a sum), and one that is exceeded one time
    in twenty.
    """

    p50: float
    p95: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedUsage:
    """How often routines start in some time, and what their runs will use together."""

    starts: int
    tokens: UsageRange
    dollars: UsageRange
    seconds: UsageRange


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The coming days."""

    days: Mapping[date, ExpectedUsage]
    routines: Mapping[str, ExpectedUsage]
    """Over all days."""
    unknown: tuple[str, ...]
    """Routines without an earlier run; the sums do not include them."""
    collisions: tuple[tuple[datetime, tuple[str, ...]], ...]
    """The first minutes in which several routines start, with the names of these."""
    collision_count: int
    """How many such minutes there are."""
    nights: tuple[tuple[date, timedelta, tuple[str, ...]], ...]
    """Nights in which the clocks change: by how much, and which routines start in them."""
    total: ExpectedUsage


def forecast(
    starts: Mapping[str, Sequence[datetime]],
    history: Mapping[str, Sequence[RunUsage]],
    zone: ZoneInfo,
) -> Forecast:
    """Forecast the usage of `starts`, which are the coming starts by routine, in order.

    `history` has the usage of the earlier runs of each routine; days are days of `zone`.
    """
    by_day: dict[date, Counter[str]] = defaultdict(Counter)
    by_instant: dict[datetime, list[str]] = defaultdict(list)
    for name, moments in sorted(starts.items()):
        for moment in moments:
            by_day[moment.astimezone(zone).date()][name] += 1
            by_instant[moment.replace(second=0, microsecond=0)].append(name)
    collisions = [
        (at, tuple(names)) for at, names in sorted(by_instant.items()) if len(set(names)) > 1
    ]
    counts = {name: len(moments) for name, moments in starts.items() if moments}
    return Forecast(
        days={day: _expected_usage(by_day[day], history) for day in sorted(by_day)},
        routines={
            name: _expected_usage({name: count}, history) for name, count in sorted(counts.items())
        },
        unknown=tuple(sorted(name for name in counts if not history.get(name))),
        collisions=tuple(collisions[:MAX_NAMED_COLLISIONS]),
        collision_count=len(collisions),
        nights=tuple(_clock_change_nights(starts, zone)),
        total=_expected_usage(counts, history),
    )


def _expected_usage(
    counts: Mapping[str, int], history: Mapping[str, Sequence[RunUsage]]
) -> ExpectedUsage:
    samples = [(count, history[name]) for name, count in counts.items() if history.get(name)]

    def range_of(field: str) -> UsageRange:
        return _range_of_sum(
            [
                (count, sorted(getattr(usage, field) for usage in sample))
                for count, sample in samples
            ]
        )

    return ExpectedUsage(
        starts=sum(counts.values()),
        tokens=range_of("tokens"),
        dollars=range_of("dollars"),
        seconds=range_of("seconds"),
    )


def _range_of_sum(draws: Sequence[tuple[int, Sequence[float]]]) -> UsageRange:
    """Return the range of a sum of draws; `draws` are pairs of a number of draws and the sorted
    sample that they are drawn from.
    """
    if len(draws) == 1 and draws[0][0] == 1:
        sample = draws[0][1]
        return UsageRange(p50=_quantile(sample, 0.5), p95=_quantile(sample, 0.95))
    mean = variance = 0.0
    for count, sample in draws:
        sample_mean = sum(sample) / len(sample)
        mean += count * sample_mean
        deviations = sum((value - sample_mean) ** 2 for value in sample)
        variance += count * deviations / len(sample)
    return UsageRange(p50=mean, p95=mean + _Z95 * sqrt(variance))


def _quantile(sample: Sequence[float], share: float) -> float:
    """Return a quantile of a sorted sample, interpolated between two values."""
    position = (len(sample) - 1) * share
    lower_index = int(position)
    upper_index = min(lower_index + 1, len(sample) - 1)
    lower, upper = sample[lower_index], sample[upper_index]
    return lower + (upper - lower) * (position - lower_index)


def _clock_change_nights(
    starts: Mapping[str, Sequence[datetime]], zone: ZoneInfo
) -> list[tuple[date, timedelta, tuple[str, ...]]]:
    """Return the days on which the clocks of a zone change, by how much, and the routines that
    start before four in the morning of these days.
    """
    all_starts = sorted({moment for moments in starts.values() for moment in moments})
    if not all_starts:
        return []
    noon = all_starts[0].astimezone(zone).replace(hour=12, minute=0, second=0, microsecond=0)
    noons = [noon + timedelta(days=n) for n in range(-1, (all_starts[-1] - all_starts[0]).days + 3)]
    nights = []
    for before, after in pairwise(noons):
        change = (after.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())
        if not change:
            continue
        names = []
        for name, moments in sorted(starts.items()):
            local_times = [moment.astimezone(zone) for moment in moments]
            if any(time.date() == after.date() and time.hour < 4 for time in local_times):
                names.append(name)
        nights.append((after.date(), change, tuple(names)))
    return nights
