"""Open folders beneath a root, such that neither `..` nor a symbolic link can lead out of it.

Every component of a path is opened by itself, relative to its parent's descriptor and without
following links, so a component that is replaced meanwhile cannot lead elsewhere. safe_open.py opens
files in the same way.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def folder_beneath(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the folder `root/part/part…` and yield its descriptor; missing ones are made if
    `create`.

    A new folder is as open to others as the one it lies in, and belongs to the same owner. Raises
    OSError: ELOOP or ENOTDIR where a link stands in the way.
    """
    folder = os.open(
        root, _FOLDER & ~os.O_NOFOLLOW
    )  # the root itself is the owner's choice, be it a link
    try:
        for part in parts:
            if part in ("", ".", "..") or "/" in part:
                raise ValueError(f"{part!r} is not the name of a folder")
            deeper = _enter(folder, part, create=create)
            os.close(folder)
            folder = deeper
        yield folder
    finally:
        os.close(folder)


def _enter(parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:  # somebody else was quicker
        return os.open(name, _FOLDER, dir_fd=parent)
    folder = os.open(name, _FOLDER, dir_fd=parent)
    take_after(folder, parent, 0o2755)
    os.fsync(parent)
    return folder


def take_after(new: int, folder: int, mode: int) -> None:
    """Give a new file or folder the permissions of the folder it lies in, as far as `mode` allows,
    and, if this process is root, the same owner. `new` and `folder` are descriptors.
    """
    model = os.fstat(folder)
    if os.geteuid() == 0 and (model.st_uid, model.st_gid) != (0, 0):
        os.fchown(new, model.st_uid, model.st_gid)
    with suppress(PermissionError):  # a file system without modes, such as vfat
        os.fchmod(new, stat.S_IMODE(model.st_mode) & mode | mode & 0o700)
