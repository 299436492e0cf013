"""Open a file beneath a folder, such that neither `..` nor a symbolic link can lead out of it.

openat2 does that in one call of the kernel. Where it is missing (Linux before 5.6, some containers,
macOS), the path is opened folder by folder, without following links (safe_folder.py). Both return a
descriptor, so a path that is changed meanwhile does no harm.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path, PurePosixPath

from daemon.system.safe_folder import folder_beneath

_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
# Not known to this kernel, or forbidden by a container that does not know it.
_ABSENT = frozenset([errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])


def open_beneath(root: str, path: str, flags: int = os.O_RDONLY) -> int:
    """Open `inside`, a path without links and `..`, beneath `root`, which may also be a single file
    and `inside` `.`.

    Never waits (for the writer of a FIFO) and never becomes a controlling terminal. Raises OSError:
    ELOOP for a link, EXDEV for a path that leads out.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if path in ("", "."):
        return os.open(root, flags)
    if has_openat2():
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _openat2(folder, path, flags)
        finally:
            os.close(folder)
    return walk_beneath(root, path, flags)


def walk_beneath(root: str, path: str, flags: int) -> int:
    """Open a file folder by folder, following no link."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    with folder_beneath(Path(root), parts.parent.parts) as folder:
        return os.open(parts.name, flags | os.O_NOFOLLOW, dir_fd=folder)


class _OpenHow(ctypes.Structure):
    """struct open_how of <linux/openat2.h>."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def has_openat2() -> bool:
    """Tell whether the kernel knows openat2 and lets us call it."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(folder, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    finally:
        os.close(folder)
    return True


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, path: str, flags: int) -> int:
    how = _OpenHow(flags=flags, mode=0, resolve=_BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    fd = _libc().syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(fd)
