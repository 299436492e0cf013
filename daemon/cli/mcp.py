"""`agentctl mcp`: the MCP servers whose tools runs use, and what changed since it was accepted."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, NOT_FOUND, REFUSED, USAGE, Call, quote
from daemon.cli.render import BOLD, DIM, YELLOW, format_instant, local_now, one_line
from daemon.plurals import pluralize

_MARKS = {"accepted": " ", "new": "+", "changed": "~", "removed": "-"}


def mcp(call: Call) -> int:
    """List the servers, accept the tools of one, or serve as one."""
    if call.action == "serve":
        from daemon.cli.mcp_server import serve

        return serve(call)
    if call.action == "accept":
        return _accept(call)
    answer = call.request("GET", "/v1/mcp")
    if answer is None:
        return DONE
    if not answer["items"]:
        call.out.write_line(
            "agentd runs without MCP servers: [mcp.NAME] in config.toml adds one, after a restart."
        )
        return DONE
    servers = [server for server in answer["items"] if call.name in (None, server["name"])]
    if not servers:
        return _report_unknown_server(call)
    for server in servers:
        _write_server(call, server)
    changed_servers = [server["name"] for server in servers if server["changed"]]
    if changed_servers:
        names = "|".join(changed_servers)
        call.out.write_line(call.out.paint(f"\nagentctl mcp accept {names}", DIM))
    return DONE


def _accept(call: Call) -> int:
    if call.name is None:
        call.err.write_line("agentctl mcp accept: name a server; `agentctl mcp` lists them")
        return USAGE
    servers = call.client.request("GET", "/v1/mcp")["items"]
    server = next((server for server in servers if server["name"] == call.name), None)
    if server is None:
        return _report_unknown_server(call)
    out = call.err if call.json else call.out
    if not server["changed"] and server["digest"]:
        out.write_line(f"{call.name} offers what was accepted; there is nothing to accept.")
        return DONE
    if server["changed"]:
        _write_server(call, server, only_changes=True)
        if not call.yes:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                out.write_line("Nothing was accepted. With --yes it will be.")
                return REFUSED
            sys.stdout.write("\nAccept these tools? [y/N] ")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                out.write_line("Nothing was accepted.")
                return REFUSED
    body = {"digest": server["digest"]}
    answer = call.request("POST", f"/v1/mcp/{quote(call.name)}/accept", body)
    if answer is not None:
        out.write_line(f"accepted {pluralize(len(server['tools']), 'tool')} of {call.name}")
    return DONE


def _report_unknown_server(call: Call) -> int:
    call.err.write_line(
        f"agentctl: config.toml has no MCP server {call.name}; `agentctl mcp` lists them"
    )
    return NOT_FOUND


def _write_server(call: Call, server: Mapping[str, Any], *, only_changes: bool = False) -> None:
    """Write a server and its tools; what a server says of itself is made harmless to a terminal."""
    out, now = call.err if call.json else call.out, local_now()
    notes = ["trusted"] if server["trusted"] else []
    if server["offered_at"] is None:
        notes.append("not asked yet: the first run of a routine that names its tools asks it")
    else:
        notes.append(f"accepted {format_instant(server['accepted_at'], now)}")
        if server["changed"]:
            notes.append(f"changed {format_instant(server['offered_at'], now)}")
    out.write_line(
        f"{out.paint(server['name'], BOLD)}  {'; '.join(notes)}  "
        + out.paint(out.sanitize(one_line(server["source"])), DIM)
    )
    for tool in server["tools"]:
        if only_changes and tool["state"] == "accepted":
            continue
        _write_tool(call, tool)


def _write_tool(call: Call, tool: Mapping[str, Any]) -> None:
    out, state = call.err if call.json else call.out, tool["state"]
    name = out.sanitize(one_line(tool["name"]))
    label = "" if state == "accepted" else f" ({state})"
    line = f"  {_MARKS[state]} {name}{label}"
    out.write_line(line if state == "accepted" else out.paint(line, YELLOW))
    if tool["left_out"]:
        out.write_line(out.paint(f"      offered to no run: {out.sanitize(tool['left_out'])}", DIM))
    if state == "changed":
        if tool["description"] != tool["accepted_description"]:
            _write_text(call, "- ", tool["accepted_description"])
            _write_text(call, "+ ", tool["description"])
        if tool["parameters"] != tool["accepted_parameters"]:
            _write_text(call, "- ", json.dumps(tool["accepted_parameters"], sort_keys=True))
            _write_text(call, "+ ", json.dumps(tool["parameters"], sort_keys=True))
        return
    _write_text(call, "", tool["description"])
    if state == "new":
        _write_text(call, "", json.dumps(tool["parameters"], sort_keys=True))


def _write_text(call: Call, mark: str, text: str) -> None:
    out = call.err if call.json else call.out
    for line in text.splitlines() or [""]:
        out.write_line(f"      {mark}{out.sanitize(line)}")
