"""Bound the memory and the processes of a call as a whole, by a control group (cgroup v2).

systemd gives the daemon's unit a group to divide (`Delegate=`), and starts the daemon in a subgroup
of it (`DelegateSubgroup=`), as no process may be in a group that is divided. Each call then gets a
group beside the daemon's:

    agentd.service/           ours to divide
        daemon/               the daemon
        call-PID-NUMBER/      the programs of one call; PID is the daemon's

The supervisor stays outside, so that it can report what the kernel kills: its children move
themselves in before they give up any right. Where any of this is not possible, the limits of each
process are all there is, and nothing here raises.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SUBGROUP = "daemon"
"""`DelegateSubgroup=` of our units. Only by this name do we know that the group above is ours."""

# Seconds for killed processes to go; only what hangs in the kernel takes longer.
_KILL_TIMEOUT = 2.0
_numbers = itertools.count(1)


def find_parent(pid: int | None = None, *, root: Path = Path("/")) -> Path | None:
    """Return the group that a process may divide; None if there is none. By default the process is
    this one.
    """
    for line in _read(Path(root, "proc", str(pid or "self"), "cgroup")).splitlines():
        path = Path(line.removeprefix("0::/"))
        # in a hybrid hierarchy the file has lines of version 1, too
        if line.startswith("0::/") and path.name == SUBGROUP:
            return root / "sys/fs/cgroup" / path.parent
    return None


def is_memory_counted(pid: int | None = None, *, root: Path = Path("/")) -> bool:
    """Return whether memory is counted in the groups that a daemon makes for calls."""
    parent = find_parent(pid, root=root)
    # the daemon's own group is given the controllers that theirs are given
    return parent is not None and (
        "memory" in _read(parent / SUBGROUP / "cgroup.controllers").split()
    )


def prepare_parent(*, root: Path = Path("/")) -> Path | None:
    """Get the group that this daemon may divide ready for calls, without what a killed daemon left
    there; None if the memory of a call cannot be counted here.
    """
    parent = find_parent(root=root)
    # the file system may be read-only, or the group somebody else's
    if parent is None or not all(
        os.access(path, os.W_OK) for path in (parent, parent / "cgroup.procs")
    ):
        return None
    for controller in ("pids", "memory"):
        _write(parent / "cgroup.subtree_control", f"+{controller}")
    # another daemon may share the group with us
    others = set(_read(parent / SUBGROUP / "cgroup.procs").split()) - {str(os.getpid())}
    for folder in parent.glob("call-*-*"):
        if folder.name.split("-")[1] not in others:
            CallGroup(folder).end()
    return parent if is_memory_counted(root=root) else None


@dataclass(frozen=True, slots=True)
class CallGroup:
    """The control group of one call."""

    folder: Path

    @classmethod
    def create(cls, parent: Path, *, memory: int, processes: int) -> CallGroup | None:
        """Create a group for programs that may use so many bytes and processes together; None if
        there can be none.
        """
        folder = parent / f"call-{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError:
            return None
        _write(folder / "memory.max", str(memory))
        _write(folder / "memory.swap.max", "0")
        _write(folder / "memory.oom.group", "1")
        _write(folder / "pids.max", str(processes))
        return cls(folder)

    def end(self) -> bool:
        """Kill what is left in the group, and remove it. Return whether the kernel had to kill
        programs of the call because they reached its limit on memory.
        """
        events = dict(line.split() for line in _read(self.folder / "memory.events").splitlines())
        _write(self.folder / "cgroup.kill", "1")
        deadline = time.monotonic() + _KILL_TIMEOUT
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.001)
        # `oom_kill` alone may mean that the whole machine is out of memory
        return all(events.get(name, "0") != "0" for name in ("oom", "oom_kill"))

    def _is_busy(self) -> bool:
        """Remove the group unless processes are left in it; return whether they are."""
        try:
            self.folder.rmdir()
        except OSError as error:
            return error.errno == errno.EBUSY
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Write a file of the kernel, if it is there and may be written."""
    with suppress(OSError):
        path.write_text(text)
