"""Tools that run programs behave alike in every sandbox level, and refuse without a required
sandbox.
"""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.sandbox.detection import BWRAP, choose_sandbox
from daemon.sandbox.sandbox import Sandbox, UnusableSandbox, User
from daemon.tools.builtin import git, shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")

Call: TypeAlias = Callable[..., Awaitable[ToolResult]]
RUNGS = ("bubblewrap", "landlock", "profiles")
SHIPPED = Path(__file__).parents[3] / "policy.toml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "notes.md").write_text("one\ntwo\n")
    env = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (
        "init -q",
        "add notes.md",
        "-c user.name=Ada -c user.email=a@example.invalid commit -qm first",
    ):
        subprocess.run(["git", "-C", str(folder), *words.split()], check=True, env=env)
    (folder / "notes.md").write_text("one\ntwo\nthree\n")
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 60789, 60789)
    return folder


@pytest.fixture
def calling(workspace: Path, tmp_path: Path) -> Callable[..., Awaitable[Call]]:
    """Return a way to call tools on a rung, under the shipped policy or another; off is no rung, but a choice."""  # noqa: E501

    async def on(rung: str, rules: str = "") -> Call:
        path = SHIPPED
        if rules:
            path = tmp_path / "policy.toml"
            path.write_text(f"version = 1\n{rules}")
        policy = Policy.load(path, workspace=workspace)
        user = User(uid=60789, gid=60789) if os.geteuid() == 0 else None
        sandbox = Sandbox(
            level="off" if rung == "off" else "profiles",
            unusable=(UnusableSandbox("", "there is none"),),
            user=user,
        )
        if rung in ("bubblewrap", "landlock"):
            sandbox = await choose_sandbox(
                "prefer", tmp_path, user, bwrap=BWRAP if rung == "bubblewrap" else ()
            )

        async def confining() -> Sandbox:
            return sandbox

        registry = FunctionRegistry()
        shell.register(registry, SimpleNamespace(policy=policy), sandbox=confining)
        git.register(registry, SimpleNamespace(policy=policy), sandbox=confining)
        context = ToolContext(run="run", routine="daily-report", workspace=workspace)

        async def call(tool: str, **arguments: Any) -> ToolResult:
            return await ToolExecutor(registry).run(
                FunctionCall(name=tool, arguments=arguments), context
            )

        return call

    return on


@pytest.mark.parametrize("rung", RUNGS)
async def test_read_only_commands_give_the_same_output_in_every_sandbox(
    calling: Callable[..., Awaitable[Call]], rung: str
) -> None:
    call = await calling(rung)
    for line, text in {
        "cat notes.md | head -n 1": "one",
        "sort -r < notes.md | uniq | wc -l": "3",
        "grep -c t *.md && echo found": "2\nfound",
        "test -f none || echo missing": "missing",
        "cat /etc/os-release | grep -c ^ID=": "1",
        "yes 2>/dev/null || seq 3 | tail -n 1": None,
        "find . -name '*.md'": "./notes.md",
        "git log --format=%s": "first",
        "git status --short": " M notes.md",
        "jq --version 2>/dev/null | wc -c && date +%Y | wc -c": None,
        "pwd | wc -l": "1",
    }.items():
        result = await call("shell", command=line)
        if text is not None:
            assert (result.ok, result.text) == (True, text), (rung, line, result.text)
    assert "+three" in (await call("git", command="diff")).text
    assert (await call("git", command="log --format=%s", repository="*")).value == {".": ["first"]}


@pytest.mark.parametrize("rung", RUNGS)
async def test_host_commands_work_in_every_sandbox(
    calling: Callable[..., Awaitable[Call]], rung: str
) -> None:
    call = await calling(rung)
    processes = (await call("shell", command="ps -e -o pid")).text.split()
    assert str(os.getpid()) in processes
    for line in ("df -h /", "free -m", "uptime", "ss -tln", "lscpu | head -n 3"):
        result = await call("shell", command=line)
        assert result.ok or "is not installed" in result.text, (rung, line, result.text)


CHANGING = '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["touch"]\n'


@pytest.mark.parametrize("rung", ["bubblewrap", "landlock", "off"])
async def test_changing_commands_run_only_in_a_sandbox_or_with_sandbox_off(
    calling: Callable[..., Awaitable[Call]], workspace: Path, rung: str
) -> None:
    # beside a repository's `.git` Landlock lets programs make no file, beneath it does
    drafts = workspace / "drafts"
    drafts.mkdir()
    if os.geteuid() == 0:
        os.chown(drafts, 60789, 60789)
    call = await calling(rung, CHANGING)
    assert (await call("shell", command="touch drafts/new")).ok
    assert (drafts / "new").exists()
    assert os.geteuid() != 0 or (drafts / "new").stat().st_uid != 0


async def test_without_a_sandbox_only_read_only_commands_run(
    calling: Callable[..., Awaitable[Call]], workspace: Path
) -> None:
    read_rule = (
        '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["cat"]\nprofile = "read-only"\n'
    )
    call = await calling("profiles", CHANGING + read_rule)
    assert (await call("shell", command="cat notes.md")).ok
    result = await call("shell", command="touch new")
    assert "touch is not run without a sandbox: it may change something" in result.text
    assert "there is none" in result.text and "agentctl doctor" in result.text
    call = await calling("profiles", f'sandbox = "require"\n{read_rule}')
    assert (
        "the policy requires one for every program"
        in (await call("shell", command="cat notes.md")).text
    )
