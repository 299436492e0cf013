"""The positions and sizes of shapes in charts: a time line, a heat map, stacked bars.

Templates draw them. Positions and sizes are in per cent of the drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

# Where runs of several kinds share one mark, the first kind in this order is shown.
WORST_FIRST = (
    "failed",
    "timed_out",
    "interrupted",
    "missed",
    "cancelled",
    "running",
    "waiting",
    "queued",
    "succeeded",
    "silent",
    "skipped",
    "due",
)
# A sign beside the colour, for whoever cannot tell colours apart.
SIGNS = {
    "failed": "✗",
    "timed_out": "✗",
    "interrupted": "✗",
    "missed": "!",
    "cancelled": "–",
    "waiting": "?",
    "skipped": "–",
}
# Marks that are closer than this are drawn as one.
MIN_GAP_PERCENT = 0.35
# A cap higher than this many times the tallest column is named, but not drawn.
MAX_CAP_RATIO = 4
OTHERS = "all others"


class ChartPoint(NamedTuple):
    """Something that happened, or is due, at a time."""

    at: datetime
    kind: str
    label: str
    href: str = ""


class Mark(NamedTuple):
    """A mark on a time line, from `left` on."""

    left: float
    width: float
    kind: str
    label: str
    href: str = ""


class Cell(NamedTuple):
    """One routine on one day of a heat map."""

    day: str
    kind: str
    sign: str
    label: str


class BarSegment(NamedTuple):
    """One part of a column, from `bottom` up."""

    name: str
    colour: int
    """The index of `name` among the names of the chart."""
    bottom: float
    height: float
    amount: float


class Column(NamedTuple):
    """The amounts of one day."""

    label: str
    segments: list[BarSegment]
    total: float


class CapLine(NamedTuple):
    """A cap; `height` is None where it lies above the chart."""

    rule: str
    amount: float
    height: float | None


class Chart(NamedTuple):
    """Columns of stacked segments, and the caps they are to stay under."""

    names: list[str]
    columns: list[Column]
    caps: list[CapLine]
    top: float
    """The amount that the full height stands for."""
    week_labels: list[tuple[float, str]]
    """Position and text of the days to write below, a week apart up to the last day."""


def percent_between(at: datetime, begin: datetime, end: datetime) -> float:
    """Return the position of a time between two others, also where clocks change between them: the
    difference of two times of one zone is what a clock on the wall shows.
    """
    at, begin, end = (time.astimezone(UTC) for time in (at, begin, end))
    return round(100 * (at - begin) / (end - begin), 3)


def make_time_line(points: Iterable[ChartPoint], begin: datetime, end: datetime) -> list[Mark]:
    """Return the marks of one row of a time line.

    Points too close to be told apart become one mark of the worst kind; a point that is due is
    never joined with one that happened.
    """
    marks: list[Mark] = []
    joined_points = 1
    points = [point for point in points if begin <= point.at <= end]
    # by the instant: two times of one zone are compared as clocks on the wall show them
    for point in sorted(points, key=lambda point: point.at.astimezone(UTC)):
        left = percent_between(point.at, begin, end)
        last = marks[-1] if marks else None
        if (
            last is None
            or left - (last.left + last.width) >= MIN_GAP_PERCENT
            or (last.kind == "due") != (point.kind == "due")
        ):
            marks.append(Mark(left, 0.0, point.kind, point.label, point.href))
            joined_points = 1
            continue
        joined_points += 1
        kind = worst_kind([last.kind, point.kind])
        marks[-1] = Mark(
            left=last.left,
            width=round(left - last.left, 3),
            kind=kind,
            label=(
                f"{joined_points} times until {point.at:%H:%M}, the worst: {kind.replace('_', ' ')}"
            ),
            href=point.href if kind == point.kind else last.href,
        )
    return marks


def make_hour_labels(begin: datetime, end: datetime, step: int = 6) -> list[tuple[float, str]]:
    """Return position and text of the labels of a time axis, one every `step` hours."""
    labels = []
    day = begin.date()
    while (midnight := datetime(day.year, day.month, day.day, tzinfo=begin.tzinfo)) < end:
        for hour in range(0, 24, step):
            at = midnight.replace(hour=hour)
            if begin <= at < end:
                text = f"{at:%a %d}" if hour == 0 else f"{at:%H:%M}"
                labels.append((percent_between(at, begin, end), text))
        day += timedelta(days=1)
    return labels


def worst_kind(kinds: Iterable[str]) -> str:
    """Return the kind that a person has to know of first; empty if there is none."""
    present = set(kinds)
    return next((kind for kind in WORST_FIRST if kind in present), "")


def make_heat_map(
    items: Iterable[Mapping[str, object]], names: Sequence[str], days: Sequence[date]
) -> list[tuple[str, list[Cell]]]:
    """Return a row per routine and a cell per day, empty on a day without slots.

    `items` are routine, day and the number of outcomes by kind; routines that are not in `names`
    come last.
    """
    outcomes_by_cell = {
        (str(item["routine"]), str(item["day"])): item["outcomes"] for item in items
    }
    all_names = list(dict.fromkeys([*names, *(name for name, _ in outcomes_by_cell)]))
    return [
        (name, [_heat_map_cell(day, outcomes_by_cell.get((name, day.isoformat()))) for day in days])
        for name in all_names
    ]


def _heat_map_cell(day: date, outcomes: object) -> Cell:
    counts: dict[str, int] = outcomes if isinstance(outcomes, dict) else {}
    kind = worst_kind(counts)
    parts = [f"{counts[name]} {name.replace('_', ' ')}" for name in WORST_FIRST if name in counts]
    return Cell(
        day=day.isoformat(),
        kind=kind,
        sign=SIGNS.get(kind, ""),
        label=f"{day:%a %d %b}: {', '.join(parts) or 'nothing'}",
    )


def make_bar_chart(
    days: Mapping[str, Mapping[str, float]],
    caps: Sequence[tuple[str, float]] = (),
    *,
    max_names: int = 6,
) -> Chart:
    """Return a chart with a column per day, a segment per name, and a line per cap.

    `days` has the amounts by name, by day (`2026-03-01`). The `max_names` largest names have a
    segment each, all others one together. A cap far above everything is named, but not drawn: the
    columns would be no more than a line.
    """
    sums: dict[str, float] = {}
    for amounts in days.values():
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    names = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    if len(names) > max_names + 1:
        names = [*names[:max_names], OTHERS]
    tallest = max((sum(amounts.values()) for amounts in days.values()), default=0)
    drawn_caps = [amount for _, amount in caps if amount <= MAX_CAP_RATIO * tallest]
    top = max([tallest, *drawn_caps]) or 1
    last_day, day_width = len(days) - 1, 100 / (len(days) or 1)
    return Chart(
        names=names,
        columns=[_make_column(day, amounts, names, top) for day, amounts in days.items()],
        caps=[
            CapLine(rule, amount, round(100 * amount / top, 2) if amount in drawn_caps else None)
            for rule, amount in caps
        ],
        top=top,
        week_labels=[
            (round((number + 0.5) * day_width, 3), f"{date.fromisoformat(day):%d %b}")
            for number, day in enumerate(days)
            if (last_day - number) % 7 == 0
        ],
    )


def _make_column(
    day: str, amounts: Mapping[str, float], names: Sequence[str], top: float
) -> Column:
    amounts_by_name = {name: amounts.get(name, 0) for name in names}
    if OTHERS in amounts_by_name:
        amounts_by_name[OTHERS] = sum(
            amount for name, amount in amounts.items() if name not in names
        )
    segments, bottom = [], 0.0
    for colour, (name, amount) in enumerate(amounts_by_name.items()):
        if amount:
            height = 100 * amount / top
            segments.append(BarSegment(name, colour, round(bottom, 3), round(height, 3), amount))
            bottom += height
    return Column(day, segments, sum(amounts.values()))
