"""What a rule forbids to show, no program shows: not by another spelling, by an object's name, or
by yes and no.

Each file that the policy denies holds a word that stands nowhere else; the lines are run by the
real programs, exactly as the tools run them.
"""

import asyncio
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from daemon.models import Effect, FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.tools.builtin import git, shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.policy.conftest import SHIPPED
from tests.properties import scaled_settings

Run: TypeAlias = Callable[..., ToolResult]

MORE = """
[[rule]]
tool = "*"
effect = "deny"
paths = ["**/my secrets/**", "*.tresor", "*.Schlüssel", "lager/*/innen/**"]
"""
# The same without a pattern that grep cannot be told: no tree that may hold such a file is searched
# at all.
FLOATING = MORE.replace("lager/*/innen/**", "**/innen/**")
DENIED = [
    *(
        ".env",
        ".ENV.old",
        "config/.env.production",
        ".ssh/config",
        ".ssh/deep/hosts",
        "sub/.ssh/config",
        ".Aws/keys",
    ),
    *(
        "x.pem",
        "src/server.KEY",
        ".env:local",
        "my secrets/x",
        "sub/my secrets/deep/y",
        "a.tresor",
        "id_rsa",
        "sub/id_ed25519",
    ),
    *(
        "b.SCHLÜSSEL",
        "sub/.Kube/config",
        "src/x.\u212aey",
        "lager/a/innen/z",
        "lager/a/innen/tief/z",
    ),
]
SHOWN = [
    "notes.md",
    "src/a.py",
    "sub/keep.md",
    "config/app.toml",
    "lager/a/aussen",
    "-e",
    "x",
    "config/config",
]


def git_in(folder: Path, *words: str) -> str:
    env = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
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
    return subprocess.run(
        command, check=True, env=env, capture_output=True, text=True
    ).stdout.strip()


