"""`agentctl approvals | approve | reject | quarantine | audit`: what they ask and print."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED, Call, quote
from daemon.cli.render import BOLD, DIM, RED, YELLOW, counted, now, one_line, short, span, when
from daemon.cli.render import moment as at


def approvals(call: Call) -> int:
    """List what waits for an answer, or what is allowed for good."""
    if call.revoke:
        return _revoke(call)
    if call.remembered:
        return _remembered(call)
    wanted = "" if call.all else "&status=pending"
    told = call.ask("GET", f"/v1/approvals?limit=200{wanted}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("Nothing has been asked yet." if call.all else "Nothing waits for an answer.")
        return DONE
    today = now()
    for each in told["items"]:
        _show(call, each, today)
    if not call.all:
        call.out.say(call.out.paint("\nagentctl approve ID [--remember]   agentctl reject ID", DIM))
    return DONE


def _show(call: Call, asked: Mapping[str, Any], today: datetime) -> None:
    out = call.out
    state = "" if asked["status"] == "pending" else f"  {asked['status']}"
    state += f" by {asked['by']}" if asked["by"] else ""
    out.say(f"{out.paint(short(asked['id']), BOLD)}  {asked['routine']}  {asked['tool']}{state}")
    for line in asked["what"].splitlines() or [""]:
        out.say(f"    {out.safe(line)}")
    notes = [f"asked by {asked['rule']}" + (f": {asked['reason']}" if asked["reason"] else "")]
    notes.append(f"asked {when(asked['created'], today)}")
    if asked["status"] == "pending":
        notes.append(f"expires in {span((at(asked['expires']) - today).total_seconds())}")
    if asked["calls"] > 1:
        notes.append(f"{counted(asked['calls'], 'run')} wait for this")
    notes.append(f"run {short(asked['run'])}")
    for note in notes:
        out.say(out.paint(f"    {out.safe(one_line(note))}", DIM))
    if asked["taint"]:
        out.say(
            out.paint(
                "    the run has read what strangers wrote: they may have chosen these words",
                YELLOW,
            )
        )


def _remembered(call: Call) -> int:
    told = call.ask("GET", "/v1/remembered")
    if told is None:
        return DONE
    if told["fault"]:
        call.out.say(call.out.paint(call.out.safe(told["fault"]), RED))
    rows = [
        (short(each["id"]), each["routine"], each["tool"], each["by"], each["what"])
        for each in told["items"]
    ]
    if rows:
        call.out.table(["ID", "ROUTINE", "TOOL", "BY", "WHAT"], rows, signs=False)
    elif not told["fault"]:
        call.out.say("Nothing is allowed for good.")
    return NOT_SUCCEEDED if told["fault"] else DONE


def _revoke(call: Call) -> int:
    told = call.ask("POST", f"/v1/remembered/{quote(call.revoke)}/revoke", {})
    if told is not None:
        call.out.say(f"no longer allowed for good: {call.out.safe(told['what'])}")
    return DONE


def approve(call: Call) -> int:
    """Allow a call, once or for good."""
    body: dict[str, Any] = {}
    if call.remember:
        shown = call.client.ask("GET", f"/v1/approvals/{quote(call.approval)}/proposal")
        page = call.err if call.json else call.out
        for line in shown["diff"].splitlines():
            page.say(page.safe(line))
        if not call.yes:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                page.say("Nothing was approved. With --yes it will be.")
                return REFUSED
            sys.stdout.write("\nAllow this call for good? [y/N] ")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                page.say("Nothing was approved.")
                return REFUSED
        body["remember"] = shown["confirm"]
    told = call.ask("POST", f"/v1/approvals/{quote(call.approval)}/approve", body)
    if told is not None:
        call.out.say(f"approved {call.out.safe(one_line(told['what']))}")
        call.out.say(
            call.out.paint(
                f"run {short(told['run'])} goes on: agentctl inspect -f {short(told['run'])}", DIM
            )
        )
    return DONE


def reject(call: Call) -> int:
    """Refuse a call."""
    told = call.ask("POST", f"/v1/approvals/{quote(call.approval)}/reject", {})
    if told is not None:
        call.out.say(
            (  # noqa: UP034
                f"rejected {call.out.safe(one_line(told['what']))}; run {short(told['run'])} goes "
                "on without it"
            )
        )
    return DONE


def quarantine(call: Call) -> int:
    """List what was kept from the models, or show one text."""
    if call.text:
        told = call.ask("GET", f"/v1/quarantine/{quote(call.text)}")
        if told is None:
            return DONE
        call.err.say(
            call.err.paint(
                f"{told['routine']}, run {short(told['run'])}: {told['tool']}, {told['reason']}",
                DIM,
            )
        )
        call.out.say(call.out.safe(told["text"]))
        return DONE
    told = call.ask("GET", f"/v1/quarantine?limit={call.limit}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("Nothing was kept from the models.")
        return DONE
    today = now()
    rows = [
        (short(each["id"]), each["routine"], each["tool"], when(each["at"], today), each["reason"])
        for each in told["items"]
    ]
    call.out.table(["ID", "ROUTINE", "TOOL", "WHEN", "WHY"], rows, signs=False)
    return DONE


def audit(call: Call) -> int:
    """List the rows of the audit, or prove that none was tampered with."""
    if call.verify:
        return _verify(call)
    narrowed = f"&run={quote(call.run)}" if call.run else ""
    told = call.ask("GET", f"/v1/audit?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("No call has been made yet.")
        return DONE
    today = now()
    rows = [
        (
            str(each["seq"]),
            when(each["at"], today),
            each["kind"],
            each["routine"],
            each["tool"],
            _audited(each),
        )
        for each in told["items"]
    ]
    call.out.table(["#", "WHEN", "WHAT", "ROUTINE", "TOOL", ""], rows, signs=False)
    return DONE


def _audited(row: Mapping[str, Any]) -> str:
    body = row["body"]
    parts = [body.get("effect", ""), body.get("rule", ""), row["actor"] and f"by {row['actor']}"]
    if row["kind"] == "result":
        parts = ["done" if body.get("ok") else "failed", f"{body.get('bytes', 0)} bytes"]
    parts += [body.get("taint", ""), body.get("sandbox", "")]
    return ", ".join(filter(None, parts))


def _verify(call: Call) -> int:
    told = call.ask("GET", "/v1/audit/proof")
    if told is None:
        return DONE
    if told["broken"] is not None:
        text = (
            f"row {told['broken']} does not follow from the one before it: it was changed, put in, "
            "or one was taken out"
        )
        call.out.say(call.out.paint(text, RED))
        return NOT_SUCCEEDED
    call.out.say(f"{counted(told['rows'], 'row')}, each follows from the one before it")
    if told["rows"]:
        call.out.say(
            call.out.paint(
                f"note this to prove later that none was cut off: {told['rows']} {told['head']}",
                DIM,
            )
        )
    return DONE
