"""The git tool reads every readable repository, and changes and executes nothing."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.tools.builtin import git
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")

Look: TypeAlias = Callable[..., Awaitable[ToolResult]]


def repository(folder: Path, subject: str, settings: dict[str, str] | None = None) -> Path:
    """Make a repository with one commit of yesterday's."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*words: str) -> None:
        command = [
            "git",
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=a@example.invalid",
            "-C",
            str(folder),
            *words,
        ]
        subprocess.run(command, check=True, env=env, capture_output=True)

    run("init", "-q")
    (folder / "notes.md").write_text("one\n")
    (folder / ".gitattributes").write_text("*.md diff=trap filter=trap\n")
    run("add", ".")
    run("commit", "-qm", subject)
    for key, value in (settings or {}).items():
        run("config", key, value)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "src"


@pytest.fixture
def look(tmp_path: Path, elsewhere: Path) -> Look:
    """Call the tool; `src` beside the workspace may be read, but for one repository in it."""
    (tmp_path / "workspace").mkdir()
    path = tmp_path / "policy.toml"
    path.write_text(
        f'version = 1\n[paths]\nread = ["{elsewhere}"]\n[[rule]]\ntool = "git"\neffect = "allow"\n'
        f'[[rule]]\ntool = "*"\neffect = "deny"\npaths = ["{elsewhere}/private", "*.key"]\n'
    )
    policy = Policy.load(path, workspace=tmp_path / "workspace")
    registry = FunctionRegistry()
    git.register(registry, SimpleNamespace(policy=policy))
    context = ToolContext(run="run", routine="x", workspace=tmp_path / "workspace")

    async def call(command: str, **arguments: str) -> ToolResult:
        arguments["command"] = command
        return await ToolExecutor(registry).run(
            FunctionCall(name="git", arguments=arguments), context
        )

    return call


async def test_git_reads_repositories_in_readable_folders(look: Look, elsewhere: Path) -> None:
    repository(elsewhere / "a", "first of a")
    repository(elsewhere / "private", "secret")
    result = await look("log --format='%an %s'", repository=str(elsewhere / "a"))
    assert (result.ok, result.text) == (True, "Ada first of a")
    assert not (await look("log", repository=str(elsewhere / "private"))).ok
    assert not (await look("log", repository="/etc")).ok
    assert not (await look("show HEAD:../private/notes.md", repository=str(elsewhere / "a"))).ok
    assert not (await look("show HEAD:server.key", repository=str(elsewhere / "a"))).ok
    assert "not a git repository" in (await look("log")).text


async def test_git_reads_all_repositories_in_one_call(
    look: Look, elsewhere: Path, tmp_path: Path
) -> None:
    assert "no repository is in the workspace" in (await look("log", repository="*")).text
    repository(tmp_path / "workspace", "of the workspace")
    repository(elsewhere / "a", "first of a")
    repository(elsewhere / "group" / "b", "first of b")
    repository(elsewhere / "private", "secret")
    (elsewhere / "leads").symlink_to(elsewhere / "a")
    (elsewhere / "closed").mkdir(mode=0)
    logs = (await look("log --format=%s", repository="*")).value
    private = logs.pop(str(elsewhere / "private"))
    assert logs == {
        ".": ["of the workspace"],
        str(elsewhere / "a"): ["first of a"],
        str(elsewhere / "group" / "b"): ["first of b"],
    }
    assert private.startswith("not known: not run, rule 2")


