"""`agentctl deliveries`: where reports went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, USAGE, Call, quote
from daemon.cli.render import (
    DIM,
    OutputStream,
    format_instant,
    local_now,
    one_line,
    short_id,
    shorten_home,
)
from daemon.plurals import pluralize


def deliveries(call: Call) -> int:
    """List where reports went, or retry or drop one delivery."""
    if call.action:
        return _retry_or_drop(call)
    filters = f"&run={quote(call.run)}" if call.run is not None else ""
    filters += f"&status={quote(call.status)}" if call.status is not None else ""
    answer = call.request("GET", f"/v1/deliveries?limit={call.limit}{filters}")
    if answer is None:
        return DONE
    items, out = answer["items"], call.out
    if not items:
        out.write_line(
            "There are no such deliveries." if filters else "Nothing has been delivered yet."
        )
        return DONE
    now = local_now()
    rows = [
        (
            delivery["status"],
            str(delivery["id"]),
            short_id(delivery["run"]),
            delivery["routine"],
            delivery["target"],
            format_instant(delivery["created"], now),
            describe_delivery(delivery),
        )
        for delivery in items
    ]
    out.write_table(["", "ID", "RUN", "ROUTINE", "TO", "WHEN", "OUTCOME"], rows)
    call.write_hint_for_more(answer, "name a --run, or a --status")
    failed_ids = [delivery["id"] for delivery in items if delivery["status"] == "failed"]
    if failed_ids:
        text = (
            f"given up: agentctl deliveries retry {failed_ids[0]} sends it again, drop forgets it"
        )
        out.write_line(out.paint(text, DIM))
    return DONE


def _retry_or_drop(call: Call) -> int:
    if call.id is None:
        call.err.write_line(
            f"agentctl deliveries {call.action}: which one? Its number is in the list: "
            "agentctl deliveries"
        )
        return USAGE
    delivery = call.request("POST", f"/v1/deliveries/{call.id}/{call.action}")
    if delivery is not None:
        result = "is being sent again" if call.action == "retry" else "is dropped"
        call.out.write_line(
            f"delivery {delivery['id']} of {delivery['routine'] or 'agentd'} to "
            f"{delivery['target']} {result}"
        )
    return DONE


def format_delivery(out: OutputStream, delivery: Mapping[str, Any]) -> str:
    """Return one delivery as a line with its sign and target."""
    text = one_line(out.sanitize(describe_delivery(delivery)))
    return f"{out.sign(delivery['status'])} {delivery['target']}: {text}"


def describe_delivery(delivery: Mapping[str, Any]) -> str:
    """Return what became of a delivery; one that asks for an approval is named a question."""
    match delivery["status"]:
        case "delivered":
            text = shorten_home(delivery["receipt"] or "delivered")
            if delivery["attempts"] > 1:
                text += f", at attempt {delivery['attempts']}"
        case "pending" if delivery["error"]:
            next_attempt = format_instant(delivery["next_at"], never="soon")
            text = f"not yet: {delivery['error']}; next try {next_attempt}"
        case "failed":
            attempts = pluralize(delivery["attempts"], "attempt")
            text = f"given up after {attempts}: {delivery['error']}"
        case "suppressed":
            text = str(delivery["error"] or "not sent, as there was nothing to report")
        case _:
            text = "on its way"
    return f"question: {text}" if delivery.get("kind") == "question" else text
