"""Which routines hold too much at once: strangers' words, private data, and a way to act on them
unasked.

Any two of the three are fine: what a stranger writes may steer a run, but then there is nothing to
take or nowhere to take it. All three in one routine is the shape of every theft by prompt; whoever
wants it said so in `tainted_tools`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from daemon.injection.check import needs_injection_check
from daemon.models import Effect
from daemon.policy.policy_file import TOOLS, Tool

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.policy.policy import Policy

# What brings things that are not for everybody: files, repositories, what earlier runs kept, a
# server's answers.
_PRIVATE = frozenset(
    {
        "shell",
        "git",
        "script",
        "file_read",
        "file_list",
        "memory_recall",
        "memory_expand",
        "sysinfo",
    }
)
# Events that bring strangers' words along.
_EVENTS = ("watch", "webhook")


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """What one routine holds of the three."""

    routine: str
    reads: tuple[str, ...]
    """What brings strangers' words."""
    private: tuple[str, ...]
    """What brings private data."""
    acts: tuple[str, ...]
    """What changes or sends something, and goes on doing so when strangers have been read."""


def holdings(routines: Mapping[str, Routine], policy: Policy | None) -> tuple[Holding, ...]:
    """Return the routines that hold all three."""
    if policy is None:
        return ()
    holdings = [_rights_of(name, routine, policy) for name, routine in sorted(routines.items())]
    return tuple(
        holding for holding in holdings if holding.reads and holding.private and holding.acts
    )


def _rights_of(name: str, routine: Routine, policy: Policy) -> Holding:
    offered = list(_allowed(name, _offered(routine), policy)) if routine.run.mode == "agent" else []
    used = list(dict.fromkeys([*(gather.tool for gather in routine.gather), *offered]))
    events = [event for event in _EVENTS if getattr(routine.trigger, event)]
    table = policy.routines.get(name)
    patterns = table.tainted_tools if table else ()
    return Holding(
        routine=name,
        reads=(*events, *(tool for tool in used if needs_injection_check(tool))),
        private=tuple(tool for tool in used if tool in _PRIVATE or "__" in tool),
        acts=tuple(
            tool
            for tool in offered
            if _acts(tool) and any(fnmatchcase(tool, pattern) for pattern in patterns)
        ),
    )


def _offered(routine: Routine) -> Iterator[str]:
    for pattern in routine.run.tools:
        yield from (tool for tool in TOOLS if fnmatchcase(tool, pattern))
        if pattern not in TOOLS and ("__" in pattern or not set(pattern) & set("*?[")):
            yield pattern


def _allowed(name: str, tools: Iterable[str], policy: Policy) -> Iterator[str]:
    """Yield the tools that some rule does not forbid the routine, by name at least."""
    table = policy.routines.get(name)
    for tool in tools:
        is_offered = (
            table is None
            or table.tools is None
            or any(fnmatchcase(tool, pattern) for pattern in table.tools)
        )
        if is_offered and any(
            rule.effect is not Effect.DENY and rule.is_for(tool, name) for rule in policy.rules
        ):
            yield tool


def _acts(tool: str) -> bool:
    properties = TOOLS.get(tool, Tool(changes=True, sends=True))
    return properties.changes or properties.sends
