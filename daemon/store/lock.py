"""The lock on the state folder: one daemon at a time uses it.

The lock is the kernel's (flock), so it ends with the process however that ends; the pid in the file
is only for the text of an error. The process that gets the lock knows that no other one executes
runs of this journal.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from daemon.errors import ConfigError, Fault, StateBusy

MOUNTS = Path("/proc/self/mountinfo")
# Seconds for which a start waits for the lock of a process that is gone.
HANDOVER_SECONDS = 5.0

# On these, locks may be granted twice or memory of a WAL index is not shared between machines: a
# database there breaks.
NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "fuse.sshfs",
        "fuse.rclone",
        "fuse.davfs",
    }
)


class StateLock:
    """The lock on a state folder, held until released or until the process ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the next daemon in.

        The file stays: removing it would let two daemons lock two files of one name.
        """
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            # Not only by closing it: a child that was forked just now has a copy until its exec.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def folder_id(self, new_id: str) -> str:
        """Return the id of this state folder, kept in the file `agentd.id`; `new_id` if there is
        none yet.
        """
        path = self.path.with_name("agentd.id")
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(descriptor, f"{new_id}\n".encode())
            os.close(descriptor)
        return path.read_text("utf-8").strip() or new_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def lock_state(folder: Path, *, mounts: Path = MOUNTS) -> StateLock:
    """Create the state folder if it is missing, and lock it.

    Raises StateBusy, with the process that holds the lock; ConfigError if the folder lies on a
    network file system or cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _make_private(folder)
        type_ = filesystem(folder, mounts)
        if type_ in NETWORK:
            raise _unusable(
                folder,
                type_,
                "a network file system cannot hold the database",
                "choose a local folder",
            )
        path = folder / "agentd.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = f"the state folder cannot be used: {error.strerror}"
        raise _unusable(folder, "", problem, "name a folder of your own with --state") from error
    try:
        _lock(descriptor)
    except BlockingIOError:
        holder = _read_holder(descriptor)
        os.close(descriptor)
        raise StateBusy(str(folder), holder) from None
    except OSError as error:
        os.close(descriptor)
        raise _unusable(
            folder, "", f"its file system cannot lock files: {error.strerror}", "choose another"
        ) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        problem = f"the state folder cannot be written: {error.strerror}"
        hint = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another"
        raise _unusable(folder, "", problem, hint) from error
    return StateLock(path, descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file, or raise BlockingIOError.

    A process that was killed while it started a program leaves a child that has a copy of the lock
    until its exec: if the holder is gone, the lock is waited for.
    """
    deadline = time.monotonic() + HANDOVER_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor)
            if holder is None or _is_alive(holder) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def find_holder(folder: Path) -> int | None:
    """Return the id of the daemon that uses a state folder, as it wrote it there; None if none is
    known.
    """
    try:
        descriptor = os.open(folder / "agentd.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> int | None:
    """Return the id of the process that wrote it into the lock's file; None if there is none."""
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; or no id of a process
        return True
    return True


def filesystem(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that a folder lies on; empty where the system does not
    say (macOS).
    """
    real_folder, type_ = folder.resolve(), ""
    with suppress(FileNotFoundError):
        deepest = -1
        # e.g. `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`; see proc(5)
        for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            mount, _, source = line.partition(" - ")
            point = Path(_unescape(mount.split()[4]))
            # of several on one mount point the last one is on top
            if real_folder.is_relative_to(point) and len(point.parts) >= deepest:
                deepest, type_ = len(point.parts), source.split()[0]
    return type_


def _unescape(text: str) -> str:
    """Return a mount point without the kernel's octal escapes, such as of blanks."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _make_private(folder: Path) -> None:
    # If agentd is root, tools run as another user, who has to pass through to the workspace.
    mode, user = 0o711 if os.geteuid() == 0 else 0o700, os.geteuid()
    status = folder.stat()
    if status.st_uid == user and status.st_mode & 0o777 != mode:
        folder.chmod(mode)


def _unusable(folder: Path, found: str, problem: str, hint: str) -> ConfigError:
    return ConfigError(Fault(file=str(folder), key="", found=found, problem=problem, hint=hint))