def write(folder: Path, names: Sequence[str], text: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n{text}\n")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with denied files everywhere; where there is git, a repository that holds and changes them, too."""  # noqa: E501
    folder = tmp_path_factory.mktemp("workspace")
    write(folder, DENIED, "CANARY first")
    write(folder, SHOWN, "plain first\nline\n" * 8)
    (folder / "empty").mkdir()
    (folder / "leads").symlink_to(".ssh")
    (folder / "src" / "leads").symlink_to("../.env")
    (folder / os.fsdecode(b"\xff.pem")).write_text("CANARY odd name\n")
    if shutil.which("git") is None:
        return folder
    write(folder, ["old.key"], "CANARY renamed\n" + "common line\n" * 40)
    git_in(folder, "init", "-q", "-b", "main")
    git_in(folder, "add", "-A")
    git_in(folder, "commit", "-qm", "first")
    git_in(folder, "mv", "old.key", "renamed.md")
    (folder / "renamed.md").write_text("common line\n" * 40)
    git_in(folder, "commit", "-qam", "renamed")
    git_in(folder, "checkout", "-qb", "side")
    write(folder, DENIED, "CANARY side")
    git_in(folder, "commit", "-qam", "only what is denied")
    git_in(folder, "checkout", "-q", "main")
    write(folder, DENIED, "CANARY main")
    write(folder, SHOWN, "plain second")
    git_in(folder, "commit", "-qam", "both")
    git_in(folder, "merge", "-q", "-s", "ours", "--no-commit", "side")
    write(folder, DENIED, "CANARY merged")
    git_in(folder, "add", "-A")
    git_in(folder, "commit", "-qm", "merged")
    write(folder, DENIED, "CANARY stashed")
    git_in(folder, "stash", "-q")
    blob = git_in(folder, "rev-parse", "HEAD:.env")
    git_in(folder, "tag", "blob-tag", blob)
    git_in(folder, "tag", "-am", "annotated", "blob-note", blob)
    git_in(folder, "tag", "-am", "twice", "tag-of-tag", "blob-note")
    git_in(folder, "tag", "tree-tag", "HEAD:.ssh")
    git_in(folder, "tag", "-am", "release", "v1", "HEAD~1")
    git_in(folder, "update-ref", "refs/remotes/origin/x", "HEAD")
    write(folder, DENIED, "CANARY staged")
    git_in(folder, "add", "-A")
    write(folder, DENIED, "CANARY in the work tree")
    write(folder, ["notes.md"], "plain third")
    return folder


def runner(workspace: Path, folder: Path, text: str) -> tuple[Policy, Run]:
    """Return a policy, and a way to run a line as the shell tool does, or in a repository as the
    tool git does.
    """
    path = folder / "policy.toml"
    path.write_text(text)
    policy = Policy.load(path, workspace=workspace)
    registry = FunctionRegistry()
    shell.register(registry, SimpleNamespace(policy=policy))
    git.register(registry, SimpleNamespace(policy=policy))
    executor = ToolExecutor(registry)

    def run(line: str, repository: str | None = None) -> ToolResult:
        context = ToolContext(run="run", routine="daily-report", workspace=workspace)
        tool, arguments = "shell", {"command": line}
        if repository is not None:
            tool, arguments = "git", {"command": line, "repository": repository}
        return asyncio.run(executor.run(FunctionCall(name=tool, arguments=arguments), context))

    return policy, run


@pytest.fixture(scope="module")
def run(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runner(workspace, tmp_path_factory.mktemp("policy"), SHIPPED.read_text() + FLOATING)[1]


@pytest.fixture(scope="module")
def run_git(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """With a rule besides that grep cannot be kept off, but git can."""
    return runner(workspace, tmp_path_factory.mktemp("policy"), SHIPPED.read_text() + MORE)[1]


NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git")
NEEDS_RG = pytest.mark.skipif(shutil.which("rg") is None, reason="needs rg: apt install ripgrep")


def test_each_denied_file_is_denied_by_name(workspace: Path, tmp_path: Path) -> None:
    for more in (MORE, FLOATING):
        policy, _ = runner(workspace, tmp_path, SHIPPED.read_text() + more)
        for name in DENIED:
            assert not policy.judge("file_read", {"path": name}, routine="x").allows, name
        for name in SHOWN:
            assert policy.judge("file_read", {"path": name}, routine="x").allows, name


# --- grep and diff: a tree that is named itself

TREES = r"""
grep -r '' .ssh
grep -r '' .ssh/
grep -r '' .ssh//
grep -r '' .ssh/.
grep -r '' ./.ssh/
grep -r '' .ssh/deep/
grep -r '' .ssh/deep/.
grep -r '' sub/../.ssh/
grep -r '' sub/.ssh/
grep -r '' sub/.ssh/../.ssh/
grep -r '' leads
grep -r '' leads/
grep -r '' leads/.
grep -r '' .Aws/
grep -r '' 'my secrets/'
grep -r '' sub/.Kube/
grep -r '' .git/
grep -r '' .git/.
grep -r -e '' .git/config
grep -r '' ./.*/
grep -r '' .s*/
grep -r '' ./.s??/
grep -rh CANARY .ssh/ notes.md
grep -r '' -- .ssh/
diff -rN .ssh/ empty
diff -rN .ssh empty
diff -rN empty .ssh/.
diff -rN leads/ empty
diff -rN .git/ empty
diff -r -N empty sub/.ssh/
diff -N .ssh empty
diff -N .ssh/ empty
diff -N leads empty
diff -N . empty
diff -N empty .
diff -N src empty
diff config .ssh
diff config/config .ssh
diff config/config .ssh/
diff notes.md config
rg '' .ssh/
rg '' .ssh/.
rg '' leads/
"""


@pytest.mark.parametrize("line", TREES.strip().splitlines())
def test_a_folder_with_denied_contents_is_read_by_no_spelling(run: Run, line: str) -> None:
    result = run(line)
    assert not result.ok and "not run" in result.text
    assert "CANARY" not in result.text


@pytest.mark.parametrize("absolute", [".ssh", ".ssh/", ".ssh/.", "leads/", "sub/.ssh/", ".git/"])
def test_a_folder_with_denied_contents_is_not_read_by_its_absolute_path(
    run: Run, workspace: Path, absolute: str
) -> None:
    for line in (f"grep -r '' {workspace}/{absolute}", f"diff -rN {workspace}/{absolute} empty"):
        assert "not run" in run(line).text, line


# --- the end of the options

ENDS = r"""
grep -r -e '' -e -- .
grep -r -e '' -e -- -- .
grep -r -e '' --regexp -- .
grep -r -e '' --label -- .
grep -r '' --group-separator -- .
grep -r '' --exclude-dir -- .
grep -r '' --exclude -- .
grep -r '' --include -- .
grep -r --regexp -- .
grep -re -- .
diff -rN -L -- sub empty
diff -rN --label -- sub empty
diff -rN -F -- sub empty
diff -rN -x -- sub empty
diff -rN -I -- sub empty
rg -e '' -e -- .
rg '' -g -- .
rg -r -- '' .
"""


@pytest.mark.parametrize("line", ENDS.strip().splitlines())
def test_a_double_dash_as_an_option_value_must_be_joined_to_its_option(run: Run, line: str) -> None:
    result = run(line)
    assert not result.ok and "--" in result.text.partition("; write ")[2]
    assert "CANARY" not in result.text


def test_a_joined_double_dash_value_shows_no_denied_file(run: Run) -> None:
    for line in (
        "grep -r -e '' -e-- .",
        "grep -r -e '' --regexp=-- -- .",
        "grep -rh '' --label=-- .",
    ):
        result = run(line)
        assert result.ok and "plain" in result.text and "CANARY" not in result.text, line
    assert run("grep -r first -- -e").ok


SEARCHES = r"""
grep -r ''
grep -r '' .
grep -r '' ./
grep -ra '' .
grep -rh '' sub src config
grep -r '' sub/
grep -r '' --include='.e??' .
grep -r '' --include='*' .
grep -r '' . --exclude=nothing
grep -r '' -- .
diff -rN sub empty
diff -rN . empty
diff -rN empty ./
diff -rN config empty
diff -rN -- config empty
diff -L a -rN -- config empty
"""


@pytest.mark.parametrize("line", SEARCHES.strip().splitlines())
def test_recursive_reads_skip_denied_files(run: Run, line: str) -> None:
    result = run(line)
    assert "CANARY" not in result.text
    assert "plain" in result.text or "--include='.e" in line


def test_diff_compares_folders_only_with_r(run: Run) -> None:
    assert "name files, or write diff -r" in run("diff src sub").text
    assert "plain" in run("diff notes.md src/a.py").text


def test_a_folder_above_the_workspace_counts_as_holding_its_denied_files(tmp_path: Path) -> None:
    workspace = tmp_path / "home" / "workspace"
    write(workspace, ["lager/x", "notes.md"], "CANARY")
    text = (
        f'version = 1\n[paths]\nread = ["{tmp_path}/home"]\n[[rule]]\ntool = "shell"\neffect = '
        '"allow"\n'
    )
    text += 'profile = "read-only"\n[[rule]]\ntool = "*"\neffect = "deny"\npaths = ["lager/**"]\n'
    _, run = runner(workspace, tmp_path, text)
    assert "not run" in run(f"grep -r '' {tmp_path}/home").text
    assert run("grep -r '' notes.md").ok


# --- git: by the name of an object, by what was changed, by a search

GIT = r"""
show {BLOB}
show {blob}
show {blob_short}
show {BLOB_SHORT}
show x-1-g{blob}
show x-1-g{blob_short}
show v1-1-g{BLOB}
show {blob}^{{}}
show {blob}^{{object}}
show {blob}^{{blob}}
show {tree}:config
show {TREE}:config
show x-1-g{tree}:config
show tree-tag:config
show HEAD:.ssh:config
show HEAD^{{tree}}:.ssh/config
show {root}:.ssh/config
show HEAD:.ssh/config
show HEAD:./.ssh/config
show HEAD:.ssh//config
show HEAD:src/../.env
show HEAD:src/leads
show HEAD:.env
show HEAD:.ENV.old
show :.env
show :0:.env
show :0:x.pem
show ::.env
show :/first
show ':/first:.env'
show 'HEAD^{{/first}}:.env'
show HEAD@{{0}}:.env
show @:.env
show stash@{{0}}:.env
show stash:x.pem
show stash^2:x.pem
show refs/stash:x.pem
show FETCH_HEAD:x.pem
show main:x.pem..HEAD:notes.md
show HEAD:notes.md..HEAD:x.pem
show HEAD:notes.md...HEAD:x.pem
show blob-tag
show blob-note
show tag-of-tag
show tag-of-tag^{{}}
show refs/tags/blob-tag
show tags/blob-tag
show blob-tag..HEAD
show --tags
show --tags=blob*
show --all
show --branches
show --remotes
show -g blob-tag
show HEAD
show HEAD -p
show HEAD --text
show HEAD -a
show HEAD~1
show side
show -m HEAD
show -c HEAD
show --cc HEAD
show -m --first-parent HEAD
show stash
show stash@{{0}}
show -m stash
show stash^2
show v1
show HEAD main~2 side^
show HEAD~2..HEAD
show HEAD~2...side
show ^side HEAD
show HEAD^!
show HEAD^@
show HEAD^-
show HEAD -- .env
show HEAD -- .ssh
show HEAD -- .ssh/
show HEAD -- '*.pem'
show HEAD -- 'my secrets'
show HEAD -- .
show HEAD --word-diff
show HEAD --color-words
show HEAD -W
show HEAD -U1000000
show --stdin
show --not HEAD
show HEAD --output-indicator-new=x
show HEAD --submodule=diff
show HEAD --root
log -p
log -p --all
log -p -m
log -p -c
log --cc
log -p --first-parent --reverse
log -p --graph
log -p --tags --remotes --branches
log -p side..main
log -p main...side
log -p --merge
log -p -g
log -p -g main
log -p -g blob-tag
log -p --follow renamed.md
log --follow -p -- renamed.md
log -p --follow --stat renamed.md
log --check
log -p -C --find-copies-harder
log -p -B -M10
log -p --raw --full-index
log -p -- sub src config
log -p -- .ssh
log -p -- 'my secrets'
log -p -- ':(top)x.pem'
log -p -- ':!notes.md'
log -p -- ':x.pem'
log -p --full-diff -- notes.md
log -p --sparse
log -p --dense --simplify-merges
log -p --full-history -- notes.md
log -p --no-diff-merges
log -p --remerge-diff
log -L1,2:x.pem
log -L1,2:notes.md
log --format='%(raw)'
log -t -p
log -p --relative
log --patch-with-stat
log -u --word-diff-regex=.
log -p --irreversible-delete
log -p {blob}
log -p {blob}..HEAD
log -p blob-tag
log HEAD:.env
diff
diff HEAD
diff --cached
diff --staged -U1000
diff HEAD~1
diff HEAD~3 HEAD
diff HEAD~3..HEAD
diff HEAD~3...HEAD
diff side main
diff side...main
diff --merge-base side main
diff HEAD HEAD~1 HEAD~2
diff --cc HEAD HEAD^1 HEAD^2
diff stash
diff stash^ stash
diff blob-tag {empty}
diff {empty} {blob}
diff {EMPTY} {BLOB}
diff {empty}..{blob}
diff x-1-g{empty} x-1-g{blob}
diff {blob} notes.md
diff HEAD:x.pem HEAD:notes.md
diff HEAD:notes.md HEAD:x.pem
diff HEAD:.ssh HEAD:src
diff HEAD:src HEAD:.ssh
diff HEAD:src HEAD:sub
diff {tree} tree-tag
diff {tree} {src_tree}
diff {root} {src_tree}
diff HEAD^{{tree}} {src_tree}
diff HEAD HEAD~1 -- .ssh
diff HEAD HEAD~1 -- x.pem
diff --no-index .ssh empty
diff .ssh empty
diff -- .ssh empty
diff .env notes.md
diff src/leads notes.md
diff --base
diff -0
diff --ours --text
diff --check
diff -a
diff --ext-diff --text
diff --word-diff=porcelain
diff HEAD~1 --find-copies-harder -C1
diff -R HEAD~1
blame .env
blame HEAD -- .env
blame HEAD -- .ssh/config
blame HEAD:.env
blame side x.pem
blame x.pem side
blame -C -C -C renamed.md
blame -C1 notes.md
blame notes.md
blame HEAD~1 -- notes.md
tag --format=%(raw)
tag --list --format='%(raw)'
tag --list --format='%(*raw)'
tag --list --format='x%(contents:lines=5)'
tag --list --format='%(if)%(raw)%(then)x%(end)'
tag --list --sort=raw
tag --list --sort=-raw
tag --list --sort=-*raw
tag --list --sort=version:raw
tag --list --sort=v:*raw
tag --list --sort raw
tag -n99
branch --format='%(raw)'
branch -a --format='%(*raw)'
cat-file -p HEAD:.env
cat-file blob {blob}
archive HEAD
ls-tree -r HEAD
format-patch --stdout -1
grep CANARY HEAD
grep -r CANARY
stash show -p
stash list -p
stash list
reflog
reflog show -p
notes show
worktree list
bisect log
whatchanged -p
range-diff main~2..main side~2..side
diff-tree -p HEAD
diff-index -p HEAD
diff-files -p
show-ref
for-each-ref --format=%(raw)
rev-list --objects --filter-print-omitted --all
rev-list --all -p
rev-parse HEAD:.env
shortlog -p
describe --always {blob}
describe blob-tag
status -vv
"""


@pytest.fixture(scope="module")
def ids(workspace: Path) -> dict[str, str]:
    names = {
        "blob": "HEAD:.env",
        "tree": "HEAD:.ssh",
        "root": "HEAD^{tree}",
        "src_tree": "HEAD:src",
        "empty": "HEAD:x",
    }
    full = {key: git_in(workspace, "rev-parse", name) for key, name in names.items()}
    full["blob_short"] = full["blob"][:8]
    return full | {key.upper(): value.upper() for key, value in full.items()}


@NEEDS_GIT
@pytest.mark.parametrize("line", GIT.strip().splitlines())
def test_git_shows_no_denied_file(run_git: Run, ids: dict[str, str], line: str) -> None:
    words = line.format(**ids)
    for result in (run_git(f"git {words}"), run_git(words, ".")):
        assert "CANARY" not in result.text


# What is denied, though git alone would answer.
REFUSED = r"""
show {BLOB}
show x-1-g{blob}
show {tree}:config
show tree-tag:config
show tag-of-tag
show --tags
show HEAD:.ssh
show main:x.pem..HEAD:notes.md
show :0:x.pem
show HEAD -- .ssh
log -p --follow renamed.md
log -p -- .ssh/
diff HEAD:src HEAD:sub
diff HEAD:.ssh HEAD:src
diff .ssh empty
diff {EMPTY} {BLOB}
blame -C notes.md
blame .env:local
blame -- .env:local
blame HEAD -- .env:local
show HEAD -- .env:local
rev-parse HEAD:.env
rev-parse -- HEAD:.env
tag --list --format='%(raw)'
"""


@NEEDS_GIT
@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_git_command_for_a_denied_file_fails(
    run_git: Run, ids: dict[str, str], line: str
) -> None:
    words = line.format(**ids)
    assert not run_git(f"git {words}").ok
    assert not run_git(words, ".").ok


# What an honest report asks, with a word of the answer.
HONEST = {
    "log --oneline": "only what is denied",
    "log --stat": "only what is denied",
    "log -p": "+plain second",
    "log -p -1 --format=%s main~1": "both",
    "log -p -- notes.md": "+plain second",
    "log --follow --stat renamed.md": "old.key",
    "log --follow --oneline -- renamed.md": "renamed",
    "log -S second --oneline": "both",
    "log -G 'plain sec' --oneline": "both",
    "log -g --oneline main": "main@{0}",
    "log --since yesterday --author Ada --format=%s": "merged",
    "log -n 1 --date short --grep=first": "first",
    "show": "merged",
    "show side": "only what is denied",
    "show v1": "both",
    "show main~1 --stat": "src/a.py",
    "show main~1:notes.md": "plain second",
    "show HEAD@{0}:notes.md": "plain second",
    "show refs/heads/main:src/a.py": "plain second",
    "show HEAD:src": "a.py",
    "show HEAD~2..HEAD": "both",
    "show stash": "WIP on main",
    "diff": "+plain third",
    "diff HEAD": "+plain third",
    "diff main~2 main -- src": "+plain second",
    "diff main~2..main --stat": "src/a.py",
    "diff main...side --stat": "",
    "diff HEAD notes.md": "+plain third",
    "diff HEAD -- 'n*.md'": "+plain third",
    "blame notes.md": "plain third",
    "blame HEAD -- notes.md": "plain second",
    "blame main~1 notes.md": "Ada",
    "shortlog -sn": "Ada",
    "shortlog main~2..main": "both",
    "rev-list --count main": "5",
    "rev-list --objects main": "notes.md",
    "rev-parse --abbrev-ref HEAD": "main",
    "rev-parse HEAD:notes.md": "",
    "describe --tags --always main~1": "v1",
    "ls-files": ".env",
    "ls-files -s": "notes.md",
    "status --short": ".env",
    "status --short -- notes.md": "notes.md",
    "tag -n --list 'v*'": "release",
    "tag --list --format '%(refname) %(contents:subject)'": "release",
    "branch -a --contains main~3": "side",
    "stash list": "stash@{0}",
}


@NEEDS_GIT
@pytest.mark.parametrize("line", HONEST)
def test_git_commands_of_an_ordinary_report_are_answered(run_git: Run, line: str) -> None:
    for result in (run_git(f"git {line}"), run_git(line, ".")):
        assert result.ok, result.text
        assert HONEST[line] in result.text
        assert "CANARY" not in result.text


@NEEDS_GIT
def test_a_git_search_reveals_nothing_about_denied_files(run_git: Run) -> None:
    for search in (
        "-S 'CANARY {}'",
        "-G 'CANARY {}'",
        "-G '^CANARY {}' --all",
        "-S 'CANARY {}' --pickaxe-regex -p",
    ):
        for line in (
            f"log --oneline {search}",
            f"diff --stat HEAD~3 HEAD {search}",
            f"show --stat main~1 {search}",
        ):
            right, wrong = (run_git(line.format(word), ".").text for word in ("main", "wrong"))
            assert right == wrong, line
    for line in (
        "diff --stat HEAD~3 HEAD -I 'CANARY {}'",
        "log --stat -I 'CANARY {}'",
        "diff --quiet HEAD~3 -I '{}'",
    ):
        right, wrong = (run_git(line.format(word), ".").text for word in ("main", "wrong"))
        assert right == wrong, line
    assert "both" in run_git("log --oneline -S second", ".").text


@NEEDS_GIT
def test_git_shows_no_object_id_of_a_denied_file(run_git: Run, ids: dict[str, str]) -> None:
    for line in (
        "ls-files -s",
        "rev-list --objects main",
        "log --raw --full-index",
        "diff --raw --full-index HEAD~3",
    ):
        assert ids["blob"] not in run_git(line, ".").text, line
    for line in ("status --porcelain=v2", "status --porcelain=2 -uno"):
        text = run_git(line, ".").text
        assert "notes.md" in text and ".env" not in text, line
    assert ".env" in run_git("status --porcelain=v1", ".").text


@NEEDS_GIT
def test_git_compares_no_folders_outside_a_repository(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, [".ssh/config", "sub/.env"], "CANARY")
    (workspace / "empty").mkdir()
    rule = '[[rule]]\ntool = "*"\npaths = ["sub/.env"]\neffect = "deny"\n'
    _, run = runner(workspace, tmp_path, SHIPPED.read_text() + rule)
    for words in ("diff .ssh empty", "diff sub empty", "diff . empty", "diff -- sub empty"):
        for result in (run(f"git {words}"), run(words, ".")):
            assert not result.ok and "CANARY" not in result.text, words


@NEEDS_GIT
def test_git_compares_no_folders_outside_the_workspace(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    write(workspace, ["sub/plain"], "plain")
    write(outside, ["private/key"], "CANARY")
    git_in(workspace, "init", "-q")
    policy = f"""
version = 1
[paths]
read = ["{outside}"]
[[rule]]
tool = "*"
effect = "deny"
paths = ["{outside}/private/**"]
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
"""
    _, run = runner(workspace, tmp_path, policy)
    for line in (
        f"git diff sub {outside}",
        f"git diff -- sub {outside}",
        f"git diff {outside} sub",
    ):
        result = run(line)
        assert not result.ok and "CANARY" not in result.text, line


@NEEDS_GIT
def test_a_rule_that_asks_for_paths_applies_to_the_git_tool(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, ["secrets/key", "plain"], "x")
    git_in(workspace, "init", "-q")
    rules = """
version = 1
[[rule]]
tool = "*"
effect = "ask"
paths = ["secrets/**"]
[[rule]]
tool = "git"
effect = "allow"
[[rule]]
tool = "shell"
effect = "allow"
profile = "read-only"
"""
    policy, _ = runner(workspace, tmp_path, rules)
    for words in ("log -p", "diff", "show HEAD"):
        by_shell = policy.judge("shell", {"command": f"git {words}"}, routine="daily-report")
        by_git = policy.judge("git", {"command": words, "repository": "."}, routine="daily-report")
        assert by_shell.effect is by_git.effect is Effect.ASK, words


@NEEDS_GIT
@pytest.mark.parametrize(
    ("repository", "pattern"),
    [
        ("project", "project/private/**"),
        ("project", "**/project/private/**"),
        ("project", "*/private/**"),
        ("project", "PROJECT/Private/*"),
        ("project", "**/private/**"),
        ("project", '{root}/nowhere/**", "secret'),
        ("{root}/elsewhere", "{root}/elsewhere/private/**"),
        ("{root}/elsewhere", "{root}/*/private/secret"),
        ("{root}/elsewhere", "**/elsewhere/private/**"),
        ("{root}/above", "private/**"),
        ("{root}/above", "private"),
        ("project", "project/private"),
        ("project", "private"),
        ("{root}/elsewhere", "{root}/elsewhere/private"),
    ],
)
def test_a_deny_rule_for_paths_applies_in_any_repository(
    tmp_path: Path, repository: str, pattern: str
) -> None:
    workspace = tmp_path / "above" / ".agents" / "workspace"
    folders = {
        "project": workspace / "project",
        "elsewhere": tmp_path / "elsewhere",
        "above": tmp_path / "above",
    }
    for name, folder in folders.items():
        inside = workspace if name == "above" else folder
        write(inside, ["private/secret", "notes.md"], "CANARY" if name in repository else "x")
        (inside / "notes.md").write_text("plain\n")
        git_in(folder, "init", "-q")
        git_in(folder, "add", str((inside / "notes.md").relative_to(folder)))
        git_in(folder, "add", "-f", str((inside / "private").relative_to(folder)))
        git_in(folder, "commit", "-qm", "first")
    text = (
        f'version = 1\n[paths]\nread = ["{tmp_path}/elsewhere", "{tmp_path}/above"]\n[[rule]]\ntool '  # noqa: E501
        ""
        '= "git"\n'
    )
    text += (
        'effect = "allow"\n[[rule]]\ntool = "*"\neffect = "deny"\npaths = '
        f'["{pattern.format(root=tmp_path)}"]\n'
    )
    _, run = runner(workspace, tmp_path, text)
    for line in ("show", "log -p", "log -p -S CANARY", "diff --root HEAD"):
        assert "CANARY" not in run(line, repository.format(root=tmp_path)).text, line
    assert "+plain" in run("show", repository.format(root=tmp_path)).text


@NEEDS_GIT
def test_a_deny_rule_for_git_hides_paths_from_git(tmp_path: Path) -> None:
    write(tmp_path / "w", ["my private", "notes.md"], "CANARY")
    (tmp_path / "w" / "notes.md").write_text("plain\n")
    git_in(tmp_path / "w", "init", "-q")
    git_in(tmp_path / "w", "add", "-A")
    git_in(tmp_path / "w", "commit", "-qm", "first")
    text = "version = 1\n"
    for tool in ("git", "shell"):
        text += f'[[rule]]\ntool = "{tool}"\neffect = "allow"\n' + 'profile = "read-only"\n' * (
            tool == "shell"
        )
        text += f'[[rule]]\ntool = "{tool}"\neffect = "deny"\npaths = ["my private"]\n'
    _, run = runner(tmp_path / "w", tmp_path, text)
    for result in (run("git show"), run("show", ".")):
        assert "+plain" in result.text and "CANARY" not in result.text


# --- any line at all

_PATHS = st.sampled_from(
    [
        *(
            ".",
            "./",
            "..",
            ".ssh",
            ".ssh/",
            ".ssh/.",
            "leads",
            "leads/",
            "src",
            "src/leads",
            "sub",
            "sub/",
            "sub/.ssh/",
        ),
        *(
            ".git",
            ".git/",
            "empty",
            "config",
            "config/config",
            "notes.md",
            "src/a.py",
            "x",
            "-e",
            ".env",
            "x.pem",
            "./*",
        ),
        *(
            "./.*",
            ".*/",
            "*.pem",
            ".s*/",
            "'my secrets'",
            "'my secrets/'",
            ".Aws/",
            ".AWS",
            "sub/.Kube",
            "-",
            "/dev/null",
        ),
        *("sub/../.ssh/", "sub/../.", "*/", "src//", "lager", "'*'", "'.e*'", "lager/a"),
    ]
)
_VALUES = st.sampled_from(
    ["--", "''", "x", ".", "-", "CANARY", "'*'", ".env", "-e", "-r", "1", "'--exclude=x'", "first"]
)
_GREP = st.sampled_from(
    [
        "-r",
        "-r",
        "-r",
        "-h",
        "-a",
        "-v",
        "-l",
        "-c",
        "-i",
        "-E",
        "-F",
        "-s",
        "-rh",
        "-n",
        "--recursive",
        "--",
        "-w",
        "-o",
    ]
)
_GREP_VALUED = st.sampled_from(
    [
        *(
            "-e",
            "-f",
            "-m",
            "-A",
            "--label",
            "--regexp",
            "--file",
            "--exclude",
            "--include",
            "--exclude-dir",
            "-re",
        ),
        *("--group-separator", "--context", "--color", "--binary-files", "-C"),
    ]
)
_DIFF = st.sampled_from(
    ["-r", "-r", "-N", "-N", "-a", "-u", "-rN", "-y", "-q", "-s", "-i", "--", "--recursive", "-w"]
)
_DIFF_VALUED = st.sampled_from(
    ["-L", "-F", "-x", "-I", "-U", "-W", "--label", "--exclude", "--show-function-line", "-C"]
)
_RG = st.sampled_from(
    ["-a", "-n", "--files", "-i", "-F", "--", "-v", "-l", "-I", "-S", "--no-config"]
)
_RG_VALUED = st.sampled_from(
    ["-e", "-g", "-r", "--glob", "--iglob", "-f", "-m", "-A", "--regexp", "-t"]
)


def _lines(
    program: str, flags: st.SearchStrategy[str], options_with_value: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    separate = st.builds("{} {}".format, options_with_value, _VALUES)
    attached = st.builds(
        "{}{}".format, st.sampled_from(["--regexp=", "--exclude=", "--label=", "-e", "-L"]), _VALUES
    )
    words = st.lists(
        st.one_of(flags, flags, separate, attached, _PATHS, _PATHS, st.just("''")),
        min_size=2,
        max_size=5,
    )
    return words.map(lambda arguments: " ".join([program, *arguments]))


_NAMES = st.sampled_from(
    [
        *(
            "HEAD",
            "main",
            "side",
            "v1",
            "blob-tag",
            "blob-note",
            "tag-of-tag",
            "tree-tag",
            "stash",
            "@",
            "refs/tags/v1",
        ),
        *(
            "{blob}",
            "{BLOB}",
            "{blob_short}",
            "{tree}",
            "{TREE}",
            "{root}",
            "x-1-g{blob}",
            "x-1-g{tree}",
            "stash^2",
        ),
        *("tags/blob-tag", "origin/x", "nothing", ""),
    ]
)
_SUFFIXES = st.sampled_from(
    [
        *([""] * 8),
        "~1",
        "^",
        "^2",
        "^@",
        "^!",
        "^-",
        "@{0}",
        "^{}",
        "^{blob}",
        "^{object}",
        "^{tree}",
        "^0",
        "^{/first}",
        "@{u}",
    ]
)
_REVISIONS = st.one_of(
    st.builds("{}{}".format, _NAMES, _SUFFIXES),
    st.builds(
        "{}{}{}".format, _NAMES, st.sampled_from(["..", "...", ":"]), st.one_of(_NAMES, _PATHS)
    ),
    st.builds("{}{}:{}".format, _NAMES, _SUFFIXES, _PATHS),
    st.builds("{}:{}..{}:{}".format, _NAMES, _PATHS, _NAMES, _PATHS),
    st.builds("^{}".format, _NAMES),
    st.builds(":{}{}".format, st.sampled_from(["", "0:", "/", "(top)", "!", "^"]), _PATHS),
)
_GIT_OPTIONS = st.sampled_from(
    [
        *(
            "-p",
            "-p",
            "--all",
            "-m",
            "-c",
            "--cc",
            "--text",
            "--follow",
            "--stat",
            "-g",
            "--tags",
            "--branches",
            "--raw",
        ),
        *(
            "-S x",
            "-S CANARY",
            "-G CANARY",
            "--cached",
            "--word-diff",
            "--check",
            "-W",
            "-U1000",
            "--full-history",
            "-R",
        ),
        *(
            "--sparse",
            "--no-renames",
            "-C",
            "-M1",
            "--find-copies-harder",
            "--graph",
            "--first-parent",
            "--reverse",
        ),
        *(
            "--objects",
            "-s",
            "--stage",
            "--format '%(raw)'",
            "--list",
            "--merge-base",
            "-t",
            "--patch-with-stat",
            "-n 9",
        ),
        *(
            "--grep --",
            "--author -- ",
            "-S --",
            "--format=%B",
            "--pickaxe-all",
            "-1",
            "--max-count 3",
            "--date raw",
            "-I x",
        ),
        *(
            "--format {blob}",
            "--encoding {blob}",
            "--decorate {blob}",
            "--abbrev {blob}",
            "--exclude {blob}",
            "--since x",
        ),
        *(
            "--color-words",
            "--relative",
            "--irreversible-delete",
            "-a",
            "--no-patch",
            "--simplify-merges",
            "--boundary",
        ),
    ]
)
_GIT_LINES = st.builds(
    "git {} {}".format,
    st.sampled_from(
        [
            "show",
            "show",
            "log",
            "log",
            "diff",
            "diff",
            "blame",
            "tag",
            "branch",
            "rev-list",
            "ls-files",
            "stash list",
        ]
    ),
    st.lists(
        st.one_of(_GIT_OPTIONS, _REVISIONS, _REVISIONS, _PATHS, st.just("--")), max_size=3
    ).map(" ".join),
)


def _with_ids(line: str, ids: dict[str, str]) -> str:
    for key, value in ids.items():
        line = line.replace("{" + key + "}", value)
    return line


_PROGRAMS = [_lines("grep", _GREP, _GREP_VALUED), _lines("diff", _DIFF, _DIFF_VALUED)]
_EVERY = st.one_of(*_PROGRAMS, *([_lines("rg", _RG, _RG_VALUED)] if shutil.which("rg") else []))


@scaled_settings(250, suppress=HealthCheck)
@given(line=_EVERY)
def test_no_allowed_search_shows_a_denied_file(run: Run, line: str) -> None:
    assert "CANARY" not in run(f"{line} < /dev/null").text.replace("'CANARY'", "")


@NEEDS_GIT
@scaled_settings(300, suppress=HealthCheck)
@given(line=_GIT_LINES)
def test_no_allowed_git_command_shows_a_denied_file(
    run_git: Run, ids: dict[str, str], line: str
) -> None:
    assert "CANARY " not in run_git(_with_ids(line, ids)).text


@NEEDS_GIT
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_searches_and_git_commands_show_no_denied_file(
    run: Run, run_git: Run, ids: dict[str, str], request: pytest.FixtureRequest
) -> None:
    end = time.monotonic() + request.config.getoption("--soak-seconds")
    while time.monotonic() < end:

        @seed(random.getrandbits(64))
        @settings(
            max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(search=_EVERY, words=_GIT_LINES)
        def look(search: str, words: str) -> None:
            assert "CANARY " not in run(f"{search} < /dev/null").text
            assert "CANARY " not in run_git(_with_ids(words, ids)).text

        look()
