"""`agentctl incidents` and `ack`: what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, Call
from daemon.cli.render import format_instant, local_now, one_line
from daemon.plurals import pluralize


def list_incidents(call: Call) -> int:
    """List what is wrong, with --all also what is over."""
    answer = call.request("GET", f"/v1/incidents?limit={call.limit}&all={int(call.all)}")
    if answer is None:
        return DONE
    if not answer["items"]:
        call.out.write_line("Nothing has gone wrong yet." if call.all else "Nothing is wrong.")
        return DONE
    now = local_now()
    rows = [
        (
            "succeeded" if incident["closed"] else "failed",
            str(incident["id"]),
            incident["subject"],
            describe_incident(incident, now),
        )
        for incident in answer["items"]
    ]
    call.out.write_table(["", "ID", "WHAT", "HOW"], rows)
    call.write_hint_for_more(answer, "GET /v1/incidents has them all")
    return DONE


def describe_incident(incident: Mapping[str, Any], now: datetime) -> str:
    """Return how often and since when it happened, who knows of it, and its detail."""
    text = f"{pluralize(incident['count'], 'time')} since {format_instant(incident['opened'], now)}"
    if incident["closed"]:
        text += f", over {format_instant(incident['closed'], now)}"
    elif incident["acked"]:
        text += ", acknowledged"
    elif incident["targets"]:
        text += f", told to {', '.join(incident['targets'])}"
    return f"{text}: {one_line(incident['detail'])}"


def acknowledge(call: Call) -> int:
    """Acknowledge an incident: no more reminders until it is over."""
    incident = call.request("POST", f"/v1/incidents/{call.id}/ack")
    if incident is not None:
        state = "is over" if incident["closed"] else "reminds nobody until it is over"
        call.out.write_line(f"incident {incident['id']} ({incident['subject']}) {state}")
    return DONE
