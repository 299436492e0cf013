"""What each verb of agentctl does: ask, print."""

from __future__ import annotations

from daemon.control.call import DONE, NEW, NOT_SUCCEEDED, USAGE, Call, quote
from daemon.control.client import Lost, Unreachable
from daemon.control.naming import run_named
from daemon.control.render import (
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
from daemon.control.render import moment as at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any, NoReturn

HELD = ", held back until a rehearsal was approved"
PATIENCE_FOR_CANCEL = 10  # seconds; a tool's process tree is stopped in a few


def status(call: Call) -> int:
    """Tell how the daemon is."""
    told = call.ask("GET", "/v1/status")
    if told is None:
        return DONE
    out, today, counts = call.out, now(), told["counts"]
    out.say(f"agentd {told['version']} is up since {when(told['started'], today)}, process {told['pid']}")
    states = {words(state): number for state, number in told["routines"].items() if state != "kept"}
    kept = told["routines"].get("kept", 0)
    as_before = f"; {kept} of them by what the file said before it broke: agentctl list" if kept else ""
    for name, text in (
        ("config", told["config"] or "none"),
        ("state", f"{told['state']} ({size(counts.get('bytes', 0))})"),
        ("socket", told["socket"]),
        ("log", told["log"] or "none"),
        ("zone", told["zone"]),
        ("provider", _provider(told.get("provider"))),
        ("sandbox", _sandbox(told.get("sandbox"))),
        ("routines", (_counted(states) if any(states.values()) else f"none; {NEW} writes one") + as_before),
        ("runs", _counted(counts.get("runs"))),
        ("deliveries", _counted(counts.get("deliveries"))),
    ):
        out.say(f"  {name:<11} {out.safe(text)}")
    if told["fault"]:
        out.title("The last reload changed nothing, as there are faults")
        for line in told["fault"].splitlines():
            out.say(out.paint(f"  {out.safe(line)}", RED))
    if told["incidents"]:
        from daemon.control.trouble import incident_words

        out.title("Trouble")
        troubles = [(f"  {each['id']}  {each['subject']}", incident_words(each, today)) for each in told["incidents"]]
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
        out.table(["", "", ""], [_active_row(run, today, told["waiting"]) for run in told["active"]])
    if told["next"]:
        out.title("Next")
        out.table(["", ""], [(f"  {each['routine']}", when(each["at"], today)) for each in told["next"]], signs=False)
    return DONE


def _provider(name: str | None) -> str:
    if name == "offline":
        return "offline: no model is asked, reports are the gathered facts; config.toml names one: provider"
    return name or "not told"


def _worker_row(worker: Mapping[str, Any], today: datetime) -> tuple[str, str, str]:
    """Tell of one process: what it is, how much it has to do, and when it was heard of last."""
    load = f"{worker['running']} of {worker['capacity']} runs" if worker["capacity"] else "lives none itself"
    leads = ", sends the reports" if worker["leads"] else ""
    heard = f"heard {when(worker['seen'], today)}"
    name = f"  {worker['kind']} {worker['host']}:{worker['pid']}"
    return name, f"{load}{leads}", f"{heard}, version {worker['version']}"


def _sandbox(level: str | None) -> str:
    from daemon.control.inspection import SANDBOXES

    return SANDBOXES.get(level, level) if level else "being tried"


def _counted(numbers: Mapping[str, int] | None) -> str:
    return ", ".join(f"{number} {words(name)}" for name, number in (numbers or {}).items() if number) or "none"


def _pause_words(paused: Mapping[str, Any], today: datetime) -> str:
    until = f"until {when(paused['until'], today)}" if paused["until"] else "until it is resumed"
    return f"{until}: {paused['why']}" if paused["why"] else until


def _active_row(run: Mapping[str, Any], today: datetime, waiting: Mapping[str, int]) -> tuple[str, str, str]:
    since = f"for {span((today - at(run['started'])).total_seconds())}" if run["started"] else "not started yet"
    if run["id"] in waiting:
        since = f"with {counted(waiting[run['id']], 'run')} before it" if waiting[run["id"]] else "and first in line"
    return run["status"], f"{run['routine']}  {short(run['id'])}", f"{words(run['status'])} {since}"


def list_routines(call: Call) -> int:
    """List every routine: when it runs, how it last went."""
    routines = call.items("/v1/routines?limit=200")
    if call.json:
        return call.say_json({"items": routines, "next": None})
    if not routines:
        call.out.say(
            f"There are no routines yet. One TOML file each, beside config.toml in routines/: {NEW} writes one."
        )
        return DONE
    today = now()
    call.out.table(["", "ROUTINE", "LAST RUN", "NEXT", "WHEN"], [_routine_row(each, today) for each in routines])
    for each in routines:
        for fault in each["faults"]:
            call.out.say(call.out.paint(call.out.safe(fault["text"]), RED))
        if each["state"] == "held":
            told = f"{each['name']} is held back until a rehearsal was approved: agentctl rehearse {each['name']}"
            call.out.say(call.out.paint(call.out.safe(told), YELLOW))
        if each["paused_why"]:
            told = f"{each['name']} is paused: {each['paused_why']}; agentctl resume {each['name']} lets it go on"
            call.out.say(call.out.paint(call.out.safe(told), YELLOW))
    return DONE


def _routine_row(routine: Mapping[str, Any], today: datetime) -> tuple[str, ...]:
    last, state = routine["last"], routine["state"]
    sign = verdict_on(last) if last else "never"
    never = "by hand" if routine["words"].startswith("by hand") else "on its event"
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


def verdict_on(run: Mapping[str, Any]) -> str:
    """Return the status a run is shown in: a success counts only once its report is where it should be."""
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
    elif run["started"]:
        told += f" since {when(run['started'], today)}"
    why = one_line(run["detail"] or run["headline"])
    return f"{told}: {why}" if why else told


def show(call: Call) -> int:
    """Show one routine in full."""
    told = call.ask("GET", f"/v1/routines/{quote(call.routine)}")
    if told is None:
        return DONE
    from daemon.control.inspection import definition

    out, today = call.out, now()
    out.say(f"{out.paint(told['name'], BOLD)}  {out.safe(told['description'])}".rstrip())
    paused = _pause_words({"until": told["paused_until"], "why": told["paused_why"]}, today)
    state = {"on": "", "paused": f", paused {paused}", "disabled": ", disabled in its file", "held": HELD}.get(
        told["state"], ""
    )
    for name, text in (
        ("when", f"{told['words']}{state}" if told["words"] else ""),
        ("next", ", ".join(when(each, today) for each in told["fires"])),
        ("last", f"{outcome(told['last'], today)}, run {short(told['last']['id'])}" if told["last"] else "never"),
        ("file", told["path"]),
    ):
        if text:
            out.say(f"  {name:<5} {out.safe(text)}")
    for fault in told["faults"]:
        out.say(out.paint(f"  {out.safe(fault['text'])}", RED))
    if told["definition"]:
        hidden = ("name", "description")
        out.title("Definition, defaults included")
        definition(out, {key: value for key, value in told["definition"].items() if key not in hidden})
    return DONE


def preview(call: Call) -> int:
    """Show what a run of a routine would be told."""
    told = call.ask("GET", f"/v1/routines/{quote(call.routine)}/preview")
    if told is None:
        return DONE
    from daemon.control.inspection import preview as write

    write(call.out, told, full=call.full)
    return DONE


def next_starts(call: Call) -> int:
    """Show what runs next."""
    from daemon.control.outlook import next_starts as act

    return act(call)


def why(call: Call) -> int:
    """Say in one sentence what became of a slot."""
    from daemon.control.outlook import why as act

    return act(call)


def runs(call: Call) -> int:
    """List past and present runs."""
    narrowed = f"&routine={quote(call.routine)}" if call.routine else ""
    narrowed += f"&status={quote(call.status)}" if call.status else ""
    told = call.ask("GET", f"/v1/runs?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    if not told["items"]:
        never = "Nothing has run yet. agentctl run ROUTINE starts one, agentctl next says what starts by itself."
        call.out.say("There are no such runs." if narrowed else never)
        return DONE
    today = now()
    rows = [
        (verdict_on(run), short(run["id"]), run["routine"], words(run["trigger"]), _took(run), outcome(run, today))
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


def deliveries(call: Call) -> int:
    """List where reports went, or do something about one of them."""
    if call.act:
        return _settle_delivery(call)
    narrowed = f"&run={quote(call.run)}" if call.run else ""
    narrowed += f"&status={quote(call.status)}" if call.status else ""
    told = call.ask("GET", f"/v1/deliveries?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    from daemon.control.inspection import delivery_words

    rows = [
        (each["status"], str(each["id"]), short(each["run"]), each["routine"], each["target"], delivery_words(each))
        for each in told["items"]
    ]
    if not rows:
        call.out.say("There are no such deliveries." if narrowed else "Nothing has been delivered yet.")
        return DONE
    call.out.table(["", "ID", "RUN", "ROUTINE", "TO", "OUTCOME"], rows)
    if lost := [each["id"] for each in told["items"] if each["status"] == "failed"]:
        call.out.say(
            call.out.paint(f"given up: agentctl deliveries retry {lost[0]} sends it again, drop forgets it", DIM)
        )
    return DONE


def _settle_delivery(call: Call) -> int:
    if call.id is None:
        call.err.say(f"agentctl deliveries {call.act}: which one? Its number is in the list: agentctl deliveries")
        return USAGE
    told = call.ask("POST", f"/v1/deliveries/{call.id}/{call.act}")
    if told is not None:
        done = "is being sent again" if call.act == "retry" else "is dropped"
        call.out.say(f"delivery {told['id']} of {told['routine'] or 'agentd'} to {told['target']} {done}")
    return DONE


def incidents(call: Call) -> int:
    """List what is wrong."""
    from daemon.control.trouble import incidents as act

    return act(call)


def ack(call: Call) -> int:
    """Say that a person knows of an incident."""
    from daemon.control.trouble import ack as act

    return act(call)


def run(call: Call) -> int:
    """Run a routine now, and print its report."""
    from daemon.control.follow import run as act

    return act(call)


def inspect(call: Call) -> int:
    """Show one run in full."""
    told = run_named(call)
    if call.follow:
        from daemon.control.follow import follow

        return follow(call, told)
    if call.html:
        from daemon.control.page import command

        return command.write(call, told["id"])
    run = quote(told["id"])
    steps = call.items(f"/v1/runs/{run}/steps?limit=1000")
    calls = call.client.ask("GET", f"/v1/runs/{run}/calls")["items"]
    approvals = call.client.ask("GET", f"/v1/approvals?run={run}&limit=200")["items"]
    if call.json:
        return call.say_json({**told, "steps": steps, "calls": calls, "approvals": approvals})
    from daemon.control.inspection import inspect as write

    write(call.out, told, steps, full=call.full, calls=calls, approvals=approvals)
    return DONE


def cancel(call: Call) -> int:
    """Stop a run."""
    told = call.ask("POST", f"/v1/runs/{quote(run_named(call)['id'])}/cancel")
    if told is None:
        return DONE
    name = f"run {short(told['id'])} of {told['routine']}"
    if told["ended"] or _has_ended(call, told["id"]):
        call.out.say(f"{name} is cancelled")
        return DONE
    call.out.say(f"{name} is being cancelled; its tools have not stopped yet")
    return DONE


def _has_ended(call: Call, run_id: str) -> bool:
    """Wait until a run has ended, but not for ever."""
    seconds = 0

    def tick() -> None:
        nonlocal seconds
        seconds += 1
        if seconds >= PATIENCE_FOR_CANCEL:
            raise TimeoutError

    try:
        return any(event["type"] == "run_ended" for event in call.client.stream(f"/v1/runs/{run_id}/events", tick))
    except (TimeoutError, Lost):
        return False


def pause(call: Call) -> int:
    """Let no slot of a routine start."""
    from daemon.control.outlook import pause as act

    return act(call)


def new(call: Call) -> int:
    """Write a routine file, beside the config of the daemon if there is one."""
    from contextlib import suppress

    rest = list(call.rest)
    if not any(word.startswith("--config") or word in ("-h", "--help") for word in rest):
        with suppress(Unreachable):  # then it is looked for as agentd does
            rest += ["--config", call.client.ask("GET", "/v1/status")["config"]]
    hand_over(["new", *rest])


def rename(call: Call) -> int:
    """Give a routine another name."""
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/rename", {"to": call.to})
    if told is not None:
        call.out.say(f"{call.routine} is {told['routine']['name']} now, its history too")
        for name in told["named_by"]:
            call.err.say(call.err.paint(f'{name} still says after = ["{call.routine}"]: change that too', YELLOW))
    return DONE


def adopt(call: Call) -> int:
    """Make a routine that an agent made one's own."""
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/adopt")
    if told is not None:
        call.out.say(f"{told['name']} is yours now: {told['path']}")
    return DONE


def remove(call: Call) -> int:
    """Remove a routine that an agent made."""
    if call.ask("POST", f"/v1/routines/{quote(call.routine)}/remove") is not None:
        call.out.say(f"{call.routine} is gone; what its runs left stays: agentctl runs {call.routine}")
    return DONE


def resume(call: Call) -> int:
    """Let a paused routine go on, or all of them."""
    if bool(call.routine) == bool(call.all):
        call.err.say("agentctl resume: name one routine, or say --all")
        return USAGE
    if call.all:
        all_ = call.ask("POST", "/v1/resume")
        if all_ is not None:
            call.out.say(f"{', '.join(all_['resumed'])} go on" if all_["resumed"] else "nothing was paused")
        return DONE
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/resume")
    if told is not None:
        call.out.say(f"{told['name']} goes on; next: {when(told['next'], never='by hand only')}")
    return DONE


def replay(call: Call) -> int:
    """Play a run again; without a daemon too, and a frozen one always so."""
    from daemon.control.replaying_verbs import replay as act

    return act(call)


def freeze(call: Call) -> int:
    """Write a run into a folder, as a regression case."""
    from daemon.control.replaying_verbs import freeze as act

    return act(call)


def rehearse(call: Call) -> int:
    """Try a routine with the real model; what it would write, send or run is shown and not done."""
    from daemon.control.rehearsed import rehearse as act

    return act(call)


def usage(call: Call) -> int:
    """Sum up what models were paid."""
    from daemon.control.usage import usage as act

    return act(call)


def memory(call: Call) -> int:
    """Do something with what runs left behind."""
    from daemon.control.remember import main

    return main(call)


def seen(call: Call) -> int:
    """Show or forget what a routine has reported."""
    from daemon.control.reported import seen as act

    return act(call)


def approvals(call: Call) -> int:
    """List what waits for an answer."""
    from daemon.control.answer import approvals as act

    return act(call)


def approve(call: Call) -> int:
    """Allow a call."""
    from daemon.control.answer import approve as act

    return act(call)


def reject(call: Call) -> int:
    """Refuse a call."""
    from daemon.control.answer import reject as act

    return act(call)


def quarantine(call: Call) -> int:
    """Show what was kept from the models."""
    from daemon.control.answer import quarantine as act

    return act(call)


def audit(call: Call) -> int:
    """Show the audit."""
    from daemon.control.answer import audit as act

    return act(call)


def completion(call: Call) -> int:
    """Print what a shell is to know of agentctl."""
    from daemon.control.completion import completion as act

    return act(call)


def forecast(call: Call) -> int:
    """Say what the coming days will take."""
    from daemon.control.coming import forecast as act

    return act(call)


def metrics(call: Call) -> int:
    """Print what is measured, or put it where node_exporter looks."""
    text = call.client.text("GET", "/metrics")
    if not call.textfile:
        call.out.say(text.rstrip())
        return DONE
    import os

    draft = f"{call.textfile}.{os.getpid()}"  # of another ending than .prom: a half one is not read
    try:
        with open(draft, "w", encoding="utf-8") as file:  # noqa: PTH123  pathlib would cost the client 5 ms
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(draft, call.textfile)  # noqa: PTH105
    except OSError as error:
        call.err.say(f"agentctl metrics: {call.textfile} cannot be written: {error.strerror}")
        return NOT_SUCCEEDED
    return DONE


def backup(call: Call) -> int:
    """Copy all that a daemon knows, that of this socket if one answers."""
    hand_over(["backup", *_with_places(call)])


def restore(call: Call) -> int:
    """Put a backup back."""
    hand_over(["restore", *_with_places(call)])


def service(call: Call) -> int:
    """Install or remove a unit."""
    hand_over(["service", *call.rest])


def export(call: Call) -> int:
    """Write routines with their history."""
    hand_over(["export", *_with_places(call)])


def import_(call: Call) -> int:
    """Take in what was exported elsewhere."""
    hand_over(["import", *_with_places(call)])


def policy(call: Call) -> int:
    """Check, explain, test, backtest or suggest a policy: that of the daemon, if one answers."""
    verb, rest = call.rest[:1], list(call.rest[1:])
    at = rest.index("--") if "--" in rest else len(rest)
    hand_over(["policy", *verb, *_with_places(call, rest[:at]), *rest[at:]])


def _with_places(call: Call, rest: Sequence[str] | None = None) -> list[str]:
    """Return the words of the command line, with the state folder and config of the daemon, if one answers."""
    from contextlib import suppress

    rest, told = list(call.rest if rest is None else rest), None
    with suppress(Unreachable):
        told = call.client.ask("GET", "/v1/status")
    for flag in ("state", "config"):
        if told and told[flag] and not any(word == f"--{flag}" or word.startswith(f"--{flag}=") for word in rest):
            rest += [f"--{flag}", told[flag]]
    return rest


def reload(call: Call) -> int:
    """Read config, policy and routines again."""
    told = call.ask("POST", "/v1/reload")
    if told is None:
        return DONE
    changes = [f"{kind} {', '.join(told[kind])}" for kind in ("added", "changed", "removed") if told[kind]]
    call.out.say("; ".join(changes) if changes else "nothing has changed")
    for fault in told["faults"]:
        call.err.say(call.err.paint(call.err.safe(fault["text"]), RED))
    return NOT_SUCCEEDED if told["faults"] else DONE


def logs(call: Call) -> int:
    """Show the log, with a daemon and without."""
    from contextlib import suppress
    from pathlib import Path

    from daemon.control.logs import main as read

    file = None
    if not any(word == "--state" or word.startswith("--state=") or word in ("-h", "--help") for word in call.rest):
        with suppress(Unreachable):  # without a daemon it is where one started here would write it
            file = call.client.ask("GET", "/v1/status")["log"]
    return read(call.rest, Path(file) if file else None)


def events(call: Call) -> int:
    """Print what runs do, as it happens."""
    from daemon.control.happenings import events as act

    return act(call)


def ask(call: Call) -> int:
    """Put a message to the agent."""
    from daemon.control import ask as speaking

    return speaking.ask(call)


def tell(call: Call) -> int:
    """Tell a run something."""
    from daemon.control import ask as speaking

    return speaking.tell(call)


def top(call: Call) -> int:
    """Show how things are until somebody has seen enough."""
    from daemon.control import top as screen

    return screen.top(call)


def page(call: Call) -> int:
    """Serve a page on a loopback port until Ctrl-C."""
    from daemon.control.page.command import serve

    return serve(call)


def validate(call: Call) -> int:
    """Check config, policy and routines: those of the daemon, if there is one and no folder is named."""
    rest = list(call.rest)
    if all(word == "--json" for word in rest):
        try:
            config = call.client.ask("GET", "/v1/status")["config"]
        except Unreachable:
            config = None
        rest += ["--config", config] if config else []
    hand_over(["validate", *rest])


def doctor(call: Call) -> int:
    """Look for what is wrong here."""
    if not all(word == "--json" for word in call.rest):
        hand_over(["doctor", *call.rest])
    try:
        told = call.ask("GET", "/v1/doctor")
    except Unreachable as error:
        if not call.json:
            call.err.say(call.err.paint(f"no daemon answers at {', '.join(path for path, _ in error.tried)}", YELLOW))
        hand_over(["doctor", *call.rest])
    if told is None:
        return DONE
    from daemon.control.inspection import checks

    checks(call.out, told["checks"])
    return DONE if told["ok"] else NOT_SUCCEEDED


def hand_over(arguments: Sequence[str]) -> NoReturn:
    """Let `agentd` take over this process: what needs no daemon is its own work."""
    import os
    import sys

    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "daemon.main", *arguments])  # noqa: S606 - no shell is wanted


def version(call: Call) -> int:
    """Tell which version this is, and which one the daemon."""
    from daemon import __version__

    try:
        daemon = call.client.ask("GET", "/v1/status")
    except Unreachable:
        daemon = None
    if call.json:
        return call.say_json({"agentctl": __version__, "agentd": daemon and daemon["version"]})
    call.out.say(f"agentctl {__version__}")
    call.out.say(f"agentd {daemon['version']}, process {daemon['pid']}" if daemon else "agentd is not running")
    if daemon and daemon["version"] != __version__:
        call.err.say(call.err.paint("they differ: restart agentd to use what is installed", YELLOW))
    return DONE
