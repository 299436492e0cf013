"""The verb `usage`: what models were paid, and where the caps stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, USAGE, Call
from daemon.cli.render import DIM, YELLOW, counted, when

KEYS = ("routine", "model", "day")


def usage(call: Call) -> int:
    """Sum up the calls to models of the last days."""
    if call.by not in KEYS:
        call.err.say(f"agentctl: --by: expected one of {', '.join(KEYS)} (found {call.by!r})")
        return USAGE
    told = call.ask("GET", f"/v1/usage?by={call.by}&days={call.days}")
    if told is None:
        return DONE
    out = call.out
    if not told["items"]:
        out.say(f"No model was asked since {when(told['since'])}.")
    else:
        rows = [_row(each["key"], each) for each in told["items"]]
        out.table(
            [call.by.upper(), "CALLS", "IN", "CACHED", "OUT", "USD"],
            [*rows, _row("total", told["total"])],
            signs=False,
        )
        total = told["total"]
        if total["failed"]:
            out.say(out.paint(f"{counted(total['failed'], 'call')} gave no answer", DIM))
        if total["unpriced"]:
            text = (
                f"{counted(total['unpriced'], 'call')} of models without a known price: `price` in "
                "config.toml"
            )
            out.say(out.paint(f"not in the dollars: {text}", YELLOW))
    if told["caps"]:
        out.title("Caps")
        out.table(["", ""], [_cap(each) for each in told["caps"]], signs=False)
    return DONE


def _row(key: str, each: Mapping[str, Any]) -> tuple[str, ...]:
    cached = f"{100 * each['cache_read'] / each['input']:.0f} %" if each["input"] else ""
    return (
        key,
        str(each["calls"]),
        f"{each['input']:,}",
        cached,
        f"{each['output']:,}",
        _dollars(each["usd"]),
    )


def _cap(each: Mapping[str, Any]) -> tuple[str, str]:
    spent = (
        f"{_dollars(each['spent'])} spent"
        if each["unit"] == "usd"
        else f"{each['spent']:,.0f} tokens used"
    )
    rule = f"{each['routine']}: {each['rule']}" if each["routine"] else each["rule"]
    return f"  {rule}", spent


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
