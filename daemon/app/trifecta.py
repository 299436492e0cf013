"""Routines with the "lethal trifecta": they read text of strangers, read private data, and change
or send something without asking.

Any two of the three are fine: text of a stranger may steer a run, but then there is nothing to
steal or no way to send it. Prompt injection steals data through routines that have all three, which
they have only if `tainted_tools` of the policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.policy.policy_file import TOOLS, UNKNOWN_TOOL
from daemon.runs.approvals.expected import allowed_tools, offered_tools, sources_of_strangers_words

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.policy.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Trifecta:
    """A routine with what it has of each of the three."""

    routine: str
    """The name by which the policy knows it: `maker/name` if an agent made it."""
    reads: tuple[str, ...]
    """Events and tools that bring text of strangers."""
    private: tuple[str, ...]
    """Tools that bring private data."""
    acts: tuple[str, ...]
    """Tools that change or send something, still allowed once text of strangers has been read."""

    @property
    def section(self) -> str:
        """The routine whose section of the policy allows that: its maker if an agent made it."""
        return self.routine.partition("/")[0]


def find_trifectas(routines: Mapping[str, Routine], policy: Policy | None) -> tuple[Trifecta, ...]:
    """Return the routines that have all three."""
    if policy is None:
        return ()
    all_rights = [_rights_of(routine, policy) for _, routine in sorted(routines.items())]
    return tuple(rights for rights in all_rights if rights.reads and rights.private and rights.acts)


def _rights_of(routine: Routine, policy: Policy) -> Trifecta:
    name = routine.policy_name
    tools: list[str] = []
    if routine.run.mode == "agent":
        tools = list(allowed_tools(name, offered_tools(routine), policy))
    tools_used = list(dict.fromkeys([*(gather.tool for gather in routine.gather), *tools]))
    return Trifecta(
        routine=name,
        reads=sources_of_strangers_words(routine, tools),
        private=tuple(tool for tool in tools_used if TOOLS.get(tool, UNKNOWN_TOOL).private),
        acts=tuple(
            tool for tool in tools if _acts(tool) and policy.trusts_when_tainted(tool, name)
        ),
    )


def _acts(tool: str) -> bool:
    properties = TOOLS.get(tool, UNKNOWN_TOOL)
    return properties.changes or properties.sends
