"""Follow a run: its steps as they happen on stderr, its report on stdout, its exit code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DETACHED, UNREACHABLE, Call, exit_code_of, start_command
from daemon.cli.client import ConnectionLost, Unreachable
from daemon.cli.deliveries import format_delivery
from daemon.cli.markdown import format_report
from daemon.cli.progress import RunProgress
from daemon.cli.render import BOLD, DIM, RED, YELLOW, humanize, one_line, short_id
from daemon.plurals import pluralize

# Seconds between looks at the deliveries of an ended run, which add up to five. A report for a file
# is there within milliseconds, a mail within seconds. One that has to be tried again may take
# hours.
DELIVERY_WAIT_SECONDS = (0.01, 0.04, 0.15, 0.3, 0.5, 1, 1, 2)


def follow(call: Call, run: Mapping[str, Any]) -> int:
    """Show a run until it ends or waits for an approval, then print its report.

    Ctrl-C detaches: the run goes on in the daemon.
    """
    run_id, out, err = run["id"], call.out, call.err
    try:  # from the first line on: whoever has read that may press Ctrl-C
        if not call.json:
            line = f"{err.paint(run['routine'], BOLD)}  run {short_id(run_id)}"
            if run["position"]:
                line += f", {pluralize(run['position'], 'run')} before it"
            elif run["position"] == 0:
                line += ", waits for room"
            err.write_line(line)
        last_event = _show_events(call, run_id)
        if last_event is None:
            return _report_daemon_gone(call, run_id, "stopped")
        ended_run = _wait_for_deliveries(call, {**run, **last_event, "id": run_id})
    except KeyboardInterrupt:
        name = short_id(run_id)
        err.write_line()
        err.write_line(f"detached; run {name} goes on in the daemon.")
        commands = (
            f"  agentctl inspect -f {name}  follows it on\n  agentctl cancel {name}      stops it"
        )
        err.write_line(err.paint(commands, DIM))
        return DETACHED
    except (ConnectionLost, Unreachable):
        return _report_daemon_gone(call, run_id, "went away")
    if call.json:
        call.print_json(ended_run)
    else:
        _write_outcome(call, ended_run)
        if ended_run["status"] == "waiting":
            _write_approvals(call, run_id)
        for delivery in reversed(ended_run["deliveries"]):
            err.write_line(format_delivery(err, delivery))
        if ended_run["report"]:
            if err.is_terminal and out.is_terminal:
                err.write_line()
            verbatim = not ended_run["provider"]
            out.write_line(format_report(ended_run["report"], out, verbatim=verbatim))
    return exit_code_of(
        ended_run["status"], [delivery["status"] for delivery in ended_run["deliveries"]]
    )


def _show_events(call: Call, run_id: str) -> Mapping[str, Any] | None:
    """Show events until the run ends or waits for an approval; return that last event.

    Returns None if the daemon stopped before.
    """
    progress = RunProgress(call.err)
    on_idle = progress.show_current if call.err.is_terminal and not call.json else None
    try:
        for event in call.client.stream(f"/v1/runs/{run_id}/events", on_idle):
            if not call.json:
                progress.show(event)
            if event["type"] in ("run_ended", "run_waiting"):
                return dict(event)
    finally:
        progress.clear()
    return None


def _wait_for_deliveries(call: Call, run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ended run once each delivery has been tried, or after five seconds.

    Returns `run`, as its last event told it, if the daemon stops before.
    """
    try:
        for seconds in (0, *DELIVERY_WAIT_SECONDS):
            time.sleep(seconds)
            run = call.client.request("GET", f"/v1/runs/{run['id']}")
            if not any(
                delivery["status"] == "pending" and not delivery["attempts"]
                for delivery in run["deliveries"]
            ):
                break
    except (ConnectionLost, Unreachable):
        pass
    return run


def _write_outcome(call: Call, run: Mapping[str, Any]) -> None:
    """Write the status of an ended run, and why, on stderr."""
    err = call.err
    text = "nothing to report" if run["silent"] else humanize(run["status"])
    if run["detail"]:
        text += f": {one_line(err.sanitize(run['detail']))}"
    if run["status"] == "succeeded":
        colour = ""
    elif run["status"] in ("skipped", "waiting"):
        colour = YELLOW
    else:
        colour = RED
    err.write_prose(text, colour=colour, begin=f"{err.sign(run['status'])} ")


def _write_approvals(call: Call, run_id: str) -> None:
    """Write the commands that answer what a waiting run asks."""
    approvals = call.client.request("GET", f"/v1/approvals?run={run_id}&status=pending")["items"]
    for approval in approvals:
        question, name = one_line(call.err.sanitize(approval["what"])), short_id(approval["id"])
        call.err.write_line(f"  {question}")
        commands = f"  agentctl approve {name}   agentctl reject {name}"
        call.err.write_line(call.err.paint(commands, DIM))


def _report_daemon_gone(call: Call, run_id: str, what_it_did: str) -> int:
    name = short_id(run_id)
    call.err.write_line(f"the daemon {what_it_did}; run {name} goes on when it starts again.")
    call.err.write_line(f"Start it with: {start_command()}")
    call.err.write_line(f"Then follow it with: agentctl inspect -f {name}")
    return UNREACHABLE
