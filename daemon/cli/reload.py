"""`agentctl reload`: let the daemon read config, policy and routines again."""

from __future__ import annotations

from contextlib import suppress

from daemon.cli.call import DONE, NOT_SUCCEEDED, Call, quote
from daemon.cli.client import ApiError
from daemon.cli.render import RED
from daemon.cli.routines import write_policy_notes

# Of how many new and edited routines it is told what the policy says; `agentctl list` tells of all.
_MAX_ROUTINES_ASKED = 20


def reload(call: Call) -> int:
    """Read config, policy and routines again; show what has changed, and what is wrong."""
    answer = call.request_and_print("POST", "/v1/reload")
    code = NOT_SUCCEEDED if answer["faults"] else DONE
    if call.json:
        return code
    changes = [
        f"{kind} {', '.join(answer[kind])}"
        for kind in ("added", "changed", "removed")
        if answer[kind]
    ]
    if files := answer.get("files"):
        changes.append(f"taken up: {', '.join(files)}")
    call.out.write_line("; ".join(changes) if changes else "nothing has changed")
    if restart := answer.get("restart"):
        call.err.write_line(f"restart agentd for this to count: {', '.join(restart)}")
    for name in (*answer["added"], *answer["changed"])[:_MAX_ROUTINES_ASKED]:
        with suppress(ApiError):  # it is gone again
            routine = call.client.request("GET", f"/v1/routines/{quote(name)}")
            write_policy_notes(call.err, routine)
    for fault in answer["faults"]:
        call.err.write_prose(call.err.sanitize(fault["text"]), colour=RED)
    return code
