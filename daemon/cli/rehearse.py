"""`rehearse`: follow a run that does nothing, then show what it would have done, and what that
cost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, OF_STATUS, USAGE, Call, quote
from daemon.cli.follow import follow
from daemon.cli.render import BOLD, DIM, GREEN, RED, OutputStream, counted, short

SHOWN = 30  # lines of one effect


def rehearse(call: Call) -> int:
    """Try a routine, or let one run as it was tried."""
    if (call.routine is None) == (call.approve is None):
        call.err.say(
            "agentctl: name a routine to rehearse, or with --approve the rehearsal to approve"
        )
        return USAGE
    if call.approve is not None:
        return _approve(call)
    body = {"event": os.urandom(16).hex()}
    begun = call.client.ask("POST", f"/v1/routines/{quote(call.routine)}/rehearse", body)
    if call.json:
        return _as_json(call, begun["id"])
    code = follow(call, {**begun, "position": None, "deliveries": []})
    told = call.client.ask("GET", f"/v1/runs/{begun['id']}/rehearsal")
    if told["status"] not in ("queued", "running"):
        write(call.out, told)
    return code


def _as_json(call: Call, run: str) -> int:
    for event in call.client.stream(f"/v1/runs/{run}/events", None):
        if event["type"] in ("run_ended", "run_waiting"):
            break
    told = call.client.ask("GET", f"/v1/runs/{run}/rehearsal")
    call.say_json(told)
    return OF_STATUS.get(told["status"], 1)


def _approve(call: Call) -> int:
    target = f"/v1/runs/{quote(call.approve)}/rehearsal/approve"
    told = call.ask("POST", target, {})
    if told is not None:
        call.out.say(
            (  # noqa: UP034
                f"{call.out.safe(told['routine'])} runs from now on as it was rehearsed "
                f"({short(told['run'])})."
            )
        )
    return DONE


def write(page: OutputStream, told: Mapping[str, Any]) -> None:
    """Write what a rehearsal would have done."""
    page.title("What it would have done")
    for each in told["effects"]:
        first, *rest = each["text"].splitlines() or [""]
        page.say(f"  {page.paint(page.safe(first), BOLD)}  {page.paint(each['call'], DIM)}")
        for line in rest[:SHOWN]:
            colour = {"-": RED, "+": GREEN, "@": DIM}.get(line[:1], "")
            page.say(
                page.paint(f"    {page.safe(line)}", colour) if colour else f"    {page.safe(line)}"
            )
        if len(rest) > SHOWN:
            page.say(
                page.paint(
                    f"    … {counted(len(rest) - SHOWN, 'more line')}: --json has them all", DIM
                )
            )
    for line in told["deliveries"]:
        page.say(f"  {page.paint(page.safe(line), BOLD)}")
    if not (told["effects"] or told["deliveries"]):
        page.say("  nothing")
    page.say()
    price = (
        ""
        if not told["tokens"]
        else f", ${told['usd']:.4f}"
        if told["usd"] is not None
        else ", price unknown"
    )
    page.say(
        f"It really cost {told['tokens']:,} tokens{price}; nothing was written, sent or started."
    )
    if told["held"] and told["status"] == "succeeded":
        page.say(
            (  # noqa: UP034
                f"To let {page.safe(told['routine'])} run like this: agentctl rehearse --approve "
                f"{short(told['run'])}"
            )
        )
