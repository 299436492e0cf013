"""Take rights away from the calling process, for good: Landlock for files, seccomp for calls,
limits, another user.

Theory of operation: the kernel is spoken to directly, as there is no library that every machine
has. Landlock is an allow-list of places; it knows neither modes, owners and times of files nor
sockets other than TCP, so seccomp forbids the calls that change those. What a filter forbids fails
with an error that a program can tell.

Standard library only and no import of ours: the supervisor, which every command waits for, loads
this file by itself.
"""

# pathlib would double the start of the supervisor, and typing or collections.abc add a good part of
# it again

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

# <linux/prctl.h>
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 4, 22, 38
_FILTER = 2
_KILL = 9

# --- Landlock: <linux/landlock.h>
# ------------------------------------------------------------------------

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# What each version of the interface can forbid: the highest right, then TCP, then signals and
# abstract sockets.
_HIGHEST = {1: 1 << 12, 2: 1 << 13, 3: 1 << 14, 4: 1 << 14}
_TCP, _SCOPES = 0b11, 0b11
OLDEST_LANDLOCK = 3
"""The first that forbids to cut a file short."""

READ, RUN, WRITE, DEVICE = "read", "run", "write", "device"
# As WRITE, of what lies in a folder that programs can write to: a link there leads to where they
# want it to.
INSIDE = "inside"


def landlock_version() -> int:
    """Return which version of Landlock the kernel speaks; 0 if none, or if it is switched off."""
    version = int(_libc().syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))
    return max(version, 0)


def ruleset(paths: list[tuple[str, str]]) -> int:
    """Return a descriptor of rules: these places in these ways (READ, RUN, WRITE, DEVICE, INSIDE),
    and nothing else.

    A place that is not there, or that we may not see, is left out.
    """
    version = landlock_version()
    handled = 2 * _HIGHEST.get(version, _IOCTL_DEV) - 1
    rights = {
        READ: _READ_FILE | _READ_DIR,
        RUN: _READ_FILE | _READ_DIR | _EXECUTE,
        WRITE: handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        INSIDE: handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
        DEVICE: _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
    }
    fields = [handled, *([_TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    rules = _checked(_libc().syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path, access_kind in paths:
        try:
            descriptor = os.open(
                path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if access_kind == INSIDE else 0)
            )
        except OSError:
            continue
        try:
            allowed, mode = rights[access_kind] & handled, os.fstat(descriptor).st_mode
            if stat.S_ISLNK(mode):
                continue
            if not stat.S_ISDIR(mode):
                allowed &= _OF_FILES
            _checked(
                _libc().syscall(_ADD, rules, _BENEATH, struct.pack("=Qi", allowed, descriptor), 0)
            )
        finally:
            os.close(descriptor)
    return rules


def restrict(rules: int) -> None:
    """Put the calling thread, and all that it starts, under these rules."""
    _checked(_libc().syscall(_RESTRICT, rules, 0))


# --- seccomp: <linux/seccomp.h>, <linux/filter.h>
# --------------------------------------------------------

# The numbers of a call on x86_64 and aarch64; -1 where there is none.
_CALLS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, -1),
    "chown": (92, -1),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, -1),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, -1),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setns": (308, 268),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, -1),
    "utimensat": (280, 88),
    "utimes": (235, -1),
}
# Ways to other processes, to the kernel's inside, and out of a sandbox; no tool of a report needs
# one.
NEVER = (
    *(
        "add_key",
        "bpf",
        "chroot",
        "delete_module",
        "fanotify_init",
        "finit_module",
        "fsconfig",
        "fsmount",
    ),
    *(
        "fsopen",
        "fspick",
        "init_module",
        "io_uring_enter",
        "io_uring_register",
        "io_uring_setup",
        "kcmp",
    ),
    *("kexec_file_load", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount"),
    *(
        "open_by_handle_at",
        "open_tree",
        "perf_event_open",
        "pidfd_getfd",
        "pivot_root",
        "process_vm_readv",
    ),
    *(
        "process_vm_writev",
        "ptrace",
        "reboot",
        "request_key",
        "setns",
        "swapoff",
        "swapon",
        "umount2",
    ),
    *("unshare", "userfaultfd"),
)
# What Landlock does not know: modes, owners, times and labels of files that it lets be read.
METADATA = (
    *(
        "chmod",
        "chown",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "fchown",
        "fchownat",
        "file_setattr",
        "fremovexattr",
    ),
    *(
        "fsetxattr",
        "lchown",
        "lremovexattr",
        "lsetxattr",
        "removexattr",
        "removexattrat",
        "setxattr",
        "setxattrat",
    ),
)
# Likewise, but touch, cp and tar would fail by them where nobody cares: they do nothing, and say
# that all is well.
TIMES = ("futimesat", "utime", "utimensat", "utimes")
# Before its version 6 Landlock lets signals through.
SIGNALS = ("kill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill")

_ARCHITECTURES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}  # <linux/audit.h>, and the column above
_X32 = 0x40000000  # calls of another numbering, x86_64 only
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW* in clone(2), but for NEWTIME, which it does not take
# Typing into the terminal, pasting into the console, flags of files (ext4).
_IOCTLS = (0x5412, 0x541C, 0x40086602)
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = (
    0,
    4,
    16,
    24,
)  # offsets in struct seccomp_data; little-endian


