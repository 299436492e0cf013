"""A daemon of which one part fails: each of its tasks in turn, and each thread of its database.

`python -m tests.acceptance.failing_parts FOLDER` starts a daemon for each part and each way to
fail, and prints a line of JSON for each of their ends. Each is a fork, so that the imports are paid
for once. A failure is put where a part waits: a task gets a MemoryError, or a cancellation that
nobody asked for, as a library's own future may bring it; a thread gets a MemoryError.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from daemon.app import lifecycle, wiring  # noqa: F401  paid for once
from daemon.app.main import main as agentd
from tests.acceptance.story import READY

THREADS = ("store writer", "store reader 0")
WAYS = ("fails", "is cancelled")
# Seconds in which a daemon must be ready, and in which one that goes on may still fail.
START, AFTERMATH = 60.0, 4.0
AT_ONCE = 4
POLICY = 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n'
# Tasks whose failure is mended, depending on where they wait: the daemon goes on, and says so. Any
# other failure ends it.
MAY_GO_ON = frozenset(
    {
        ("directory watcher", "fails"),
        ("directory watcher", "is cancelled"),
        ("journal maintenance", "fails"),
        ("memory retention", "fails"),
    }
)


def innermost(task: asyncio.Task[object]) -> asyncio.Future[object] | None:
    """Return what a task waits for, through the tasks that it waits for."""
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    while isinstance(waiter, asyncio.Task):
        waiter = waiter._fut_waiter  # type: ignore[attr-defined]
    return waiter  # type: ignore[no-any-return]


def break_task(name: str, way: str) -> bool:
    """Let a task fail where it waits; return whether there was such a task that waits."""
    for task in asyncio.all_tasks():
        waiter = innermost(task) if task.get_name() == name else None
        if waiter is not None and not waiter.done():
            if way == "fails":
                waiter.set_exception(MemoryError("injected"))
            else:
                waiter.cancel()
            return True
    return False


def break_thread(name: str) -> None:
    """Raise MemoryError in a thread, at its next step."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(MemoryError)
    )


def break_when_there(part: str, way: str, tries: int = 200) -> None:
    """Break a part on the loop, as soon as it is there."""
    if part in THREADS:
        break_thread(part)
    elif not break_task(part, way) and tries:
        asyncio.get_running_loop().call_later(0.05, break_when_there, part, way, tries - 1)


def list_parts(report: Path) -> None:
    """Write the names of all tasks, a second after the last ones begin."""

    def write() -> None:
        tasks = [task for task in asyncio.all_tasks() if innermost(task) is not None]
        report.write_text(json.dumps(sorted(task.get_name() for task in tasks)))
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.get_running_loop().call_later(2, write)


class Life:
    """A daemon in a process of its own."""

    def __init__(self, folder: Path, part: str, way: str) -> None:
        self.part, self.way = part, way
        self.state = folder / f"{part} {way}"
        reader, writer = os.pipe()
        self.start_time = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            os.dup2(writer, 1)
            self.state.mkdir()
            os.dup2(os.open(self.state / "stderr", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            signal.signal(signal.SIGUSR1, lambda *_: self._break())
            code = 1
            try:
                code = agentd(["--config", str(folder / "config.toml"), "--state", str(self.state)])
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writer)
        self._output = reader

    def _break(self) -> None:
        loop = asyncio.get_running_loop()
        if self.part:
            loop.call_soon_threadsafe(break_when_there, self.part, self.way)
        else:
            loop.call_soon_threadsafe(list_parts, self.state / "parts")

    def wait_until_ready(self) -> None:
        output = b""
        while READY.encode() not in output:
            assert select.select([self._output], [], [], START)[0], "not ready in time"
            piece = os.read(self._output, 4096)
            assert piece, (self.state / "stderr").read_text()
            output += piece

    def end(self, seconds: float) -> int | None:
        """Wait for the end for so many seconds; return the exit code, or None if it goes on."""
        until = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                return None
            time.sleep(0.02)

    def log(self) -> Iterator[str]:
        for line in (self.state / "logs" / "agentd.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["level"] in ("warning", "error", "critical"):
                yield record["event"]


def try_all(folder: Path, cases: list[tuple[str, str]]) -> None:
    lives = [Life(folder, part, way) for part, way in cases]
    for life in lives:
        life.wait_until_ready()
    for life in lives:
        os.kill(life.pid, signal.SIGUSR1)
    began = time.monotonic()
    for life in lives:
        seconds = AFTERMATH if (life.part, life.way) in MAY_GO_ON else 60.0
        code = life.end(began + seconds - time.monotonic())
        took = time.monotonic() - began
        stop = None
        if code is None:
            os.kill(life.pid, signal.SIGTERM)
            stop = life.end(60)
            if stop is None:
                os.kill(life.pid, signal.SIGKILL)
                life.end(60)
        result = {
            "part": life.part,
            "way": life.way,
            "code": code,
            "seconds": took,
            "stop": stop,
            "log": sorted(set(life.log())),
            "stderr": (life.state / "stderr").read_text()[-3000:],
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def main(folder: Path) -> None:
    (folder / "config.toml").write_text("")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "routines").mkdir()
    (folder / "routines" / "often.toml").write_text(
        '[trigger]\nevery = "1s"\n[run]\nmode = "script"\n'
        '[[gather]]\nname = "now"\ntool = "sysinfo"\nargs = { parts = ["load"] }\n'
    )
    survey = Life(folder, "", "")
    survey.wait_until_ready()
    os.kill(survey.pid, signal.SIGUSR1)
    assert survey.end(60) == 0
    tasks = json.loads((survey.state / "parts").read_text())
    # runs and deliveries come and go, and libraries do not name their tasks; Task-1 is the daemon
    names = [
        name
        for name in tasks
        if not name.startswith(("run ", "deliveries", "Task-")) or name == "Task-1"
    ]
    cases = [(name, way) for name in dict.fromkeys(names) for way in WAYS]
    cases += [(name, "fails") for name in THREADS]
    cases.sort(key=MAY_GO_ON.__contains__)  # side by side, as they are waited for
    for start in range(0, len(cases), AT_ONCE):
        try_all(folder, cases[start : start + AT_ONCE])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
