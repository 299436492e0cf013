"""What there is and how it goes: `agentctl status`, `list`, `show`, `preview`, `runs`, `slots`,
`inspect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, NEW, Call, quote
from daemon.cli.render import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    counted,
    now,
    one_line,
    short,
    size,
    span,
    when,
    words,
)
from daemon.cli.render import moment as at
from daemon.cli.run_names import run_named
from daemon.cli.verbs import function_at

HELD = ", held back until a rehearsal was approved"


def status(call: Call) -> int:
    """Tell how the daemon is."""
    told = call.ask("GET", "/v1/status")
    if told is None:
        return DONE
    out, today, counts = call.out, now(), told["counts"]
    out.say(
        (  # noqa: UP034
            f"agentd {told['version']} is up since {when(told['started'], today)}, process "
            f"{told['pid']}"
        )
    )
    states = {words(state): number for state, number in told["routines"].items() if state != "kept"}
    kept = told["routines"].get("kept", 0)
    as_before = (
        f"; {kept} of them by what the file said before it broke: agentctl list" if kept else ""
    )
    for name, text in (
        ("config", told["config"] or "none"),
        ("state", f"{told['state']} ({size(counts.get('bytes', 0))})"),
        ("socket", told["socket"]),
        ("log", told["log"] or "none"),
        ("zone", told["zone"]),
        ("provider", _provider(told.get("provider"))),
        ("sandbox", _sandbox(told.get("sandbox"))),
        (
            "routines",
            (_counted(states) if any(states.values()) else f"none; {NEW} writes one") + as_before,
        ),
        ("runs", _counted(counts.get("runs"))),
        ("deliveries", _counted(counts.get("deliveries"))),
    ):
        out.say(f"  {name:<11} {out.safe(text)}")
    if told["fault"]:
        out.title("The last reload changed nothing, as there are faults")
        for line in told["fault"].splitlines():
            out.say(out.paint(f"  {out.safe(line)}", RED))
    if told["incidents"]:
        from daemon.cli.incidents import incident_words

        out.title("Trouble")
        troubles = [
            (f"  {each['id']}  {each['subject']}", incident_words(each, today))
            for each in told["incidents"]
        ]
        out.table(["", ""], troubles, signs=False)
    if told["workers"]:
        out.title("Who lives runs")
        out.table(["", "", ""], [_worker_row(each, today) for each in told["workers"]], signs=False)
    if told["paused"]:
        out.title("Paused")
        rows = [(f"  {each['routine']}", _pause_words(each, today)) for each in told["paused"]]
        out.table(["", ""], rows, signs=False)
    if told["active"]:
        out.title("Under way")
        out.table(
            ["", "", ""], [_active_row(run, today, told["waiting"]) for run in told["active"]]
        )
        for run in told["active"]:
            if waits := told.get("stranded", {}).get(run["id"]):
                out.say(
                    out.paint(
                        f"  {out.safe(run['routine'])}  {short(run['id'])} {out.safe(waits)}", RED
                    )
                )
    if told["next"]:
        out.title("Next")
        out.table(
            ["", ""],
            [(f"  {each['routine']}", when(each["at"], today)) for each in told["next"]],
            signs=False,
        )
    return DONE


def _provider(name: str | None) -> str:
    if name == "offline":
        return (
            "offline: no model is asked, reports are the gathered facts; config.toml names one: "
            "provider"
        )
    return name or "not told"


def _worker_row(worker: Mapping[str, Any], today: datetime) -> tuple[str, str, str]:
    """Tell of one process: what it is, how much it has to do, and when it was heard of last."""
    load = (
        f"{worker['running']} of {worker['capacity']} runs"
        if worker["capacity"]
        else "lives none itself"
    )
    leads = ", sends the reports" if worker["leads"] else ""
    heard = f"heard {when(worker['seen'], today)}"
    name = f"  {worker['kind']} {worker['host']}:{worker['pid']}"
    return name, f"{load}{leads}", f"{heard}, version {worker['version']}"


def _sandbox(level: str | None) -> str:
    from daemon.cli.inspection import SANDBOXES

    return SANDBOXES.get(level, level) if level else "being tried"


def _counted(numbers: Mapping[str, int] | None) -> str:
    return (
        ", ".join(f"{number} {words(name)}" for name, number in (numbers or {}).items() if number)
        or "none"
    )


def _active_row(
    run: Mapping[str, Any], today: datetime, waiting: Mapping[str, int]
) -> tuple[str, str, str]:
    since = (
        f"for {span((today - at(run['started'])).total_seconds())}"
        if run["started"]
        else "not started yet"
    )
    if run["started"] and at(run["started"]) > today:
        since = "since before the clock was set back"
    if run.get("not_before"):
        since = f"until {when(run['not_before'], today)}"
    if run["id"] in waiting:
        since = (
            f"with {counted(waiting[run['id']], 'run')} before it"
            if waiting[run["id"]]
            else "and first in line"
        )
    return run["status"], f"{run['routine']}  {short(run['id'])}", f"{words(run['status'])} {since}"


def list_routines(call: Call) -> int:
    """List every routine: when it runs, how it last went."""
    routines = call.items("/v1/routines?limit=200")
    if call.json:
        return call.say_json({"items": routines, "next": None})
    if not routines:
        call.out.say(
            (  # noqa: UP034
                "There are no routines yet. One TOML file each, beside config.toml in routines/: "
                f"{NEW} writes one."
            )
        )
        return DONE
    today = now()
    call.out.table(
        ["", "ROUTINE", "LAST RUN", "NEXT", "WHEN"],
        [_routine_row(each, today) for each in routines],
    )
    for each in routines:
        for fault in each["faults"]:
            call.out.say(call.out.paint(call.out.safe(fault["text"]), RED))
        if each["state"] == "held":
            told = (
                f"{each['name']} is held back until a rehearsal was approved: agentctl rehearse "
                f"{each['name']}"
            )
            call.out.say(call.out.paint(call.out.safe(told), YELLOW))
        if each["paused_why"]:
            told = (
                f"{each['name']} is paused: {each['paused_why']}; agentctl resume {each['name']} "
                "lets it go on"
            )
            call.out.say(call.out.paint(call.out.safe(told), YELLOW))
    return DONE


def _routine_row(routine: Mapping[str, Any], today: datetime) -> tuple[str, ...]:
    last, state = routine["last"], routine["state"]
    sign = verdict_on(last) if last else "never"
    never = "by hand" if routine["by_hand"] else "on its event"
    following = state if state != "on" else when(routine["next"], today, never=never)
    if routine["paused_until"]:
        following = f"paused until {when(routine['paused_until'], today)}"
    return (
        state if state == "invalid" else sign,
        routine["name"],
        outcome({**last, "headline": ""}, today) if last else "never",
        following,
        routine["words"] + (f"; made by {routine['made_by']}" if routine["made_by"] else ""),
    )


def show(call: Call) -> int:
    """Show one routine in full."""
    told = call.ask("GET", f"/v1/routines/{quote(call.routine)}")
    if told is None:
        return DONE
    from daemon.cli.inspection import definition

    out, today = call.out, now()
    out.say(f"{out.paint(told['name'], BOLD)}  {out.safe(told['description'])}".rstrip())
    paused = _pause_words({"until": told["paused_until"], "why": told["paused_why"]}, today)
    state = {
        "on": "",
        "paused": f", paused {paused}",
        "disabled": ", disabled in its file",
        "held": HELD,
    }.get(told["state"], "")
    for name, text in (
        ("when", f"{told['words']}{state}" if told["words"] else ""),
        ("next", ", ".join(when(each, today) for each in told["fires"])),
        (
            "last",
            f"{outcome(told['last'], today)}, run {short(told['last']['id'])}"
            if told["last"]
            else "never",
        ),
        ("file", told["path"]),
    ):
        if text:
            out.say(f"  {name:<5} {out.safe(text)}")
    for fault in told["faults"]:
        out.say(out.paint(f"  {out.safe(fault['text'])}", RED))
    if told["definition"]:
        hidden = ("name", "description")
        out.title("Definition, defaults included")
        definition(
            out, {key: value for key, value in told["definition"].items() if key not in hidden}
        )
    return DONE


def _pause_words(paused: Mapping[str, Any], today: datetime) -> str:
    until = f"until {when(paused['until'], today)}" if paused["until"] else "until it is resumed"
    return f"{until}: {paused['why']}" if paused["why"] else until


def preview(call: Call) -> int:
    """Show what a run of a routine would be told."""
    told = call.ask("GET", f"/v1/routines/{quote(call.routine)}/preview")
    if told is None:
        return DONE
    from daemon.cli.inspection import preview as write

    write(call.out, told, full=call.full)
    return DONE


def runs(call: Call) -> int:
    """List past and present runs."""
    narrowed = f"&routine={quote(call.routine)}" if call.routine else ""
    narrowed += f"&status={quote(call.status)}" if call.status else ""
    told = call.ask("GET", f"/v1/runs?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    if not told["items"]:
        never = (
            "Nothing has run yet. agentctl run ROUTINE starts one, agentctl next says what starts "
            "by itself."
        )
        call.out.say("There are no such runs." if narrowed else never)
        return DONE
    today = now()
    rows = [
        (
            verdict_on(run),
            short(run["id"]),
            run["routine"],
            words(run["trigger"]),
            _took(run),
            outcome(run, today),
        )
        for run in told["items"]
    ]
    call.out.table(["", "RUN", "ROUTINE", "BY", "TOOK", "OUTCOME"], rows)
    if told["next"]:
        call.out.say(call.out.paint(f"there are more: -n {call.limit * 5} shows them", DIM))
    return DONE


def _took(run: Mapping[str, Any]) -> str:
    if not (run["started"] and run["ended"]):
        return ""
    return span((at(run["ended"]) - at(run["started"])).total_seconds())


def slots(call: Call) -> int:
    """List what became of each scheduled moment."""
    narrowed = f"&routine={quote(call.routine)}" if call.routine else ""
    told = call.ask("GET", f"/v1/slots?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("No slot has come yet.")
        return DONE
    today = now()
    rows = [(_slot_time(slot, today), slot["routine"], _slot_words(slot)) for slot in told["items"]]
    call.out.table(["SLOT", "ROUTINE", "OUTCOME"], rows, signs=False)
    return DONE


def _slot_time(slot: Mapping[str, Any], today: datetime) -> str:
    if slot["count"] == 1:
        return when(slot["last"], today)
    return f"{when(slot['first'], today)} to {when(slot['last'], today)}"


def _slot_words(slot: Mapping[str, Any]) -> str:
    text = words(slot["outcome"])
    if slot["count"] > 1:
        text = f"{slot['count']} {text}"
    if slot["reason"]:
        text += f": {words(slot['reason'])}"
    if slot["rule"]:
        text += f" ({slot['rule']})"
    if slot["lateness"] >= 1:
        text += f", {span(slot['lateness'])} late"
    return f"{text}, run {short(slot['run'])}" if slot["run"] else text


def inspect(call: Call) -> int:
    """Show one run in full."""
    told = run_named(call)
    if call.follow:
        from daemon.cli.follow import follow

        return follow(call, told)
    if call.html:
        code: int = function_at("web.transcript:write")(call, told["id"])
        return code
    run = quote(told["id"])
    steps = call.items(f"/v1/runs/{run}/steps?limit=1000")
    calls = call.client.ask("GET", f"/v1/runs/{run}/calls")["items"]
    approvals = call.client.ask("GET", f"/v1/approvals?run={run}&limit=200")["items"]
    if call.json:
        return call.say_json({**told, "steps": steps, "calls": calls, "approvals": approvals})
    from daemon.cli.inspection import inspect as write

    write(call.out, told, steps, full=call.full, calls=calls, approvals=approvals)
    return DONE


def verdict_on(run: Mapping[str, Any]) -> str:
    """Return the status a run is shown in: a success counts only once its report is where it should
    be.
    """
    if run["status"] == "succeeded" and run["delivery"] in ("failed", "pending"):
        return str(run["delivery"])
    return str(run["status"])


def outcome(run: Mapping[str, Any], today: datetime) -> str:
    """Return how a run went, in a few words, the most telling first."""
    told = words(run["status"])
    if run["delivery"] in ("failed", "pending"):
        told += ", delivery failed" if run["delivery"] == "failed" else ", being delivered"
    elif run["silent"]:
        told += ", nothing to report"
    if run["ended"]:
        told += f"{',' if ',' in told else ''} {when(run['ended'], today)}"
    elif run.get("not_before"):
        told += f" until {when(run['not_before'], today)}"
    elif run["started"]:
        told += f" since {when(run['started'], today)}"
    why = one_line(run["detail"] or run["headline"])
    return f"{told}: {why}" if why else told
