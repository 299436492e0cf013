"""agentctl and agentd in the process of the test: their `main` on a thread of its own.

What a process would have for itself is lent to it while it runs: streams, environment and current
folder. Tests that need a real process (signals, a terminal, descriptors) start one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from daemon.app.main import main as agentd_main
from daemon.cli.main import main as agentctl_main
from daemon.cli.verbs import VERBS

# Verbs that replace agentctl by agentd (`exec`), which would replace the process of the tests, or
# that handle signals, which only a main thread may.
EXEC_MODULES = ("cli.agentd_commands", "cli.replay", "cli.doctor", "app.commands.edit")
# Verbs of agentd that neither take signals nor close their process to others of its user.
AGENTD_VERBS = frozenset(
    ["backup", "export", "freeze", "import", "new", "policy", "replay", "restore", "validate"]
)
# More than any test runs at once, as each may wait for another.
THREADS = ThreadPoolExecutor(max_workers=64, thread_name_prefix="command line")


@dataclass(frozen=True)
class CommandResult:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def needs_process(program: str, arguments: Sequence[str]) -> bool:
    """Tell whether a command line of `agentctl` or `agentd` cannot run in this process."""
    if program == "agentd":
        return not AGENTD_VERBS & set(arguments[:1])
    return any(
        VERBS[word].entry_point.startswith(EXEC_MODULES) for word in arguments if word in VERBS
    )


async def run_command(
    program: str, *arguments: str, env: Mapping[str, str], cwd: Path, stdin: str = ""
) -> CommandResult:
    """Run `agentctl` or `agentd` to its end, as a process of this environment and folder would."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        THREADS, lambda: call_command(program, *arguments, env=env, cwd=cwd, stdin=stdin)
    )


def call_command(
    program: str, *arguments: str, env: Mapping[str, str], cwd: Path, stdin: str = ""
) -> CommandResult:
    """Do the same and block: not on the thread whose event loop the program speaks to."""
    assert not needs_process(program, arguments), f"needs a process: {program} {arguments}"
    main = agentctl_main if program == "agentctl" else agentd_main
    with (
        process_state(env, cwd),
        _text_file(stdin) as input_,
        _text_file() as out,
        _text_file() as err,
        _STREAMS.lend(input_, out, err),
    ):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return CommandResult(code, _text_of(out), _text_of(err))


def _text_file(text: str = "") -> IO[str]:
    file = tempfile.TemporaryFile(  # noqa: SIM115  its user closes it
        "w+", encoding="utf-8", errors="surrogateescape", newline=""
    )
    file.write(text)
    file.seek(0)
    return file


def _text_of(file: IO[str]) -> str:
    file.flush()
    file.seek(0)
    return file.read()


class _ThreadStream:
    """A standard stream that is another file on threads to which one was lent."""

    def __init__(self, usual: Any) -> None:
        self._usual, self._local = usual, threading.local()

    @property
    def _file(self) -> Any:
        return getattr(self._local, "file", self._usual)

    def lend(self, file: IO[str]) -> None:
        self._local.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __enter__(self) -> Any:
        return self._file.__enter__()

    def __exit__(self, *error: object) -> Any:
        return self._file.__exit__(*error)


class _Streams:
    """The standard streams of this process, replaced while any thread has streams of its own."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    @contextmanager
    def lend(self, *files: IO[str]) -> Iterator[None]:
        """Let `files` be stdin, stdout and stderr of the current thread."""
        with self._lock:
            if self._users == 0:
                self._usual = sys.stdin, sys.stdout, sys.stderr
                self._streams = tuple(_ThreadStream(stream) for stream in self._usual)
                sys.stdin, sys.stdout, sys.stderr = self._streams  # type: ignore[assignment]
            self._users += 1
            for stream, file in zip(self._streams, files, strict=True):
                stream.lend(file)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    sys.stdin, sys.stdout, sys.stderr = self._usual


_STREAMS = _Streams()


class _ProcessState:
    """Environment, current folder and name of this process, changed while somebody needs that."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    @contextmanager
    def __call__(self, env: Mapping[str, str], cwd: Path) -> Iterator[None]:
        """Have this environment and current folder; all who want some at once want the same."""
        place = dict(env), os.fspath(cwd)
        with self._lock:
            if self._users == 0:
                self._usual, self._arguments = (dict(os.environ), os.fspath(Path.cwd())), sys.argv
                self._current = place
                self._change(*place)
                sys.argv = ["agentctl"]  # not the path of pytest, beside which agentd may be
            assert place == self._current, "two environments at once need two processes"
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._change(*self._usual)
                    sys.argv = self._arguments

    def _change(self, env: dict[str, str], cwd: str) -> None:
        # One by one: who starts a program meanwhile must not find an empty environment.
        for name in os.environ.keys() - env.keys():
            del os.environ[name]
        for name, value in env.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        time.tzset()
        os.chdir(cwd)


process_state = _ProcessState()
