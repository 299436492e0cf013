"""Git repositories whose config runs programs are read without running them."""

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from daemon.errors import ToolFailed
from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.tools.builtin import shell
from daemon.tools.builtin.repository import repository_view
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.policy.conftest import SHIPPED

Look: TypeAlias = Callable[[str], Awaitable[ToolResult]]
pytestmark = pytest.mark.skipif(
    shutil.which("git", path="/usr/bin:/bin") is None, reason="needs git: apt install git"
)

SAFE_METHODS = [
    *(
        "git status",
        "git status --short",
        "git status --ignored",
        "git diff",
        "git diff --stat",
        "git diff HEAD~1",
    ),
    *(
        "git diff --cached",
        "git diff --word-diff",
        "git log -p",
        "git log --stat -3",
        "git log --oneline --graph --all",
    ),
    *(
        "git log -S line",
        "git log --follow notes.md",
        "git log --format='%h %s %(describe) %(trailers)'",
        "git show",
        "git show HEAD --stat",
    ),
    *(
        "git show HEAD:notes.md",
        "git blame notes.md",
        "git blame HEAD -- notes.md",
        "git shortlog -sn",
        "git tag",
    ),
    *(
        "git rev-list --count HEAD",
        "git rev-parse --short HEAD",
        "git describe --always --dirty",
        "git ls-files -o",
    ),
    *(
        "git ls-files -m",
        "git ls-files --eol",
        "git branch -a",
        "git branch -vv",
        "git remote -v",
        "git stash list",
    ),
    *(
        "git log --cherry-pick HEAD~1..HEAD",
        "git log -m -p --first-parent",
        "git diff --no-renames -M --summary",
    ),
]


@pytest.fixture
def poisoned_repository(tmp_path: Path) -> Path:
    """A repository that has, for each way git has of running something, a program that leaves a mark."""  # noqa: E501
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    trap = tmp_path / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/sprung\ncat 2>/dev/null\n')
    trap.chmod(0o755)

    def git(*words: str, folder: Path = workspace) -> None:
        env = {"PATH": os.defpath, "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        command = [
            "git",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.invalid",
            "-C",
            str(folder),
            *words,
        ]
        subprocess.run(command, check=True, env=env, capture_output=True)

    git("init", "-q")
    submodule = workspace / "a"  # git looks at it first
    submodule.mkdir()
    git("init", "-q", folder=submodule)
    (submodule / "code.md").write_text("line\n")
    (submodule / ".gitattributes").write_text("*.md diff=trap filter=trap\n")
    git("add", ".", folder=submodule)
    git("commit", "-qm", "first", folder=submodule)
    (workspace / ".gitmodules").write_text(
        '[submodule "s"]\n\tpath = a\n\turl = ./a\n\tignore = none\n'
    )
    for number in range(2):
        (workspace / "notes.md").write_text("line\n" * (number + 1))
        (workspace / ".gitattributes").write_text("*.md diff=trap filter=trap\n")
        git("add", ".")
        git("commit", "-qm", f"commit {number}")
    git("tag", "v1")
    (workspace / "notes.md").write_text("put aside\n")
    git("stash")
    (workspace / "notes.md").write_text("changed\n")
    settings = {
        "diff.external": trap,
        "diff.trap.command": trap,
        "diff.trap.textconv": trap,
        "filter.trap.clean": trap,
        "filter.trap.smudge": trap,
        "filter.trap.process": trap,
        "filter.trap.required": "true",
        "core.fsmonitor": trap,
        "core.pager": trap,
        "pager.log": trap,
        "pager.status": trap,
        "core.editor": trap,
        "core.sshCommand": trap,
        "core.askPass": trap,
        "core.alternateRefsCommand": trap,
        "core.hooksPath": tmp_path / "hooks",
        "credential.helper": f"!{trap}",
        "gpg.program": trap,
        "gpg.ssh.program": trap,
        "log.showSignature": "true",
        "interactive.diffFilter": trap,
        "sequence.editor": trap,
        "alias.log": f"!{trap}",
        "trailer.x.command": trap,
        "remote.origin.url": f"ext::{trap}",
        "remote.origin.uploadpack": trap,
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
        "status.submoduleSummary": "true",
        "blame.ignoreRevsFile": "/etc/shadow",
        "core.worktree": "/etc",
        "include.path": tmp_path / "included",
        "includeIf.gitdir:/.path": tmp_path / "included",
        "extensions.worktreeConfig": "true",
        "diff.submodule": "diff",
        "submodule.recurse": "true",
        "hook.trap.command": trap,
        "hook.trap.event": "post-index-change",
    }
    (tmp_path / "included").write_text(f"[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n")
    (submodule / "code.md").write_text("changed\n")
    for key, value in settings.items():
        git("config", key, str(value))
        if key != "core.worktree":
            git("config", key, str(value), folder=submodule)
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman", "pre-auto-gc"):
        shutil.copy(trap, tmp_path / "hooks" / hook)
        shutil.copy(trap, workspace / ".git" / "hooks" / hook)
    shutil.copy(tmp_path / "included", workspace / ".git" / "config.worktree")
    (tmp_path / "sprung").unlink(missing_ok=True)
    return workspace


