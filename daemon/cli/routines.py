"""`agentctl list`, `show`, `rename`, `adopt` and `remove`: the routines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.cli.call import DONE, NEW_ROUTINE_COMMAND, Call, quote
from daemon.cli.render import (
    BOLD,
    RED,
    YELLOW,
    OutputStream,
    definition_lines,
    format_instant,
    local_now,
    short_id,
    shorten_home,
)
from daemon.cli.runs import describe_outcome, status_with_delivery

if TYPE_CHECKING:
    from typing import Any


# Columns of a schedule in the list: the sentence for several triggers may be far longer.
MAX_SCHEDULE_WIDTH = 60
# Routines that a sentence names; the others are counted.
MAX_NAMED = 5


def list_routines(call: Call) -> int:
    """List every routine: when it runs, how it last went."""
    path = "/v1/routines?limit=200"
    if call.json:
        return call.print_json({"items": call.request_items(path), "next": None})
    out, now = call.out, local_now()
    status = call.client.request("GET", "/v1/status?counts=false")
    write_waiting_runs(out, status["active"])
    routines: list[Any] = []
    for page in call.request_pages(path):
        if page:
            out.write_table(
                ["", "ROUTINE", "LAST RUN", "NEXT", "WHEN"],
                [_routine_row(routine, now, out) for routine in page],
                shows_headers=not routines,
            )
            out.stream.flush()  # of ten thousand routines the first are shown at once
        routines += page
    if not routines:
        out.write_line(
            "There are no routines yet. One TOML file each, beside config.toml in routines/: "
            f"{NEW_ROUTINE_COMMAND} writes one."
        )
        _write_reload_fault(out, status["fault"])
        return DONE
    paused_together = _group_by_reason(routines)
    for routine in routines:
        name = routine["name"]
        for fault in routine["faults"]:
            out.write_line(out.paint(out.sanitize(fault["text"]), RED))
        if routine["state"] == "held":
            text = f"{name} is held back until a rehearsal was approved: agentctl rehearse {name}"
            out.write_line(out.paint(out.sanitize(text), YELLOW))
        names = paused_together.get(routine["paused_why"] or "", [])
        if names[:1] == [name]:  # one sentence for all, at the first of them
            verb, example, object_ = (
                ("is", name, "it") if len(names) == 1 else ("are", "NAME", "one of them")
            )
            text = (
                f"{_name_some(names)} {verb} paused: {routine['paused_why']}; "
                f"agentctl resume {example} lets {object_} go on"
            )
            out.write_line(out.paint(out.sanitize(text), YELLOW))
        write_policy_notes(out, routine)
    _write_reload_fault(out, status["fault"])
    return DONE


def write_policy_notes(out: OutputStream, routine: Mapping[str, Any], indent: str = "") -> None:
    """Say what the policy will deny or ask about in the runs of a routine, if it will."""
    for line in (routine["asks"] or "").splitlines():
        out.write_line(out.paint(f"{indent}{out.sanitize(line)}", YELLOW))


def write_waiting_runs(out: OutputStream, runs: Sequence[Mapping[str, Any]]) -> None:
    """Say which of these runs wait until a person has approved a call, if any do."""
    names = list(dict.fromkeys(run["routine"] for run in runs if run["status"] == "waiting"))
    if not names:
        return
    verb = "waits" if len(names) == 1 else "wait"
    text = f"{_name_some(names)} {verb} for your word: agentctl approvals"
    out.write_line(out.paint(out.sanitize(text), YELLOW))


def _name_some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    text = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        text += f" and {len(names) - MAX_NAMED} more"
    return text


def _group_by_reason(routines: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names of the paused routines by the reason that was given for it."""
    names: dict[str, list[str]] = {}
    for routine in routines:
        if routine["paused_why"]:
            names.setdefault(routine["paused_why"], []).append(routine["name"])
    return names


def _write_reload_fault(out: OutputStream, fault: str | None) -> None:
    """Say what of the files is not in force, and why, where that is so."""
    if fault:
        text = f"Not all that the files say is in force:\n{fault}"
        for line in text.splitlines():
            out.write_line(out.paint(out.sanitize(line), RED))


