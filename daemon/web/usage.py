"""What models were paid, by day and routine, and how far that is from the caps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from daemon.web import charts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.cli.client import Client

    Context = dict[str, Any]

DAYS = 30


def usage(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Dollars and tokens by day and routine against the caps, and the sums by routine and model."""
    zone = ZoneInfo(client.request("GET", "/v1/status")["zone"])
    spent = client.request("GET", f"/v1/usage/days?days={DAYS}")["items"]
    sums = client.request("GET", f"/v1/usage?by=routine&days={DAYS}")
    last = datetime.now(zone).date()
    days = [f"{last - timedelta(days=DAYS - 1 - place):%Y-%m-%d}" for place in range(DAYS)]
    usd: dict[str, dict[str, float]] = {day: {} for day in days}
    tokens: dict[str, dict[str, float]] = {day: {} for day in days}
    for each in spent:
        if each["day"] in usd:  # midnight may have come between two questions
            usd[each["day"]][each["routine"]] = each["usd"]
            tokens[each["day"]][each["routine"]] = each["input"] + each["output"]
    return "usage.html", {
        "title": "Usage",
        "days": DAYS,
        "charts": [
            ("dollars", "Dollars by day", charts.chart(usd, _daily(sums["caps"], "usd"))),
            ("tokens", "Tokens by day", charts.chart(tokens, _daily(sums["caps"], "tokens"))),
        ],
        "by_routine": sums["items"],
        "total": sums["total"],
        "by_model": client.request("GET", f"/v1/usage?by=model&days={DAYS}")["items"],
        "caps": sums["caps"],
    }


def _daily(caps: list[Mapping[str, Any]], unit: str) -> list[tuple[str, float]]:
    """Return the caps that hold for all routines together in one day: those a column can be
    measured by.
    """
    return [
        (each["rule"], each["limit"])
        for each in caps
        if each["unit"] == unit and each["routine"] is None and "day" in each["rule"]
    ]
