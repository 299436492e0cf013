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
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.models import Json
from daemon.sandbox import confine, syscall_filter
from daemon.sandbox.bounds import Bounds, Level, ProgramLimits
from daemon.sandbox.system_paths import (
    DEVICES,
    MACHINE_FOLDERS,
    SETTINGS,
    system_folders,
    system_links,
)
from daemon.system import syscalls

_MAX_OPEN_FILES = 1024
# Address space of a program, as a multiple of its memory: programs reserve far more than they use.
_ADDRESS_SPACE_FACTOR = 8
# What bubblewrap starts for each program: it counts among the processes of a call.
_PROCESSES_OF_BUBBLEWRAP = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """Who the programs of tools run as, if not as the daemon itself."""

    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EscapeTest:
    """The result of one attempt to break out of a sandbox."""

    name: str
    is_blocked: bool
    """Whether the sandbox prevented it."""
    detail: str = ""
    """What happened, if the sandbox did not prevent it."""


@dataclass(frozen=True, slots=True)
class UnusableSandbox:
    """A sandbox that cannot be used here."""

    level: str
    """Empty: this system has no sandbox at all."""
    why: str
    is_installed: bool = True

    def __str__(self) -> str:
        return f"{self.level}: {self.why}" if self.level else self.why


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """How programs are confined here."""

    level: Level = "off"
    escape_tests: tuple[EscapeTest, ...] = ()
    """The results of the escape tests at this level; empty if none were run."""
    unusable: tuple[UnusableSandbox, ...] = ()
    """The better ones, which this machine does not have."""
    user: User | None = None
    bwrap: str = "/usr/bin/bwrap"
    bwrap_sizes: bool = True
    """Whether it can bound folders in memory, as it does from version 0.7 on."""
    groups: Path | None = None
    """The control group in which each call gets one (call_groups.py); None if there are none."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why there is no better one, in a line each."""
        return tuple(map(str, self.unusable))

    @property
    def confines(self) -> bool:
        """Whether a program is kept from doing harm, whatever it is. At the other levels nothing
        confines it: `profiles` only refuses to run what the policy does not know to be harmless.
        """
        return self.level in ("bubblewrap", "landlock")

    def cell(self, bounds: Bounds) -> Json:
        """Return what the supervisor needs to start a program within bounds; see supervisor.py."""
        cell: Json = {"limits": list(_limits(bounds.limits)), "processes": bounds.limits.processes}
        if self.user:
            cell["user"] = (self.user.uid, self.user.gid)
        if self.groups:
            processes = bounds.limits.processes + _PROCESSES_OF_BUBBLEWRAP
            cell["group"] = (str(self.groups), bounds.limits.memory, processes)
        if not self.confines:
            return cell
        if bounds.host:
            return cell | self._host_cell()
        if self.level == "bubblewrap":
            filter_program = syscall_filter.compile_filter(syscall_filter.IN_NAMESPACES)
            return cell | {"filter": filter_program, **self._bubblewrap_cell(bounds)}
        rules = syscall_filter.rules_beside_landlock(syscalls.landlock_version())
        filter_program = syscall_filter.compile_filter(rules)
        return cell | {"filter": filter_program, "places": list(_landlock_paths(bounds))}

    def _host_cell(self) -> Json:
        """Return the cell of a program whose words were found harmless: it reads the machine, and
        changes nothing.
        """
        if syscalls.landlock_version() < confine.OLDEST_LANDLOCK:
            return {}
        path_rights = [
            *((path, confine.RUN) for path in system_folders()),
            *((path, confine.READ) for path in MACHINE_FOLDERS),
        ]
        return {
            "filter": syscall_filter.compile_filter(syscall_filter.HOST_READERS),
            "places": [*path_rights, *((path, confine.DEVICE) for path in DEVICES)],
        }

    def _bubblewrap_cell(self, bounds: Bounds) -> Json:
        """Return the arguments of bubblewrap, and the places to mount, of which the supervisor
        leaves out those that the user cannot see.
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
        words += ["--proc", "/proc", "--dev", "/dev"]
        # Folders of the program's own, which vanish with it. Their files are memory: each folder
        # may take half of what the program may have.
        size = ["--size", str(bounds.limits.memory // 2)] if self.bwrap_sizes else []
        words += [*size, "--tmpfs", "/tmp", *size, "--tmpfs", "/dev/shm"]  # noqa: S108
        words += ["--remount-ro", "/dev"]
        mounts = [("--ro-bind", path) for path in SETTINGS]
        mounts += [
            ("--ro-bind", path)
            for path in bounds.readable
            if not path.startswith(("/proc/", "/dev/"))
        ]
        mounts.append(("--bind" if bounds.writes else "--ro-bind", bounds.workspace))
        if bounds.writes:
            mounts += [("--ro-bind", path) for path in bounds.protected]
        return {"wrap": words, "shown": mounts, "folder": bounds.folder}


def _landlock_paths(bounds: Bounds) -> Iterator[tuple[str, str]]:
    yield from ((path, confine.RUN) for path in system_folders())
    yield from ((path, confine.READ) for path in (*SETTINGS, "/proc", *bounds.readable))
    yield from ((path, confine.DEVICE) for path in DEVICES)
    if bounds.writes:
        yield from _writable_paths(bounds.workspace, bounds.protected, confine.WRITE)
    else:
        yield bounds.workspace, confine.READ


def _writable_paths(
    folder: str, protected: Collection[str], access: str
) -> Iterator[tuple[str, str]]:
    """Yield what may be written of a folder: all of it, or where something in it is protected, what
    lies beside that.

    Rules of Landlock hold for all that lies beneath: whoever may make a file in a folder may change
    its `.git` too.
    """
    beneath = [path for path in protected if path.startswith(f"{folder}/")]
    if not beneath:
        yield folder, access
        return
    yield folder, confine.READ
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path not in beneath:
                yield from _writable_paths(entry.path, beneath, confine.INSIDE)


def _limits(limits: ProgramLimits) -> Iterator[tuple[int, int]]:
    yield resource.RLIMIT_CPU, limits.seconds + 1
    yield resource.RLIMIT_DATA, limits.memory
    yield resource.RLIMIT_AS, limits.memory * _ADDRESS_SPACE_FACTOR
    yield resource.RLIMIT_FSIZE, limits.file
    yield resource.RLIMIT_NOFILE, _MAX_OPEN_FILES
    yield resource.RLIMIT_CORE, 0
