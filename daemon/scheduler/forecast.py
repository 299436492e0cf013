"""What the coming days will take, from what the runs of each routine took so far.

Theory of operation. A routine's runs are a sample of what its next one will take; quiet runs that
cost nothing are part of it. A day with n starts takes the sum of n draws: in the middle n times the
mean, and in nineteen of twenty days less than that plus 1.645 standard deviations, which grow with
the root of n. For a single start the sample itself says both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from math import sqrt
from zoneinfo import ZoneInfo

_Z95 = 1.645
# More instants at which several routines start are not named, only counted.
MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUsage:
    """What one run took."""

    tokens: float
    dollars: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageRange:
    """What is as likely to be exceeded as not, and what one time in twenty is."""

    p50: float
    p95: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedUsage:
    """Tokens, dollars and seconds."""

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
    """Routines without a run to judge by; they are not in the sums."""
    collisions: tuple[tuple[datetime, tuple[str, ...]], ...]
    collided: int
    nights: tuple[tuple[date, timedelta, tuple[str, ...]], ...]
    """Nights in which clocks change: by how much, and what starts in them."""
    total: ExpectedUsage


def forecast(
    starts: Mapping[str, Sequence[datetime]],
    history: Mapping[str, Sequence[RunUsage]],
    zone: ZoneInfo,
) -> Forecast:
    """Return what these starts will take."""
    by_day: dict[date, Counter[str]] = defaultdict(Counter)
    by_instant: dict[datetime, list[str]] = defaultdict(list)
    for name, moments in sorted(starts.items()):
        for moment in moments:
            by_day[moment.astimezone(zone).date()][name] += 1
            by_instant[moment.replace(second=0, microsecond=0)].append(name)
    together = [
        (at, tuple(names)) for at, names in sorted(by_instant.items()) if len(set(names)) > 1
    ]
    counts = {name: len(moments) for name, moments in starts.items() if moments}
    return Forecast(
        days={day: _need(by_day[day], history) for day in sorted(by_day)},
        routines={name: _need({name: count}, history) for name, count in sorted(counts.items())},
        unknown=tuple(sorted(name for name in counts if not history.get(name))),
        collisions=tuple(together[:MOST_NAMED]),
        collided=len(together),
        nights=tuple(_nights(starts, zone)),
        total=_need(counts, history),
    )


def _need(counts: Mapping[str, int], history: Mapping[str, Sequence[RunUsage]]) -> ExpectedUsage:
    known = [(count, history[name]) for name, count in counts.items() if history.get(name)]

    def of(what: str) -> UsageRange:
        return _sum_of(
            [(count, sorted(getattr(took, what) for took in sample)) for count, sample in known]
        )

    return ExpectedUsage(
        starts=sum(counts.values()),
        tokens=of("tokens"),
        dollars=of("dollars"),
        seconds=of("seconds"),
    )


def _sum_of(parts: Sequence[tuple[int, Sequence[float]]]) -> UsageRange:
    """Return the range of a sum of so many draws from each of these samples, which are sorted."""
    if len(parts) == 1 and parts[0][0] == 1:
        sample = parts[0][1]
        return UsageRange(p50=_quantile(sample, 0.5), p95=_quantile(sample, 0.95))
    mean = variance = 0.0
    for count, sample in parts:
        middle = sum(sample) / len(sample)
        mean += count * middle
        variance += count * sum((each - middle) ** 2 for each in sample) / len(sample)
    return UsageRange(p50=mean, p95=mean + _Z95 * sqrt(variance))


def _quantile(sample: Sequence[float], share: float) -> float:
    place = (len(sample) - 1) * share
    low = int(place)
    high = min(low + 1, len(sample) - 1)
    return sample[low] + (sample[high] - sample[low]) * (place - low)


def _nights(
    starts: Mapping[str, Sequence[datetime]], zone: ZoneInfo
) -> list[tuple[date, timedelta, tuple[str, ...]]]:
    """Return the days on which the clocks of a zone change, and what starts within three hours of
    it.
    """
    moments = sorted({moment for each in starts.values() for moment in each})
    if not moments:
        return []
    noon = moments[0].astimezone(zone).replace(hour=12, minute=0, second=0, microsecond=0)
    noons = [noon + timedelta(days=n) for n in range(-1, (moments[-1] - moments[0]).days + 3)]
    found = []
    for before, after in pairwise(noons):
        change = (after.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())
        if not change:
            continue
        near = [
            name
            for name, each in sorted(starts.items())
            if any(
                at.astimezone(zone).date() == after.date() and at.astimezone(zone).hour < 4
                for at in each
            )
        ]
        found.append((after.date(), change, tuple(near)))
    return found
