"""`agentctl forecast`: what the coming days will take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, Call
from daemon.cli.render import DIM, YELLOW, format_instant
from daemon.durations import duration_in_words
from daemon.plurals import pluralize

DEFAULT_DAYS = 7
PERCENTILES = ("p50", "p95")


def show_forecast(call: Call) -> int:
    """Show what the coming days will take, with collisions, clock changes and caps in reach.

    Without `--days` the days are not listed, only their routines.
    """
    days = DEFAULT_DAYS if call.days is None else call.days
    forecast = call.request("GET", f"/v1/forecast?days={days}")
    if forecast is None:
        return DONE
    out = call.out
    if not forecast["total"]["starts"]:
        out.write_line("Nothing starts by itself in that time.")
        return DONE
    headers = ["STARTS", "TOKENS p50", "p95", "USD p50", "p95", "TIME p50", "p95"]
    if call.days:
        rows_by_day = [_format_row(day) for day in (*forecast["days"], forecast["total"])]
        out.write_table(["DAY", *headers], rows_by_day, signs=False)
        out.write_line()
    rows = []
    for routine in forecast["routines"]:
        row, name = _format_row(routine), routine["key"]
        if name in forecast["unknown"]:
            row[2:] = ["?"] * len(row[2:])
        elif name in forecast["without_model"]:
            row[2:6] = ["?"] * 4  # tokens and dollars; how long it took without a model is known
        rows.append(row)
    if not call.days:
        rows.append(_format_row({**forecast["total"], "key": f"{DEFAULT_DAYS} days"}))
    out.write_table(["ROUTINE", *headers], rows, signs=False)
    for name in forecast["unknown"]:
        text = f"not in the sums: {name} has never run, so nobody knows what it takes"
        out.write_line(out.paint(text, DIM))
    for name in forecast["without_model"]:
        text = (
            f"not in the sums: {name} ran only without a model, so nobody knows yet what its "
            "model takes"
        )
        out.write_line(out.paint(text, DIM))
    for pace in forecast.get("paced", ()):
        text = (
            f"{pace['routine']} starts between {pace['fewest']:,} and {pace['most']:,} times, as "
            f"its runs say; the sums hold {pace['fewest']:,}"
        )
        out.write_line(out.paint(text, DIM))
    if forecast["collided"]:
        first = forecast["collisions"][0]
        out.write_line(
            f"{pluralize(forecast['collided'], 'time')} several routines start in one minute, "
            f"first {format_instant(first['at'])}: {', '.join(first['routines'])}"
        )
    for night in forecast["nights"]:
        names = ", ".join(night["routines"]) or "nothing starts then"
        out.write_line(
            f"{night['day']}: clocks go {night['minutes']:+d} min in that night: {names}"
        )
    for breach in forecast["breaches"]:
        likelihood = "will likely" if breach["likely"] else "may"
        text = (
            f"the cap of ${breach['limit']:g} a {breach['cap']} {likelihood} be reached on "
            f"{breach['day']}"
        )
        out.write_line(out.paint(text, YELLOW))
    return DONE


def _format_row(estimate: Mapping[str, Any]) -> list[str]:
    """Return the cells of a day or routine: starts, tokens, dollars and time, by percentile."""
    return [
        estimate["key"],
        str(estimate["starts"]),
        *(f"{estimate['tokens'][percentile]:,.0f}" for percentile in PERCENTILES),
        *(f"{estimate['usd'][percentile]:.2f}" for percentile in PERCENTILES),
        *(duration_in_words(estimate["seconds"][percentile]) for percentile in PERCENTILES),
    ]
