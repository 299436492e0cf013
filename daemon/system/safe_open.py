"""Open files and folders beneath a root, such that neither `..` nor a link leads out of it.

Files: openat2 does that in one call of the kernel. Where openat2 is missing (Linux before 5.6, some
containers, macOS), and for folders, each component of the path is opened by itself, relative to the
descriptor of its parent and without following links. Both ways return a descriptor, so a component
that is replaced meanwhile cannot lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from daemon.system import syscalls

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_RESOLVE = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
# Errors where the kernel does not know openat2, or a container forbids it.
_ABSENT_ERRORS = frozenset([errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])


def open_beneath(root: str, path: str, flags: int = os.O_RDONLY) -> int:
    """Open the file `root/path` and return its descriptor; `path` has neither links nor `..`.

    `root` may also be a single file, and `path` `.` or empty. Does not wait for the writer of a
    FIFO, and no terminal becomes the controlling one. Raises OSError: ELOOP for a link, EXDEV for a
    path that leads out.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if path in ("", "."):
        return os.open(root, flags)
    if has_openat2():
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return syscalls.openat2(folder, path, flags=flags, resolve=_RESOLVE)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(folder)
    return walk_beneath(root, path, flags)


def walk_beneath(root: str, path: str, flags: int) -> int:
    """Open the file `root/path` folder by folder, as open_beneath does where openat2 is missing."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    with open_folder_beneath(Path(root), parts.parent.parts) as folder:
        return os.open(parts.name, flags | os.O_NOFOLLOW, dir_fd=folder)


@cache
def has_openat2() -> bool:
    """Tell whether the kernel knows openat2 and lets us call it."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(syscalls.openat2(folder, ".", flags=_FOLDER_FLAGS, resolve=_RESOLVE))
    except OSError as error:
        if error.errno in _ABSENT_ERRORS:
            return False
        raise
    finally:
        os.close(folder)
    return True


@contextmanager
def open_folder_beneath(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the folder `root/part/part…` and yield its descriptor; missing folders are made if
    `create`.

    A new folder gets the permissions and the owner of the folder it lies in. Raises OSError: ELOOP
    or ENOTDIR where a link stands in the way. Raises ValueError for a part that is no plain name.
    """
    # The root itself may be a link: its owner chose it.
    folder = os.open(root, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if part in ("", ".", "..") or "/" in part:
                raise ValueError(f"{part!r} is not the name of a folder")
            child = _open_or_make_folder(folder, part, create=create)
            os.close(folder)
            folder = child
        yield folder
    finally:
        os.close(folder)


def _open_or_make_folder(parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:  # another process made it meanwhile
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    copy_access(folder, parent, 0o2755)
    os.fsync(parent)
    return folder


def copy_access(descriptor: int, folder: int, mode: int) -> None:
    """Give a new file or folder the permissions of the folder it lies in, as far as `mode` allows,
    and, if this process is root, the same owner. `descriptor` is that of the new one.
    """
    status = os.fstat(folder)
    if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (0, 0):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    with suppress(PermissionError):  # a file system without modes, such as vfat
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & mode | mode & 0o700)
