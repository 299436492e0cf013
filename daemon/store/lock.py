"""The state folder: made, made private, and held by one daemon at a time.

The lock is the kernel's (flock), so it ends with the process however that ends; the pid in the file
is for the reader of the error only. Whoever holds it may take every running run of the journal for
dead.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from daemon.errors import ConfigError, Fault, StateBusy

MOUNTS = Path("/proc/self/mountinfo")

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
            # in so many words: a child started this instant may hold a copy until it has come as
            # far as its exec
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def home(self, new: str) -> str:
        """Return the name by which other machines know this folder: `new` if it has none yet."""
        path = self.path.with_name("agentd.id")
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(descriptor, f"{new}\n".encode())
            os.close(descriptor)
        return path.read_text("utf-8").strip() or new

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
    """Make the state folder if need be and lock it.

    StateBusy names the process that holds it. ConfigError if it lies on a network file system or
    cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _make_private(folder)
        if (found := filesystem(folder, mounts)) in NETWORK:
            raise _unusable(
                folder,
                found,
                "a network file system cannot hold the database",
                "choose a local folder",
            )
        path = folder / "agentd.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = f"the state folder cannot be used: {error.strerror}"
        raise _unusable(folder, "", problem, "name a folder of your own with --state") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32)
        os.close(descriptor)
        raise StateBusy(str(folder), int(holder) if holder.strip().isdigit() else None) from None
    except OSError as error:
        os.close(descriptor)
        raise _unusable(
            folder, "", f"its file system cannot lock files: {error.strerror}", "choose another"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return StateLock(path, descriptor)


def filesystem(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system a folder lies on, empty where the system does not tell
    (macOS).
    """
    place, found = folder.resolve(), ""
    with suppress(FileNotFoundError):
        deepest = -1
        # e.g. `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`; see proc(5)
        for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            mount, _, rest = line.partition(" - ")
            point = Path(_unescape(mount.split()[4]))
            # of several on one mount point the last one is on top
            if place.is_relative_to(point) and len(point.parts) >= deepest:
                deepest, found = len(point.parts), rest.split()[0]
    return found


def _unescape(text: str) -> str:
    """Undo how the kernel writes blanks in mount points."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _make_private(folder: Path) -> None:
    # As root the tools run as another user, who must get through to the workspace in it, but sees
    # nothing else.
    mode, user = 0o711 if os.geteuid() == 0 else 0o700, os.geteuid()
    found = folder.stat()
    if found.st_uid == user and found.st_mode & 0o777 != mode:
        folder.chmod(mode)


def _unusable(folder: Path, found: str, problem: str, hint: str) -> ConfigError:
    return ConfigError(Fault(file=str(folder), key="", found=found, problem=problem, hint=hint))
