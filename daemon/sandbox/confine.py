"""Take rights away from the calling process, for good: Landlock for files, limits, another user.

Landlock is an allow-list of places. What it does not know, modes and owners of files, sockets other
than TCP, calls that reach other processes, is forbidden by a filter of system calls
(syscall_filter.py).

Standard library and system/syscalls.py only, and neither pathlib, typing nor collections.abc: every
command waits until its supervisor has loaded this file, and pathlib would double that time.
"""

from __future__ import annotations

import os
import signal
import stat

from daemon.system import syscalls

# --- Landlock: <linux/landlock.h>

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# What each version of the interface can forbid: the highest right, then TCP, then signals and
# abstract sockets.
_HIGHEST_RIGHTS = {1: 1 << 12, 2: 1 << 13, 3: 1 << 14, 4: 1 << 14}
_TCP, _SCOPES = 0b11, 0b11
OLDEST_LANDLOCK = 3
"""The first that forbids to cut a file short."""

READ, RUN, WRITE, DEVICE = "read", "run", "write", "device"
# As WRITE, of what lies in a folder that programs can write to: a link there leads to where they
# want it to.
INSIDE = "inside"


def create_ruleset(paths: list[tuple[str, str]]) -> int:
    """Return a descriptor of rules: these places in these ways (READ, RUN, WRITE, DEVICE, INSIDE),
    and nothing else.

    A place that is not there, or that we may not see, is left out.
    """
    version = syscalls.landlock_version()
    # all rights up to the highest that this version knows
    handled_rights = 2 * _HIGHEST_RIGHTS.get(version, _IOCTL_DEV) - 1
    rights = {
        READ: _READ_FILE | _READ_DIR,
        RUN: _READ_FILE | _READ_DIR | _EXECUTE,
        WRITE: handled_rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        INSIDE: handled_rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        DEVICE: _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
    }
    fields = [
        handled_rights,
        *([_TCP] if version >= 4 else []),
        *([_SCOPES] if version >= 6 else []),
    ]
    rules = syscalls.landlock_create_ruleset(fields)
    for path, access_kind in paths:
        try:
            descriptor = os.open(
                path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if access_kind == INSIDE else 0)
            )
        except OSError:
            continue
        try:
            access, mode = rights[access_kind] & handled_rights, os.fstat(descriptor).st_mode
            if stat.S_ISLNK(mode):
                continue
            if not stat.S_ISDIR(mode):
                access &= _FILE_RIGHTS
            syscalls.landlock_add_path_rule(rules, descriptor, access)
        finally:
            os.close(descriptor)
    return rules


# --- attributes, user and limits of a process


def keep_memory_private() -> None:
    """Close our memory, environment and descriptors to other processes of the same user, where the
    kernel can; root may still look.
    """
    try:
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    except OSError:
        return


def die_with_parent(parent: int) -> None:
    """Be killed when the parent dies, also if that has just happened.

    Changing the user would undo it.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(137)


def become_user(user: int, group: int) -> None:
    """Be another user from here on, with no way back."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def set_limits(limits: list[tuple[int, int]]) -> None:
    """Set resource limits, soft and hard; one that is lower already stays."""
    import resource

    for resource_number, maximum in limits:
        _, hard = resource.getrlimit(resource_number)
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(resource_number, (limit, limit))
