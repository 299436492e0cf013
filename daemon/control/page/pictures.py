"""Numbers turned into shapes: a time line, a heat map, bars. Plain values in, plain values out; templates draw them."""

from __future__ import annotations

from datetime import date, datetime, timedelta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NamedTuple
else:
    from typing import NamedTuple

# What matters most to a person comes first: a day on which one run failed is a day on which something failed.
WORST_FIRST = (
    "failed", "timed_out", "interrupted", "missed", "cancelled", "running", "waiting", "queued", "succeeded", "silent",
    "skipped", "due",
)  # fmt: skip
# A sign beside the colour, for whoever cannot tell colours apart.
SIGNS = {"failed": "✗", "timed_out": "✗", "interrupted": "✗", "missed": "!", "cancelled": "–", "skipped": "–"}
NARROWEST = 0.35  # per cent of the width: marks closer than that are drawn as one


class Mark(NamedTuple):
    """Something on a time line; `left` and `width` in per cent."""

    left: float
    width: float
    kind: str
    about: str
    href: str = ""


class Moment(NamedTuple):
    """Something that happened, or is due, at a time."""

    at: datetime
    kind: str
    about: str
    href: str = ""


class Bar(NamedTuple):
    """One column of a chart, a share of the tallest in per cent per part."""

    label: str
    parts: list[tuple[str, float, int]]
    total: int


def place(at: datetime, begin: datetime, end: datetime) -> float:
    """Return where a moment lies between two others, in per cent."""
    return round(100 * (at - begin) / (end - begin), 3)


def time_line(moments: Iterable[Moment], begin: datetime, end: datetime) -> list[Mark]:
    """Return the marks of one row; neighbours too close to be told apart become one, of the worst kind."""
    marks: list[Mark] = []
    counted = 1
    for each in sorted((each for each in moments if begin <= each.at <= end), key=lambda each: each.at):
        left = place(each.at, begin, end)
        last = marks[-1] if marks else None
        if last is None or left - (last.left + last.width) >= NARROWEST or (last.kind == "due") != (each.kind == "due"):
            marks.append(Mark(left, 0.0, each.kind, each.about, each.href))
            counted = 1
            continue
        counted += 1
        kind = worst([last.kind, each.kind])
        about = f"{counted} times until {each.at:%H:%M}, the worst: {kind.replace('_', ' ')}"
        marks[-1] = Mark(
            last.left, round(left - last.left, 3), kind, about, each.href if kind == each.kind else last.href
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
                found.append((place(here, begin, end), f"{here:%a %d}" if hour == 0 else f"{here:%H:%M}"))
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
    return [(name, [_cell(day, found.get((name, day.isoformat()))) for day in days]) for name in known]


def _cell(day: date, outcomes: object) -> Cell:
    counts: dict[str, int] = outcomes if isinstance(outcomes, dict) else {}
    kind = worst(counts)
    parts = [f"{counts[name]} {name.replace('_', ' ')}" for name in WORST_FIRST if name in counts]
    return Cell(day.isoformat(), kind, SIGNS.get(kind, ""), f"{day:%a %d %b}: {', '.join(parts) or 'nothing'}")


def bars(rows: Mapping[str, Mapping[str, int]], parts: Sequence[str]) -> list[Bar]:
    """Return a column per row, its parts stacked; the tallest column is 100 per cent high."""
    totals = {label: sum(row.get(part, 0) for part in parts) for label, row in rows.items()}
    tallest = max(totals.values(), default=0) or 1
    return [
        Bar(
            label,
            [(part, round(100 * row.get(part, 0) / tallest, 2), row.get(part, 0)) for part in parts],
            totals[label],
        )
        for label, row in rows.items()
    ]
