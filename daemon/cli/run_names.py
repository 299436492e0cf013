"""Which run is meant: by its id or the end of it, by its routine, or the last one."""

from __future__ import annotations

from typing import Any

from daemon.cli.call import Call, quote
from daemon.cli.client import Problem


def run_named(call: Call) -> Any:
    """Return the run of that id, the last one of the routine of that name, or with `last` the last
    one of all.
    """
    if call.run == "last":
        newest = call.client.ask("GET", "/v1/runs?limit=1")["items"]
        if not newest:
            raise Problem(404, {"code": "not_found", "detail": "nothing has run yet"})
        return call.client.ask("GET", f"/v1/runs/{newest[0]['id']}")
    try:
        return call.client.ask("GET", f"/v1/runs/{quote(call.run)}")
    except Problem as problem:
        if problem.code != "not_found":
            raise
        try:
            last = call.client.ask("GET", f"/v1/runs?limit=1&routine={quote(call.run)}")["items"]
        except Problem:
            raise problem from None  # it is no routine either
        if not last:
            never = {"code": "not_found", "detail": f"{call.run} has never run"}
            raise Problem(problem.status, never) from None
        return call.client.ask("GET", f"/v1/runs/{last[0]['id']}")
