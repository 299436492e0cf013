"""`agentctl doctor`: what is wrong here, looked for by the daemon or, without one, by agentd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemon.cli.agentd_commands import exec_agentd, with_daemon_paths
from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import Unreachable
from daemon.cli.render import BOLD, YELLOW, OutputStream
from daemon.plurals import pluralize


def doctor(call: Call) -> int:
    """Look for what is wrong here."""
    if set(call.rest) <= {"--json", "--deep"} and "--deep" in call.rest:
        exec_agentd(["doctor", *with_daemon_paths(call, call.rest, socket=True)])
    if not all(argument == "--json" for argument in call.rest):
        exec_agentd(["doctor", *call.rest])
    try:
        answer = call.request_and_print("GET", "/v1/doctor")
    except Unreachable as error:
        if not call.json:
            paths = ", ".join(path for path, _ in error.attempts)
            call.err.write_line(call.err.paint(f"no daemon answers at {paths}", YELLOW))
        exec_agentd(["doctor", *call.rest])
    if not call.json:
        write_checks(call.out, answer["checks"])
    return DONE if answer["ok"] else NOT_SUCCEEDED


def write_checks(out: OutputStream, checks: Sequence[Mapping[str, Any]]) -> None:
    """Write what was checked and found, then how to mend each fault."""
    rows = [(check["state"], check["name"], check["found"]) for check in checks]
    out.write_table(["", "CHECK", "FOUND"], rows, wraps=True)
    for check in checks:
        if check["state"] != "ok" and check["fix"]:
            out.write_line()
            out.write_line(
                f"{out.sign(check['state'])} {out.paint(check['name'], BOLD)}: "
                f"{out.sanitize(check['fix'])}"
            )
    faults = [check["name"] for check in checks if check["state"] == "fail"]
    warnings = [check["name"] for check in checks if check["state"] == "warn"]
    out.write_line()
    if warnings:
        names = out.sanitize(", ".join(dict.fromkeys(warnings)))
        out.write_line(
            f"{out.sign('warn')} {pluralize(len(warnings), 'thing')} to look at: {names}"
        )
    is_well = not faults and not warnings
    out.write_line("all is well" if is_well else f"{pluralize(len(faults), 'thing')} to mend")
