"""What a program in a sandbox cannot do, on every rung of the ladder that this machine has."""

import asyncio
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from daemon.sandbox.bounds import Bounds, ProgramLimits
from daemon.sandbox.detection import needed_by, python_for
from tests.sandbox.conftest import Cell
from tests.sandbox.test_running import ESCAPE, life_line, nobody_holds

TRY = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def fault(call):
    try:
        result = call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "worked"
"""


async def test_it_sees_the_workspace_and_what_may_be_read_and_changes_neither(cell: Cell) -> None:
    (cell.workspace / "notes.md").write_text("notes\n")
    (cell.outside / "book.md").write_text("book\n")
    ended = await cell.sh(f"cat notes.md {cell.outside}/book.md", readable=(str(cell.outside),))
    assert ended.output.text() == "notes\nbook\n"
    for code in (
        "echo x > notes.md",
        "echo x > new",
        "rm notes.md",
        "mv notes.md other",
        "mkdir sub",
        "truncate -s0 notes.md",
    ):
        assert (await cell.sh(code)).code != 0, code
    for code in (
        f"echo x > {cell.outside}/book.md",
        f"rm {cell.outside}/book.md",
        f"ln -s / {cell.outside}/l",
    ):
        assert (await cell.sh(code, readable=(str(cell.outside),), writes=True)).code != 0, code
    assert (cell.workspace / "notes.md").read_text() == "notes\n" and (
        cell.outside / "book.md"
    ).read_text() == "book\n"


async def test_it_may_change_the_workspace_if_it_is_to_and_nothing_else(cell: Cell) -> None:
    ended = await cell.sh(
        f"echo x > new && mkdir -p a/b && mv new a/b && cat a/b/new; echo y > {cell.outside}/y",
        writes=True,
    )
    assert ended.output.text().startswith("x\n")
    assert (cell.workspace / "a/b/new").read_text() == "x\n"
    assert list(cell.outside.iterdir()) == []


async def test_a_link_swapped_in_after_the_judging_leads_nowhere(cell: Cell) -> None:
    (cell.outside / "secret").write_text("CANARY")
    (cell.workspace / "innocent").symlink_to(cell.outside / "secret")
    (cell.workspace / "folder").symlink_to(cell.outside)
    for code in (
        "cat innocent",
        "cat folder/secret",
        "cp innocent here",
        "echo x > innocent",
        "echo x > folder/new",
    ):
        ended = await cell.sh(code, writes=True)
        assert ended.code != 0 and "CANARY" not in ended.output.text(), code
    assert (cell.outside / "secret").read_text() == "CANARY" and not (cell.outside / "new").exists()


async def test_modes_owners_and_times_outside_stay(cell: Cell) -> None:
    book = cell.outside / "book.md"
    book.write_text("book\n")
    book.chmod(0o644)
    before = book.stat()
    tries = f"chmod 600 {book}; touch -d 2001-01-01 {book}; truncate -s 0 {book}; chown 1 {book}"
    await cell.sh(tries, readable=(str(cell.outside),), writes=True)
    after = book.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_size,
    )


async def test_nothing_of_the_daemons_environment_is_there_to_be_read(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "canary-in-the-environment")
    ended = await cell.sh(
        (  # noqa: UP034
            "for f in /proc/[0-9]*/environ /proc/self/environ; do tr '\\0' '\\n' < $f; done "
            "2>/dev/null; env"
        )
    )
    assert "canary" not in ended.output.text().lower()
    assert "PWD" in ended.output.text()  # it did look


async def test_a_child_that_hides_in_a_session_of_its_own_dies_with_it(cell: Cell) -> None:
    with life_line() as (reading, writing):
        ended = await cell.python(ESCAPE, stdin=writing)
        assert (ended.code, ended.left) == (0, ())
        assert nobody_holds(writing, reading)


async def test_no_socket_is_reached_by_path_by_name_or_by_port(cell: Cell) -> None:
    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as tcp:
        unix.bind(f"{cell.outside}/s")
        (cell.outside / "s").chmod(0o777)
        unix.listen()
        code = f"""{TRY}
import socket
def to(family, kind, address):
    with socket.socket(family, kind) as there:
        there.connect(address)
print(fault(lambda: to(socket.AF_UNIX, socket.SOCK_STREAM, {f"{cell.outside}/s"!r})))
print(fault(lambda: to(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {tcp.getsockname()[1]}))))
print(fault(lambda: to(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))))
print(fault(lambda: to(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 9))))
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
"""
        ended = await cell.python(
            code, readable=(str(cell.outside),)
        )  # shown, and still not to be connected to
        assert ended.output.text().split() == ["EACCES"] * 4 + ["b'x'"]
        assert not select.select([unix, tcp], [], [], 0)[0]


async def test_calls_that_lead_out_are_forbidden(cell: Cell) -> None:
    code = f"""{TRY}
