"""`agentctl events`: what runs do as they do it, a line each, until somebody has seen enough."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DETACHED, UNREACHABLE, Call, quote, start_command
from daemon.cli.client import Lost
from daemon.cli.progress import summary
from daemon.cli.render import DIM, RED, moment, one_line, short, words

# Of these there may be hundreds a second, and each is a word: whoever wants them asks for JSON.
_PIECES = frozenset({"delta"})


def events(call: Call) -> int:
    """Print what happens from now on."""
    if call.routine:
        call.client.ask("GET", f"/v1/routines/{quote(call.routine)}")  # NotFound for a slip
    try:
        for event in call.client.stream("/v1/events"):
            if call.routine and event.get("routine") != call.routine:
                continue
            if call.json:
                call.out.say(json.dumps(event, ensure_ascii=False))
            elif event["type"] not in _PIECES:
                _say(call, event)
            call.out.stream.flush()
    except KeyboardInterrupt:
        return DETACHED
    except Lost:
        pass
    call.err.say(f"the daemon stopped. Start it with: {start_command()}")
    return UNREACHABLE


def _say(call: Call, event: Mapping[str, Any]) -> None:
    out, at = call.out, f"{moment(event['at']):%H:%M:%S} " if event.get("at") else ""
    text = one_line(out.safe(_words(event)))
    if out.width is not None:
        text = out.cut(text, max(10, out.width - len(at) - len(event.get("routine") or "") - 14))
    ended = event["type"] == "run_ended"
    mark = out.sign(event["status"]) if ended else out.paint("·" if out.unicode else ".", DIM)
    bad = event["type"] == "tool_finished" and not event["ok"]
    who = (
        f"{out.paint(at, DIM)}{mark} {event.get('routine') or '-'} "
        f"{out.paint(short(event['run']), DIM)}"
    )
    out.say(f"{who} {out.paint(text, RED) if bad else text}".rstrip())


def _words(event: Mapping[str, Any]) -> str:
    match event["type"]:
        case "run_started":
            return "begins"
        case "tool_started":
            return f"{event['tool']} {summary(event.get('args') or {})}"
        case "tool_finished":
            return (
                f"{event['tool']}: {event.get('preview') or ('done' if event['ok'] else 'failed')}"
            )
        case "thinking":
            return f"{event.get('provider') or 'the model'} is thinking"
        case "failed_over":
            return f"{event['from']} does not answer ({event['reason']}): {event['to']} is asked"
        case "message":
            return str(event["text"])
        case "run_ended" | "run_waiting":
            detail = f": {event['detail']}" if event.get("detail") else ""
            return f"{words(event['status'])}{detail}"
        case other:
            return words(other)
