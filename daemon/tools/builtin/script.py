"""The tool `script`: runs the user's own scripts by name, each in the sandbox, and none without
one.

The scripts lie in a folder of the user's that no tool can write to. What a script does is not
checked; the sandbox bounds what it can reach: it may change the workspace, and has no network. Not
here: which scripts may run (policy/).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from daemon.definitions.config.live import LiveConfig
from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy.policy import LivePolicy, Policy
from daemon.policy.requests import PlannedCommand, PlannedPipeline
from daemon.sandbox.current import SandboxSource, no_sandbox
from daemon.sandbox.running import PreparedProgram, run
from daemon.sandbox.sandbox import Sandbox
from daemon.system.ownership import explain_other_writers
from daemon.tools.builtin.command_lines import (
    MAX_PROGRAM_SECONDS,
    CompletedCall,
    ZoneSource,
    bounds,
    environment,
    find_repositories,
    no_zone,
    program_time,
    report_result,
)
from daemon.tools.executor import MAX_TEXT_BYTES
from daemon.tools.registry import FunctionRegistry

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MAX_SCRIPT_BYTES = 1 << 20  # bytes; a longer file is no script
_HEAD_BYTES = 2000  # of a script, in which its first comment is looked for


class ScriptSettings(LiveConfig, LivePolicy, Protocol):
    """The folder of scripts and the policy, as they are in force."""


def register(
    registry: FunctionRegistry,
    settings: ScriptSettings,
    *,
    sandbox: SandboxSource = no_sandbox,
    find_zone: ZoneSource = no_zone,
) -> None:
    """Offer the tool. `find_zone` returns the time zone that scripts see."""

    async def script(
        name: str = "", arguments: list[str] | None = None, *, context: ToolContext
    ) -> str | list[Json]:
        """Run one of the scripts that the owner of this machine has prepared; without a name: list
        them, each with what it is for. A script may change the workspace and has no network.

        Args:
            name: As listed.
            arguments: Words for the script, each as it is.
        """
        policy, words = settings.policy, arguments or []
        call: Json = {"name": name, "arguments": words}
        verdict = policy.judge("script", call, routine=context.routine, tainted=context.tainted)
        if not context.permits(verdict):
            alternative = f"; {verdict.alternative}" if verdict.alternative else ""
            raise ToolFailed(f"not run, {verdict.rule}: {verdict.reason}{alternative}")
        folder = settings.config.scripts_path
        if not name:
            return [
                {"name": path.name, "about": read_about(path)}
                for path in list_scripts(folder, policy)
            ]
        path = find_script(folder, name, policy)
        result = await _run(path, words, policy, context, await sandbox(), find_zone())
        return report_result(result, verbatim=context.verbatim)

    registry.register("script", None, script, timeout=MAX_PROGRAM_SECONDS)


async def _run(
    path: Path,
    words: Sequence[str],
    policy: Policy,
    context: ToolContext,
    sandbox: Sandbox,
    zone: str | None,
) -> CompletedCall:
    if not sandbox.confines:
        reason = "; ".join(sandbox.missing) or "the policy says off"
        raise ToolFailed(
            f"no script is run without a sandbox, and there is none: {reason}; agentctl doctor "
            "helps"
        )
    if any("\0" in word for word in words):
        raise ToolFailed("an argument holds a NUL")
    limits, workspace = policy.limits_for(context.routine), policy.reach.workspace
    repositories = await find_repositories(policy, sandbox)
    cell = sandbox.cell(
        bounds(policy, context.routine, folder=workspace, writes=True, repositories=repositories)
    )
    program = PreparedProgram(
        path=str(path), argv=[path.name, *words], cell=cell, needs=[str(path)]
    )
    with program_time(policy, context) as seconds:
        try:
            result = await run(
                [(";", [program])],
                folder=Path(workspace),
                environment=environment(workspace, zone),
                seconds=seconds,
                output_bytes=min(limits.output_bytes, MAX_TEXT_BYTES),
                repositories=repositories,
            )
        except OSError as error:
            raise ToolFailed(f"could not be run: {error.strerror}: {error.filename}") from None
    command = PlannedCommand(
        program=path.name, argv=tuple(program.argv), redirects=(), stdin=None, success_codes=()
    )
    return CompletedCall(
        result=result, line=(PlannedPipeline(operator=";", commands=(command,)),), seconds=seconds
    )


def list_scripts(folder: Path, policy: Policy) -> list[Path]:
    """Return the scripts that can be run; what is unfit is left out."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    return [folder / name for name in names if not _explain_unfit(folder, name, policy)]


def find_script(folder: Path, name: str, policy: Policy) -> Path:
    """Return a script by its name; ToolFailed, with those there are, for what is none or could be
    somebody else's.
    """
    if problem := _explain_unfit(folder, name, policy):
        names = (
            ", ".join(path.name for path in list_scripts(folder, policy))
            or f"none; they belong into {folder}"
        )
        raise ToolFailed(f"{problem}; the scripts are: {names}")
    return folder.resolve() / name


def digest(path: Path) -> str:
    """Return the SHA-256 of a script: what an approval of it is bound to."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _explain_unfit(folder: Path, name: str, policy: Policy) -> str:
    """Say why something is not run as a script; empty if it is one that nobody but we or root could
    change.
    """
    if not _NAME.fullmatch(name):
        return f"{name!r:.80} names no script"
    real_folder = os.path.realpath(folder)
    if f"{real_folder}/".startswith(f"{policy.reach.workspace}/"):
        return f"the folder of scripts, {folder}, lies in the workspace, where agents write"
    try:
        folder_status, file_status = Path(real_folder).stat(), Path(real_folder, name).lstat()
    except OSError:
        return f"there is no script {name}"
    if not stat.S_ISREG(file_status.st_mode) or file_status.st_size > _MAX_SCRIPT_BYTES:
        return f"{name} is no plain file of a script's size"
    for path, status in ((folder, folder_status), (folder / name, file_status)):
        if writers := explain_other_writers(status):
            problem, hint = writers
            return f"{path} {problem}: {hint}"
    return "" if file_status.st_mode & 0o111 else f"{name} may not be executed: chmod +x it"


def read_about(path: Path) -> str:
    """Return the first line of comment of a script, after the line that names its interpreter."""
    try:
        with path.open("rb") as file:
            lines = file.read(_HEAD_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        text = line.strip()
        if text.startswith("#!") or not text:
            continue
        return text.lstrip("#/-; ").strip() if text.startswith(("#", "//", "--", ";")) else ""
    return ""
