"""What a run needs that not every machine has, and which machines have it.

A routine may name hosts (`machines`), tools of the user's own and MCP servers. A tool or server may
be bound to hosts in config.toml, or be configured on some machines only. Each process that lives
runs says in its row what it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from daemon.definitions.routines.routine import Routine
from daemon.models import Json
from daemon.scheduler.routine_times import matches_host

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.store.leases import Worker

_BETWEEN = "__"  # SERVER__tool


def having(config: Config, tools: Iterable[str], *, absent: Collection[str], host: str) -> Json:
    """Return what a process on this host has, as its row says it: tools but those bound elsewhere,
    MCP servers.
    """
    return {
        "tools": sorted(name for name in tools if name not in absent and _BETWEEN not in name),
        "servers": sorted(
            name for name, server in config.mcp.items() if matches_host(server.machines, host)
        ),
    }


def lacks(routine: Routine, has: Json, host: str) -> list[str]:
    """Return what a process on this host lacks to live a run of this routine, in words; nothing if
    it may have it.
    """
    return list(_lacks(routine, has, host))


def _lacks(routine: Routine, has: Json, host: str) -> Iterator[str]:
    globs = routine.trigger.machines
    if not matches_host(globs, host):
        yield f"the name {' or '.join(globs)}"
    if not has:
        return  # of a version that does not say
    wanted = dict.fromkeys(
        (*(each.tool for each in routine.gather), *routine.run.required_tools, *routine.run.tools)
    )
    tools, servers = frozenset(has["tools"]), frozenset(has["servers"])
    told = set()
    for pattern in wanted:
        if _BETWEEN in pattern:
            server = pattern.partition(_BETWEEN)[0]
            if not any(fnmatchcase(each, server) for each in servers) and not any(
                fnmatchcase(each, pattern) for each in tools
            ):
                told.add(f"the MCP server {server}")
        elif not set(pattern) & set("*?[") and pattern not in tools:
            told.add(f"the tool {pattern}")
    yield from sorted(told)


def describe_missing_worker(definition: str, workers: Sequence[Worker]) -> str:
    """Say what a run with this definition waits for that none of these processes has; empty if one
    may have it.
    """
    try:
        routine = Routine.restore(definition)
    except ValueError:  # a newer version wrote it, and knows whether it can be lived
        return ""
    able = [each for each in workers if each.capacity]
    found: Mapping[str, list[str]] = {
        f"{each.kind} {each.host}:{each.pid}": lacks(routine, each.has, each.host) for each in able
    }
    if not able:
        return "waits for a worker: nobody who lives runs is there"
    if not all(found.values()):
        return ""
    missing = sorted({each for lacking in found.values() for each in lacking})
    who = "; ".join(f"{name} lacks {_listed(lacking)}" for name, lacking in found.items())
    return f"waits for a machine with {_listed(missing)}: {who}"


def _listed(things: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))
