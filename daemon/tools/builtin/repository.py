"""Let git look at a repository without obeying it.

A repository is code: its config may name programs that a plain `git diff`, `status` or `blame` runs
(a diff driver, a filter, a file-system monitor, a signature checker), files outside to read, and
servers to fetch from. So git is given a view: a folder of our own whose objects, references and
index are those of the repository, and whose config holds only what is known to be harmless.
tests/tools/builtin/test_repository.py shows it a repository that tries all it can.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from daemon.errors import ToolFailed
from daemon.policy.globs import make_case_insensitive
from daemon.sandbox.sandbox import User
from daemon.system.safe_open import open_beneath

_MAX_CONFIG_BYTES = 1 << 20  # bytes of a config; what stands behind them has no effect
# What the view shows of a repository as it is.
_LINKED_ENTRIES = ("objects", "refs", "packed-refs", "index", "logs", "shallow", "reftable")
# The settings that say how the repository is stored and where it comes from; all others have no
# effect on looking, or a bad one. In lower case, as git reads them.
_HARMLESS_SETTINGS = {
    "core": {
        "repositoryformatversion",
        "filemode",
        "ignorecase",
        "precomposeunicode",
        "autocrlf",
        "eol",
        "symlinks",
    },
    "extensions": {"objectformat", "refstorage"},
    "remote": {"url", "pushurl", "fetch"},
    "branch": {"remote", "merge"},
}
_SECTION = re.compile(r'\[\s*([A-Za-z]+)(?:\s+"([\w./+-]+)")?\s*\]')
_SETTING = re.compile(r"([A-Za-z]+)\s*=\s*([\w./:@+*~-]+)")
# Name, password or token in the address of a remote repository: nothing is fetched with it here.
_ACCOUNT = re.compile(r"//[^/]*@")
_HEAD = re.compile(r"(?:ref: refs/[\w./+-]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # status would write the index
    "GIT_ALLOW_PROTOCOL": "none",  # and nothing is fetched, whatever is missing
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "/bin/false",
    "GIT_ASKPASS": "/bin/false",
}


def repository_view(
    folder: Path,
    stack: ExitStack,
    *,
    owner: User | None = None,
    denied_patterns: Iterable[str] = (),
    starts_git: bool = False,
) -> dict[str, str]:
    """Return the environment in which git sees the repository of a folder; the view goes when the
    stack unwinds.

    `owner` is the user whom git runs as, None for the daemon's own. Files that fit
    `denied_patterns`, patterns as in .gitignore, are binary to git: it shows at most that they were
    changed, even where the policy allowed words that do not exclude them. With `starts_git` git can
    start git, as `git stash list` does. Where there is no repository, git says so itself. Raises
    ToolFailed for a repository not wholly in the folder.
    """
    git_folder = folder / ".git"
    environment = {**_ENVIRONMENT, "GIT_DIR": str(git_folder), "GIT_WORK_TREE": str(folder)}
    if git_folder.is_symlink() or git_folder.is_file():
        raise ToolFailed(
            "its .git leads elsewhere; only a repository that is wholly in its folder can be "
            "looked at"
        )
    if not git_folder.is_dir():
        return environment
    for name in (*_LINKED_ENTRIES, "HEAD", "config", "objects/info", "objects/pack"):
        if (git_folder / name).is_symlink():
            raise ToolFailed(
                f".git/{name} is a link; only a repository that is wholly in its folder can be "
                "looked at"
            )
    if (git_folder / "objects" / "info" / "alternates").exists():
        raise ToolFailed("the repository borrows objects from elsewhere, so it cannot be looked at")
    view = Path(tempfile.mkdtemp(prefix="agentd-git-"))
    stack.callback(shutil.rmtree, view, ignore_errors=True)
    for name in _LINKED_ENTRIES:
        if (git_folder / name).exists():
            (view / name).symlink_to((git_folder / name).resolve())
    (view / "HEAD").write_text(_head(git_folder))
    (view / "config").write_text("".join(_settings(git_folder)))
    (view / "info").mkdir()
    quoted_patterns = [
        make_case_insensitive(pattern).replace('"', r"\"") for pattern in denied_patterns
    ]
    (view / "info" / "attributes").write_text(
        "".join(f'"{quoted_pattern}" -diff\n' for quoted_pattern in quoted_patterns)
    )
    environment["GIT_DIR"] = str(view)
    if not starts_git:
        environment["GIT_EXEC_PATH"] = str(_folder_without_git(view))
    if owner:
        for path in (view, *view.iterdir(), view / "info" / "attributes"):
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
    return environment


def _folder_without_git(view: Path) -> Path:
    """Make a folder for the programs that git starts, in which `git` is a program that does
    nothing.

    To learn whether a submodule was changed, git starts itself in it, by the submodule's own
    config. `git describe --dirty` has no option against that, and .gitmodules overrides the config
    of the view. So to git no submodule has changed files, as with --ignore-submodules.
    """
    folder = view / "programs"
    folder.mkdir()
    # A link: nothing can be executed where /tmp is mounted noexec.
    harmless_program = shutil.which("true", path=os.defpath)
    if harmless_program is None:
        raise ToolFailed("git is not run: there is no program `true` on this machine")
    (folder / "git").symlink_to(harmless_program)
    return folder


def _text(folder: Path, name: str) -> str:
    """Return the text of a small file of the repository; OSError for what is no plain file: a FIFO
    would never end.
    """
    fd = open_beneath(str(folder), name)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        return file.read(_MAX_CONFIG_BYTES).decode("utf-8", errors="replace")


def _head(folder: Path) -> str:
    try:
        text = _text(folder, "HEAD")
    except OSError:
        text = ""
    if not _HEAD.fullmatch(text):
        raise ToolFailed(
            ".git/HEAD names no branch or commit, so the repository cannot be looked at"
        )
    return text


def _settings(folder: Path) -> Iterator[str]:
    """Yield the lines of a config with the harmless settings of the repository's; what is written
    oddly is left out.
    """
    yield "[core]\nbare = false\n"
    try:
        lines = _text(folder, "config").splitlines()
    except OSError:
        return
    section = ""
    for line in lines:
        if match := _SECTION.fullmatch(line.strip()):
            section = match[1].lower()
            yield f'[{section} "{match[2]}"]\n' if match[2] else f"[{section}]\n"
        elif line.lstrip().startswith("["):
            section = ""
            continue
        setting = _SETTING.fullmatch(line.strip())
        if setting and setting[1].lower() in _HARMLESS_SETTINGS.get(section, ()):
            yield f"{setting[1]} = {_ACCOUNT.sub('//', setting[2])}\n"
