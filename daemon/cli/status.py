"""`agentctl status`: how the daemon is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.cli.call import DONE, NEW_ROUTINE_COMMAND, Call
from daemon.cli.deliveries import describe_delivery
from daemon.cli.render import (
    RED,
    format_bytes,
    format_instant,
    humanize,
    local_now,
    one_line,
    parse_instant,
    short_id,
)
from daemon.cli.routines import describe_pause, write_waiting_runs
from daemon.cli.runs import SANDBOX_LEVELS
from daemon.durations import duration_in_words
from daemon.plurals import pluralize

if TYPE_CHECKING:
    from typing import Any

_PENDING_LOOKED_AT = 50  # of the deliveries that wait: the newest
_MAX_ERROR = 100  # characters of the error of a delivery; `agentctl deliveries` shows all


def show_status(call: Call) -> int:
    """Show how the daemon is, and what is wrong, runs or comes next."""
    status = call.request("GET", "/v1/status")
    if status is None:
        return DONE
    out, now = call.out, local_now()
    out.write_line(
        f"agentd {status['version']} is up since {format_instant(status['started'], now)}, "
        f"process {status['pid']}"
    )
    write_waiting_runs(out, status["active"])
    counts = status["counts"]
    for name, text in (
        ("config", status["config"] or "none"),
        ("state", f"{status['state']} ({format_bytes(counts.get('bytes', 0))})"),
        ("socket", status["socket"]),
        ("log", status["log"] or "none"),
        ("zone", status["zone"]),
        ("provider", _describe_provider(status.get("provider"))),
        ("sandbox", _describe_sandbox(status.get("sandbox"))),
        ("routines", _describe_routines(status["routines"])),
        ("runs", _join_counts(counts.get("runs"))),
        ("deliveries", _describe_deliveries(call, status)),
    ):
        out.write_line(f"  {name:<11} {out.sanitize(text)}")
    if status["fault"]:
        out.write_title("The last reload changed nothing, as there are faults")
        for line in status["fault"].splitlines():
            out.write_line(out.paint(f"  {out.sanitize(line)}", RED))
    if status["incidents"]:
        from daemon.cli.incidents import describe_incident

        out.write_title("Incidents")
        rows = [
            (f"  {incident['id']}  {incident['subject']}", describe_incident(incident, now))
            for incident in status["incidents"]
        ]
        out.write_table(["", ""], rows, signs=False)
    if status["workers"]:
        out.write_title("Who executes runs")
        workers = [_worker_row(worker, now) for worker in status["workers"]]
        out.write_table(["", "", ""], workers, signs=False)
    if status["paused"]:
        out.write_title("Paused")
        rows = [
            (f"  {pause['routine']}", describe_pause(pause["until"], pause["why"], now))
            for pause in status["paused"]
        ]
        out.write_table(["", ""], rows, signs=False)
    if status["active"]:
        out.write_title("Under way")
        runs = [_active_run_row(run, now, status["waiting"]) for run in status["active"]]
        out.write_table(["", "", ""], runs)
        reason_by_run = status.get("stranded", {})
        for run in status["active"]:
            if reason := reason_by_run.get(run["id"]):
                text = f"  {out.sanitize(run['routine'])}  {short_id(run['id'])} "
                out.write_line(out.paint(text + out.sanitize(reason), RED))
    if status["next"]:
        out.write_title("Next")
        rows = [
            (f"  {start['routine']}", format_instant(start["at"], now)) for start in status["next"]
        ]
        out.write_table(["", ""], rows, signs=False)
    return DONE


def _describe_provider(name: str | None) -> str:
    if name == "offline":
        return (
            "offline: no model is asked, a report is what was gathered; to have one asked, set "
            "provider in config.toml"
        )
    return name or "not told"


def _describe_sandbox(level: str | None) -> str:
    if not level:
        return "being tried"
    return SANDBOX_LEVELS.get(level, level)


def _describe_routines(counts: Mapping[str, int]) -> str:
    states = {humanize(state): count for state, count in counts.items() if state != "kept"}
    if any(states.values()):
        text = _join_counts(states)
    else:
        text = f"none; {NEW_ROUTINE_COMMAND} writes one"
    if old_definitions := counts.get("kept", 0):
        text += (
            f"; {old_definitions} of them in the version before the file got a fault: agentctl list"
        )
    return text


def _join_counts(counts: Mapping[str, int] | None) -> str:
    parts = [f"{count} {humanize(name)}" for name, count in (counts or {}).items() if count]
    return ", ".join(parts) or "none"


def _describe_deliveries(call: Call, status: Mapping[str, Any]) -> str:
    """Return the counts of deliveries, with why the newest of those that wait for another attempt
    has failed, unless an incident says it already.
    """
    counts = status["counts"].get("deliveries") or {}
    text = _join_counts(counts)
    if not counts.get("pending"):
        return text
    path = f"/v1/deliveries?status=pending&limit={_PENDING_LOOKED_AT}"
    known_subjects = {incident["subject"] for incident in status["incidents"]}
    for delivery in call.client.request("GET", path)["items"]:
        if delivery["error"] and f"target {delivery['target']}" not in known_subjects:
            error = one_line(delivery["error"])
            if len(error) > _MAX_ERROR:
                error = f"{error[:_MAX_ERROR]}…"
            outcome = describe_delivery({**delivery, "error": error})
            return f"{text}; {delivery['target']}: {outcome}"
    return text


def _worker_row(worker: Mapping[str, Any], now: datetime) -> tuple[str, str, str]:
    """Return one process of the cluster: what it is, its load, and its latest heartbeat."""
    if worker["capacity"]:
        load = f"{worker['running']} of {worker['capacity']} runs"
    else:
        load = "executes none itself"
    if worker["leads"]:
        load += ", sends the reports"
    return (
        f"  {worker['kind']} {worker['host']}:{worker['pid']}",
        load,
        f"heard {format_instant(worker['seen'], now)}, version {worker['version']}",
    )


def _active_run_row(
    run: Mapping[str, Any], now: datetime, waiting_counts: Mapping[str, int]
) -> tuple[str, str, str]:
    """Return a run under way; `waiting_counts` has how many runs are before each that is queued."""
    if run["id"] in waiting_counts:
        runs_before = waiting_counts[run["id"]]
        timing = f"with {pluralize(runs_before, 'run')} before it"
        if not runs_before:
            timing = "and first in line"
    elif run.get("not_before"):
        timing = f"until {format_instant(run['not_before'], now)}"
    elif not run["started"]:
        timing = "not started yet"
    elif parse_instant(run["started"]) > now:
        timing = "since before the clock was set back"
    else:
        timing = f"for {duration_in_words((now - parse_instant(run['started'])).total_seconds())}"
    return (
        run["status"],
        f"{run['routine']}  {short_id(run['id'])}",
        f"{humanize(run['status'])} {timing}",
    )
