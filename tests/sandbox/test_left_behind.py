"""Nothing that a program leaves in the workspace acts with the rights of others: S12 of a security
review.
"""

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.sandbox.bounds import Bounds
from daemon.sandbox.repositories import UNTRUSTED_NAME, Repositories
from tests.sandbox.conftest import Cell
from tests.sandbox.test_confined import TRY


def give(cell: Cell, *paths: Path) -> None:
    """Let the user whom programs run as own these files."""
    if cell.sandbox.user:
        for path in paths:
            os.chown(path, cell.sandbox.user.uid, cell.sandbox.user.gid, follow_symlinks=False)


async def test_no_file_with_the_rights_of_its_owner_is_left_in_the_workspace(cell: Cell) -> None:
    code = f"""{TRY}
open("plain", "w").close()
folder = os.open(".", os.O_RDONLY)
O_CREAT, x86 = os.O_CREAT | os.O_WRONLY, os.uname().machine == "x86_64"
def keep(flags, mode):
    file = os.open(".", flags | os.O_WRONLY, mode)
    os.link(f"/proc/self/fd/{{file}}", "kept", follow_symlinks=True)
for mode in (0o4755, 0o2755, 0o6755):
    for call in (
        lambda: os.chmod("plain", mode),
        lambda: os.fchmod(os.open("plain", os.O_RDONLY), mode),
        lambda: os.chmod("plain", mode, dir_fd=folder),
        lambda: libc.syscall(452, -100, b"plain", mode, 0),  # fchmodat2
        lambda: os.open(f"opened{{mode}}", O_CREAT, mode),
        lambda: os.open(f"opened{{mode}}", O_CREAT, mode, dir_fd=folder),
        lambda: keep(os.O_TMPFILE, mode),
        lambda: os.mknod(f"node{{mode}}", 0o100000 | mode),
        lambda: os.mknod(f"node{{mode}}", 0o100000 | mode, dir_fd=folder),
        lambda: libc.syscall(85, b"created", mode) if x86 else libc.chmod(b"plain", mode),
        lambda: libc.syscall(437, -100, b"opened2", (ctypes.c_uint64 * 3)(O_CREAT, mode, 0), 24),
    ):
        print(fault(call))
"""
    result = await cell.python(code, writes=True)
    assert len(result.output.text().splitlines()) == 33, result.output.text()
    assert "worked" not in result.output.text()
    modes = {path.name: path.stat().st_mode for path in cell.workspace.iterdir()}
    assert "plain" in modes
    assert [name for name, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []


async def test_files_that_anyone_may_run_can_be_made_in_bubblewrap(cell: Cell) -> None:
    result = await cell.python("import os; os.open('tool', os.O_CREAT, 0o755)", writes=True)
    assert result.code == 0
    assert (cell.workspace / "tool").stat().st_mode & 0o777 == 0o755 & ~_umask()


def _umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


ATTEMPTS = """
import os
def write(path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("[core]\\n\\tfsmonitor = touch ran\\n")
    except OSError:
        pass
"""


async def test_a_repository_of_the_workspace_is_not_changed_however_deep_it_lies(
    cell: Cell,
) -> None:
    inner_folder = cell.workspace / "a" / "b"
    for folder in (
        cell.workspace / "a",
        inner_folder,
        inner_folder / ".git",
        cell.workspace / "free",
    ):
        folder.mkdir()
    (inner_folder / ".git" / "config").write_text("")
    link, store = cell.workspace / "free" / ".git", cell.workspace / "store"
    store.mkdir()
    (store / "config").write_text("")
    link.symlink_to("../store")
    worktree, other_store = cell.workspace / "worktree", cell.workspace / "other-store"
    worktree.mkdir()
    other_store.mkdir()
    (worktree / ".git").write_text("gitdir: ../other-store\n")
    give(cell, *cell.workspace.rglob("*"))
    code = f"""{ATTEMPTS}
for path in (
    "a/b/.git/config", "a/b/.git/hooks/post-checkout", "store/config", "other-store/config",
    "worktree/.git", "free/.git/config",
):
    write(path)
for old, new in (("a/b/.git", "a/b/old"), ("worktree/.git", "x"), ("store", "y")):
    try:
        os.rename(old, new)
    except OSError:
        pass
"""
    result = await cell.python(code, writes=True)
    assert result.code == 0, result.output.text()
    assert (inner_folder / ".git" / "config").read_text() == ""
    assert not (inner_folder / ".git" / "hooks").exists()
    assert (store / "config").read_text() == "" and not (other_store / "config").exists()
    assert (worktree / ".git").read_text() == "gitdir: ../other-store\n"


async def test_a_repository_that_a_program_makes_is_renamed_and_git_runs_nothing_of_it(
    cell: Cell,
) -> None:
    code = f"""{ATTEMPTS}
write(".git/config"); write("sub/.git/hooks/pre-commit"); write("sub/.GIT/config")
os.makedirs("other"); open("other/.git", "w").write("gitdir: ../sub")
os.makedirs("linked"); os.symlink("../sub", "linked/.git")
os.makedirs("shut/.git")
try:
    os.chmod("shut", 0o500)
except OSError:
    pass
"""
    result = await cell.python(code, writes=True)
    assert sorted(
        str(Path(path).relative_to(cell.workspace)) for path in result.renamed_repositories
    ) == [
        ".git",
        "linked/.git",
        "other/.git",
        "shut/.git",
        "sub/.GIT",
        "sub/.git",
    ]
    leftovers = [path.name for path in cell.workspace.rglob("*") if path.name.lower() == ".git"]
    assert leftovers == []
    assert (cell.workspace / UNTRUSTED_NAME / "config").exists()
    assert (cell.workspace / "sub" / f"{UNTRUSTED_NAME}-2").exists()


async def test_a_repository_that_is_swapped_for_another_is_renamed(cell: Cell) -> None:
    """The folder around it can be moved away where mounts protect it, and made anew."""
    (cell.workspace / "sub" / ".git").mkdir(parents=True)
    (cell.workspace / "sub" / ".git" / "config").write_text("")
    give(cell, *cell.workspace.rglob("*"))
    code = f"""{ATTEMPTS}
try:
    os.rename("sub", "moved")
except OSError:
    pass
write("sub/.git/config")
"""
    result = await cell.python(code, writes=True)
    assert result.code == 0
    configs = [path for path in cell.workspace.rglob(".git/config") if path.read_text()]
    assert configs == []
    assert len([*cell.workspace.rglob(".git")]) == 1  # the old one, wherever it is


async def test_a_repository_is_renamed_where_its_program_is_stopped(cell: Cell) -> None:
    result = await cell.sh("mkdir .git; yes", writes=True, max_output_bytes=1000)
    assert (result.stop_cause, result.renamed_repositories) == (
        "output",
        (f"{cell.workspace}/.git",),
    )


def test_what_git_commits_meanwhile_makes_no_new_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    repositories = Repositories.find(str(tmp_path))
    (tmp_path / ".git" / "new").write_text("x")
    assert repositories.rename_new() == []
    assert repositories.protected_paths() == [f"{tmp_path}/.git"]


def test_a_folder_without_repositories_protects_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert Repositories.find(str(tmp_path / "missing")).protected_paths() == []
    assert Repositories.find(str(tmp_path)).protected_paths() == [f"{tmp_path}/.git"]


@pytest.mark.parametrize("cell", ["bubblewrap"], indirect=True)
async def test_an_older_bubblewrap_works_without_bounds_for_folders_in_memory(cell: Cell) -> None:
    if cell.sandbox.level != "bubblewrap":
        return  # where bubblewrap may do nothing, the rung below is tried in its place
    older = Cell(replace(cell.sandbox, bwrap_sizes=False), cell.workspace, cell.outside)
    result = await older.sh("echo x > /tmp/a && cat /tmp/a")
    assert "--size" not in str(older.sandbox.cell(Bounds(workspace="/", folder="/")))
    assert result.code == 0
