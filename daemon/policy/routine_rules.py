"""Apply the section of one routine, `[routine.NAME]`: its tools, commands, hosts and writable
files.

A section only takes away: whatever it leaves still needs a rule that allows it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from daemon.models import Effect, Verdict
from daemon.policy.globs import Glob, any_covers
from daemon.policy.judge import CallPart
from daemon.policy.policy_file import TOOLS, UNKNOWN_TOOL, RoutineTable
from daemon.policy.web import HostPattern


def allows_tool(table: RoutineTable, tool: str) -> bool:
    """Tell whether a routine may use a tool at all."""
    return table.tools is None or any(fnmatchcase(tool, pattern) for pattern in table.tools)


def refuse_tool(table: RoutineTable, tool: str, routine: str) -> Verdict | None:
    """Return the refusal of a tool that a routine may not use; None if it may."""
    if allows_tool(table, tool):
        return None
    return _denied(routine, f"{routine} may not use {tool}", table.tools or ("finish",))


def refuse_part(table: RoutineTable, part: CallPart, routine: str) -> Verdict | None:
    """Return the refusal of one part of a call that lies outside the confines of its routine; None
    if it does not.
    """
    if part.words and table.commands is not None and part.tool in ("shell", "git"):
        words = part.words if part.tool == "shell" else ("git", *part.words)
        if not any(words[: len(text.split())] == tuple(text.split()) for text in table.commands):
            return _denied(routine, f"{routine} may not run {' '.join(words[:2])}", table.commands)
    if part.target is not None and table.hosts is not None:
        is_allowed = any(HostPattern.of(text).matches(part.target) for text in table.hosts)
        if not is_allowed:
            return _denied(routine, f"{routine} may not ask {part.target.origin}", table.hosts)
    if TOOLS.get(part.tool, UNKNOWN_TOOL).acts_on == "writing" and table.write is not None:
        globs = [Glob(text) for text in table.write]
        if not all(any_covers(globs, names[0]) for names in part.paths):
            return _denied(routine, f"{routine} may not write {part}", table.write)
    return None


def _denied(routine: str, reason: str, tools: tuple[str, ...]) -> Verdict:
    names = ", ".join(tools) or "none"
    return Verdict(
        effect=Effect.DENY,
        rule=f"[routine.{routine}]",
        reason=reason,
        alternative=f"this routine may use {names}",
    )
