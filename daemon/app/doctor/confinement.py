"""The rows of `doctor` about the sandbox: which kind works here, what was tried, and how to get a
better one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from daemon.app.doctor.check import Check
from daemon.sandbox.bounds import Mode
from daemon.sandbox.detection import choose_sandbox
from daemon.sandbox.sandbox import Sandbox
from daemon.sandbox.user import find_blocked_folder, find_program_user

# Kernel settings that can keep an ordinary user from making namespaces: the name, the value that
# forbids it, and one that allows it.
NAMESPACE_SETTINGS = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Confinement:
    """What was found out about sandboxes on this machine."""

    mode: Mode = "prefer"
    """`sandbox` of the policy."""
    sandbox: Sandbox = field(default_factory=lambda: Sandbox(level="bubblewrap"))
    fix: str = ""
    """The command that would allow namespaces, if a kernel setting forbids them."""
    blocked_folder: Path | None = None
    """As root: the folder through which the user of tools cannot get to the workspace."""
    counts_calls: bool | None = None
    """Whether the daemon counts the memory of each call as a whole; None if no daemon runs."""


def try_sandboxes(mode: Mode, state: Path, workspace: Path) -> Confinement:
    """Try each kind of sandbox, in the state folder if it can be written; nothing is left of it."""
    user = find_program_user(workspace)
    with TemporaryDirectory(prefix="agentd-doctor-") as temporary_folder:
        os.chmod(temporary_folder, 0o711)  # noqa: PTH101, S103  # the user of tools must get through it
        is_usable = os.access(f"{state}/.", os.W_OK | os.X_OK)
        folder = state if is_usable else Path(temporary_folder)
        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            sandbox = thread.submit(asyncio.run, choose_sandbox("prefer", folder, user)).result()
    has_workspace = os.path.exists(workspace)  # noqa: PTH110  a Path raises PermissionError
    blocked_folder = find_blocked_folder(workspace, user) if user and has_workspace else None
    return Confinement(
        mode=mode, sandbox=sandbox, fix=_namespace_fix(), blocked_folder=blocked_folder
    )


def _namespace_fix() -> str:
    for name, forbidding_value, allowing_value in NAMESPACE_SETTINGS:
        try:
            if Path("/proc/sys", *name.split(".")).read_text("ascii").strip() == forbidding_value:
                return f"sysctl {name}={allowing_value}"
        except OSError:
            continue
    return ""


def check_sandbox(confinement: Confinement) -> Iterator[Check]:
    """Judge what was found out."""
    sandbox = confinement.sandbox
    closed_count = sum(test.is_blocked for test in sandbox.escape_tests)
    text = f"{sandbox.level}: {closed_count} of {len(sandbox.escape_tests)} ways out are closed"
    if confinement.counts_calls is not None:
        whole = "each call (cgroup v2)" if confinement.counts_calls else "each process"
        text += f"; memory_mb holds for {whole}"
    if confinement.mode == "off":
        fix = 'sandbox = "prefer" in policy.toml puts every program of a tool into one'
        yield Check(name="sandbox", state="warn", found="the policy wants none", fix=fix)
    elif sandbox.confines:
        yield Check(name="sandbox", state="ok", found=text)
    else:
        consequence = (
            "no program is run"
            if confinement.mode == "require"
            else "only programs that change nothing are run"
        )
        state = "fail" if confinement.mode == "require" else "warn"
        yield Check(
            name="sandbox",
            state=state,
            found=f"none on this machine: {consequence}",
            fix=_fix(confinement),
        )
    for test in sandbox.escape_tests:
        outcome = "PASS" if test.is_blocked else f"FAIL: {test.detail}"
        yield Check(name=f"  {test.name}", state="ok" if test.is_blocked else "fail", found=outcome)
    for unusable_sandbox in sandbox.unusable if sandbox.confines else ():
        yield Check(
            name=f"  {unusable_sandbox.level}",
            state="warn",
            found=unusable_sandbox.why,
            fix=_fix(confinement),
        )
    if sandbox.user:
        text = f"this daemon is root's; programs of tools run as user {sandbox.user.uid}"
        if confinement.blocked_folder:
            fix = f"chmod o+x {confinement.blocked_folder}, or move the workspace"
            text += f", who cannot get through {confinement.blocked_folder} to the workspace"
            yield Check(name="user of tools", state="fail", found=text, fix=fix)
        else:
            fix = "run agentd as a user of its own: the units in systemd/ do"
            yield Check(name="user of tools", state="warn", found=text, fix=fix)


def _fix(confinement: Confinement) -> str:
    lines = list(confinement.sandbox.missing)
    if any(
        unusable_sandbox.level == "bubblewrap" and not unusable_sandbox.is_installed
        for unusable_sandbox in confinement.sandbox.unusable
    ):
        lines.append("apt-get install bubblewrap, or your system's package of that name")
    elif confinement.fix:
        lines.append(f"{confinement.fix} lets bubblewrap make namespaces")
    return "\n".join(lines)
