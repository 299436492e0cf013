"""Run what the policy planned, command by command, and tell a model what came of it: what shell and
git share.

Not here: reading a line, and what may run (policy/); how its programs are confined (sandbox/).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy.lexer import Stream
from daemon.policy.policy import Policy
from daemon.policy.profiles import PROGRAM_FOLDERS
from daemon.policy.requests import PlannedCommand, PlannedPipeline
from daemon.sandbox.bounds import Bounds, ProgramLimits
from daemon.sandbox.current import SandboxSource
from daemon.sandbox.repositories import Repositories
from daemon.sandbox.running import CommandResult, PreparedProgram, run
from daemon.sandbox.sandbox import Sandbox
from daemon.system.safe_open import open_beneath
from daemon.tools.builtin.repository import repository_view
from daemon.tools.executor import MAX_TEXT_BYTES

# The longest line a policy may allow ends by itself; the executor's limit is for tools that have
# none.
MAX_PROGRAM_SECONDS = 3700.0
PROGRAMS = frozenset({"shell", "git", "script"})
_NOT_FOUND = 127  # what a shell gives
_NO_REPOSITORY = 128  # as git exits
# The signals that end a program which is refused memory, has used up its time or has written too
# long a file.
_SIGNALS_AT_LIMITS = frozenset(
    {signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGXCPU, signal.SIGXFSZ}
)
# Programs that take orders from files in the home folder (~/.jq is code, ~/.magic too), which is
# the workspace here.
_READ_HOME = frozenset({"jq", "file", "git"})
_EMPTY_HOME = "/nonexistent"
# They look at the machine, which a sandbox of their own would hide; run so only with words that
# change nothing.
_HOST_PROGRAMS = frozenset(
    {
        "df",
        "dmesg",
        "free",
        "ip",
        "journalctl",
        "last",
        "lsblk",
        "lscpu",
        "nproc",
        "ps",
        "ss",
        "systemctl",
        "uptime",
        "vmstat",
        "w",
        "who",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletedCall:
    """A line that has ended, with what is needed to tell of it."""

    result: CommandResult
    line: tuple[PlannedPipeline, ...]
    seconds: float
    """How long it was allowed to take."""


async def run_call(
    tool: str,
    arguments: Json,
    *,
    policy: Policy,
    context: ToolContext,
    sandbox: SandboxSource,
    zone: str | None = None,
    max_output_bytes: int = MAX_TEXT_BYTES,
) -> CompletedCall:
    """Run a call exactly as the policy plans it; ToolFailed if it is not allowed or cannot be
    started. Of the output at most `max_output_bytes` are kept, whatever the policy's limit is.
    """
    verdict, line = policy.plan(tool, arguments, routine=context.routine, tainted=context.tainted)
    if not context.permits(verdict):
        alternative = f"; {verdict.alternative}" if verdict.alternative else ""
        raise ToolFailed(f"not run, {verdict.rule}: {verdict.reason}{alternative}")
    limits, reach, confinement = policy.limits_for(context.routine), policy.reach, await sandbox()
    folder = next(
        (
            command.folder.real
            for pipeline in line
            for command in pipeline.commands
            if command.folder
        ),
        reach.workspace,
    )
    writes = any(not command.reads_only for pipeline in line for command in pipeline.commands)
    repositories = await find_repositories(policy, confinement) if writes else None
    with ExitStack() as files, program_time(policy, context) as seconds:
        try:
            commands = _Commands(policy, confinement, folder, context.routine, files, repositories)
            pipelines = [
                (
                    pipeline.operator,
                    [commands.prepare(command) for command in pipeline.commands],
                )
                for pipeline in line
            ]
            result = await run(
                pipelines,
                folder=Path(folder),
                environment=environment(reach.workspace, zone),
                seconds=seconds,
                output_bytes=min(limits.output_bytes, max_output_bytes),
                repositories=repositories,
            )
        except OSError as error:
            raise ToolFailed(f"could not be run: {error.strerror}: {error.filename}") from None
    return CompletedCall(result=result, line=line, seconds=seconds)


async def find_repositories(policy: Policy, sandbox: Sandbox) -> Repositories | None:
    """Return the repositories of the workspace that a program must leave alone; None where nothing
    confines it.
    """
    if not sandbox.confines:
        return None
    return await asyncio.to_thread(Repositories.find, policy.reach.workspace)


@contextmanager
def program_time(policy: Policy, context: ToolContext) -> Iterator[float]:
    """Yield the seconds that programs of this run still have, and count what the body takes.

    Raises ToolFailed if no time is left.
    """
    limit = policy.limits_for(context.routine).shell_seconds
    seconds_left = limit - context.programs.seconds
    if seconds_left <= 0:
        raise ToolFailed(
            f"not run: the programs of this run have had their {limit} s (limits.shell_seconds "
            "of policy.toml)"
        )
    began = time.monotonic()
    try:
        yield seconds_left
    finally:
        context.programs.seconds += time.monotonic() - began


@dataclass(frozen=True, slots=True)
class _Commands:
    """Makes planned commands ready to be started."""

    policy: Policy
    sandbox: Sandbox
    folder: str
    routine: str
    files: ExitStack
    """Closed, or taken away, when the line has ended."""
    repositories: Repositories | None
    """Those of the workspace, if a command may change it."""

    def prepare(self, command: PlannedCommand) -> PreparedProgram:
        require_sandbox(self.policy, self.sandbox, command.program, reads_only=command.reads_only)
        variables = {"HOME": _EMPTY_HOME} if command.program in _READ_HOME else {}
        needs: list[str] = []
        stdin, fault = None, None
        if command.program == "git":
            variables |= repository_view(
                Path(self.folder),
                self.files,
                owner=self.sandbox.user,
                denied_patterns=command.denied_patterns,
                starts_git=command.argv[1:2] == ("stash",),
            )
            needs.append(variables["GIT_DIR"])
            if command.argv[1:] != ("--version",) and not Path(self.folder, ".git").exists():
                # Without a repository `git diff` compares plain folders, and from git 2.51 on takes
                # the patterns that keep denied files out as relative to those folders.
                fault = (_NO_REPOSITORY, "fatal: not a git repository")
        if command.stdin is not None and fault is None:
            try:
                stdin = open_beneath(command.stdin.root, command.stdin.path_in_root)
                self.files.callback(os.close, stdin)
            except OSError as error:
                fault = (1, f"{command.stdin.text}: {error.strerror}")
        program = find_program(command.argv[0])
        if program is None and fault is None:
            fault = (_NOT_FOUND, f"{command.argv[0]}: is not installed")
        redirects: list[tuple[int, Literal["null", "stdout"]]] = [
            (redirect.fd, "null" if redirect.to is Stream.NULL else "stdout")
            for redirect in command.redirects
        ]
        return PreparedProgram(
            path=str(program),
            argv=command.argv,
            redirects=redirects,
            stdin=stdin,
            environment=variables,
            cell=self._cell(command),
            needs=needs,
            fault=fault,
        )

    def _cell(self, command: PlannedCommand) -> Json:
        return self.sandbox.cell(
            bounds(
                self.policy,
                self.routine,
                folder=self.folder,
                writes=not command.reads_only,
                repositories=self.repositories,
                host=command.reads_only and command.program in _HOST_PROGRAMS,
            )
        )


def bounds(
    policy: Policy,
    routine: str,
    *,
    folder: str,
    writes: bool,
    repositories: Repositories | None = None,
    host: bool = False,
) -> Bounds:
    """Return what a program of a routine may see and use."""
    limits, reach = policy.limits_for(routine), policy.reach
    return Bounds(
        workspace=reach.workspace,
        folder=folder,
        readable=reach.readable,
        writes=writes,
        protected=tuple(repositories.protected_paths()) if repositories else (),
        host=host,
        limits=ProgramLimits(
            seconds=limits.shell_seconds,
            memory=limits.memory_mb << 20,
            processes=limits.processes,
            file=limits.file_mb << 20,
        ),
    )


def require_sandbox(policy: Policy, sandbox: Sandbox, program: str, *, reads_only: bool) -> None:
    """Raise ToolFailed for a program that is not to run on a machine without a sandbox."""
    if sandbox.confines or sandbox.level == "off" or (reads_only and policy.sandbox != "require"):
        return
    reason = (
        "the policy requires one for every program"
        if policy.sandbox == "require"
        else "it may change something"
    )
    raise ToolFailed(
        f"{program} is not run without a sandbox: {reason}, and this machine has none "
        f"({'; '.join(sandbox.missing)}); "
        "agentctl doctor says how to get one"
    )


ZoneSource: TypeAlias = Callable[[], str | None]
"""Return the time zone that programs see, which a reload may change; None: that of the machine."""


def no_zone() -> str | None:
    """Return None: programs see the time zone of the machine."""
    return None


def environment(workspace: str, zone: str | None = None) -> dict[str, str]:
    """Return all that a program sees of the world outside: nothing of the daemon's own."""
    variables = {
        "PATH": ":".join(PROGRAM_FOLDERS),
        "HOME": workspace,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
    }
    return variables | ({"TZ": zone} if zone else {})


