"""agentd and agentctl as processes that begin with their modules imported.

To import them takes four fifths of what it costs to start a daemon, to look at it and to stop it.
`Preloaded` starts a Python that imports them and then forks for each command line: a process of
its own, with its own streams, environment, folder and signals, that can be killed. What only a
fresh Python shows (the import itself, what `exec` passes on) is tested with a fresh one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMANDS = {"agentctl": "daemon.cli.main", "agentd": "daemon.app.main"}
# What they import at their start, for almost any command line, or once a daemon is ready.
MODULES = (
    "anyio._backends._asyncio",
    "daemon.app.main",
    "daemon.app.banner",
    "daemon.app.lifecycle",
    "daemon.app.wiring",
    "daemon.cli.help",
    "daemon.cli.main",
    "daemon.cli.parser",
    "daemon.cli.render",
    "daemon.cli.runs",
    "daemon.memory.maintenance",
    "daemon.memory.recall",
    "daemon.providers.open_source",
    "daemon.runs.context",
    "daemon.runs.rehearsal.rehearsals",
    "daemon.runs.run",
    "daemon.store.tables",
    "genai_prices",
    "httpcore",
    "httpx",
)
# The SDK with which most fake vendors are asked takes long to import; but a large process takes
# longer to fork, and where the clock is faked (LD_PRELOAD) commands are forked by the hundred.
SDK = ("anthropic", "anthropic.resources.messages")
OPTIONAL = ("psycopg", "procrastinate")  # of the extra `postgres`, which may not be installed
# What a Python, and what it loads, reads before it runs anything.
READ_AT_START = (
    *("PYTHON", "LD_", "LC_", "LANG"),
    *("FAKETIME_DONT", "FAKETIME_FORCE", "FAKETIME_NO", "NO_FAKE_STAT"),
)
MESSAGE_BYTES = 2**20


def start_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that a Python reads before it runs anything."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


def can_fork(env: Mapping[str, str]) -> bool:
    """Tell whether a process needs no fresh Python: it runs the code that was imported, and asks
    for nothing that concerns the import.
    """
    settings = {name for name in env if name.startswith("PYTHON")}
    return settings <= {"PYTHONPATH"} and env.get("PYTHONPATH") == str(ROOT)


class PreloadedPython:
    """A Python that has imported `agentd` and `agentctl` and forks for each command line."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._requests, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(child_socket.fileno())],
                env={"PATH": os.environ["PATH"], **start_variables(env)},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(child_socket.fileno(),),
            )

    def close(self) -> None:
        """End it; processes that it has forked go on."""
        self._requests.close()
        self._process.wait()

    def fork(
        self,
        program: str,
        arguments: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        streams: tuple[int, int, int],
        name: str = "",
        umask: int = -1,
        at_terminal: bool = False,
    ) -> int:
        """Start a command line; return a pipe that says the process's id and, when it has ended,
        its wait status, a line each.

        `name` is what it takes for `sys.argv[0]`, by default the file that `python -m` runs.
        `at_terminal`: it leads a session whose terminal is its stdin.
        """
        report, child_report = os.pipe()
        request = {
            "module": COMMANDS[program],
            "arguments": arguments,
            "env": dict(env),
            "cwd": str(cwd),
            "name": name,
            "umask": umask,
            "at_terminal": at_terminal,
        }
        try:
            socket.send_fds(
                self._requests, [json.dumps(request).encode()], [*streams, child_report]
            )
        finally:
            os.close(child_report)
        return report


_pythons: dict[tuple[tuple[str, str], ...], PreloadedPython] = {}


def get_python(env: Mapping[str, str]) -> PreloadedPython:
    """Return the one of this test process whose Python was started with the same variables."""
    key = tuple(sorted(start_variables(env).items()))
    if key not in _pythons:
        _pythons[key] = PreloadedPython(env)
    return _pythons[key]


def close_all() -> None:
    """End all of this test process."""
    while _pythons:
        _pythons.popitem()[1].close()


