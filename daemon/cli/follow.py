"""Follow a run as it lives: its steps as they happen on stderr, its report on stdout, its end as
the exit code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DETACHED, DONE, UNREACHABLE, Call, exit_code_of, quote, start_command
from daemon.cli.client import Lost, Unreachable
from daemon.cli.progress import RunProgress
from daemon.cli.render import BOLD, DIM, RED, YELLOW, counted, one_line, short, words

# A report that is written into a file is there within milliseconds; one that is sent elsewhere may
# take hours.
MOMENTS = (0.01, 0.04, 0.15, 0.3, 0.5)


def run(call: Call) -> int:
    """Run a routine now, and print its report."""
    target, body = f"/v1/routines/{quote(call.routine)}/run", {"event": os.urandom(16).hex()}
    try:
        begun = call.client.ask("POST", target, body)
    except Lost:
        begun = call.client.ask(
            "POST", target, body
        )  # the same event gives the same run, whether or not it got there
    if call.detach:
        call.out.say(
            call.client.text("GET", f"/v1/runs/{begun['id']}") if call.json else begun["id"]
        )
        return DONE
    return follow(call, begun)


def follow(call: Call, begun: Mapping[str, Any]) -> int:
    """Show a run until it has ended, then print its report."""
    run_id, err = begun["id"], call.err
    try:  # from the first word on: whoever has read it may press Ctrl-C
        if not call.json:
            err.say(
                f"{err.paint(begun['routine'], BOLD)}  run {short(run_id)}{_line_before(begun)}"
            )
        last = _watch(call, run_id)
        if last is None:
            return _gone(call, run_id, "stopped")
        ended = _settled(call, {**begun, **last, "id": run_id})
    except KeyboardInterrupt:
        return _detach(call, run_id)
    except (Lost, Unreachable):
        return _gone(call, run_id, "went away")
    if call.json:
        call.say_json(ended)
    else:
        _conclude(call, ended)
    return exit_code_of(ended["status"], [delivery["status"] for delivery in ended["deliveries"]])


def _line_before(run: Mapping[str, Any]) -> str:
    if run["position"]:
        return f", {counted(run['position'], 'run')} before it"
    return ", waits for room" if run["position"] == 0 else ""


def _watch(call: Call, run_id: str) -> Mapping[str, Any] | None:
    """Show what happens; return the event that ends the run, or says that it waits for a person."""
    progress = RunProgress(call.err)
    tick = progress.tick if call.err.terminal and not call.json else None
    try:
        for event in call.client.stream(f"/v1/runs/{run_id}/events", tick):
            if not call.json:
                progress.show(event)
            if event["type"] in ("run_ended", "run_waiting"):
                return dict(event)
    finally:
        progress.clear()
    return None


def _settled(call: Call, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ended run, once its deliveries have been tried or a moment has passed; else what
    its end told.
    """
    run = told
    try:
        for pause in MOMENTS:
            run = call.client.ask("GET", f"/v1/runs/{told['id']}")
            if not any(
                each["status"] == "pending" and not each["attempts"] for each in run["deliveries"]
            ):
                break
            time.sleep(pause)
    except (Lost, Unreachable):
        pass  # the daemon stopped right after the run: it had ended all the same
    return run


def _conclude(call: Call, run: Mapping[str, Any]) -> None:
    from daemon.cli.inspection import delivery_line

    out, err = call.out, call.err
    text = "nothing to report" if run["silent"] else words(run["status"])
    detail = f": {one_line(err.safe(run['detail']))}" if run["detail"] else ""
    colour = (
        ""
        if run["status"] == "succeeded"
        else YELLOW
        if run["status"] in ("skipped", "waiting")
        else RED
    )
    err.say(f"{err.sign(run['status'])} {err.paint(text + detail, colour)}")
    for delivery in reversed(run["deliveries"]):
        err.say(delivery_line(err, delivery))
    if run["report"]:
        if err.terminal and out.terminal:
            err.say()
        out.say(out.safe(run["report"].rstrip("\n")))


def _detach(call: Call, run_id: str) -> int:
    err, name = call.err, short(run_id)
    err.say()
    err.say(f"detached; run {name} goes on in the daemon.")
    err.say(
        err.paint(
            f"  agentctl inspect -f {name}  follows it on\n  agentctl cancel {name}      stops it",
            DIM,
        )
    )
    return DETACHED


def _gone(call: Call, run_id: str, how: str) -> int:
    name, command = short(run_id), start_command()
    call.err.say(f"the daemon {how}; run {name} goes on when it starts again.")
    call.err.say(f"Start it with: {command}\nThen follow it with: agentctl inspect -f {name}")
    return UNREACHABLE
