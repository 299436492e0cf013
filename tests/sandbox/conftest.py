"""Every sandbox level that works on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daemon.sandbox.bounds import Bounds
from daemon.sandbox.detection import BWRAP, choose_sandbox, find_needed_folders, find_python
from daemon.sandbox.repositories import Repositories
from daemon.sandbox.running import MAX_OUTPUT_BYTES, CommandResult, PreparedProgram, run
from daemon.sandbox.sandbox import Sandbox, User

RUNGS = ("bubblewrap", "landlock")
NOT_THERE = ("/nonexistent/bwrap",)


@pytest.fixture
def user() -> User | None:
    """Who programs run as: never as root."""
    return User(uid=60789, gid=60789) if os.geteuid() == 0 else None


@dataclass(frozen=True)
class Cell:
    """A workspace and a sandbox around it."""

    sandbox: Sandbox
    workspace: Path
    outside: Path

    async def run(
        self, path: str, *words: str, max_output_bytes: int = MAX_OUTPUT_BYTES, **more: Any
    ) -> CommandResult:
        """Run a program within, as tools do; bounds and more of PreparedProgram may be given."""
        bounds = {
            name: more.pop(name)
            for name in ("writes", "host", "readable", "limits")
            if name in more
        }
        workspace = str(self.workspace)
        repositories = Repositories.find(workspace) if bounds.get("writes") else None
        protected_paths = tuple(repositories.protected_paths()) if repositories else ()
        within = Bounds(workspace=workspace, folder=workspace, protected=protected_paths, **bounds)
        program = PreparedProgram(
            path=path, argv=[path, *words], cell=self.sandbox.cell(within), **more
        )
        return await run(
            [(";", [program])],
            folder=self.workspace,
            environment={},
            seconds=120,
            output_bytes=20_000,
            max_output_bytes=max_output_bytes,
            repositories=repositories,
        )

    async def sh(self, code: str, **more: Any) -> CommandResult:
        return await self.run("/bin/sh", "-c", code, **more)

    async def python(self, code: str, **more: Any) -> CommandResult:
        python = find_python(self.sandbox.user)
        return await self.run(
            python, "-I", "-S", "-c", code, needs=find_needed_folders(python), **more
        )


@pytest.fixture(scope="session")
def sandboxes() -> dict[str, Sandbox]:
    """What was found out about each rung; once, as it takes a fifth of a second."""
    return {}


@pytest.fixture(params=RUNGS)
async def cell(
    request: pytest.FixtureRequest, tmp_path: Path, user: User | None, sandboxes: dict[str, Sandbox]
) -> Cell:
    """The rung of that name; where this machine does not have it, the next one down that holds."""
    if request.param not in sandboxes:
        bwrap = NOT_THERE if request.param == "landlock" else BWRAP
        sandboxes[request.param] = await choose_sandbox("prefer", tmp_path, user, bwrap=bwrap)
    sandbox = sandboxes[request.param]
    if not sandbox.confines:
        pytest.fail(f"this machine has no sandbox at all: {'; '.join(sandbox.missing)}")
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (workspace, outside):
        folder.mkdir()
        folder.chmod(0o755)
        if user:
            os.chown(folder, user.uid, user.gid)
    return Cell(sandbox, workspace, outside)
