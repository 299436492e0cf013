"""Listening Unix sockets: created for the users who may connect, never taken from a running daemon,
removed only by the process that created them.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from daemon.errors import ConfigError, Fault, SocketBusy

log = structlog.get_logger()

MAX_PATH_BYTES = 107  # sun_path without its final NUL (unix(7)); macOS has 103
FIRST_INHERITED = 3  # sd_listen_fds(3)
# What people read for the names that systemd's units give the sockets.
SOCKET_TITLES = {"control": "control socket", "hooks": "webhook socket"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerSocket:
    """A listening socket, and its file if this process created that."""

    socket: socket.socket
    path: Path
    file_id: tuple[int, int] | None
    """Device and inode of the file that this process created; None for an inherited socket."""

    def close(self) -> None:
        """Stop listening, and remove the file if it is still the one that this process created."""
        self.socket.close()
        if self.file_id is None:
            return
        with suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self.file_id:
                self.path.unlink()


def take_inherited(env: Mapping[str, str], name: str = "control") -> ListenerSocket | None:
    """Return the socket of this name that systemd opened for this process; None if there is none.

    The first socket is `control`, whatever its name.
    """
    if env.get("LISTEN_PID") != str(os.getpid()) or not env.get("LISTEN_FDS", "").isdecimal():
        return None
    count = int(env["LISTEN_FDS"])
    names = env.get("LISTEN_FDNAMES", "").split(":")
    if not count:
        return None
    if name not in names[:count] and name != "control":
        return None
    fd = FIRST_INHERITED + (names.index(name) if name in names[:count] else 0)
    listener = socket.socket(fileno=fd)
    listener.set_inheritable(False)
    address = listener.getsockname()
    if listener.family != socket.AF_UNIX or listener.type != socket.SOCK_STREAM:
        fault = Fault(
            file=f"descriptor {fd}",
            key="",
            found=str(address),
            problem="is not a Unix stream socket",
        )
        raise ConfigError(fault)
    return ListenerSocket(
        socket=listener,
        path=Path(address if isinstance(address, str) else os.fsdecode(address)),
        file_id=None,
    )


def open_listener(
    path: Path, env: Mapping[str, str], *, name: str = "control", group: int | None = None
) -> ListenerSocket:
    """Return the socket that systemd opened for this process, else create one at `path`: for this
    user alone, or for `group` as well.

    Raises ConfigError if it cannot be created, SocketBusy if a daemon listens there already.
    """
    if listener := take_inherited(env, name):
        return listener
    listener = _bind(path, SOCKET_TITLES[name], 0o660 if name == "hooks" else 0o600)
    if group is not None:
        try:
            _give_to_group(path, group, env)
        except BaseException:
            listener.close()
            raise
    return listener


def _give_to_group(path: Path, group: int, env: Mapping[str, str]) -> None:
    """Let a group connect to a socket, and pass through its folder.

    Raises ConfigError if permissions cannot be changed so.
    """
    folder = path.parent
    status = folder.stat()
    try:
        os.chown(path, -1, group)
        path.chmod(0o660)
        if status.st_mode & 0o001 or (status.st_mode & 0o010 and status.st_gid == group):
            return
        if status.st_mode & 0o010:  # another group passes there: that of the other socket
            folder.chmod(stat.S_IMODE(status.st_mode) | 0o001)
            return
        if os.fspath(folder) == env.get("XDG_RUNTIME_DIR"):
            problem = "no group can be let into $XDG_RUNTIME_DIR, which holds more than this socket"
            raise ConfigError(
                _make_fault(
                    folder,
                    problem,
                    "start agentd with RUNTIME_DIRECTORY set to a folder of its own",
                )
            )
        os.chown(folder, -1, group)
        folder.chmod(0o710)
    except OSError as error:
        hint = "who runs agentd must be a member of the group, and own the folder"
        raise ConfigError(
            _make_fault(path, f"cannot be given to the group: {error.strerror}", hint)
        ) from error


def _bind(path: Path, title: str, mode: int) -> ListenerSocket:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        length = f"{len(os.fsencode(path))} bytes"
        hint = f"a socket's path may have {MAX_PATH_BYTES}; name a shorter one"
        raise ConfigError(
            _make_fault(path, f"the path of the {title} is too long", hint, found=length)
        )
    _make_folder(path.parent)
    _remove_stale_socket(path, title)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # before the file exists, so that it is closed to others from its first moment on
    previous_umask = os.umask(0o777 & ~mode)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise ConfigError(
            _make_fault(path, f"the {title} cannot be made there: {error.strerror}")
        ) from error
    finally:
        os.umask(previous_umask)
    status = path.lstat()
    return ListenerSocket(socket=listener, path=path, file_id=(status.st_dev, status.st_ino))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise ConfigError(
            _make_fault(folder, f"the socket's folder cannot be made: {error.strerror}")
        ) from error
    if status.st_uid not in (os.geteuid(), 0):
        problem = f"the socket's folder belongs to another user (uid {status.st_uid})"
        raise ConfigError(_make_fault(folder, problem, "name another path"))
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        problem = (
            "others may write to the socket's folder, and so put a socket of theirs in its place"
        )
        raise ConfigError(
            _make_fault(
                folder,
                problem,
                f"chmod 700 {folder}",
                found=f"mode {stat.S_IMODE(status.st_mode):04o}",
            )
        )


def _remove_stale_socket(path: Path, title: str) -> None:
    """Remove the socket file of a daemon that is gone.

    Raises SocketBusy if a daemon listens there, ConfigError if something else is in the way.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        problem = f"something that is not a socket is in the way of the {title}; it is left alone"
        raise ConfigError(_make_fault(path, problem, "move it, or name another path"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        error_number = probe.connect_ex(os.fspath(path))
        # EAGAIN: a process listens, and has not accepted its last connections yet
        if error_number in (0, errno.EAGAIN):
            raise SocketBusy(str(path), peer_credentials(probe)[1] if not error_number else None)
    if error_number != errno.ECONNREFUSED:
        reason = os.strerror(error_number)
        raise ConfigError(
            _make_fault(path, f"the socket there cannot be asked who listens: {reason}")
        )
    if status.st_uid != os.geteuid():
        problem = f"a dead socket of another user (uid {status.st_uid}) is in the way"
        raise ConfigError(_make_fault(path, problem, "remove it, or name another path"))
    path.unlink()
    log.info("socket.stale_removed", path=str(path))


def _make_fault(path: Path, problem: str, hint: str = "", found: str = "") -> Fault:
    return Fault(file=str(path), key="", found=found, problem=problem, hint=hint)


def peer_credentials(connection: socket.socket) -> tuple[int | None, int | None]:
    """Return uid and pid of the process at the other end, as the kernel knows them."""
    if sys.platform == "linux":
        pid, uid, _gid = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        return uid, pid
    # LOCAL_PEERCRED (sys/un.h): struct xucred begins with its version and the uid
    _version, uid = struct.unpack_from("II", connection.getsockopt(0, 0x001, 76))
    return uid, None