@pytest.fixture
def look(poisoned_repository: Path) -> Look:
    """Run a line in the poisoned repository as the shell tool does."""
    policy = Policy.load(SHIPPED, workspace=poisoned_repository)
    registry = FunctionRegistry()
    shell.register(registry, SimpleNamespace(policy=policy))
    context = ToolContext(run="run", routine="daily-report", workspace=poisoned_repository)

    async def call(command: str) -> ToolResult:
        return await ToolExecutor(registry).run(
            FunctionCall(name="shell", arguments={"command": command}), context
        )

    return call


def test_plain_git_runs_programs_of_the_poisoned_repository(poisoned_repository: Path) -> None:
    env = {
        "PATH": os.defpath,
        "HOME": str(poisoned_repository.parent),
        "GIT_WORK_TREE": str(poisoned_repository),
    }
    subprocess.run(
        ["git", "diff"], cwd=poisoned_repository, env=env, capture_output=True, check=False
    )
    assert (poisoned_repository.parent / "sprung").exists()


async def test_no_read_only_git_command_runs_programs_of_a_poisoned_repository(
    look: Look, poisoned_repository: Path
) -> None:
    for line in SAFE_METHODS:
        result = await look(line)
        assert result.ok, (line, result.text)
        assert not (poisoned_repository.parent / "sprung").exists(), line


