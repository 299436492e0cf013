"""Take rights away from the calling process, for good: Landlock for files, seccomp for calls,
limits, another user.

Theory of operation: Landlock is an allow-list of places; it knows neither modes, owners and times
of files nor sockets other than TCP, so seccomp forbids the calls that change those. What a filter
forbids fails with an error that a program can tell.

Standard library and system/syscalls.py only, and neither pathlib, typing nor collections.abc: every
command waits until its supervisor has loaded this file, and pathlib would double that time.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import struct

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
    handled = 2 * _HIGHEST_RIGHTS.get(version, _IOCTL_DEV) - 1
    rights = {
        READ: _READ_FILE | _READ_DIR,
        RUN: _READ_FILE | _READ_DIR | _EXECUTE,
        WRITE: handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        INSIDE: handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        DEVICE: _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
    }
    fields = [handled, *([_TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    rules = syscalls.landlock_create_ruleset(fields)
    for path, access_kind in paths:
        try:
            descriptor = os.open(
                path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if access_kind == INSIDE else 0)
            )
        except OSError:
            continue
        try:
            access, mode = rights[access_kind] & handled, os.fstat(descriptor).st_mode
            if stat.S_ISLNK(mode):
                continue
            if not stat.S_ISDIR(mode):
                access &= _FILE_RIGHTS
            syscalls.landlock_add_path_rule(rules, descriptor, access)
        finally:
            os.close(descriptor)
    return rules


# --- seccomp: <linux/seccomp.h>, <linux/filter.h>

# Ways to other processes, to the kernel's inside, and out of a sandbox; no tool of a report needs
# one.
FORBIDDEN_CALLS = (
    "add_key",
    "bpf",
    "chroot",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "reboot",
    "request_key",
    "setns",
    "swapoff",
    "swapon",
    "umount2",
    "unshare",
    "userfaultfd",
)
# What Landlock does not know: modes, owners, times and labels of files that it lets be read.
METADATA_CALLS = (
    "chmod",
    "chown",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "file_setattr",
    "fremovexattr",
    "fsetxattr",
    "lchown",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setxattr",
    "setxattrat",
)
# Likewise, but touch, cp and tar would fail by them where nobody cares: they do nothing, and say
# that all is well.
TIME_CALLS = ("futimesat", "utime", "utimensat", "utimes")
# Before its version 6 Landlock lets signals through.
SIGNAL_CALLS = (
    "kill",
    "pidfd_send_signal",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "tgkill",
    "tkill",
)

# <linux/audit.h>
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # calls of another numbering, x86_64 only
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW* in clone(2), but for NEWTIME, which it does not take
# Typing into the terminal, pasting into the console, flags of files (ext4).
_IOCTLS = (0x5412, 0x541C, 0x40086602)
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# offsets in struct seccomp_data; little-endian
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = (
    0,
    4,
    16,
    24,
)


def filter_program(
    forbidden: tuple[str, ...] = FORBIDDEN_CALLS,
    *,
    idle: tuple[str, ...] = (),
    families: tuple[int, ...] = (),
    machine: str = "",
) -> bytes | None:
    """Return a filter that forbids these calls, new namespaces, and sockets but of these families.

    Calls in `idle` succeed and do nothing.

    None for a machine whose numbers are not known here.
    """
    machine = machine or os.uname().machine
    if machine not in _AUDIT_ARCHITECTURES:
        return None
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]
    code.append((_LOAD, 0, 0, _NUMBER))
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name in (*forbidden, *idle):
        if (number := syscalls.number_on(machine, name)) >= 0:
            code += [
                (_EQUAL, 0, 1, number),
                (_RETURN, 0, 0, _ERRNO | (0 if name in idle else errno.EPERM)),
            ]
    # its flags lie in memory, where a filter cannot look; told that it is unknown, the C library
    # calls clone
    code += [
        (_EQUAL, 0, 1, syscalls.number_on(machine, "clone3")),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    code += [
        (_EQUAL, 0, 4, syscalls.number_on(machine, "clone")),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
    ]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    code += _by_argument(
        machine, "socket", _FIRST, families, on_match=_ALLOW, default=_ERRNO | errno.EACCES
    )
    code += _by_argument(
        machine, "ioctl", _SECOND, _IOCTLS, on_match=_ERRNO | errno.EPERM, default=_ALLOW
    )
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _by_argument(
    machine: str, name: str, offset: int, values: tuple[int, ...], *, on_match: int, default: int
) -> list[tuple[int, int, int, int]]:
    """Return what decides a call by the lower half of one of its arguments, and passes over every
    other call.
    """
    tests = [
        line for value in values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, on_match))
    ]
    body = [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, default)]
    return [(_EQUAL, 0, len(body), syscalls.number_on(machine, name)), *body]


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
