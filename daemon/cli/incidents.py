"""What agentctl says of incidents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, Call
from daemon.cli.render import counted, now, one_line, when


def incidents(call: Call) -> int:
    """List what is wrong."""
    told = call.ask("GET", f"/v1/incidents?limit={call.limit}&all={int(call.all)}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("Nothing has gone wrong yet." if call.all else "Nothing is wrong.")
        return DONE
    today = now()
    rows = [
        (
            "succeeded" if each["closed"] else "failed",
            str(each["id"]),
            each["subject"],
            incident_words(each, today),
        )
        for each in told["items"]
    ]
    call.out.table(["", "ID", "WHAT", "HOW"], rows)
    return DONE


def incident_words(incident: Mapping[str, Any], today: datetime) -> str:
    """Return how bad it is, in a line."""
    text = f"{counted(incident['count'], 'time')} since {when(incident['opened'], today)}"
    if incident["closed"]:
        text += f", over {when(incident['closed'], today)}"
    elif incident["acked"]:
        text += ", acknowledged"
    elif incident["targets"]:
        text += f", told to {', '.join(incident['targets'])}"
    return f"{text}: {one_line(incident['detail'])}"


def ack(call: Call) -> int:
    """Say that a person knows."""
    told = call.ask("POST", f"/v1/incidents/{call.id}/ack")
    if told is not None:
        after = "is over" if told["closed"] else "reminds nobody until it is over"
        call.out.say(f"incident {told['id']} ({told['subject']}) {after}")
    return DONE
