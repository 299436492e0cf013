"""Numbers turned into shapes: a time line, a heat map, bars.

Plain values in, plain values out; templates draw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

# What matters most to a person comes first: a day on which one run failed is a day on which
# something failed.
WORST_FIRST = (
    "failed", "timed_out", "interrupted", "missed", "cancelled", "running", "waiting", "queued", (
        "succeeded"
    ), (
        "silent"
    ),
    "skipped", "due",
)  # fmt: skip
# A sign beside the colour, for whoever cannot tell colours apart.
SIGNS = {
    "failed": "✗",
    "timed_out": "✗",
    "interrupted": "✗",
    "missed": "!",
    "cancelled": "–",
    "skipped": "–",
}
NARROWEST = 0.35  # per cent of the width: marks closer than that are drawn as one


class Mark(NamedTuple):
    """Something on a time line; `left` and `width` in per cent."""

    left: float
    width: float
    kind: str
    about: str
    href: str = ""


class ChartPoint(NamedTuple):
    """Something that happened, or is due, at a time."""

    at: datetime
    kind: str
    about: str
    href: str = ""


class BarSegment(NamedTuple):
    """One piece of a column; `foot` and `height` in per cent of the chart."""

    name: str
    place: int
    """Which of the chart's names it is of, and so its colour."""
    foot: float
    height: float
    amount: float


class Column(NamedTuple):
    """What one day came to."""

    label: str
    parts: list[BarSegment]
    total: float


class CapLine(NamedTuple):
    """A cap: the height of its line in per cent, None where it lies above the chart."""

    rule: str
    amount: float
    height: float | None


class Chart(NamedTuple):
    """Columns of stacked parts, and the caps they are to stay under."""

    names: list[str]
    columns: list[Column]
    limits: list[CapLine]
    top: float
    """What the full height stands for."""
    weeks: list[tuple[float, str]]
    """Days to write below, a week apart up to the last one: where, and which."""


def place(at: datetime, begin: datetime, end: datetime) -> float:
    """Return where a moment lies between two others, in per cent."""
    return round(100 * (at - begin) / (end - begin), 3)


def time_line(moments: Iterable[ChartPoint], begin: datetime, end: datetime) -> list[Mark]:
    """Return the marks of one row; neighbours too close to be told apart become one, of the worst
    kind.
    """
    marks: list[Mark] = []
    counted = 1
    for each in sorted(
        (each for each in moments if begin <= each.at <= end), key=lambda each: each.at
    ):
        left = place(each.at, begin, end)
        last = marks[-1] if marks else None
        if (
            last is None
            or left - (last.left + last.width) >= NARROWEST
            or (last.kind == "due") != (each.kind == "due")
        ):
            marks.append(Mark(left, 0.0, each.kind, each.about, each.href))
            counted = 1
            continue
        counted += 1
        kind = worst([last.kind, each.kind])
        about = f"{counted} times until {each.at:%H:%M}, the worst: {kind.replace('_', ' ')}"
        marks[-1] = Mark(
            last.left,
            round(left - last.left, 3),
            kind,
            about,
            each.href if kind == each.kind else last.href,
        )
    return marks


def hours(begin: datetime, end: datetime, step: int = 6) -> list[tuple[float, str]]:
    """Return the labels of a time axis: where, and what."""
    zone, found = begin.tzinfo, []
    day = begin.date()
    while (at := datetime(day.year, day.month, day.day, tzinfo=zone)) < end:
        for hour in range(0, 24, step):
            here = at.replace(hour=hour)
            if begin <= here < end:
                found.append(
                    (place(here, begin, end), f"{here:%a %d}" if hour == 0 else f"{here:%H:%M}")
                )
        day += timedelta(days=1)
    return found


def worst(kinds: Iterable[str]) -> str:
    """Return the kind that a person has to know of first."""
    found = set(kinds)
    return next((kind for kind in WORST_FIRST if kind in found), "")


class Cell(NamedTuple):
    """One routine on one day."""

    day: str
    kind: str
    sign: str
    about: str


def heat_map(
    items: Iterable[Mapping[str, object]], names: Sequence[str], days: Sequence[date]
) -> list[tuple[str, list[Cell]]]:
    """Return a row per routine and a cell per day, those without anything empty."""
    found = {(str(item["routine"]), str(item["day"])): item["outcomes"] for item in items}
    known = list(dict.fromkeys([*names, *(name for name, _ in found)]))
    return [
        (name, [_cell(day, found.get((name, day.isoformat()))) for day in days]) for name in known
    ]


def _cell(day: date, outcomes: object) -> Cell:
    counts: dict[str, int] = outcomes if isinstance(outcomes, dict) else {}
    kind = worst(counts)
    parts = [f"{counts[name]} {name.replace('_', ' ')}" for name in WORST_FIRST if name in counts]
    return Cell(
        day.isoformat(),
        kind,
        SIGNS.get(kind, ""),
        f"{day:%a %d %b}: {', '.join(parts) or 'nothing'}",
    )


OTHERS = "all others"


def chart(
    days: Mapping[str, Mapping[str, float]],
    limits: Sequence[tuple[str, float]] = (),
    *,
    most: int = 6,
) -> Chart:
    """Return a column per day, its parts stacked: those of the `most` largest names, and one for
    all others.

    A cap that is far above everything is named, but not drawn: the columns would be no more than a
    line.
    """
    sums: dict[str, float] = {}
    for parts in days.values():
        for name, amount in parts.items():
            sums[name] = sums.get(name, 0) + amount
    largest = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    names = largest if len(largest) <= most + 1 else [*largest[:most], OTHERS]
    tallest = max((sum(parts.values()) for parts in days.values()), default=0)
    near = [amount for _, amount in limits if amount <= HIGHEST * tallest]
    top = max([tallest, *near]) or 1
    drawn = [
        CapLine(rule, amount, round(100 * amount / top, 2) if amount in near else None)
        for rule, amount in limits
    ]
    last, each = len(days) - 1, 100 / (len(days) or 1)
    weeks = [
        (round((place + 0.5) * each, 3), f"{date.fromisoformat(day):%d %b}")
        for place, day in enumerate(days)
        if (last - place) % 7 == 0
    ]
    return Chart(
        names, [_column(day, parts, names, top) for day, parts in days.items()], drawn, top, weeks
    )


HIGHEST = 4  # times the tallest column


def _column(day: str, parts: Mapping[str, float], names: Sequence[str], top: float) -> Column:
    known = {name: parts.get(name, 0) for name in names}
    if OTHERS in known:
        known[OTHERS] = sum(amount for name, amount in parts.items() if name not in names)
    found, foot = [], 0.0
    for place_, (name, amount) in enumerate(known.items()):
        if amount:
            height = 100 * amount / top
            found.append(BarSegment(name, place_, round(foot, 3), round(height, 3), amount))
            foot += height
    return Column(day, found, sum(parts.values()))
