"""Scripts of the user run by name, only in a sandbox."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.runs.approvals.request import describe
from daemon.sandbox.current import SandboxDetection
from daemon.sandbox.sandbox import Sandbox, UnusableSandbox, User
from daemon.system.ownership import explain_other_writers
from daemon.tools.builtin import script
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

Run: TypeAlias = Callable[..., Awaitable[ToolResult]]
BACKUP = '#!/bin/sh\n# Copies the notes. Takes a name.\necho "kept $1" >> kept.txt\ncat kept.txt\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of scripts as a user would keep it."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    folder.chmod(0o755)
    for name, text in {
        "backup": BACKUP,
        "plain": "echo no shebang\n",
        "lib.py": "import x\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if name != "lib.py" else 0o644)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 60789, 60789)
    return folder


@pytest.fixture
def make_script_runner(tmp_path: Path, folder: Path, workspace: Path) -> Callable[..., Run]:
    """Return a way to call the tool under rules given as text, with the sandbox of this machine or another."""  # noqa: E501

    def under(rules: str = "", sandbox: Sandbox | None = None) -> Run:
        path = tmp_path / "policy.toml"
        path.write_text(f"version = 1\n{rules or ALLOW}")
        policy = Policy.load(path, workspace=workspace, private=[folder])
        registry = FunctionRegistry()
        user = User(uid=60789, gid=60789) if os.geteuid() == 0 else None
        sandbox_detection = SandboxDetection(lambda: "prefer", tmp_path, user)

        async def confining() -> Sandbox:
            return sandbox or await sandbox_detection.sandbox()

        config = SimpleNamespace(scripts_path=folder)
        settings = SimpleNamespace(policy=policy, config=config)
        script.register(registry, settings, sandbox=confining)
        context = ToolContext(run="run", routine="x", workspace=workspace)

        async def call(name: str = "", *words: str, **more: Any) -> ToolResult:
            arguments = {"name": name, "arguments": list(words), **more}
            return await ToolExecutor(registry).run(
                FunctionCall(name="script", arguments=arguments), context
            )

        return call

    return under


ALLOW = '[[rule]]\ntool = "script"\neffect = "allow"\n'


async def test_scripts_are_listed_with_their_description(
    make_script_runner: Callable[..., Run], folder: Path
) -> None:
    (folder / ".hidden").write_text(BACKUP)
    (folder / "link").symlink_to(folder / "backup")
    assert (await make_script_runner()()).value == [
        {"name": "backup", "about": "Copies the notes. Takes a name."},
        {"name": "plain", "about": ""},
    ]


async def test_a_script_runs_with_its_arguments_and_may_change_the_workspace(
    make_script_runner: Callable[..., Run], workspace: Path
) -> None:
    call = make_script_runner()
    assert (await call("backup", "a b; rm -rf / $HOME")).text == "kept a b; rm -rf / $HOME"
    assert (workspace / "kept.txt").read_text() == "kept a b; rm -rf / $HOME\n"


async def test_a_script_reaches_nothing_but_the_workspace(
    make_script_runner: Callable[..., Run], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("CANARY")
    (tmp_path / "secret").chmod(0o644)
    (folder / "bad").write_text(
        f"#!/bin/sh\ncat {tmp_path}/secret; echo x > {tmp_path}/new; echo x >> {folder}/backup; rm "
        f"{folder}/backup\n"
        "exec 3<>/dev/tcp/127.0.0.1/1; id -u\n"
    )
    (folder / "bad").chmod(0o755)
    before = (folder / "backup").read_text()
    result = await make_script_runner()("bad")
    assert "CANARY" not in result.text and not (tmp_path / "new").exists()
    assert (folder / "backup").read_text() == before
    assert "\n0\n" not in f"\n{result.text}\n"  # never as root


@pytest.mark.parametrize(
    "sandbox",
    [
        Sandbox(level="profiles", unusable=(UnusableSandbox("landlock", "the kernel has none"),)),
        Sandbox(),
    ],
)
async def test_without_a_sandbox_no_script_runs(
    make_script_runner: Callable[..., Run], workspace: Path, sandbox: Sandbox
) -> None:
    result = await make_script_runner("", sandbox)("backup", "x")
    assert not result.ok and "no script is run without a sandbox" in result.text
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../secret", "/bin/sh", "backup/", ".", "", "-x", "a b", "back\0up", "lib.py", "none"]
)
async def test_an_unknown_script_name_is_refused(
    make_script_runner: Callable[..., Run], name: str
) -> None:
    result = await make_script_runner()(name)
    assert (result.ok, bool(name)) in {(False, True), (True, False)}


async def test_a_script_writable_by_others_is_refused(
    make_script_runner: Callable[..., Run], folder: Path
) -> None:
    (folder / "backup").chmod(0o777)
    assert (
        "backup can be written by everybody: chmod o-w"
        in (await make_script_runner()("backup")).text
    )
    (folder / "backup").chmod(0o755)
    folder.chmod(0o777)
    assert (
        "scripts can be written by everybody: chmod o-w"
        in (await make_script_runner()("backup")).text
    )


async def test_a_script_in_a_folder_made_with_umask_002_runs(
    make_script_runner: Callable[..., Run], folder: Path
) -> None:
    """A group that holds only the owner, as Debian gives each user, lets nobody else write."""
    folder.chmod(0o775)
    (folder / "backup").chmod(0o775)
    is_refused = explain_other_writers(folder.stat()) is not None  # where users share a group
    assert ("can be written" in (await make_script_runner()("backup")).text) is is_refused


def test_an_approval_of_a_script_is_bound_to_its_text(
    folder: Path, tmp_path: Path, workspace: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f"version = 1\n{ALLOW}")
    policy = Policy.load(path, workspace=workspace)

    def identity() -> object:
        return describe(
            policy, "script", {"name": "backup", "arguments": ["x"]}, routine="x", scripts=folder
        )

    before = identity()
    assert identity() == before
    (folder / "backup").write_text(BACKUP + "rm -r .\n")
    assert identity() != before


async def test_policy_rules_match_script_names_and_arguments(
    make_script_runner: Callable[..., Run],
) -> None:
    call = make_script_runner(
        '[[rule]]\ntool = "script"\neffect = "allow"\nargv = ["backup", ["daily", "weekly"]]\n'
    )
    assert (await call("backup", "daily")).ok
    assert not (await call("backup", "other")).ok and not (await call("plain")).ok
    text = (await call()).text
    assert "script may use backup daily|weekly" in text


async def test_a_scripts_folder_in_the_workspace_is_refused(
    make_script_runner: Callable[..., Run], tmp_path: Path, workspace: Path, folder: Path
) -> None:
    from daemon.errors import ConfigError

    path = tmp_path / "policy.toml"
    path.write_text(f"version = 1\n{ALLOW}")
    (workspace / "scripts").mkdir()
    with pytest.raises(ConfigError, match="which no tool may reach"):
        Policy.load(path, workspace=workspace, private=[workspace / "scripts"])


async def test_a_script_that_makes_a_git_repository_gets_told_its_new_name(
    make_script_runner: Callable[..., Run], folder: Path, workspace: Path
) -> None:
    (folder / "clone").write_text("#!/bin/sh\nmkdir -p sub/.git\necho x > sub/.git/config\n")
    (folder / "clone").chmod(0o755)
    result = await make_script_runner()("clone")
    assert f"renamed: {workspace}/sub/.git" in result.text
    assert not (workspace / "sub" / ".git").exists()
    assert (workspace / "sub" / ".git.untrusted" / "config").exists()
