"""`agentctl events`: print the events of runs as they happen, a line for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DETACHED, UNREACHABLE, Call, quote, start_command
from daemon.cli.client import ConnectionLost
from daemon.cli.progress import summarize_arguments
from daemon.cli.render import DIM, RED, OutputStream, humanize, one_line, parse_instant, short_id

# The type of an event with a few words of an answer. There may be hundreds a second, so they are
# printed with --json only.
DELTA = "delta"
# Columns of a line besides the time, the routine and the text: sign, id of the run, blanks.
_FIXED_COLUMNS = 14


def print_events(call: Call) -> int:
    """Print events from now on, of one routine or all, until Ctrl-C or the end of the daemon.

    Returns DETACHED or UNREACHABLE. Raises ApiError if there is no such routine.
    """
    if call.routine is not None:
        # the stream of events takes any name: ask for the routine, in case of a typo
        call.client.request("GET", f"/v1/routines/{quote(call.routine)}")
    try:
        for event in call.client.stream("/v1/events"):
            if call.routine and event.get("routine") != call.routine:
                continue
            if call.json:
                call.out.write_line(json.dumps(event, ensure_ascii=False))
            elif event["type"] != DELTA:
                _write_event(call.out, event)
            call.out.stream.flush()
    except KeyboardInterrupt:
        return DETACHED
    except ConnectionLost:
        pass
    call.err.write_line(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE


def _write_event(out: OutputStream, event: Mapping[str, Any]) -> None:
    time = f"{parse_instant(event['at']):%H:%M:%S} " if event.get("at") else ""
    text = one_line(out.sanitize(_describe_event(event)))
    if out.width is not None:
        prefix_width = len(time) + len(event.get("routine") or "") + _FIXED_COLUMNS
        text = out.truncate(text, max(10, out.width - prefix_width))
    if event["type"] == "run_ended":
        sign = out.sign(event["status"])
    else:
        sign = out.paint("·" if out.has_unicode else ".", DIM)
    if event["type"] == "tool_finished" and not event["ok"]:
        text = out.paint(text, RED)
    routine, run = event.get("routine") or "-", out.paint(short_id(event["run"]), DIM)
    out.write_line(f"{out.paint(time, DIM)}{sign} {routine} {run} {text}".rstrip())


def _describe_event(event: Mapping[str, Any]) -> str:
    match event["type"]:
        case "run_started":
            return "begins"
        case "tool_started":
            return f"{event['tool']} {summarize_arguments(event.get('args') or {})}"
        case "tool_finished":
            result = event.get("preview") or ("done" if event["ok"] else "failed")
            return f"{event['tool']}: {result}"
        case "thinking" if event.get("text"):
            return f"thinks: {event['text']}"
        case "thinking":
            return f"{event.get('provider') or 'the model'} is thinking"
        case "failed_over":
            return f"{event['from']} does not answer ({event['reason']}): {event['to']} is asked"
        case "message":
            return str(event["text"])
        case "run_retry_scheduled":
            return f"put off until {parse_instant(event['until']):%H:%M:%S}: {event['detail']}"
        case "run_ended" | "run_waiting":
            detail = f": {event['detail']}" if event.get("detail") else ""
            return f"{humanize(event['status'])}{detail}"
        case unknown_type:
            return humanize(unknown_type)
