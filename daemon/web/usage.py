"""What calls to models cost, by day and routine, and how far that is from the caps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from daemon.web.charts import make_bar_chart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.cli.client import Client

    Context = dict[str, Any]

DAYS = 30


def show_usage(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show dollars and tokens by day and routine beside the caps, and sums by routine and model."""
    zone = ZoneInfo(client.request("GET", "/v1/status?counts=false")["zone"])
    amounts = client.request("GET", f"/v1/usage/days?days={DAYS}")["items"]
    usage_by_routine = client.request("GET", f"/v1/usage?by=routine&days={DAYS}")
    last_day = datetime.now(zone).date()
    days = [f"{last_day - timedelta(days=ago):%Y-%m-%d}" for ago in reversed(range(DAYS))]
    usd: dict[str, dict[str, float]] = {day: {} for day in days}
    tokens: dict[str, dict[str, float]] = {day: {} for day in days}
    for amount in amounts:
        day, routine = amount["day"], amount["routine"]
        if day in usd:  # midnight may have come between two requests
            usd[day][routine] = amount["usd"]
            tokens[day][routine] = amount["input"] + amount["output"]
    caps = usage_by_routine["caps"]
    return "usage.html", {
        "title": "Usage",
        "days": DAYS,
        "charts": [
            ("dollars", "Dollars by day", make_bar_chart(usd, _daily_caps(caps, "usd"))),
            ("tokens", "Tokens by day", make_bar_chart(tokens, _daily_caps(caps, "tokens"))),
        ],
        "by_routine": usage_by_routine["items"],
        "total": usage_by_routine["total"],
        "by_model": client.request("GET", f"/v1/usage?by=model&days={DAYS}")["items"],
        "caps": caps,
    }


def _daily_caps(caps: list[Mapping[str, Any]], unit: str) -> list[tuple[str, float]]:
    """Return rule and limit of the caps on one day of all routines: a column is such a day."""
    return [
        (cap["rule"], cap["limit"])
        for cap in caps
        if cap["unit"] == unit and cap["routine"] is None and cap["period"] == "day"
    ]
