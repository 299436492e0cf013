"""A confined program reaches no other process of its user: S10 of a security review."""

import ctypes
import os
import select
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.sandbox.detection import find_python
from daemon.sandbox.sandbox import User
from tests.sandbox.conftest import Cell
from tests.sandbox.test_confined import TRY

CALLS = """
import resource, struct
victim = int(os.environ["VICTIM"])
limits = (ctypes.c_ulong * 2)(3, 3)
x86 = os.uname().machine == "x86_64"
calls = {
    "prlimit64": lambda: libc.prlimit(victim, resource.RLIMIT_NOFILE, limits, None),
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "setpriority of the group": lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(0), 19),
    "setpriority of the user": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "sched_setaffinity": lambda: os.sched_setaffinity(victim, [0]),
    "sched_setscheduler": lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)),
    "sched_setparam": lambda: os.sched_setparam(victim, os.sched_param(0)),
    "sched_setattr": lambda: libc.syscall(
        314 if x86 else 274, victim, struct.pack("=IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0), 0),
    "ioprio_set": lambda: libc.syscall(251 if x86 else 30, 1, victim, 3 << 13),
    "ioprio_set of the user": lambda: libc.syscall(251 if x86 else 30, 3, os.getuid(), 3 << 13),
    "migrate_pages": lambda: libc.syscall(256 if x86 else 238, victim, 0, None, None),
    "move_pages": lambda: libc.syscall(279 if x86 else 239, victim, 0, None, None, None, 0),
    "kill": lambda: os.kill(victim, 0),
}
"""


@pytest.fixture
def victim(user: User | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user whom programs of tools run as."""
    with subprocess.Popen(
        [find_python(user), "-I", "-S", "-c", "import os; os.write(1, b'.'); os.read(0, 1)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    ) as process:
        assert process.stdout
        process.stdout.read(1)
        yield process
        process.kill()


async def test_a_program_changes_nothing_of_another_process_of_its_user(
    cell: Cell, victim: subprocess.Popen[bytes]
) -> None:
    code = f"""{TRY}
os.environ["VICTIM"] = "{victim.pid}"
{CALLS}
for name, call in calls.items(): print(name, fault(call), sep=": ")
"""
    before = _state(victim.pid)
    lines = (await cell.python(code)).output.text().splitlines()
    assert len(lines) == 13
    if cell.sandbox.level == "bubblewrap":  # where only processes of the sandbox exist
        lines = [line for line in lines if "group" not in line and "user" not in line]
    assert [line for line in lines if line.endswith(("worked", ": 0"))] == []
    assert _state(victim.pid) == before


def _state(pid: int) -> tuple[object, ...]:
    limits = Path(f"/proc/{pid}/limits").read_text()
    return limits, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)


async def test_a_program_sets_its_own_limits_priority_and_processors(cell: Cell) -> None:
    code = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
before = os.getpriority(os.PRIO_PROCESS, 0)  # more where the tests were started by nice
os.nice(1)
os.sched_setaffinity(0, os.sched_getaffinity(0))
is_raised = os.getpriority(os.PRIO_PROCESS, 0) == min(before + 1, 19)  # 19 is the highest
print(is_raised, resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert (await cell.python(code)).output.text() == "True (64, 64)\n"


async def test_a_program_reaches_no_memory_queue_or_semaphore_that_others_share(cell: Cell) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    key = int.from_bytes(os.urandom(3), "big") + 1
    segment = libc.shmget(key, 4096, 0o1666)  # IPC_CREAT, open to all
    assert segment >= 0
    code = f"""{TRY}
for name, call in {{
    "shmget": lambda: libc.shmget({key}, 0, 0),
    "shmat": lambda: libc.shmat({segment}, None, 0o10000),
    "shmctl": lambda: libc.shmctl({segment}, 0, None),
    "msgget": lambda: libc.msgget({key}, 0o1600),
    "semget": lambda: libc.semget({key}, 1, 0o1600),
    "mq_open": lambda: libc.mq_open(b"/agentd-{key}", os.O_RDWR | os.O_CREAT, 0o600, None),
}}.items():
    print(name, fault(call))
"""
    try:
        lines = (await cell.python(code)).output.text().splitlines()
        assert len(lines) == 6
        if cell.sandbox.level == "bubblewrap":  # its own queues and semaphores are nobody else's
            lines = lines[:3]
        assert [line for line in lines if line.endswith("worked")] == []
    finally:
        libc.shmctl(segment, 0, None)


async def test_a_pair_of_sockets_reaches_no_listening_one(cell: Cell) -> None:
    """Only pairs of datagram sockets could: those of the other kinds stay with each other."""
    kinds = (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX, kind)) for kind in kinds]
        for listener in listeners:
            path = cell.outside / f"s{int(listener.type)}"
            listener.bind(str(path))
            path.chmod(0o777)
            listener.setblocking(False)
        for listener in listeners[1:]:
            listener.listen()
        code = f"""{TRY}
import socket
def reach(kind, address, call):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one:
        other.close()
        call(one, address)
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    for listener in {[int(kind) for kind in kinds]}:
        address = {str(cell.outside)!r} + f"/s{{listener}}"
        print(fault(lambda: reach(kind, address, lambda one, to: one.sendto(b"x", to))))
        print(fault(lambda: reach(kind, address, lambda one, to: one.connect(to))))
print(fault(lambda: socket.socketpair(30, socket.SOCK_RDM)))  # TIPC, which crosses the network
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.send(b"x"); print(b.recv(1))
"""
        result = await cell.python(code, readable=(str(cell.outside),))
        lines = result.output.text().splitlines()
        assert len(lines) == 26 and lines[-1] == "b'x'", lines
        assert "worked" not in lines
        assert not select.select(listeners, [], [], 0)[0]