async def test_git_runs_no_program_of_a_poisoned_repository(
    look: Look, elsewhere: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat 2>/dev/null\n")
    trap.chmod(0o755)
    (tmp_path / "more").write_text(f"[core]\n\tfsmonitor = {trap}\n")
    keys = [
        "diff.external",
        "diff.trap.textconv",
        "diff.trap.command",
        "filter.trap.clean",
        "core.fsmonitor",
        "core.pager",
    ]
    keys += [
        "filter.trap.process",
        "pager.log",
        "core.sshCommand",
        "gpg.program",
        "alias.log",
        "core.hooksPath",
    ]
    poison = {key: str(trap) for key in keys} | {
        "include.path": str(tmp_path / "more"),
        "log.showSignature": "true",
    }
    folder = repository(elsewhere / "a", "first", poison)
    (folder / ".git" / "hooks" / "post-index-change").write_text(trap.read_text())
    (folder / ".git" / "hooks" / "post-index-change").chmod(0o755)
    (folder / "notes.md").write_text("changed\n")
    subprocess.run(
        ["git", "diff"],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": "/"},
        capture_output=True,
        check=False,
    )
    assert (tmp_path / "sprung").exists()  # it would snap
    (tmp_path / "sprung").unlink()
    before = (folder / ".git" / "index").read_bytes()
    for command in (
        "status",
        "diff",
        "log -p",
        "show",
        "blame notes.md",
        "log --format='%h %G? %s'",
        "ls-files -m",
    ):
        result = await look(command, repository=str(folder))
        assert result.ok or "is not an option" in result.text or "%G" in result.text, (
            command,
            result.text,
        )
    assert not (tmp_path / "sprung").exists()
    assert (folder / ".git" / "index").read_bytes() == before


async def test_git_shows_no_change_of_a_denied_file(look: Look, elsewhere: Path) -> None:
    folder = repository(elsewhere / "a", "first")
    (folder / "server.key").write_text("CANARY\n")
    (folder / "notes.md").write_text("seen\n")
    for words in ("add .", "-c user.name=a -c user.email=a@example.invalid commit -qm second"):
        subprocess.run(["git", "-C", str(folder), *words.split()], check=True)
    (folder / "server.key").write_text("CANARY 2\n")
    for command in (
        "show",
        "log -p",
        "diff",
        "diff HEAD~1",
        "diff --word-diff",
        "show --stat -p",
        "diff --text",
    ):
        text = (await look(command, repository=str(folder))).text
        assert "CANARY" not in text, command
    assert "+seen" in (await look("show", repository=str(folder))).text


async def test_git_shows_no_denied_file_by_its_object_id(look: Look, elsewhere: Path) -> None:
    folder = repository(elsewhere / "a", "first")
    (folder / "server.key").write_text("CANARY\n")
    for words in ("add .", "-c user.name=a -c user.email=a@example.invalid commit -qm second"):
        subprocess.run(["git", "-C", str(folder), *words.split()], check=True)

    def id_of(name: str) -> str:
        return subprocess.check_output(
            ["git", "-C", str(folder), "rev-parse", name], text=True
        ).strip()

    blob, empty, commit = id_of("HEAD:server.key"), id_of("HEAD:.gitattributes"), id_of("HEAD")
    for words in (
        f"show {blob}",
        f"show {blob[:8]}",
        f"diff {empty} {blob}",
        f"diff {empty}..{blob}",
        f"diff {blob} HEAD",
    ):
        result = await look(words, repository=str(folder))
        assert not result.ok and "CANARY" not in result.text, words
    assert not (await look(f"show {blob}^{{blob}}", repository=str(folder))).ok
    for command in (
        f"show {commit[:8]}",
        f"diff {commit[:8]}~1..{commit}",
        f"show {commit}:notes.md",
    ):
        assert (await look(command, repository=str(folder))).ok, command


async def test_git_obeys_no_bare_repository_in_the_workspace(look: Look, tmp_path: Path) -> None:
    """Whoever can write files can make one: a repository is bare if its folder has no .git."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat 2>/dev/null\n")
    trap.chmod(0o755)
    folder = repository(tmp_path / "made", "first", {"core.fsmonitor": str(trap)})
    bare = tmp_path / "workspace" / "bare"
    shutil.copytree(folder / ".git", bare)
    with (bare / "config").open("a") as config:
        config.write(f"[core]\n\tbare = false\n\tworktree = {folder}\n")
    env = {"PATH": os.defpath, "HOME": "/"}
    subprocess.run(["git", "status"], cwd=bare, env=env, capture_output=True, check=False)
    assert (tmp_path / "sprung").exists()  # it would snap
    (tmp_path / "sprung").unlink()
    for name in ("bare", "bare/objects", "bare/refs"):
        for command in ("status", "diff", "log -p", "show", "describe --always --dirty"):
            result = await look(command, repository=name)
            assert "not a git repository" in result.text, (command, result.text)
    assert "no repository is in the workspace" in (await look("log", repository="*")).text
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["HEAD", "config"])
async def test_git_is_not_blocked_by_a_fifo_in_a_repository(
    look: Look, elsewhere: Path, name: str
) -> None:
    folder = repository(elsewhere / "a", "first")
    (folder / ".git" / name).unlink()
    os.mkfifo(folder / ".git" / name)
    result = await look("log --oneline", repository=str(folder))
    assert result.ok == (name == "config")
