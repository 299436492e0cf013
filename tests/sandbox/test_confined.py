"""What a confined program cannot do, in every sandbox level of this machine."""

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
from daemon.sandbox.detection import find_needed_folders, find_python
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


async def test_a_read_only_program_reads_workspace_and_readable_folders_and_changes_neither(
    cell: Cell,
) -> None:
    (cell.workspace / "notes.md").write_text("notes\n")
    (cell.outside / "book.md").write_text("book\n")
    result = await cell.sh(f"cat notes.md {cell.outside}/book.md", readable=(str(cell.outside),))
    assert result.output.text() == "notes\nbook\n"
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


async def test_a_writing_program_changes_only_the_workspace(cell: Cell) -> None:
    result = await cell.sh(
        f"echo x > new && mkdir -p a/b && mv new a/b && cat a/b/new; echo y > {cell.outside}/y",
        writes=True,
    )
    assert result.output.text().startswith("x\n")
    assert (cell.workspace / "a/b/new").read_text() == "x\n"
    assert list(cell.outside.iterdir()) == []


async def test_a_link_out_of_the_workspace_leads_nowhere_in_a_sandbox(cell: Cell) -> None:
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
        result = await cell.sh(code, writes=True)
        assert result.code != 0 and "CANARY" not in result.output.text(), code
    assert (cell.outside / "secret").read_text() == "CANARY" and not (cell.outside / "new").exists()


async def test_a_program_cannot_change_file_metadata_outside_the_workspace(cell: Cell) -> None:
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


async def test_a_program_cannot_read_the_environment_of_the_daemon(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "canary-in-the-environment")
    result = await cell.sh(
        (  # noqa: UP034
            "for f in /proc/[0-9]*/environ /proc/self/environ; do tr '\\0' '\\n' < $f; done "
            "2>/dev/null; env"
        )
    )
    assert "canary" not in result.output.text().lower()
    assert "PWD" in result.output.text()  # it did look


async def test_a_child_in_a_session_of_its_own_is_killed_with_its_program(cell: Cell) -> None:
    with life_line() as (reader, writer):
        result = await cell.python(ESCAPE, stdin=writer)
        assert (result.code, result.unkilled_pids) == (0, ())
        assert nobody_holds(writer, reader)


async def test_a_program_cannot_connect_to_any_socket(cell: Cell) -> None:
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
        # shown, and still not to be connected to
        result = await cell.python(code, readable=(str(cell.outside),))
        assert result.output.text().split() == ["EACCES"] * 4 + ["b'x'"]
        assert not select.select([unix, tcp], [], [], 0)[0]


async def test_system_calls_for_an_escape_are_forbidden(cell: Cell) -> None:
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
    result = await cell.python(code)
    assert result.output.text().splitlines() == [
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


async def test_memory_file_size_and_cpu_time_are_limited(cell: Cell) -> None:
    small = ProgramLimits(seconds=10, memory=128 << 20, processes=16, file=1 << 20)
    result = await cell.python("bytearray(200 << 20)", limits=small)
    assert result.code == 1 and "MemoryError" in result.output.text()
    result = await cell.sh("head -c 2000000 /dev/zero > big", limits=small, writes=True)
    assert result.code != 0 and (cell.workspace / "big").stat().st_size == 1 << 20
    result = await cell.python("while True: pass", limits=ProgramLimits(seconds=0))
    assert result.code in (128 + 24, 128 + 9)  # SIGXCPU, then SIGKILL


async def test_a_busy_program_stands_back_behind_the_daemon(cell: Cell) -> None:
    result = await cell.python("import os; print(os.nice(0))")
    assert result.output.text() == f"{min(os.nice(0) + 10, 19)}\n"
    result = await cell.sh("cat /proc/self/oom_score_adj")  # the first to go when memory runs out
    assert result.output.text() == "1000\n"


async def test_a_fork_bomb_stops_at_the_process_limit(cell: Cell) -> None:
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
    reader, writer = os.pipe()
    try:
        result = await cell.python(code, limits=ProgramLimits(processes=16), stdin=reader)
    finally:
        os.close(reader)
        os.close(writer)
    children, is_limited = result.output.text().split()
    assert is_limited == "True"
    if cell.sandbox.level == "bubblewrap" and Path("/usr/bin/prlimit").exists():
        assert int(children) < 16


@pytest.mark.parametrize("cell", ["bubblewrap"], indirect=True)
async def test_other_processes_of_the_user_do_not_count_toward_the_process_limit_in_bubblewrap(
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
    own_socket, client_socket = socket.socketpair()
    with own_socket, client_socket:
        command = asyncio.ensure_future(cell.python(code, stdin=client_socket.fileno()))
        assert await asyncio.to_thread(own_socket.recv, 1) == b"!"
        tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        threads = [threading.Thread(target=release.wait) for _ in range(tasks + 100)]
        try:
            for thread in threads:
                thread.start()
            own_socket.send(b"!")
            result = await command
        finally:
            release.set()
            for thread in threads:
                thread.join()
    assert result.output.text() == "forked\n"


async def test_a_program_that_inspects_the_host_changes_nothing(cell: Cell) -> None:
    result = await cell.run("/bin/cat", f"/proc/{os.getpid()}/status", host=True)
    assert f"Pid:\t{os.getpid()}" in result.output.text()
    result = await cell.sh(
        f"cat {cell.outside}/x; echo x > new; echo x > {cell.outside}/new", host=True, writes=True
    )
    assert list(cell.workspace.iterdir()) + list(cell.outside.iterdir()) == []
    (cell.outside / "secret").write_text("CANARY")
    assert "CANARY" not in (await cell.sh(f"cat {cell.outside}/secret", host=True)).output.text()
    result = await cell.python(
        f"{TRY}\nimport socket\nprint(fault(lambda: socket.socket(socket.AF_INET).close()))",
        host=True,
    )
    assert "EACCES" in result.output.text() or "worked" not in result.output.text()


async def test_the_git_folder_of_the_workspace_is_not_writable_and_other_folders_are(
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


async def test_a_confined_program_dies_with_a_killed_daemon(cell: Cell) -> None:
    python = find_python(cell.sandbox.user)
    within = Bounds(workspace=str(cell.workspace), folder=str(cell.workspace))
    words = [python, "-I", "-S", "-c", f"{ESCAPE}\nsignal.pause()\n"]
    daemon = f"""
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from daemon.sandbox.running import PreparedProgram, run
program = PreparedProgram(path={python!r}, argv={words!r}, stdin=os.dup(0), cell={cell.sandbox.cell(within)!r},
                  needs={find_needed_folders(python)!r})
folder = Path({str(cell.workspace)!r})
asyncio.run(run([(";", [program])], folder=folder, environment={{}}, seconds=60, output_bytes=1000))
"""  # noqa: E501
    with life_line() as (reader, writer):
        with subprocess.Popen([sys.executable, "-c", daemon], stdin=writer) as process:
            os.close(writer)
            assert os.read(reader, 1) == b"!"
            process.kill()
        # comes when the last one is gone; the test's own limit if one stays
        assert os.read(reader, 1) == b""
