"""`agentctl rehearse`: run a routine without effects, and show what it would have done."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, EXIT_CODE_BY_STATUS, NOT_SUCCEEDED, USAGE, Call, quote
from daemon.cli.follow import follow
from daemon.cli.render import BOLD, DIM, GREEN, RED, OutputStream, short_id
from daemon.plurals import pluralize

MAX_EFFECT_LINES = 30


def rehearse(call: Call) -> int:
    """Rehearse a routine, or with --approve let it run as it was rehearsed."""
    if (call.routine is None) == (call.approve is None):
        call.err.write_line(
            "agentctl: name a routine to rehearse, or with --approve the rehearsal to approve"
        )
        return USAGE
    if call.approve is not None:
        answer = call.request("POST", f"/v1/runs/{quote(call.approve)}/rehearsal/approve", {})
        if answer is not None:
            call.out.write_line(
                f"{call.out.sanitize(answer['routine'])} runs from now on as it was rehearsed "
                f"({short_id(answer['run'])})."
            )
        return DONE
    body = {"event": os.urandom(16).hex()}
    run = call.client.request("POST", f"/v1/routines/{quote(call.routine)}/rehearse", body)
    if call.json:
        for event in call.client.stream(f"/v1/runs/{run['id']}/events"):
            if event["type"] in ("run_ended", "run_waiting"):
                break
        rehearsal = call.client.request("GET", f"/v1/runs/{run['id']}/rehearsal")
        call.print_json(rehearsal)
        return EXIT_CODE_BY_STATUS.get(rehearsal["status"], NOT_SUCCEEDED)
    code = follow(call, {**run, "position": None, "deliveries": []})
    rehearsal = call.client.request("GET", f"/v1/runs/{run['id']}/rehearsal")
    if rehearsal["status"] not in ("queued", "running"):
        _write_rehearsal(call.out, rehearsal)
    return code


def _write_rehearsal(out: OutputStream, rehearsal: Mapping[str, Any]) -> None:
    """Write the effects that the run would have had, and what it cost."""
    out.write_title("What it would have done")
    for effect in rehearsal["effects"]:
        first_line, *diff = effect["text"].splitlines() or [""]
        title = out.paint(out.sanitize(first_line), BOLD)
        out.write_line(f"  {title}  {out.paint(effect['call'], DIM)}")
        for line in diff[:MAX_EFFECT_LINES]:
            colour = {"-": RED, "+": GREEN, "@": DIM}.get(line[:1], "")
            out.write_line(out.paint(f"    {out.sanitize(line)}", colour))
        if len(diff) > MAX_EFFECT_LINES:
            remainder = pluralize(len(diff) - MAX_EFFECT_LINES, "more line")
            out.write_line(out.paint(f"    … {remainder}: --json has them all", DIM))
    for delivery in rehearsal["deliveries"]:
        out.write_line(f"  {out.paint(out.sanitize(delivery), BOLD)}")
    if not (rehearsal["effects"] or rehearsal["deliveries"]):
        out.write_line("  nothing")
    out.write_line()
    if not rehearsal["tokens"]:
        price = ""
    elif rehearsal["usd"] is None:
        price = ", price unknown"
    else:
        price = f", ${rehearsal['usd']:.4f}"
    out.write_line(
        f"It really cost {rehearsal['tokens']:,} tokens{price}; nothing was written, sent or "
        "started."
    )
    if rehearsal["held"] and rehearsal["status"] == "succeeded":
        out.write_line(
            f"To let {out.sanitize(rehearsal['routine'])} run like this: "
            f"agentctl rehearse --approve {short_id(rehearsal['run'])}"
        )
