"""`agentctl seen`: what a routine has reported, and that it may report it again."""

from __future__ import annotations

from daemon.cli.call import DONE, USAGE, Call, quote
from daemon.cli.render import DIM, counted, now, short, when


def seen(call: Call) -> int:
    """List what a routine has reported, or forget of it."""
    if call.act:
        return _forget(call)
    told = call.ask("GET", f"/v1/routines/{quote(call.routine)}/seen?limit={call.limit}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say(f"{call.routine} has reported no items yet.")
        return DONE
    today = now()
    rows = [
        (
            when(each["first"], today),
            short(each["run"]),
            str(each["times"]),
            each["title"] or "forgotten",
            each["key"],
        )
        for each in told["items"]
    ]
    call.out.table(["REPORTED", "RUN", "FOUND", "TITLE", "KEY"], rows, signs=False)
    if told["next"]:
        call.out.say(call.out.paint(f"{len(rows)} of {told['total']:,}; -n shows more", DIM))
    return DONE


def _forget(call: Call) -> int:
    if bool(call.key) == bool(call.all):
        call.err.say(f"agentctl seen {call.routine} forget: name one KEY, or say --all")
        return USAGE
    body = {"all": 1} if call.all else {"key": call.key}
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/seen/forget", body)
    if told is not None:
        call.out.say(
            f"{counted(told['forgotten'], 'item')} of {call.routine} may be reported again"
        )
    return DONE
