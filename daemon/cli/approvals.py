"""`agentctl approvals`, `approve`, `reject`, `quarantine` and `audit`: what agents may do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED, Call, quote
from daemon.cli.render import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    format_instant,
    local_now,
    one_line,
    parse_instant,
    short_id,
)
from daemon.durations import duration_in_words
from daemon.plurals import pluralize


def approvals(call: Call) -> int:
    """List what waits for an answer, or what is allowed for good, or show one call in full."""
    if call.revoke is not None:
        return _revoke(call)
    if call.remembered:
        return _list_remembered(call)
    if call.approval is not None:
        approval = call.request("GET", f"/v1/approvals/{quote(call.approval)}")
        if approval is not None:
            _write_approval(call, approval, local_now())
        return DONE
    status_filter = "" if call.all else "&status=pending"
    items = call.request_items(f"/v1/approvals?limit=200{status_filter}")
    if call.json:
        return call.print_json({"items": items, "next": None})
    out = call.out
    if not items:
        out.write_line(
            "Nothing has been asked yet." if call.all else "Nothing waits for an answer."
        )
        return DONE
    now = local_now()
    for approval in items:
        _write_approval(call, approval, now)
    if not call.all:
        out.write_line(out.paint("\nagentctl approve ID [--remember]   agentctl reject ID", DIM))
    return DONE


def _write_approval(call: Call, approval: Mapping[str, Any], now: datetime) -> None:
    out, is_pending = call.out, approval["status"] == "pending"
    state = "" if is_pending else f"  {approval['status']}"
    if approval["by"]:
        state += f" by {approval['by']}"
    name = out.paint(short_id(approval["id"]), BOLD)
    out.write_line(f"{name}  {approval['routine']}  {approval['tool']}{state}")
    for line in approval["what"].splitlines() or [""]:
        out.write_line(f"    {out.sanitize(line)}")
    reason = f": {approval['reason']}" if approval["reason"] else ""
    notes = [
        f"asked by {approval['rule']}{reason}",
        f"asked {format_instant(approval['created'], now)}",
    ]
    if is_pending:
        time_left = parse_instant(approval["expires"]) - now
        notes.append(f"expires in {duration_in_words(time_left.total_seconds())}")
    if approval["calls"] > 1:
        notes.append(f"{pluralize(approval['calls'], 'run')} wait for this")
    notes.append(f"run {short_id(approval['run'])}")
    for note in notes:
        out.write_line(out.paint(f"    {out.sanitize(one_line(note))}", DIM))
    if approval["taint"]:
        warning = "    the run has read what strangers wrote: they may have chosen these words"
        out.write_line(out.paint(warning, YELLOW))


def _list_remembered(call: Call) -> int:
    """List what is allowed for good; the exit code tells whether the file could be read."""
    answer = call.request_and_print("GET", "/v1/remembered")
    code = NOT_SUCCEEDED if answer["fault"] else DONE
    if call.json:
        return code
    if answer["fault"]:
        call.out.write_line(call.out.paint(call.out.sanitize(answer["fault"]), RED))
    rows = [
        (short_id(rule["id"]), rule["routine"], rule["tool"], rule["by"], rule["what"])
        for rule in answer["items"]
    ]
    if rows:
        call.out.write_table(["ID", "ROUTINE", "TOOL", "BY", "WHAT"], rows, signs=False)
    elif not answer["fault"]:
        call.out.write_line("Nothing is allowed for good.")
    return code


def _revoke(call: Call) -> int:
    rule = call.request("POST", f"/v1/remembered/{quote(call.revoke)}/revoke", {})
    if rule is not None:
        call.out.write_line(f"no longer allowed for good: {call.out.sanitize(rule['what'])}")
    return DONE


def approve(call: Call) -> int:
    """Allow a call, once or for good."""
    body: dict[str, Any] = {}
    if call.remember:
        proposal = call.client.request("GET", f"/v1/approvals/{quote(call.approval)}/proposal")
        out = call.err if call.json else call.out
        for line in proposal["diff"].splitlines():
            out.write_line(out.sanitize(line))
        if not call.yes:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                out.write_line("Nothing was approved. With --yes it will be.")
                return REFUSED
            sys.stdout.write("\nAllow this call for good? [y/N] ")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                out.write_line("Nothing was approved.")
                return REFUSED
        body["remember"] = proposal["confirm"]
    approval = call.request("POST", f"/v1/approvals/{quote(call.approval)}/approve", body)
    if approval is not None:
        out, run = call.out, short_id(approval["run"])
        out.write_line(f"approved {out.sanitize(one_line(approval['what']))}")
        if call.remember:
            text = "remembered: later runs make this call unasked, unless they have read words of "
            text += "strangers"
            out.write_line(out.paint(text, DIM))
        out.write_line(out.paint(f"run {run} goes on: agentctl inspect -f {run}", DIM))
    return DONE


def reject(call: Call) -> int:
    """Refuse a call."""
    approval = call.request("POST", f"/v1/approvals/{quote(call.approval)}/reject", {})
    if approval is not None:
        text = call.out.sanitize(one_line(approval["what"]))
        call.out.write_line(f"rejected {text}; run {short_id(approval['run'])} goes on without it")
    return DONE


def quarantine(call: Call) -> int:
    """List what was kept from the models, or show one text."""
    out, err = call.out, call.err
    if call.text is not None:
        entry = call.request("GET", f"/v1/quarantine/{quote(call.text)}")
        if entry is None:
            return DONE
        origin = (
            f"{entry['routine']}, run {short_id(entry['run'])}: {entry['tool']}, {entry['reason']}"
        )
        err.write_line(err.paint(origin, DIM))
        out.write_line(out.sanitize(entry["text"]))
        return DONE
    answer = call.request("GET", f"/v1/quarantine?limit={call.limit}")
    if answer is None:
        return DONE
    if not answer["items"]:
        out.write_line("Nothing was kept from the models.")
        return DONE
    now = local_now()
    rows = [
        (
            short_id(entry["id"]),
            entry["routine"],
            entry["tool"],
            format_instant(entry["at"], now),
            entry["reason"],
        )
        for entry in answer["items"]
    ]
    out.write_table(["ID", "ROUTINE", "TOOL", "WHEN", "WHY"], rows, signs=False)
    call.write_hint_for_more(answer, "GET /v1/quarantine has them all")
    return DONE


def audit(call: Call) -> int:
    """List the rows of the audit, or verify that none was changed."""
    if call.verify:
        return _verify_audit(call)
    run_filter = f"&run={quote(call.run)}" if call.run is not None else ""
    answer = call.request("GET", f"/v1/audit?limit={call.limit}{run_filter}")
    if answer is None:
        return DONE
    if not answer["items"]:
        call.out.write_line("No call has been made yet.")
        return DONE
    now = local_now()
    rows = [
        (
            str(row["seq"]),
            format_instant(row["at"], now),
            row["kind"],
            row["routine"],
            row["tool"],
            _describe_audit_row(row),
        )
        for row in answer["items"]
    ]
    call.out.write_table(["#", "WHEN", "WHAT", "ROUTINE", "TOOL", ""], rows, signs=False)
    call.write_hint_for_more(answer, "GET /v1/audit has them all")
    return DONE


def _describe_audit_row(row: Mapping[str, Any]) -> str:
    body = row["body"]
    if row["kind"] == "result":
        parts = ["done" if body.get("ok") else "failed", f"{body.get('bytes', 0)} bytes"]
    else:
        actor = f"by {row['actor']}" if row["actor"] else ""
        digests = [body[key][:12] for key in ("before", "after") if body.get(key)]
        parts = [body.get("effect", ""), body.get("rule", ""), " to ".join(digests), actor]
    parts += [body.get("taint", ""), body.get("sandbox", "")]
    return ", ".join(part for part in parts if part)


def _verify_audit(call: Call) -> int:
    proof = call.request_and_print("GET", "/v1/audit/proof")
    if call.json:
        return DONE if proof["broken"] is None else NOT_SUCCEEDED
    out = call.out
    if proof["broken"] is not None:
        text = (
            f"row {proof['broken']} does not follow from the one before it: it was changed, put "
            "in, or one was taken out"
        )
        out.write_line(out.paint(text, RED))
        return NOT_SUCCEEDED
    out.write_line(f"{pluralize(proof['rows'], 'row')}, each follows from the one before it")
    if proof["rows"]:
        text = f"note this to prove later that none was cut off: {proof['rows']} {proof['head']}"
        out.write_line(out.paint(text, DIM))
    return DONE
