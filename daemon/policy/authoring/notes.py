"""What is sound in a policy and still worth a second look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import did_you_mean
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS, Tool

# What brings in text that strangers may have written, and what shows what is private on this
# machine.
_STRANGERS = frozenset(
    ["shell", "git", "file_read", "http_request", "web_search", "script", "subagent"]
)
_PRIVATE = frozenset(["shell", "git", "file_read", "memory_recall", "memory_expand", "script"])


def notes(policy: Policy, routines: Iterable[Routine]) -> Iterator[str]:
    """Yield a sentence for each."""
    routines_by_name = {routine.name: routine for routine in routines}
    for name in policy.routines:
        if routines_by_name and name not in routines_by_name:
            hint = did_you_mean(name, sorted(routines_by_name)) or "is it gone?"
            yield f"[routine.{name}]: there is no routine of that name; {hint}"
    for rule in policy.rules:
        for pattern in rule.routines:
            if routines_by_name and not any(
                fnmatchcase(name, pattern) for name in routines_by_name
            ):
                yield f"{rule.label}: no routine is called {pattern}"
    for routine in routines_by_name.values():
        if note := _note_on_exfiltration(policy, routine):
            yield note


def _note_on_exfiltration(policy: Policy, routine: Routine) -> str:
    """Say so if a routine may read strangers' text, sees what is private, and may then still change
    or send.
    """
    table = policy.routines.get(routine.name)
    if table is None or not table.tainted_tools:
        return ""
    tools = [
        tool for tool in TOOLS if any(fnmatchcase(tool, pattern) for pattern in routine.run.tools)
    ]
    potent = [
        tool
        for tool in tools
        if (TOOLS.get(tool, Tool()).changes or TOOLS.get(tool, Tool()).sends)
        and any(fnmatchcase(tool, pattern) for pattern in table.tainted_tools)
    ]
    if not potent or _STRANGERS.isdisjoint(tools) or _PRIVATE.isdisjoint(tools):
        return ""
    return (
        f"[routine.{routine.name}]: it reads what strangers may have written, sees what is private, "  # noqa: E501
        f"and may then still use {', '.join(potent)}: a text that gives it orders could send that "
        "away or change something"
    )
