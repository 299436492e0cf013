"""The verbs that change something and say what came of it, each in a few lines."""

from __future__ import annotations

from daemon.cli.call import DONE, NOT_SUCCEEDED, USAGE, Call, quote
from daemon.cli.client import Lost
from daemon.cli.render import DIM, RED, YELLOW, short, when
from daemon.cli.run_names import run_named

PATIENCE_FOR_CANCEL = 10  # seconds; a tool's process tree is stopped in a few


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
        return any(
            event["type"] == "run_ended"
            for event in call.client.stream(f"/v1/runs/{run_id}/events", tick)
        )
    except (TimeoutError, Lost):
        return False


def resume(call: Call) -> int:
    """Let a paused routine go on, or all of them."""
    if bool(call.routine) == bool(call.all):
        call.err.say("agentctl resume: name one routine, or say --all")
        return USAGE
    if call.all:
        all_ = call.ask("POST", "/v1/resume")
        if all_ is not None:
            call.out.say(
                f"{', '.join(all_['resumed'])} go on" if all_["resumed"] else "nothing was paused"
            )
        return DONE
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/resume")
    if told is not None:
        call.out.say(f"{told['name']} goes on; next: {when(told['next'], never='by hand only')}")
    return DONE


def deliveries(call: Call) -> int:
    """List where reports went, or do something about one of them."""
    if call.act:
        return _settle_delivery(call)
    narrowed = f"&run={quote(call.run)}" if call.run else ""
    narrowed += f"&status={quote(call.status)}" if call.status else ""
    told = call.ask("GET", f"/v1/deliveries?limit={call.limit}{narrowed}")
    if told is None:
        return DONE
    from daemon.cli.inspection import delivery_words

    rows = [
        (
            each["status"],
            str(each["id"]),
            short(each["run"]),
            each["routine"],
            each["target"],
            delivery_words(each),
        )
        for each in told["items"]
    ]
    if not rows:
        call.out.say(
            "There are no such deliveries." if narrowed else "Nothing has been delivered yet."
        )
        return DONE
    call.out.table(["", "ID", "RUN", "ROUTINE", "TO", "OUTCOME"], rows)
    if lost := [each["id"] for each in told["items"] if each["status"] == "failed"]:
        call.out.say(
            call.out.paint(
                f"given up: agentctl deliveries retry {lost[0]} sends it again, drop forgets it",
                DIM,
            )
        )
    return DONE


def _settle_delivery(call: Call) -> int:
    if call.id is None:
        call.err.say(
            (  # noqa: UP034
                f"agentctl deliveries {call.act}: which one? Its number is in the list: agentctl "
                "deliveries"
            )
        )
        return USAGE
    told = call.ask("POST", f"/v1/deliveries/{call.id}/{call.act}")
    if told is not None:
        done = "is being sent again" if call.act == "retry" else "is dropped"
        call.out.say(
            f"delivery {told['id']} of {told['routine'] or 'agentd'} to {told['target']} {done}"
        )
    return DONE


def rename(call: Call) -> int:
    """Give a routine another name."""
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/rename", {"to": call.to})
    if told is not None:
        call.out.say(f"{call.routine} is {told['routine']['name']} now, its history too")
        for name in told["named_by"]:
            call.err.say(
                call.err.paint(
                    f'{name} still says after = ["{call.routine}"]: change that too', YELLOW
                )
            )
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
        call.out.say(
            f"{call.routine} is gone; what its runs left stays: agentctl runs {call.routine}"
        )
    return DONE


def reload(call: Call) -> int:
    """Read config, policy and routines again."""
    told = call.ask("POST", "/v1/reload")
    if told is None:
        return DONE
    changes = [
        f"{kind} {', '.join(told[kind])}" for kind in ("added", "changed", "removed") if told[kind]
    ]
    call.out.say("; ".join(changes) if changes else "nothing has changed")
    for fault in told["faults"]:
        call.err.say(call.err.paint(call.err.safe(fault["text"]), RED))
    return NOT_SUCCEEDED if told["faults"] else DONE


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
