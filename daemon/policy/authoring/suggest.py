"""Write the narrowest section of policy.toml into which the recorded calls of a routine fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import tomli_w

from daemon.policy.authoring.recorded_calls import RecordedCall
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.requests import analyze_call

# Sub-commands matter where the first word alone says little.
_WITH_SUBCOMMAND = frozenset(["git", "ip", "systemctl"])
_SPARE_CALLS = 2  # beyond the most that a run made: one more look at a log is no failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A section for policy.toml, and the calls that it was made from."""

    section: dict[str, Any]
    runs: int
    """How many runs made these calls."""
    calls: int
    """How many calls were executed."""
    refused_calls: tuple[tuple[str, int], ...]
    """(call, count) of calls that were denied or never approved, the most frequent first; the
    section does not allow them either.
    """

    def as_toml(self, routine: str) -> str:
        """Return the section as TOML, for the routine of this name."""
        return tomli_w.dumps({"routine": {routine: self.section}}, multiline_strings=False)


def suggest(calls: Sequence[RecordedCall], policy: Policy) -> Suggestion:
    """Return the section into which every call that ran would fit."""
    executed_calls = [call for call in calls if call.was_run and call.tool != "finish"]
    section: dict[str, Any] = {"tools": sorted({call.tool for call in executed_calls})}
    commands: set[str] = set()
    folders: set[str] = set()
    hosts: set[str] = set()
    for call in executed_calls:
        for words, paths, host in _parts(call, policy):
            if call.tool == "shell" and words:
                has_subcommand = words[0] in _WITH_SUBCOMMAND
                commands.add(" ".join(words[: 2 if has_subcommand else 1]))
            elif call.tool == "git" and words:
                commands.add(f"git {words[0]}")
            if call.tool == "file_write":
                folders.update(map(_folder_of, paths))
            if host:
                hosts.add(host)
    for key, values in (("commands", commands), ("write", folders), ("hosts", hosts)):
        if values:
            section[key] = sorted(values)
    most_calls = max(Counter(call.run for call in executed_calls).values(), default=0)
    section["limits"] = {"tool_calls": most_calls + _SPARE_CALLS}
    refused_calls = Counter(
        f"{call.tool} {call.subject}".strip() for call in calls if not call.was_run
    )
    return Suggestion(
        section=section,
        runs=len({call.run for call in calls}),
        calls=len(executed_calls),
        refused_calls=tuple(refused_calls.most_common()),
    )


def _parts(call: RecordedCall, policy: Policy) -> Iterator[tuple[tuple[str, ...], list[str], str]]:
    """Yield (words, paths, host) for each part of a call; only a web request has a host, others
    "".
    """
    try:
        parts = analyze_call(call.tool, call.arguments, policy.reach).parts
    except CallRejected:  # what it named is no longer there, or redacted in the journal
        return
    for part in parts:
        host = ""
        if part.target is not None:
            host = part.target.origin.partition("://")[2]
        yield part.words, [names[0] for names in part.paths], host


def _folder_of(path: str) -> str:
    """Return a pattern for the folder of a file; for a file directly in the workspace, the path
    itself, as the pattern of its folder would allow everything.
    """
    folder = str(PurePosixPath(path).parent)
    return path if folder in (".", "/") else f"{folder}/**"
