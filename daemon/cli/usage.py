"""`agentctl usage`: what calls to models cost, and where the caps stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, USAGE, Call
from daemon.cli.render import DIM, YELLOW, format_instant
from daemon.plurals import pluralize

GROUPINGS = ("routine", "model", "day")


def show_usage(call: Call) -> int:
    """Show the calls to models of the last days, by routine, model or day, and the caps."""
    if call.by not in GROUPINGS:
        call.err.write_line(
            f"agentctl: --by: expected one of {', '.join(GROUPINGS)} (found {call.by!r})"
        )
        return USAGE
    usage = call.request("GET", f"/v1/usage?by={call.by}&days={call.days}")
    if usage is None:
        return DONE
    out, total = call.out, usage["total"]
    if not usage["items"]:
        out.write_line(f"No model was asked since {format_instant(usage['since'])}.")
    else:
        rows = [_format_row(item["key"], item) for item in usage["items"]]
        headers = [call.by.upper(), "CALLS", "IN", "CACHED", "OUT", "USD"]
        out.write_table(headers, [*rows, _format_row("total", total)], signs=False)
        if total["failed"]:
            text = f"{pluralize(total['failed'], 'call')} gave no answer"
            out.write_line(out.paint(text, DIM))
        if total["unpriced"]:
            text = (
                f"not in the dollars: {pluralize(total['unpriced'], 'call')} of models without a "
                "known price: `price` in config.toml"
            )
            out.write_line(out.paint(text, YELLOW))
    if usage["caps"]:
        out.write_title("Caps")
        out.write_table(["", ""], [_format_cap(cap) for cap in usage["caps"]], signs=False)
    return DONE


def _format_row(key: str, usage: Mapping[str, Any]) -> tuple[str, ...]:
    cache_share = f"{100 * usage['cache_read'] / usage['input']:.0f} %" if usage["input"] else ""
    return (
        key,
        str(usage["calls"]),
        f"{usage['input']:,}",
        cache_share,
        f"{usage['output']:,}",
        _format_dollars(usage["usd"]),
    )


def _format_cap(cap: Mapping[str, Any]) -> tuple[str, str]:
    rule = f"{cap['routine']}: {cap['rule']}" if cap["routine"] else cap["rule"]
    if cap["unit"] == "usd":
        return f"  {rule}", f"{_format_dollars(cap['spent'])} spent"
    return f"  {rule}", f"{cap['spent']:,.0f} tokens used"


def _format_dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