def find_program(name: str) -> Path | None:
    """Return where a program is in the system's folders; None if it is not there, or if others than
    root could change it.
    """
    folder, slash, file_name = name.rpartition("/")
    for directory in (folder,) if slash else PROGRAM_FOLDERS:
        path = Path(directory, file_name)
        try:
            status = path.stat()
        except OSError:
            continue
        owners = _owners_of_system_files() if directory in PROGRAM_FOLDERS else {0}
        if status.st_uid in owners and not status.st_mode & 0o022 and os.access(path, os.X_OK):
            return path
    return None


@cache
def _owners_of_system_files() -> frozenset[int]:
    """Return whose files in the system's folders are root's. In a user namespace without root, as
    `PrivateUsers=` of a user's unit makes it, they show the number of all users that it lacks.
    """
    try:
        known_users = Path("/proc/self/uid_map").read_text().splitlines()
        number_of_others = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except OSError:  # not Linux
        return frozenset({0})
    has_root = any(line.split()[0] == "0" for line in known_users)
    return frozenset({0 if has_root else number_of_others})


def report_result(call: CompletedCall, *, verbatim: bool = False) -> str:
    """Return what the model reads; raise ToolFailed with it if the line did not end well.

    With `verbatim` (see ToolContext) return the output as it is; any exit code but 0 is a failure.
    """
    result, seconds = call.result, call.seconds
    text = result.output.text()
    notes = list(_notes(result))
    if result.stop_cause == "time":
        problem = (
            f"stopped after {seconds:.3g} s, which is all that programs of this run had left; "
            "ask for less"
        )
        raise ToolFailed(" ".join([problem, *notes]), partial=text)
    if result.stop_cause == "output":
        raise ToolFailed(
            f"stopped, as it put out {result.output.size >> 20} MiB; ask for less", partial=text
        )
    pipeline, index = result.last_program
    last_command = call.line[pipeline].commands[index]
    if result.code and (verbatim or result.code not in last_command.success_codes):
        raise ToolFailed(
            " ".join([_describe_exit_code(last_command.program, result), *notes]), partial=text
        )
    if verbatim:
        return text
    if result.code:
        notes.append(f"({last_command.program} ended with exit code {result.code})")
    return "\n".join([*([text.rstrip("\n")] if text.strip() else ["(no output)"]), *notes])


def _notes(result: CommandResult) -> Iterator[str]:
    if result.reached_memory_limit:
        yield (
            "(the programs of this call, with their files in memory, reached a limit of "
            "policy.toml: memory_mb; the kernel killed them)"
        )
    if result.unkilled_pids:
        yield (
            "(could not be killed and hang in the kernel: processes "
            f"{', '.join(map(str, result.unkilled_pids))})"
        )
    for path in result.renamed_repositories:
        yield f"(git would obey what a program puts there, so it was renamed: {path})"


def _describe_exit_code(program: str, result: CommandResult) -> str:
    code = result.code
    # As in a shell, 128 and more is a signal. But 129, which would be SIGHUP, is git's exit code
    # for wrong usage, and there are no signals above 64.
    if 129 < code <= 128 + 64:
        text = f"{program} was killed by signal {code - 128}"
        # a note says so where it is known
        if code - 128 in _SIGNALS_AT_LIMITS and not result.reached_memory_limit:
            text += ", as at a limit of policy.toml: memory_mb, file_mb or shell_seconds"
        return text
    return f"{program} ended with exit code {code}"
