"""Filters of system calls for the programs of tools (seccomp): what is forbidden, and its compiler.

A filter is a list of rules; the first rule that fits a call decides, and what no rule fits is
allowed. A filter sees numbers and arguments, never what a pointer points to. What it forbids fails
with an error that programs handle: EPERM, EACCES for sockets, or ENOSYS where programs then do
without the call. Setting the times of files seems to succeed. A call of another architecture ends
the program.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from daemon.system import syscalls

# <linux/seccomp.h>
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_PRETEND = _ERRNO  # with error 0: the call succeeds and does nothing


class ArgumentCondition(NamedTuple):
    """What one argument of a call has to be for a rule to fit.

    Only the lower 32 bits are compared: each call below takes an int, a pid or flags of 32 bits.
    """

    argument: int
    """Its position, from 0."""
    operator: Literal["==", "!=", "any of"]
    """`any of`: at least one of the bits of `value` is set."""
    value: int
    mask: int = 0xFFFFFFFF
    """The bits that are looked at."""


class CallRule(NamedTuple):
    """What becomes of a call if all conditions hold."""

    name: str
    action: int
    conditions: tuple[ArgumentCondition, ...] = ()


def _forbid(*names: str, error: int = errno.EPERM) -> tuple[CallRule, ...]:
    return tuple(CallRule(name, _ERRNO | error) for name in names)


def _forbid_if(name: str, *conditions: ArgumentCondition) -> CallRule:
    return CallRule(name, _ERRNO | errno.EPERM, conditions)


# --- what is forbidden

# Ways to other processes, to the kernel's inside, and out of a sandbox; no tool of a report needs
# one.
OPEN_BY_HANDLE = _forbid("open_by_handle_at")
ESCAPES = _forbid(
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
# CLONE_NEW* of clone(2), but for NEWTIME, which it does not take. The flags of clone3 lie in
# memory; without it, the C library calls clone.
_NEW_NAMESPACES = 0x7E020000
NAMESPACES = (
    *_forbid("clone3", error=errno.ENOSYS),
    _forbid_if("clone", ArgumentCondition(0, "any of", _NEW_NAMESPACES)),
)
# Typing into the terminal, pasting into the console, flags of files (ext4), whom a descriptor
# sends signals to (FIOSETOWN, SIOCSPGRP).
IOCTLS = tuple(
    _forbid_if("ioctl", ArgumentCondition(1, "==", request))
    for request in (0x5412, 0x541C, 0x40086602, 0x8901, 0x8902)
)

# Memory that no resource limit counts. Programs that find memfd_create unknown use plain files.
UNCOUNTED_MEMORY = _forbid("memfd_create", "memfd_secret", error=errno.ENOSYS)

# Files that run with the rights of their owner or group, whoever starts them. openat2 has its mode
# in memory; where it is unknown, programs call openat.
_SET_ID = 0o6000
# O_CREAT, and the bit of O_TMPFILE: without, the mode means nothing.
_CREATE_FLAGS = 0o100 | 0o20000000
SET_ID_FILES = (
    *(
        _forbid_if(name, ArgumentCondition(mode, "any of", _SET_ID))
        for name, mode in (
            ("chmod", 1),
            ("fchmod", 1),
            ("fchmodat", 2),
            ("fchmodat2", 2),
            ("creat", 1),
            ("mknod", 1),
            ("mknodat", 2),
        )
    ),
    *(
        _forbid_if(
            name,
            ArgumentCondition(flags, "any of", _CREATE_FLAGS),
            ArgumentCondition(flags + 1, "any of", _SET_ID),
        )
        for name, flags in (("open", 1), ("openat", 2))
    ),
    *_forbid("openat2", error=errno.ENOSYS),
)

# What Landlock does not know: modes, owners and labels of files that it lets be read.
METADATA = _forbid(
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
# Times likewise, but touch, cp and tar would fail by them where nobody cares.
TIMES = tuple(CallRule(name, _PRETEND) for name in ("futimesat", "utime", "utimensat", "utimes"))

# Before its version 6 Landlock lets signals through.
SIGNALS = _forbid(
    "kill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill"
)

# Limits, priorities and processors of other processes of the user. 0 is the caller. A thread of the
# caller cannot be told from another process, so a program cannot pin its threads to processors.
# <linux/ioprio.h>: 1 is a process.
# fcntl: whom a descriptor sends signals to, and leases, which make others wait.
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
OTHER_PROCESSES = (
    *(
        _forbid_if(name, ArgumentCondition(0, "!=", 0))
        for name in (
            "migrate_pages",
            "move_pages",
            "prlimit64",
            "sched_setaffinity",
            "sched_setattr",
            "sched_setparam",
            "sched_setscheduler",
            "setpriority",
        )
    ),
    _forbid_if("setpriority", ArgumentCondition(1, "!=", 0)),
    _forbid_if("ioprio_set", ArgumentCondition(0, "!=", 1)),
    _forbid_if("ioprio_set", ArgumentCondition(1, "!=", 0)),
    *_forbid("process_madvise", "process_mrelease"),
    *(
        _forbid_if("fcntl", ArgumentCondition(1, "==", command))
        for command in (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE)
    ),
)
# Memory, queues and semaphores that processes of the user share by name, System V's and POSIX's.
SHARED_BY_NAME = _forbid(
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_timedreceive",
    "mq_timedsend",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
)

_UNIX, _STREAM, _SEQPACKET, _SOCKET_TYPES = 1, 1, 5, 0xF  # <linux/net.h>; above are flags


def allow_sockets(families: Iterable[int] = ()) -> tuple[CallRule, ...]:
    """Return rules that allow sockets of these families, and pairs of connected ones.

    A pair of datagram sockets is none: each could be used to send anywhere. (SOCK_RAW means
    datagrams here, too.)
    """
    return (
        *(CallRule("socket", _ALLOW, (ArgumentCondition(0, "==", family),)) for family in families),
        CallRule("socket", _ERRNO | errno.EACCES),
        *(
            CallRule(
                "socketpair",
                _ALLOW,
                (
                    ArgumentCondition(0, "==", _UNIX),
                    ArgumentCondition(1, "==", kind, _SOCKET_TYPES),
                ),
            )
            for kind in (_STREAM, _SEQPACKET)
        ),
        CallRule("socketpair", _ERRNO | errno.EACCES),
    )


IN_NAMESPACES = (
    *ESCAPES,
    *OPEN_BY_HANDLE,
    *NAMESPACES,
    *IOCTLS,
    *UNCOUNTED_MEMORY,
    *SET_ID_FILES,
    *allow_sockets(),
)
"""For a program in namespaces of its own, by bubblewrap."""


def rules_beside_landlock(version: int) -> tuple[CallRule, ...]:
    """Return rules for what this version of Landlock leaves open."""
    return (
        *METADATA,
        *TIMES,
        *IN_NAMESPACES,
        *OTHER_PROCESSES,
        *SHARED_BY_NAME,
        *(SIGNALS if version < 6 else ()),
    )


# Sockets that only reach this machine: ss and ip ask the kernel by netlink, systemctl asks systemd.
_NETLINK = 16
HOST_READERS = (
    *METADATA,
    *TIMES,
    *ESCAPES,
    *NAMESPACES,
    *IOCTLS,
    *UNCOUNTED_MEMORY,
    *SET_ID_FILES,
    *OTHER_PROCESSES,
    *SHARED_BY_NAME,
    *allow_sockets((_UNIX, _NETLINK)),
)
"""For a program that looks at the machine. systemctl and journalctl open by handle."""


# --- the compiler

_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # <linux/audit.h>
_X32 = 0x40000000  # calls of another numbering, x86_64 only
# <linux/filter.h>: load a word, mask it, jump if it is equal, is at least, has any bit; return
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
# offsets in struct seccomp_data; the lower half of an argument comes first, little-endian
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT_SIZE = 0, 4, 16, 8

Instruction = tuple[int, int, int, int]
"""Code, how many instructions to pass over if the test holds and if not, operand."""


def compile_filter(rules: Iterable[CallRule], *, machine: str = "") -> bytes | None:
    """Return rules as a program for seccomp_set_filter.

    Returns None for a machine whose numbers are not known here. Calls that the machine does not
    have are left out; those of another numbering are refused or killed.
    """
    machine = machine or os.uname().machine
    if machine not in _AUDIT_ARCHITECTURES:
        return None
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for rule in rules:
        if (number := syscalls.number_on(machine, rule.name)) >= 0:
            code += _compile_rule(rule, number)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _compile_rule(rule: CallRule, number: int) -> list[Instruction]:
    """Return the instructions of one rule. Before and behind them the number is loaded."""
    if not rule.conditions:
        return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, rule.action)]
    tests = [list(_compile_condition(condition)) for condition in rule.conditions]
    body: list[Instruction] = []
    for position, test in enumerate(tests):
        *loads, (code, _, _, operand) = test
        # a test that fails goes to the last instruction, which loads the number again
        skip = 1 + sum(map(len, tests[position + 1 :]))
        is_negated = rule.conditions[position].operator == "!="
        body += [*loads, (code, *((skip, 0) if is_negated else (0, skip)), operand)]
    body += [(_RETURN, 0, 0, rule.action), (_LOAD, 0, 0, _NUMBER)]
    return [(_EQUAL, 0, len(body), number), *body]


def _compile_condition(condition: ArgumentCondition) -> Iterator[Instruction]:
    """Yield what loads an argument, then its test without the jumps."""
    yield _LOAD, 0, 0, _ARGUMENTS + _ARGUMENT_SIZE * condition.argument
    if condition.mask != 0xFFFFFFFF:
        yield _AND, 0, 0, condition.mask
    yield (_ANY_BIT if condition.operator == "any of" else _EQUAL), 0, 0, condition.value
