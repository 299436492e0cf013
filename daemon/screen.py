"""What a call brought is looked at before a model sees it: whose words it may hold, and whether they give orders.

Taint is decided by where a text comes from, never by how it reads; the injection check only labels, and keeps the
blatant away.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from daemon.models import FunctionCall, Run, Taint, ToolResult

if TYPE_CHECKING:
    from daemon.store import Journal

# Tools that answer in our own words, or in those of the owner. All others bring what anybody may have written, those of
# users and servers too. `memory_recall` and `sysinfo` do so where they say it themselves.
OURS = frozenset({"finish", "self_info", "file_write", "memory_store", "memory_forget", "skill", "routine", "config"})
# Parts of sysinfo that quote logs: whoever can reach a port of this machine can write lines there.
QUOTING = frozenset({"errors"})


def provenance(tool: str, value: Any) -> Taint:
    """Return what a result of this tool does to a run."""
    if tool in OURS:
        return Taint.NONE
    if tool in ("memory_recall", "memory_expand"):
        recalled = value if isinstance(value, list) else []
        return Taint.TAINTED if any(each.get("untrusted") for each in recalled) else Taint.NONE
    if tool == "sysinfo":
        quoting = isinstance(value, dict) and any(value.get(part) for part in QUOTING)
        return Taint.TAINTED if quoting else Taint.NONE
    return Taint.TAINTED


class Screen:
    """Looks at what the calls of one run bring."""

    def __init__(self, run: Run, journal: Journal, *, language: str = "en") -> None:
        self._run, self._journal, self._language = run, journal, language

    async def look(self, key: str, call: FunctionCall, result: ToolResult) -> ToolResult:
        """Return the result as a model may see it, with what it does to the run."""
        return replace(result, taint=provenance(call.name, result.value))