def test_plain_git_runs_programs_of_a_poisoned_submodule(poisoned_repository: Path) -> None:
    git_folder = poisoned_repository / ".git"
    (git_folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
    env = {"PATH": os.defpath, "HOME": str(poisoned_repository.parent)}
    command = ["git", "describe", "--always", "--dirty"]
    subprocess.run(command, cwd=poisoned_repository, env=env, capture_output=True, check=False)
    assert (poisoned_repository.parent / "sprung").exists()


@pytest.mark.parametrize(
    "line",
    [
        *(
            "git --git-dir=bare log",
            "git --git-dir bare log",
            "git -C bare log",
            "git -C bare diff",
        ),
        *("git -c core.fsmonitor=/x status", "git --exec-path=/x status", "git --bare log"),
        *(
            "git --work-tree=bare status",
            "git --namespace=x log",
            "git -p log",
            "git --paginate log",
        ),
        *(
            "git --config-env=core.pager=HOME log",
            "git --attr-source=HEAD diff",
            "git --super-prefix=x",
        ),
        *(
            "git submodule status",
            "git submodule foreach ls",
            "git worktree list",
            "git log --textconv",
        ),
        *(
            "git diff --ext-diff",
            "git diff --submodule=diff",
            "git status --ignore-submodules=none",
        ),
        *(
            "git log --show-signature",
            "git log --format=%G?",
            "git describe --broken",
            "git gc --auto",
        ),
        *(
            "git ls-files --recurse-submodules",
            "git diff --textconv",
            "git config -l",
            "git fsmonitor",
        ),
        *(
            "cd bare && git log",
            "git grep x",
            "git archive HEAD",
            "git difftool",
            "git upload-pack .",
        ),
    ],
)
async def test_git_is_not_led_to_another_repository_config_or_program(
    look: Look, poisoned_repository: Path, line: str
) -> None:
    """A folder of the workspace may itself be a repository, with a config that names programs."""
    shutil.copytree(poisoned_repository / ".git", poisoned_repository / "bare")
    result = await look(line)
    assert not result.ok and "not run" in result.text, result.text
    assert not (poisoned_repository.parent / "sprung").exists()


async def test_git_shows_the_real_state_of_the_workspace(look: Look) -> None:
    assert "+changed" in (await look("git diff")).text
    assert (await look("git status --short")).text.strip() == "M notes.md"
    assert "stash@{0}: WIP on " in (await look("git stash list")).text
    assert (await look("git describe --dirty --tags")).text.strip() == "v1-dirty"
    assert "(a" in (await look("git blame HEAD -- notes.md")).text
    assert "2\ta" in (await look("git shortlog -sn")).text
    assert "commit 1" in (await look("git log --oneline | head -n 1")).text


async def test_a_missing_object_is_not_fetched_by_configured_programs(
    look: Look, poisoned_repository: Path
) -> None:
    subprocess.run(
        ["git", "-C", str(poisoned_repository), "config", "extensions.partialClone", "origin"],
        check=True,
    )
    for path in (poisoned_repository / ".git" / "objects").glob("??/*"):
        path.unlink()
    assert not (await look("git log -p")).ok
    assert not (poisoned_repository.parent / "sprung").exists()


def test_a_git_folder_elsewhere_is_refused(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (tmp_path / ".git").write_text("gitdir: /somewhere/else\n")
        with pytest.raises(ToolFailed, match="leads elsewhere"):
            repository_view(tmp_path, stack)
        (tmp_path / ".git").unlink()
        (tmp_path / ".git").symlink_to("/")
        with pytest.raises(ToolFailed, match="leads elsewhere"):
            repository_view(tmp_path, stack)


@pytest.mark.parametrize(
    "name", ["objects", "objects/pack", "refs", "packed-refs", "index", "HEAD", "config"]
)
def test_a_git_folder_with_links_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git" / name).parent.mkdir(parents=True)
    (tmp_path / ".git" / name).symlink_to("/etc/shadow")
    with ExitStack() as stack, pytest.raises(ToolFailed, match="is a link"):
        repository_view(tmp_path, stack)


def test_a_git_folder_with_alternates_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git" / "objects" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "objects" / "info" / "alternates").write_text("/home/other/.git/objects\n")
    with ExitStack() as stack, pytest.raises(ToolFailed, match="borrows objects"):
        repository_view(tmp_path, stack)


def test_an_invalid_git_head_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: ../../etc/shadow\n")
    with ExitStack() as stack, pytest.raises(ToolFailed, match="names no branch"):
        repository_view(tmp_path, stack)


def test_only_harmless_settings_of_a_git_config_are_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "config").write_text(
        """
[core]
    repositoryformatversion = 1
    fsmonitor = /x
    bare = true
[extensions]
    objectFormat = sha256
    partialClone = origin
[remote "origin"]
    url = https://example.invalid/a.git
    pushurl = https://token@example.invalid/@a/b.git
    uploadpack = /x
[remote "mirror"]
    url = https://ada:p@ss@example.invalid:8443/a.git
    pushurl = git@example.invalid:a.git
[remote "odd
name"]
    url = lost
[core] fileMode = false
[filter "x"]
    clean = /x
[include]
    path = /x
[branch "main"]
    remote = "quoted"
    merge = refs/heads/main
"""
    )
    with ExitStack() as stack:
        view = Path(repository_view(tmp_path, stack)["GIT_DIR"])
        settings = [line for line in (view / "config").read_text().splitlines() if "=" in line]
        assert settings == [
            "bare = false",
            "repositoryformatversion = 1",
            "objectFormat = sha256",
            "url = https://example.invalid/a.git",
            "pushurl = https://example.invalid/@a/b.git",
            "url = https://example.invalid:8443/a.git",
            "pushurl = git@example.invalid:a.git",
            "merge = refs/heads/main",
        ]
    assert not view.exists()


def test_a_repository_above_the_workspace_is_not_used(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    with ExitStack() as stack:
        env = {"PATH": os.defpath, **repository_view(inner, stack)}
        process = subprocess.run(
            ["git", "log"], cwd=inner, env=env, capture_output=True, check=False
        )
    assert b"not a git repository" in process.stderr
