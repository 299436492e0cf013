"""`agentctl runs`, `run` and `cancel`: the runs; and which run a command line means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.cli.call import DETACHED, DONE, USAGE, Call, quote
from daemon.cli.client import ApiError, ConnectionLost
from daemon.cli.render import (
    format_instant,
    humanize,
    local_now,
    one_line,
    parse_instant,
    short_id,
)
from daemon.durations import duration_in_words

if TYPE_CHECKING:
    from typing import Any

# What is shown for the levels that are no sandbox; every other level explains itself.
SANDBOX_LEVELS = {
    "profiles": (
        "none on this machine, so only what changes nothing was run: agentctl doctor says why"
    ),
    "off": "none, as the policy wants it",
}

# A tool's process tree is stopped within a few seconds.
CANCEL_TIMEOUT_SECONDS = 10


def list_runs(call: Call) -> int:
    """List past and present runs."""
    filters = f"&routine={quote(call.routine)}" if call.routine is not None else ""
    filters += f"&status={quote(call.status)}" if call.status is not None else ""
    answer = call.request("GET", f"/v1/runs?limit={call.limit}{filters}")
    if answer is None:
        return DONE
    out = call.out
    if not answer["items"]:
        if filters:
            out.write_line("There are no such runs.")
        else:
            out.write_line(
                "Nothing has run yet. agentctl run ROUTINE starts one, agentctl next says what "
                "starts by itself."
            )
        return DONE
    now = local_now()
    rows = [
        (
            status_with_delivery(run),
            short_id(run["id"]),
            run["routine"],
            humanize(run["trigger"]),
            _describe_duration(run),
            describe_outcome(run, now),
        )
        for run in answer["items"]
    ]
    out.write_table(["", "RUN", "ROUTINE", "BY", "TOOK", "OUTCOME"], rows)
    call.write_hint_for_more(answer, "name a routine, or a --status")
    return DONE


def _describe_duration(run: Mapping[str, Any]) -> str:
    if not (run["started"] and run["ended"]):
        return ""
    duration = parse_instant(run["ended"]) - parse_instant(run["started"])
    return duration_in_words(duration.total_seconds())


def status_with_delivery(run: Mapping[str, Any]) -> str:
    """Return the status whose sign a run is shown with.

    A run that succeeded shows the state of its delivery until the report has arrived.
    """
    if run["status"] == "succeeded" and run["delivery"] in ("failed", "pending"):
        return str(run["delivery"])
    return str(run["status"])


def describe_outcome(run: Mapping[str, Any], now: datetime) -> str:
    """Return how a run went: status, delivery, time, then its fault or headline."""
    text = humanize(run["status"])
    has_remark = True
    if run["delivery"] == "failed":
        text += ", delivery failed"
    elif run["delivery"] == "pending":
        text += ", being delivered"
    elif run["silent"]:
        text += ", nothing to report"
    else:
        has_remark = False
    if run["ended"]:
        text += f"{',' if has_remark else ''} {format_instant(run['ended'], now)}"
    elif run.get("not_before"):
        text += f" until {format_instant(run['not_before'], now)}"
    elif run["started"]:
        text += f" since {format_instant(run['started'], now)}"
    detail = one_line(run["detail"] or run["headline"])
    return f"{text}: {detail}" if detail else text


def find_run(call: Call) -> Any:
    """Return the run that `call.run` means.

    That is the run with this id or end of an id, the last run of the routine of this name, or with
    `last` the newest run of all. Raise ApiError (not_found) if there is none.
    """
    if call.run == "last":
        runs = call.client.request("GET", "/v1/runs?limit=1")["items"]
        if not runs:
            raise ApiError(404, {"code": "not_found", "detail": "nothing has run yet"})
        return call.client.request("GET", f"/v1/runs/{runs[0]['id']}")
    try:
        return call.client.request("GET", f"/v1/runs/{quote(call.run)}")
    except ApiError as problem:
        if problem.code != "not_found":
            raise
        try:
            runs = call.client.request("GET", f"/v1/runs?limit=1&routine={quote(call.run)}")[
                "items"
            ]
        except ApiError:  # no routine has this name, either
            raise problem from None
        if not runs:
            body = {"code": "not_found", "detail": f"{call.run} has never run"}
            raise ApiError(problem.status, body) from None
        return call.client.request("GET", f"/v1/runs/{runs[0]['id']}")


def run_routine(call: Call) -> int:
    """Run a routine now, and print its report.

    A run that is under way is followed instead; with `--again` another one starts after it.
    """
    from daemon.cli.follow import follow

    run_input: dict[str, Any] = {}
    if call.input is not None:
        from daemon.cli.run_input import read_input

        try:
            run_input = {"input": read_input(call.input), "tainted": call.tainted}
        except ValueError as error:
            call.err.write_line(f"agentctl: {error}")
            return USAGE
    elif call.tainted:
        call.err.write_line("agentctl: --tainted says who may have written the --input; name one")
        return USAGE
    if call.gate:
        run_input["gate"] = True
    run = None
    while run is None:
        try:
            run = _request_run(call, run_input)
        except ApiError as problem:
            run_under_way = problem.body.get("run")
            # a run under way has not been given the input, nor has its gate been asked for this
            has_other_task = call.detach or call.gate or call.input is not None
            if run_under_way is None or (has_other_task and not call.again):
                raise
            run = call.client.request("GET", f"/v1/runs/{run_under_way}")
            if call.again:
                try:
                    has_ended = _wait_for_turn(call, run)
                except KeyboardInterrupt:
                    call.err.write_line(f"\nno other run of {run['routine']} was started.")
                    return DETACHED
                if not has_ended:  # it waits for a person, who may answer tomorrow
                    raise
                run = None
            elif not call.json:
                text = f"a run of {run['routine']} is under way already; it is followed"
                call.err.write_line(text)
    if not call.detach:
        return follow(call, run)
    if call.json:
        call.out.write_line(call.client.request_text("GET", f"/v1/runs/{run['id']}"))
    else:
        call.out.write_line(run["id"])
    return DONE


def _request_run(call: Call, run_input: Mapping[str, Any]) -> Any:
    """Ask for a run of a routine and return it; raises ApiError, with the id of a run that is under
    way.
    """
    import os

    path = f"/v1/routines/{quote(call.routine)}/run"
    body = {"event": os.urandom(16).hex(), **run_input}
    try:
        return call.client.request("POST", path, body)
    except ConnectionLost:
        # the same event gives the same run, whether or not the first request arrived
        return call.client.request("POST", path, body)


def _wait_for_turn(call: Call, run: Mapping[str, Any]) -> bool:
    """Wait until a run that is under way ends; return False as soon as it waits for an approval.

    Raises ConnectionLost if the daemon stops before.
    """
    if run["status"] == "waiting":
        return False
    if not call.json:
        text = f"a run of {run['routine']} is under way; another one starts when it has ended"
        call.err.write_line(text)
    for event in call.client.stream(f"/v1/runs/{run['id']}/events"):
        if event["type"] in ("run_ended", "run_waiting"):
            return bool(event["type"] == "run_ended")
    raise ConnectionLost("the daemon stopped")


def cancel_run(call: Call) -> int:
    """Stop a run."""
    run = call.request("POST", f"/v1/runs/{quote(find_run(call)['id'])}/cancel")
    if run is None:
        return DONE
    name = f"run {short_id(run['id'])} of {run['routine']}"
    if run["ended"] or _wait_for_end(call, run["id"]):
        call.out.write_line(f"{name} is cancelled")
    else:
        call.out.write_line(f"{name} is being cancelled; its tools have not stopped yet")
    return DONE


def _wait_for_end(call: Call, run_id: str) -> bool:
    """Return whether a run ends within CANCEL_TIMEOUT_SECONDS."""
    seconds = 0

    def count_second() -> None:
        nonlocal seconds
        seconds += 1
        if seconds >= CANCEL_TIMEOUT_SECONDS:
            raise TimeoutError

    try:
        for event in call.client.stream(f"/v1/runs/{run_id}/events", count_second):
            if event["type"] == "run_ended":
                return True
    except (TimeoutError, ConnectionLost):
        pass
    return False
