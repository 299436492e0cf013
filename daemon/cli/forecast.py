"""What agentctl says of the coming days."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, Call
from daemon.cli.render import DIM, YELLOW, counted, span, when


def forecast(call: Call) -> int:
    """Say what the coming days will take."""
    told = call.ask("GET", f"/v1/forecast?days={call.days}")
    if told is None:
        return DONE
    out = call.out
    if not told["total"]["starts"]:
        out.say("Nothing starts by itself in that time.")
        return DONE
    head = ["STARTS", "TOKENS p50", "p95", "USD p50", "p95", "TIME p50", "p95"]
    out.table(["DAY", *head], [_row(each) for each in [*told["days"], told["total"]]], signs=False)
    out.say("")
    out.table(["ROUTINE", *head], [_row(each) for each in told["routines"]], signs=False)
    for name in told["unknown"]:
        out.say(
            out.paint(f"not in the sums: {name} has never run, so nobody knows what it takes", DIM)
        )
    if told["collided"]:
        at, names = told["collisions"][0]["at"], ", ".join(told["collisions"][0]["routines"])
        out.say(
            (  # noqa: UP034
                f"{counted(told['collided'], 'time')} several routines start in one minute, first "
                f"{when(at)}: {names}"
            )
        )
    for night in told["nights"]:
        names = ", ".join(night["routines"]) or "nothing starts then"
        out.say(f"{night['day']}: clocks go {night['minutes']:+d} min in that night: {names}")
    for cap in told["breaches"]:
        how = "will likely" if cap["likely"] else "may"
        out.say(
            out.paint(
                f"the cap of ${cap['limit']:g} a {cap['cap']} {how} be reached on {cap['day']}",
                YELLOW,
            )
        )
    return DONE


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    tokens, usd, seconds = each["tokens"], each["usd"], each["seconds"]
    return (
        each["key"],
        str(each["starts"]),
        *(f"{tokens[share]:,.0f}" for share in ("p50", "p95")),
        *(f"{usd[share]:.2f}" for share in ("p50", "p95")),
        *(span(seconds[share]) for share in ("p50", "p95")),
    )
