"""The system calls of Linux that Python does not offer: openat2, Landlock, seccomp, prctl, timerfd.

ctypes is used here and nowhere else. Each function is named after the page of the manual that
describes its arguments and errors, and raises OSError with the errno of the call.

Standard library only, and neither typing nor pathlib: the process that supervises a command of a
tool loads this file before each command (sandbox/supervisor.py).
"""

from __future__ import annotations

import ctypes
import os
import struct

# --- the table of system calls

ARCHITECTURES = ("x86_64", "aarch64")
"""The columns of NUMBERS, by the names that uname(2) gives."""

# Sources: arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl of the kernel. -1: the
# architecture has no such call. From 424 on, a call has the same number on every architecture.
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, -1),
    "chown": (92, -1),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, -1),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
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
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, -1),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_getsetattr": (245, 185),
    "mq_notify": (244, 184),
    "mq_open": (240, 180),
    "mq_timedreceive": (243, 183),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "open": (2, -1),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
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


def number_on(architecture: str, name: str) -> int:
    """Return the number of a system call on one of ARCHITECTURES; -1 if it has no such call."""
    return NUMBERS[name][ARCHITECTURES.index(architecture)]


# --- opening files

# <linux/openat2.h>
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08


class _OpenHow(ctypes.Structure):
    """struct open_how, <linux/openat2.h>."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(folder: int, path: str, *, flags: int, resolve: int) -> int:
    """Open a path relative to the descriptor `folder`: openat2(2). Returns a descriptor."""
    open_how = _OpenHow(flags=flags, mode=0, resolve=resolve)
    size = ctypes.c_size_t(ctypes.sizeof(open_how))
    return _call("openat2", folder, os.fsencode(path), ctypes.byref(open_how), size)


# --- timers

# <linux/timerfd.h>
TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET = 1, 2


class _Timespec(ctypes.Structure):
    """struct timespec, <time.h>."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    """struct itimerspec, <time.h>."""

    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def timerfd_create(clock: int, flags: int) -> int:
    """Return the descriptor of a new timer on one of time.CLOCK_*: timerfd_create(2).

    Python has it as os.timerfd_create from 3.13 on.
    """
    return _check(_libc.timerfd_create(clock, flags))


def timerfd_settime(timer: int, flags: int, seconds: int) -> None:
    """Have a timer expire once, at or after `seconds` depending on `flags`: timerfd_create(2)."""
    spec = _Itimerspec(value=_Timespec(seconds=seconds))
    _check(_libc.timerfd_settime(timer, flags, ctypes.byref(spec), None))


# --- attributes of this process

# <linux/prctl.h>
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, one of PR_SET_*: prctl(2)."""
    _check(_libc.prctl(option, *(ctypes.c_ulong(number) for number in (value, 0, 0, 0))))


# --- Landlock

# <linux/landlock.h>
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1


def landlock_version() -> int:
    """Return the version of the kernel's Landlock: landlock_create_ruleset(2).

    0 if the kernel has none, or has it switched off.
    """
    try:
        return _call("landlock_create_ruleset", None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def landlock_create_ruleset(handled_rights: list[int]) -> int:
    """Return the descriptor of a new, empty set of rules: landlock_create_ruleset(2).

    `handled_rights` are the fields of struct landlock_ruleset_attr in their order, as many as the
    version of the kernel knows: access to files, access to the network, scopes.
    """
    attributes = struct.pack(f"={len(handled_rights)}Q", *handled_rights)
    return _call("landlock_create_ruleset", attributes, ctypes.c_size_t(len(attributes)), 0)


def landlock_add_path_rule(ruleset: int, path: int, access: int) -> None:
    """Allow access to what lies beneath the open file or folder `path`: landlock_add_rule(2)."""
    attributes = struct.pack("=Qi", access, path)  # struct landlock_path_beneath_attr
    _call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, attributes, 0)


def landlock_restrict_self(ruleset: int) -> None:
    """Put the calling thread, and all that it starts, under rules: landlock_restrict_self(2)."""
    _call("landlock_restrict_self", ruleset, 0)


# --- seccomp

_SECCOMP_MODE_FILTER = 2  # <linux/seccomp.h>
_INSTRUCTION_SIZE = 8  # struct sock_filter, <linux/filter.h>


class _SockFprog(ctypes.Structure):
    """struct sock_fprog, <linux/filter.h>."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def seccomp_set_filter(program: bytes) -> None:
    """Put the calling thread, and all that it starts, under a filter: PR_SET_SECCOMP of prctl(2).

    `program` are instructions of classic BPF.
    """
    filter_structure = _SockFprog(len(program) // _INSTRUCTION_SIZE, program)
    _check(_libc.prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_structure), 0, 0))


# --- calling

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """Call the kernel by number, for calls that not every C library wraps.

    Those made here have the same number on every architecture.
    """
    return _check(_libc.syscall(NUMBERS[name][0], *arguments))


def _check(result: int) -> int:
    """Return the result of a call of the C library. Raises OSError if it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