class ForkedProcess:
    """A command line that was forked, with what `asyncio.subprocess.Process` has.

    `stdin` is empty; `stdout` and `stderr` are readers, unless a file was passed.
    """

    stdin = None

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    @classmethod
    async def start(
        cls,
        program: str,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path,
        stdout: Any = None,
        stderr: Any = None,
        limit: int = 2**24,
    ) -> ForkedProcess:
        """Fork `program`; stdout and stderr go to files, or by default to readers."""
        out, theirs_out = os.pipe() if stdout is None else (None, stdout.fileno())
        err, theirs_err = os.pipe() if stderr is None else (None, stderr.fileno())
        with open(os.devnull, "rb") as null_file:  # noqa: PTH123
            report = get_python(env).fork(
                program,
                arguments,
                env=env,
                cwd=cwd,
                streams=(null_file.fileno(), theirs_out, theirs_err),
            )
        self = cls()
        if out is not None:
            os.close(theirs_out)
            self.stdout = await _reader(out, limit)
        if err is not None:
            os.close(theirs_err)
            self.stderr = await _reader(err, limit)
        await self._follow(report)
        return self

    @classmethod
    async def start_at_terminal(
        cls, program: str, *arguments: str, env: Mapping[str, str], cwd: Path, terminal: int
    ) -> ForkedProcess:
        """Fork `program` in a session of its own at a terminal, which is all of its streams."""
        assert can_fork(env), "what concerns the start of Python needs a fresh one"
        report = get_python(env).fork(
            program, arguments, env=env, cwd=cwd, streams=(terminal,) * 3, at_terminal=True
        )
        self = cls()
        await self._follow(report)
        return self

    async def _follow(self, report: int) -> None:
        """Read from the pipe `report` the id of the process, and later its end."""
        reports = await _reader(report, 2**16)
        self.pid = int(await reports.readline())
        self._end = asyncio.get_running_loop().create_task(self._wait_for_status(reports))

    async def _wait_for_status(self, reports: asyncio.StreamReader) -> int:
        # to its end, as a pipe that is still open when the loop closes is complained about
        self.returncode = os.waitstatus_to_exitcode(int(await reports.read()))
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err = await asyncio.gather(_all_of(self.stdout), _all_of(self.stderr))
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class BlockingProcess:
    """A command line that was forked, for tests without an event loop.

    `streams` are files for stdout and stderr; `name` is what it takes for its own name, as it
    stands in `sys.argv`.
    """

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        streams: tuple[int, int],
        stdin: str = "",
        umask: int = -1,
    ) -> None:
        self.returncode: int | None = None
        self._lines = b""
        input_, output = os.pipe()
        try:
            os.write(output, stdin.encode())
        finally:
            os.close(output)
        try:
            self._report = get_python(env).fork(
                name,
                arguments,
                env=env,
                cwd=cwd,
                streams=(input_, *streams),
                name=name,
                umask=umask,
            )
        finally:
            os.close(input_)
        self.pid = int(self._read_line(None))

    def _read_line(self, timeout: float | None) -> bytes:
        while b"\n" not in self._lines:
            if not select.select([self._report], [], [], timeout)[0]:
                raise TimeoutError
            if not (data := os.read(self._report, 1024)):
                raise EOFError("the Python that forks has ended")
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        return line

    def wait(self, timeout: float) -> int:
        """Wait for its end and return its exit code; raise TimeoutError after so many seconds."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(int(self._read_line(timeout)))
            os.close(self._report)
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit code, or None while it goes on."""
        with contextlib.suppress(TimeoutError):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _reader(pipe: int, limit: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb", buffering=0))
    return reader


async def _all_of(reader: asyncio.StreamReader | None) -> bytes:
    return await reader.read() if reader else b""


# --- the other side


def main() -> Callable[[], int] | None:
    """Import, then fork for each request until nobody can send one.

    Return None then; in a process that was forked, the function to run.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    atexit.register(_end_at_once)  # before any module registers a function: it is called last
    (descriptor,) = sys.argv[1:]
    for module in (*MODULES, *(() if "LD_PRELOAD" in os.environ else SDK)):
        importlib.import_module(module)
    with contextlib.suppress(ModuleNotFoundError):
        for module in OPTIONAL:
            importlib.import_module(module)
    gc.freeze()
    reports: dict[int, int] = {}
    requests = _requests(socket.socket(fileno=int(descriptor)), reports)
    for request, streams, report in requests:
        pid = os.fork()
        if pid == 0:
            requests.close()
            for descriptor in (report, *reports.values()):
                os.close(descriptor)
            return _become(request, streams)
        for stream in streams:
            os.close(stream)
        os.write(report, f"{pid}\n".encode())
        reports[pid] = report
    return None


def _requests(
    requests: socket.socket, reports: dict[int, int]
) -> Generator[tuple[dict[str, Any], list[int], int], None, None]:
    """Yield each request, its streams and its report; meanwhile report the processes that end."""
    ends, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with requests, selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(ends, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select():
                    if key.fd == ends:
                        os.read(ends, 4096)
                        _report_ends(reports)
                        continue
                    data, descriptors, *_ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
                    if not data:
                        return
                    *streams, report = descriptors
                    yield json.loads(data), streams, report
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(ends)
            os.close(end)


def _report_ends(reports: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (child_status := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = child_status
            report = reports.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(report, f"{status}\n".encode())
            os.close(report)


def _become(request: dict[str, Any], streams: list[int]) -> Callable[[], int]:
    """Make this process what a fresh one would be, and return what that would run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["at_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for name in os.environ.keys() - request["env"].keys():
        del os.environ[name]
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    module = sys.modules[request["module"]]
    sys.argv = [request["name"] or str(module.__file__), *request["arguments"]]
    sys.path[0] = request["cwd"]
    function: Callable[[], int] = module.main
    return function


_exit_codes: list[int] = []
"""The exit code of a process that was forked and has come to its end by itself."""


def _end_at_once() -> None:
    """End a process that was forked without taking down its modules, which takes ten times as long
    as a short command does.

    Its threads have ended and all other functions of `atexit` have been called. What cannot be
    flushed is left to the end that Python makes.
    """
    if _exit_codes:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(_exit_codes[0])


def _run(command: Callable[[], int]) -> None:
    code: int | str | None
    try:
        code = command()
    except SystemExit as end:  # argparse has said what is wrong, or has helped
        code = end.code
    if isinstance(code, int):
        _exit_codes.append(code)
    sys.exit(code)


if __name__ == "__main__":
    command = main()
    if command:
        _run(command)