def _routine_row(routine: Mapping[str, Any], now: datetime, out: OutputStream) -> tuple[str, ...]:
    last_run, state = routine["last"], routine["state"]
    if last_run:
        status = status_with_delivery(last_run)
        outcome = describe_outcome({**last_run, "headline": ""}, now)
    else:
        status = outcome = "never"
    if routine["paused_until"]:
        next_start = f"paused until {format_instant(routine['paused_until'], now)}"
    elif state != "on":
        next_start = state
    else:
        never = "by hand" if routine["by_hand"] else "on its event"
        if is_over(routine):
            never = "never again"
        next_start = format_instant(routine["next"], now, never=never)
    schedule = out.truncate(routine["words"], MAX_SCHEDULE_WIDTH)
    if routine["made_by"]:
        schedule += f"; made by {routine['made_by']}"
    return (
        state if state == "invalid" else status,
        routine["name"],
        outcome,
        next_start,
        schedule,
    )


def is_over(routine: Mapping[str, Any]) -> bool:
    """Tell whether a routine starts by itself at fixed moments only, of which none is left."""
    if routine["state"] != "on" or routine["next"] is not None:
        return False
    return all(words.startswith("once at ") for words in routine["words"].split("; or "))


def show_routine(call: Call) -> int:
    """Show one routine in full."""
    routine = call.request("GET", f"/v1/routines/{quote(call.routine)}")
    if routine is None:
        return DONE
    out, now = call.out, local_now()
    out.write_line(
        f"{out.paint(routine['name'], BOLD)}  {out.sanitize(routine['description'])}".rstrip()
    )
    pause = describe_pause(routine["paused_until"], routine["paused_why"], now)
    state = {
        "on": "",
        "paused": f", paused {pause}",
        "disabled": ", disabled in its file",
        "held": ", held back until a rehearsal was approved",
    }.get(routine["state"], "")
    last_run = "never"
    if run := routine["last"]:
        last_run = f"{describe_outcome(run, now)}, run {short_id(run['id'])}"
    for name, text in (
        ("when", f"{routine['words']}{state}" if routine["words"] else ""),
        ("next", ", ".join(format_instant(start, now) for start in routine["fires"])),
        ("last", last_run),
        ("file", shorten_home(routine["path"] or "")),
    ):
        if text:
            out.write_line(f"  {name:<5} {out.sanitize(text)}")
    write_policy_notes(out, routine, indent="  ")
    for fault in routine["faults"]:
        out.write_line(out.paint(f"  {out.sanitize(fault['text'])}", RED))
    if routine["definition"]:
        out.write_title("Definition, defaults included")
        definition = {
            key: value
            for key, value in routine["definition"].items()
            if key not in ("name", "description")
        }
        for text in definition_lines(definition):
            for line in out.sanitize(text).splitlines():
                out.write_line(f"  {line}")
    return DONE


def describe_pause(until: str | None, reason: str | None, now: datetime) -> str:
    """Return until when and why a routine is paused."""
    text = f"until {format_instant(until, now)}" if until else "until it is resumed"
    return f"{text}: {reason}" if reason else text


def rename_routine(call: Call) -> int:
    """Give a routine another name; on stderr, name the routines that still wait for the old one."""
    answer = call.request("POST", f"/v1/routines/{quote(call.routine)}/rename", {"to": call.to})
    if answer is None:
        return DONE
    call.out.write_line(f"{call.routine} is {answer['routine']['name']} now, its history too")
    for name in answer["named_by"]:
        text = f'{name} still says after = ["{call.routine}"]: change that too'
        call.err.write_line(call.err.paint(text, YELLOW))
    return DONE


def adopt_routine(call: Call) -> int:
    """Make a routine the user's own that an agent made."""
    routine = call.request("POST", f"/v1/routines/{quote(call.routine)}/adopt")
    if routine is not None:
        call.out.write_line(f"{routine['name']} is yours now: {routine['path']}")
    return DONE


def remove_routine(call: Call) -> int:
    """Remove a routine that an agent made."""
    answer = call.request("POST", f"/v1/routines/{quote(call.routine)}/remove")
    if answer is not None:
        call.out.write_line(
            f"{call.routine} is gone; what its runs left stays: agentctl runs {call.routine}"
        )
    return DONE
