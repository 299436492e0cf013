"""The sandbox of this machine, as a value: its level, and how a program is started in it.

    bubblewrap   namespaces: the program sees the system's programs, the workspace, what may be
    read, and nothing else
    landlock     the same files and no sockets, by rules of the kernel; other processes are seen,
    but not reached
    profiles     only what the policy knows to change nothing is run at all

Which one works here is found by trying to break out of it (detection.py).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from daemon.models import Json
from daemon.sandbox import confine
from daemon.sandbox.bounds import Bounds, Level, ProgramLimits
from daemon.sandbox.system_paths import (
    DEVICES,
    MACHINE_FOLDERS,
    SETTINGS,
    system_folders,
    system_links,
)
from daemon.system import syscalls

_UNIX, _NETLINK = 1, 16  # families of sockets that only reach this machine
_OPEN_FILES = 1024
_ADDRESSES = 8  # times its memory: programs reserve far more than they use


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """Who the programs of tools run as, if not as the daemon itself."""

    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One attempt to break out of a sandbox."""

    name: str
    held: bool
    """Whether the sandbox stood it."""
    found: str = ""
    """What happened, if it did not hold."""


@dataclass(frozen=True, slots=True)
class UnusableSandbox:
    """A sandbox that cannot be used here."""

    level: str
    """Empty: none can."""
    why: str
    is_installed: bool = True

    def __str__(self) -> str:
        return f"{self.level}: {self.why}" if self.level else self.why


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """How programs are confined here."""

    level: Level = "off"
    probes: tuple[Probe, ...] = ()
    """What was tried at this level."""
    unusable: tuple[UnusableSandbox, ...] = ()
    """The better ones, which this machine does not have."""
    user: User | None = None
    bwrap: str = "/usr/bin/bwrap"

    @property
    def missing(self) -> tuple[str, ...]:
        """Why there is no better one, in a line each."""
        return tuple(map(str, self.unusable))

    @property
    def confines(self) -> bool:
        """Whether a program that does harm is kept from it, not only one that is not known to."""
        return self.level in ("bubblewrap", "landlock")

    def cell(self, bounds: Bounds) -> Json:
        """Return what the supervisor needs to start a program within bounds; see supervisor.py."""
        cell: Json = {"limits": list(_limits(bounds.limits)), "processes": bounds.limits.processes}
        if self.user:
            cell["user"] = (self.user.uid, self.user.gid)
        if not self.confines:
            return cell
        if bounds.host:
            return cell | self._host_cell()
        if self.level == "bubblewrap":
            return cell | {"filter": confine.filter_program(), **self._bubblewrap_cell(bounds)}
        forbidden = (*confine.FORBIDDEN_CALLS, *confine.METADATA_CALLS, *self._signal_calls())
        program = confine.filter_program(forbidden, idle=confine.TIME_CALLS)
        return cell | {"filter": program, "places": list(_landlock_paths(bounds))}

    def _host_cell(self) -> Json:
        """Return the cell of a program whose words were found harmless: it reads the machine, and
        changes nothing.
        """
        if syscalls.landlock_version() < confine.OLDEST_LANDLOCK:
            return {}
        never = [name for name in confine.FORBIDDEN_CALLS if name != "open_by_handle_at"]
        path_rights = [
            *((path, confine.RUN) for path in system_folders()),
            *((path, confine.READ) for path in MACHINE_FOLDERS),
        ]
        return {
            "filter": confine.filter_program(
                (*never, *confine.METADATA_CALLS),
                idle=confine.TIME_CALLS,
                families=(_UNIX, _NETLINK),
            ),
            "places": [*path_rights, *((path, confine.DEVICE) for path in DEVICES)],
        }

    @staticmethod
    def _signal_calls() -> tuple[str, ...]:
        return confine.SIGNAL_CALLS if syscalls.landlock_version() < 6 else ()

    def _bubblewrap_cell(self, bounds: Bounds) -> Json:
        """Return the words of bubblewrap, and what is shown by name: left out where it cannot be
        seen by the user.
        """
        words = [
            self.bwrap,
            "--unshare-user",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--cap-drop",
            "ALL",
        ]
        words += ["--die-with-parent", "--new-session"]
        for target, link in system_links():
            words += ["--symlink", target, link]
        for path in system_folders():
            words += ["--ro-bind", path, path]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108  # its own, gone with it
        mounts = [("--ro-bind", path) for path in SETTINGS]
        mounts += [
            ("--ro-bind", path)
            for path in bounds.readable
            if not path.startswith(("/proc/", "/dev/"))
        ]
        mounts.append(("--bind" if bounds.writes else "--ro-bind", bounds.workspace))
        if bounds.writes:  # what git would run and obey
            mounts.append(("--ro-bind", f"{bounds.workspace}/.git"))
        return {"wrap": words, "shown": mounts, "folder": bounds.folder}


def _landlock_paths(bounds: Bounds) -> Iterator[tuple[str, str]]:
    yield from ((path, confine.RUN) for path in system_folders())
    yield from ((path, confine.READ) for path in (*SETTINGS, "/proc", *bounds.readable))
    yield from ((path, confine.DEVICE) for path in DEVICES)
    if bounds.writes:
        yield from _writable_paths(bounds.workspace)
    else:
        yield bounds.workspace, confine.READ


def _writable_paths(workspace: str) -> Iterator[tuple[str, str]]:
    """Yield what may be written of a workspace: all of it, or where it is a repository what lies in
    it beside `.git`.

    Rules of Landlock hold for all that lies beneath: whoever may make a file in the folder may
    change its `.git` too.
    """
    if not os.path.lexists(f"{workspace}/.git"):
        yield workspace, confine.WRITE
        return
    yield workspace, confine.READ
    with suppress(OSError), os.scandir(workspace) as entries:
        yield from ((entry.path, confine.INSIDE) for entry in entries if entry.name != ".git")


def _limits(limits: ProgramLimits) -> Iterator[tuple[int, int]]:
    yield resource.RLIMIT_CPU, limits.seconds + 1
    yield resource.RLIMIT_DATA, limits.memory
    yield resource.RLIMIT_AS, limits.memory * _ADDRESSES
    yield resource.RLIMIT_FSIZE, limits.file
    yield resource.RLIMIT_NOFILE, _OPEN_FILES
    yield resource.RLIMIT_CORE, 0
