"""Run what the policy planned, command by command, and tell a model what came of it: what shell and git share.

Not here: reading a line, and what may run (policy/); how its programs are confined (sandbox/).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy import Planned, PlannedCommand, Policy
from daemon.policy.lexer import Stream
from daemon.policy.profiles import TRUSTED
from daemon.sandbox import Ended, Running, run
from daemon.tools.opening import open_beneath
from daemon.tools.repository import repository_view

# The longest line a policy may allow ends by itself; the executor's limit is for tools that have none.
LONGEST = 3700.0
_NOT_FOUND = 127  # what a shell gives
# Programs that take orders from files in the home folder (~/.jq is code, ~/.magic too), which is the workspace here.
_OBEY_HOME, _NOWHERE = frozenset({"jq", "file", "git"}), "/nonexistent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A line that has ended, with what is needed to tell of it."""

    ended: Ended
    line: tuple[Planned, ...]
    seconds: float
    """How long it could have taken."""


async def run_call(
    tool: str, arguments: Json, *, policy: Policy, context: ToolContext, zone: str | None = None
) -> Done:
    """Run a call exactly as the policy plans it; ToolFailed if it is not allowed or cannot be started."""
    verdict, line = policy.plan(tool, arguments, routine=context.routine, tainted=context.tainted)
    if not context.permits(verdict):
        instead = f"; {verdict.allowed}" if verdict.allowed else ""
        raise ToolFailed(f"not run, {verdict.rule}: {verdict.reason}{instead}")
    limits = policy.limits_for(context.routine)
    folder = next((Path(each.folder.real) for part in line for each in part.commands if each.folder), context.workspace)
    with ExitStack() as files:
        try:
            pipelines = [(each.joint, [_running(part, folder, files) for part in each.commands]) for each in line]
            ended = await run(
                pipelines,
                folder=folder,
                environment=environment(context.workspace, zone),
                seconds=limits.shell_seconds,
                output_bytes=limits.output_bytes,
            )
        except OSError as error:
            raise ToolFailed(f"could not be run: {error.strerror}: {error.filename}") from None
    return Done(ended=ended, line=line, seconds=limits.shell_seconds)


def environment(workspace: Path, zone: str | None = None) -> dict[str, str]:
    """Return all that a program sees of the world outside: nothing of the daemon's own."""
    seen = {"PATH": ":".join(TRUSTED), "HOME": str(workspace), "LANG": "C.UTF-8", "TERM": "dumb", "PAGER": "cat"}
    return seen | ({"TZ": zone} if zone else {})


def find_program(name: str) -> Path | None:
    """Return where a program is in the system's folders; None if it is not there, or not the system's alone."""
    folder, slash, plain = name.rpartition("/")
    for each in (folder,) if slash else TRUSTED:
        path = Path(each, plain)
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_uid == 0 and not status.st_mode & 0o022 and os.access(path, os.X_OK):
            return path
    return None


def _running(command: PlannedCommand, folder: Path, files: ExitStack) -> Running:
    variables = {"HOME": _NOWHERE} if command.program in _OBEY_HOME else {}
    if command.program == "git":
        variables |= repository_view(folder, files)
    stdin, fault = None, None
    if command.stdin is not None:
        try:
            stdin = open_beneath(command.stdin.root, command.stdin.inside)
            files.callback(os.close, stdin)
        except OSError as error:
            fault = (1, f"{command.stdin.asked}: {error.strerror}")
    program = find_program(command.argv[0])
    if program is None and fault is None:
        fault = (_NOT_FOUND, f"{command.argv[0]}: is not installed")
    redirects: list[tuple[int, Literal["null", "stdout"]]] = [
        (each.fd, "null" if each.to is Stream.NULL else "stdout") for each in command.redirects
    ]
    return Running(
        path=str(program), argv=command.argv, redirects=redirects, stdin=stdin, environment=variables, fault=fault
    )


def told(done: Done) -> str:
    """Return what the model reads; raise ToolFailed with it if the line did not end well."""
    ended, seconds = done.ended, done.seconds
    text = ended.output.text()
    notes = list(_notes(ended))
    if ended.stopped == "time":
        raise ToolFailed(
            " ".join([f"stopped after {seconds:g} s, which is all a line may take; ask for less at a time", *notes]),
            partial=text,
        )
    if ended.stopped == "flood":
        raise ToolFailed(f"stopped, as it put out {ended.output.size >> 20} MiB; ask for less", partial=text)
    pipeline, place = ended.last
    last = done.line[pipeline].commands[place]
    if ended.code and ended.code not in last.answers:
        raise ToolFailed(" ".join([_failed(last.program, ended.code), *notes]), partial=text)
    if ended.code:
        notes.append(f"({last.program} ended with exit code {ended.code})")
    return "\n".join([*([text.rstrip("\n")] if text.strip() else ["(no output)"]), *notes])


def _notes(ended: Ended) -> Iterator[str]:
    if ended.left:
        yield f"(could not be killed and hang in the kernel: processes {', '.join(map(str, ended.left))})"


def _failed(program: str, code: int) -> str:
    if code > 128:
        return f"{program} was killed by signal {code - 128}"
    return f"{program} ended with exit code {code}"