def filter_program(
    forbidden: tuple[str, ...] = NEVER,
    *,
    idle: tuple[str, ...] = (),
    families: tuple[int, ...] = (),
    machine: str = "",
) -> bytes | None:
    """Return a filter that forbids these calls, new namespaces, and sockets but of these families.

    Calls in `idle` succeed and do nothing.

    None for a machine whose numbers are not known here.
    """
    architecture_row = _ARCHITECTURES.get(machine or os.uname().machine)
    if architecture_row is None:
        return None
    architecture, column = architecture_row
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]
    code.append((_LOAD, 0, 0, _NUMBER))
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name in (*forbidden, *idle):
        if (number := _CALLS[name][column]) >= 0:
            code += [
                (_EQUAL, 0, 1, number),
                (_RETURN, 0, 0, _ERRNO | (0 if name in idle else errno.EPERM)),
            ]
    # its flags lie in memory, where a filter cannot look; told that it is unknown, the C library
    # calls clone
    code += [(_EQUAL, 0, 1, _CALLS["clone3"][column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [
        (_EQUAL, 0, 4, _CALLS["clone"][column]),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
    ]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    code += _by_argument(
        "socket", column, _FIRST, families, on_match=_ALLOW, default=_ERRNO | errno.EACCES
    )
    code += _by_argument(
        "ioctl", column, _SECOND, _IOCTLS, on_match=_ERRNO | errno.EPERM, default=_ALLOW
    )
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _by_argument(
    name: str, column: int, offset: int, values: tuple[int, ...], *, on_match: int, default: int
) -> list[tuple[int, int, int, int]]:
    """Return what decides a call by the lower half of one of its arguments, and passes over every
    other call.
    """
    tests = [
        line for value in values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, on_match))
    ]
    body = [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, default)]
    return [(_EQUAL, 0, len(body), _CALLS[name][column]), *body]


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_calls(program: bytes) -> None:
    """Put the calling thread, and all that it starts, under a filter."""
    filter_structure = _Program(len(program) // 8, program)
    _checked(_libc().prctl(_SET_SECCOMP, _FILTER, ctypes.byref(filter_structure), 0, 0))


# --- the rest
# --------------------------------------------------------------------------------------------


def no_new_rights() -> None:
    """Let no program gain rights by being started, as set-uid ones do; Landlock and seccomp ask for
    it.
    """
    _checked(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def keep_memory_private() -> None:
    """Close our memory, environment and descriptors to other processes of the same user; root may
    still look.
    """
    _libc().prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def die_with(parent: int) -> None:
    """Be killed when the parent dies, also if that has just happened.

    Changing the user would undo it.
    """
    _libc().prctl(_SET_PDEATHSIG, _KILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(137)


def become(user: int, group: int) -> None:
    """Be another user from here on, with no way back."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def limit(limits: list[tuple[int, int]]) -> None:
    """Set resource limits, soft and hard; one that is lower already stays."""
    import resource

    for resource_number, maximum in limits:
        _, hard = resource.getrlimit(resource_number)
        allowed = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(resource_number, (allowed, allowed))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
