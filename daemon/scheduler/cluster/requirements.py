"""What a run needs that not every machine has, and which machines have it.

A routine may name hosts (`machines`), tools of the user's own and MCP servers. A tool or server may
be bound to hosts in config.toml, or be configured on some machines only. Each process that executes
runs writes its capabilities into its row of the journal's list of workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from daemon.definitions.routines.routine import Routine
from daemon.models import Json
from daemon.scheduler.routine_times import matches_host

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.store.workers import Worker

_SERVER_SEPARATOR = "__"  # tools of MCP servers are called SERVER__TOOL


def capabilities_of(
    config: Config, tools: Iterable[str], *, absent: Collection[str], host: str
) -> Json:
    """Return the capabilities of a process on a host: its tools but those in `absent`, which are
    bound to other hosts, and its MCP servers.
    """
    return {
        "tools": sorted(
            name for name in tools if name not in absent and _SERVER_SEPARATOR not in name
        ),
        "servers": sorted(
            name for name, server in config.mcp.items() if matches_host(server.machines, host)
        ),
    }


def missing_requirements(routine: Routine, capabilities: Json, host: str) -> list[str]:
    """Return in words what a process lacks to execute runs of a routine; empty if it may do so.

    Empty `capabilities` come from a version that does not write them: only the host is checked.
    """
    globs = routine.machines
    missing_host = [] if matches_host(globs, host) else [f"the name {' or '.join(globs)}"]
    if not capabilities:
        return missing_host
    needed_tools = {
        *(gather.tool for gather in routine.gather),
        *routine.run.required_tools,
        *routine.run.tools,
    }
    tools, servers = frozenset(capabilities["tools"]), frozenset(capabilities["servers"])
    missing_names = set()
    for needed_tool in needed_tools:
        if _SERVER_SEPARATOR in needed_tool:
            # Both parts may be patterns: `time__*`, and even `t*__now`.
            needed_server = needed_tool.partition(_SERVER_SEPARATOR)[0]
            has_server = any(fnmatchcase(server, needed_server) for server in servers)
            has_tool = any(fnmatchcase(tool, needed_tool) for tool in tools)
            if not has_server and not has_tool:
                missing_names.add(f"the MCP server {needed_server}")
        elif not set(needed_tool) & set("*?[") and needed_tool not in tools:
            missing_names.add(f"the tool {needed_tool}")
    return missing_host + sorted(missing_names)


def describe_missing_worker(definition: str, workers: Sequence[Worker]) -> str:
    """Return what a run waits for that none of these processes has; empty if one may execute it.

    `definition` is the routine of the run as JSON text.
    """
    try:
        routine = Routine.restore(definition)
    except ValueError:  # a newer version wrote the definition, and knows who may execute it
        return ""
    missing_by_worker = {
        f"{worker.kind} {worker.host}:{worker.pid}": missing_requirements(
            routine, worker.capabilities, worker.host
        )
        for worker in workers
        if worker.capacity
    }
    if not missing_by_worker:
        return "waits for a worker: nobody who executes runs is there"
    if not all(missing_by_worker.values()):
        return ""
    all_missing = sorted({name for names in missing_by_worker.values() for name in names})
    by_worker = "; ".join(
        f"{worker} lacks {_join_names(names)}" for worker, names in missing_by_worker.items()
    )
    return f"waits for a machine with {_join_names(all_missing)}: {by_worker}"


def _join_names(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    *earlier_names, last = names
    return f"{', '.join(earlier_names)} and {last}" if earlier_names else last
