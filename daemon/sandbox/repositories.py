"""The git repositories of a workspace, which no program may change or make.

git obeys what stands in `.git`: its config and its hooks are commands, and they run with the rights
of whoever uses git there next. What is there when a program starts stays as it is
(Sandbox.cell). A new one cannot be prevented, as neither mounts nor Landlock know names that do not
exist yet: when the program has ended, it gets another name, under which git does not look for it.

Not covered: a bare repository, which has no `.git`. git obeys it only where somebody goes into its
folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

_GIT = ".git"
_GIT_FILE = re.compile(rb"gitdir: (.+)")  # of a worktree or a submodule
_GIT_FILE_BYTES = 4096 + len("gitdir: ")
UNTRUSTED_NAME = ".git.untrusted"
"""The name that a new `.git` gets; with a number behind it if that is taken."""

_Identity: TypeAlias = tuple[int, int, int]
"""Device, inode, and of a file or link the time of its last change."""


@dataclass(frozen=True, slots=True)
class Repositories:
    """What is named `.git` in a workspace at some moment."""

    workspace: str
    identities: Mapping[str, _Identity] = field(default_factory=dict)
    """By path. A folder stays the same while its content changes, a file or link does not."""

    @classmethod
    def find(cls, workspace: str) -> Repositories:
        """Look for repositories. Links are not followed, and what may not be read is left out."""
        return cls(workspace, dict(_walk(workspace)))

    def protected_paths(self) -> list[str]:
        """Return what must stay as it is, sorted: repositories, and folders of the workspace that
        they refer to by a link or a file. No path is a link.
        """
        paths = {os.path.realpath(_follow_git_file(path)) for path in self.identities}
        files = {path for path in self.identities if not Path(path).is_symlink()}
        return sorted(path for path in paths | files if path.startswith(f"{self.workspace}/"))

    def rename_new(self) -> list[str]:
        """Rename each `.git` that was not there at that moment; return the old paths, sorted.

        Raises OSError for one that cannot be renamed.
        """
        identities = set(self.identities.values())
        new_paths = sorted(
            path for path, identity in _walk(self.workspace) if identity not in identities
        )
        for path in new_paths:
            folder = Path(path).parent
            try:
                Path(path).rename(_free_path(folder))
            except PermissionError:  # a program took away the right to rename in this folder
                folder.chmod(0o700)
                Path(path).rename(_free_path(folder))
        return new_paths


def _walk(workspace: str) -> Iterator[tuple[str, _Identity]]:
    folders = [workspace]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.casefold() == _GIT:
                    status = entry.stat(follow_symlinks=False)
                    # the number of a file that was removed may be given to the next one
                    changed_at = 0 if stat.S_ISDIR(status.st_mode) else status.st_ctime_ns
                    yield entry.path, (status.st_dev, status.st_ino, changed_at)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _follow_git_file(path: str) -> str:
    """Return the folder that a `.git` refers to if it is a file; else the path itself."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a FIFO
    except OSError:
        return path
    try:
        match = _GIT_FILE.match(os.read(descriptor, _GIT_FILE_BYTES))
    except OSError:  # a folder, as it is almost always
        return path
    finally:
        os.close(descriptor)
    return os.path.join(os.path.dirname(path), os.fsdecode(match[1])) if match else path  # noqa: PTH118, PTH120


def _free_path(folder: Path) -> Path:
    path, number = folder / UNTRUSTED_NAME, 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{UNTRUSTED_NAME}-{number}"
    return path
