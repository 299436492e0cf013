"""`agentctl seen`: the items that a routine with [dedupe] has reported."""

from __future__ import annotations

from daemon.cli.call import DONE, USAGE, Call, quote
from daemon.cli.render import format_instant, local_now, short_id
from daemon.plurals import pluralize


def seen(call: Call) -> int:
    """List the items that a routine has reported, or forget one or all of them."""
    if call.action == "forget":
        return _forget(call)
    answer = call.request("GET", f"/v1/routines/{quote(call.routine)}/seen?limit={call.limit}")
    if answer is None:
        return DONE
    if not answer["items"]:
        call.out.write_line(f"{call.routine} has reported no items yet.")
        return DONE
    now = local_now()
    rows = [
        (
            format_instant(item["first"], now),
            short_id(item["run"]),
            str(item["times"]),
            item["title"] or "forgotten",
            item["key"],
        )
        for item in answer["items"]
    ]
    call.out.write_table(["REPORTED", "RUN", "FOUND", "TITLE", "KEY"], rows, signs=False)
    call.write_hint_for_more(answer, f"GET /v1/routines/{call.routine}/seen has them all")
    return DONE


def _forget(call: Call) -> int:
    if bool(call.key) == bool(call.all):
        call.err.write_line(f"agentctl seen {call.routine} forget: name one KEY, or say --all")
        return USAGE
    body = {"all": 1} if call.all else {"key": call.key}
    answer = call.request("POST", f"/v1/routines/{quote(call.routine)}/seen/forget", body)
    if answer is not None:
        items = pluralize(answer["forgotten"], "item")
        call.out.write_line(f"{items} of {call.routine} may be reported again")
    return DONE