NEWUSER, NEWNS = 0x10000000, 0x00020000
print("unshare", fault(lambda: libc.unshare(NEWUSER)), fault(lambda: libc.unshare(NEWNS)))
print("mount", fault(lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
print("ptrace", fault(lambda: libc.ptrace(16, os.getppid(), 0, 0)))
print("keyctl", fault(lambda: libc.syscall({'{"x86_64": 250, "aarch64": 219}[os.uname().machine]'}, 0, -3, 0)))
print("uring", fault(lambda: libc.syscall(425, 1, 0)))
print("setuid", fault(lambda: os.setuid(0)) != "worked", flush=True)
if os.fork() == 0: print("fork", "worked", flush=True); os._exit(0)
os.wait()
"""  # noqa: E501
    ended = await cell.python(code)
    assert ended.output.text().splitlines() == [
        *(
            "unshare EPERM EPERM",
            "mount EPERM",
            "ptrace EPERM",
            "keyctl EPERM",
            "uring EPERM",
            "setuid True",
        ),
        "fork worked",
    ]


async def test_memory_and_files_end_at_their_limits(cell: Cell) -> None:
    small = ProgramLimits(seconds=10, memory=128 << 20, processes=16, file=1 << 20)
    ended = await cell.python("bytearray(200 << 20)", limits=small)
    assert ended.code == 1 and "MemoryError" in ended.output.text()
    ended = await cell.sh("head -c 2000000 /dev/zero > big", limits=small, writes=True)
    assert ended.code != 0 and (cell.workspace / "big").stat().st_size == 1 << 20
    ended = await cell.python("while True: pass", limits=ProgramLimits(seconds=0))
    assert ended.code in (128 + 24, 128 + 9)  # SIGXCPU, then SIGKILL


async def test_a_bomb_of_forks_ends_at_its_limit(cell: Cell) -> None:
    code = """
import os, resource
children = 0
try:
    while children < 60:  # a limit that did not hold must not take the machine down
        if os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
        children += 1
except BlockingIOError:
    pass
print(children, resource.getrlimit(resource.RLIMIT_NPROC)[1] < 100_000)
"""
    reading, writing = os.pipe()
    try:
        ended = await cell.python(code, limits=ProgramLimits(processes=16), stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    children, limited = ended.output.text().split()
    assert limited == "True"
    if cell.sandbox.level == "bubblewrap" and Path("/usr/bin/prlimit").exists():
        assert int(children) < 16


@pytest.mark.parametrize("cell", ["bubblewrap"], indirect=True)
async def test_what_else_the_user_starts_takes_no_place_of_a_command_in_bubblewrap(
    cell: Cell,
) -> None:
    if cell.sandbox.level != "bubblewrap" or not Path("/usr/bin/prlimit").exists():
        pytest.skip("needs bubblewrap and prlimit: apt install bubblewrap util-linux")
    code = """
import os
os.write(0, b"!")
os.read(0, 1)
if os.fork() == 0:
    os._exit(0)
os.wait()
print("forked")
"""
    release = threading.Event()
    here, there = socket.socketpair()
    with here, there:
        command = asyncio.ensure_future(cell.python(code, stdin=there.fileno()))
        assert await asyncio.to_thread(here.recv, 1) == b"!"
        tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        threads = [threading.Thread(target=release.wait) for _ in range(tasks + 100)]
        try:
            for thread in threads:
                thread.start()
            here.send(b"!")
            ended = await command
        finally:
            release.set()
            for thread in threads:
                thread.join()
    assert ended.output.text() == "forked\n"


async def test_what_looks_at_the_machine_sees_it_and_changes_nothing(cell: Cell) -> None:
    ended = await cell.run("/bin/cat", f"/proc/{os.getpid()}/status", host=True)
    assert f"Pid:\t{os.getpid()}" in ended.output.text()
    ended = await cell.sh(
        f"cat {cell.outside}/x; echo x > new; echo x > {cell.outside}/new", host=True, writes=True
    )
    assert list(cell.workspace.iterdir()) + list(cell.outside.iterdir()) == []
    (cell.outside / "secret").write_text("CANARY")
    assert "CANARY" not in (await cell.sh(f"cat {cell.outside}/secret", host=True)).output.text()
    ended = await cell.python(
        f"{TRY}\nimport socket\nprint(fault(lambda: socket.socket(socket.AF_INET).close()))",
        host=True,
    )
    assert "EACCES" in ended.output.text() or "worked" not in ended.output.text()


async def test_the_workspaces_repository_is_not_written_and_what_lies_beside_it_is(
    cell: Cell,
) -> None:
    for name in (".git", "notes"):
        (cell.workspace / name).mkdir()
        (cell.workspace / name).chmod(0o777)
    (cell.workspace / "link").symlink_to(cell.outside)
    cell.outside.chmod(0o777)
    for attempt in (
        "echo x > .git/config",
        "mkdir .git/hooks",
        "mv .git old",
        "mv notes .git/hooks",
    ):
        assert (await cell.sh(attempt, writes=True)).code != 0, attempt
    assert list((cell.workspace / ".git").iterdir()) == []
    assert (
        await cell.sh("mkdir notes/new && echo x > notes/new/a && rm notes/new/a", writes=True)
    ).code == 0
    await cell.sh("echo x > link/a", writes=True)
    assert list(cell.outside.iterdir()) == []


async def test_when_the_daemon_is_killed_what_it_confined_goes_with_it(cell: Cell) -> None:
    python = python_for(cell.sandbox.user)
    within = Bounds(workspace=str(cell.workspace), folder=str(cell.workspace))
    words = [python, "-I", "-S", "-c", f"{ESCAPE}\nsignal.pause()\n"]
    daemon = f"""
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from daemon.sandbox.running import Running, run
program = Running(path={python!r}, argv={words!r}, stdin=os.dup(0), cell={cell.sandbox.cell(within)!r},
                  needs={needed_by(python)!r})
folder = Path({str(cell.workspace)!r})
asyncio.run(run([(";", [program])], folder=folder, environment={{}}, seconds=60, output_bytes=1000))
"""  # noqa: E501
    with life_line() as (reading, writing):
        with subprocess.Popen([sys.executable, "-c", daemon], stdin=writing) as process:
            os.close(writing)
            assert os.read(reading, 1) == b"!"
            process.kill()
        assert (
            os.read(reading, 1) == b""
        )  # comes when the last one is gone; the test's own limit if one stays
