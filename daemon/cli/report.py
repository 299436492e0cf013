"""`agentctl report`: the last report, and nothing else."""

from __future__ import annotations

from typing import Any

from daemon.cli.call import DONE, NOT_FOUND, Call, quote
from daemon.cli.markdown import format_report


def report(call: Call) -> int:
    """Print the last report, of a routine or of all."""
    run = find_last_report(call)
    if run is None:
        if call.routine:
            text = f"{call.routine} has not reported anything yet: agentctl run {call.routine}"
        else:
            text = "nothing was reported yet: agentctl list shows what runs when"
        call.err.write_line(f"agentctl: {text}")
        return NOT_FOUND
    if call.json:
        keys = ("id", "routine", "status", "slot", "ended", "report")
        return call.print_json({key: run[key] for key in keys})
    verbatim = not run["provider"]
    call.out.write_line(format_report(run["report"], call.out, verbatim=verbatim))
    return DONE


def find_last_report(call: Call) -> Any:
    """Return the newest run that reported something; None if there is none."""
    path = "/v1/runs?limit=50"
    if call.routine is not None:
        path += f"&routine={quote(call.routine)}"
    cursor = ""
    while True:
        answer = call.client.request("GET", path + cursor)
        for run in answer["items"]:
            if run["headline"] and not run["silent"]:
                return call.client.request("GET", f"/v1/runs/{run['id']}")
        if answer["next"] is None:
            return None
        cursor = f"&cursor={quote(answer['next'])}"
