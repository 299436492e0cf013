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
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from daemon.app import lifecycle, wiring  # noqa: F401  paid for once
from daemon.app.main import main as agentd
from tests.acceptance.story import READY

THREADS = ("store writer", "store reader 0")
WAYS = ("fails", "is cancelled")
# Seconds in which a daemon must be ready, in which a part must be seen at a place, and in which a
# daemon that goes on may still fail.
START, SEARCH, AFTERMATH = 60.0, 10.0, 4.0
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


@dataclass(frozen=True)
class Case:
    """A part, and how it fails."""

    part: str
    way: str


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


def break_when_there(case: Case, until: float, mark: Path) -> None:
    """Break a part on the loop, as soon as it is there, and write the file `mark` then."""
    loop = asyncio.get_running_loop()
    if case.part in THREADS:
        break_thread(case.part)
        mark.touch()
    elif break_task(case.part, case.way):
        mark.touch()
    elif loop.time() < until:
        loop.call_later(0.05, break_when_there, case, until, mark)


def list_parts(report: Path) -> None:
    """Look at all tasks for two seconds, then write the names of those that waited most of the
    time.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + 2
    looks = 0
    waits: Counter[str] = Counter()

    def look() -> None:
        nonlocal looks
        looks += 1
        waits.update(task.get_name() for task in asyncio.all_tasks() if innermost(task) is not None)
        if loop.time() < end:
            loop.call_soon(look)
            return
        report.write_text(
            json.dumps(sorted(name for name, count in waits.items() if count > looks / 2))
        )
        os.kill(os.getpid(), signal.SIGTERM)

    look()


def is_lasting(task: str) -> bool:
    """Return whether a task is a part of the daemon: runs and deliveries come and go, and libraries
    do not name their tasks; Task-1 is the daemon.
    """
    passing = ("run ", "check of ", "deliveries", "process job ", "Task-")
    return not task.startswith(passing) or task == "Task-1"


class Life:
    """A daemon in a process of its own, a fork of this one; `prepare` is called in it first."""

    def __init__(self, config: Path, state: Path, prepare: Callable[[], None]) -> None:
        self.state = state
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            os.dup2(writer, 1)
            self.state.mkdir()
            os.dup2(os.open(self.state / "stderr", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            code = 1
            try:
                prepare()
                code = agentd(["--config", str(config), "--state", str(self.state)])
            except BaseException:  # noqa: BLE001  as Python does at the end of a process
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writer)
        self._output = reader

    def wait_until_ready(self) -> bool:
        """Wait until the daemon is ready; return whether it is, or has ended before that."""
        output = b""
        while READY.encode() not in output:
            assert select.select([self._output], [], [], START)[0], "not ready in time"
            piece = os.read(self._output, 4096)
            if not piece:
                return False
            output += piece
        return True

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

    def moment_of_break(self) -> float | None:
        """Return when the part was broken, in seconds since the epoch; None if it was not."""
        file = self.state / "broken"
        return file.stat().st_mtime if file.exists() else None

    def count_runs_after_break(self) -> int:
        """Return how many runs of slots after the break have succeeded."""
        moment = self.moment_of_break()
        return sum(
            record["event"] == "run.finished"
            and record["status"] == "succeeded"
            and datetime.fromisoformat(record["slot"]).timestamp() > moment
            for record in self._records()
            if moment is not None
        )

    def _records(self) -> list[dict[str, Any]]:
        file = self.state / "logs" / "agentd.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def events(self) -> list[str]:
        """Return the events of the log that say that something is wrong, without repetitions."""
        return sorted(
            {
                record["event"]
                for record in self._records()
                if record["level"] in ("warning", "error", "critical")
            }
        )

    def stderr(self) -> str:
        return (self.state / "stderr").read_text()[-3000:]


def write_definitions(folder: Path, *, more: str = "") -> Path:
    """Write a routine that is due each second, and what a daemon needs besides; return its
    config.
    """
    (folder / "config.toml").write_text("")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "routines").mkdir()
    (folder / "routines" / "often.toml").write_text(
        '[trigger]\nevery = "1s"\n[run]\nmode = "script"\n'
        '[[gather]]\nname = "now"\ntool = "sysinfo"\nargs = { parts = ["load"] }\n' + more
    )
    return folder / "config.toml"


def start(config: Path, case: Case | None) -> Life:
    """Start a daemon of which a part fails once SIGUSR1 comes; None: which lists its parts then."""
    state = config.parent / (f"{case.part} {case.way}" if case else "survey")

    def act() -> None:
        loop = asyncio.get_running_loop()
        if case:
            until = loop.time() + SEARCH
            loop.call_soon_threadsafe(break_when_there, case, until, state / "broken")
        else:
            loop.call_soon_threadsafe(list_parts, state / "parts")

    return Life(config, state, lambda: signal.signal(signal.SIGUSR1, lambda *_: act()) and None)


def try_all(config: Path, cases: Sequence[Case]) -> None:
    """Start a daemon for each case, side by side, and print how each ended."""
    lives = [(case, start(config, case)) for case in cases]
    for _, life in lives:
        assert life.wait_until_ready(), life.stderr()
    for _, life in lives:
        os.kill(life.pid, signal.SIGUSR1)
    began = time.monotonic()
    for case, life in lives:
        seconds = AFTERMATH if (case.part, case.way) in MAY_GO_ON else 60.0
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
            "part": case.part,
            "way": case.way,
            "runs_after": life.count_runs_after_break(),
            "code": code,
            "seconds": took,
            "stop": stop,
            "log": life.events(),
            "stderr": life.stderr(),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def main(folder: Path) -> None:
    config = write_definitions(folder)
    survey = start(config, None)
    assert survey.wait_until_ready(), survey.stderr()
    os.kill(survey.pid, signal.SIGUSR1)
    assert survey.end(60) == 0
    parts = [part for part in json.loads((survey.state / "parts").read_text()) if is_lasting(part)]
    cases = [Case(part, way) for part in parts for way in WAYS]
    cases += [Case(name, "fails") for name in THREADS]
    # side by side, as they are waited for
    cases.sort(key=lambda case: (case.part, case.way) in MAY_GO_ON)
    for index in range(0, len(cases), AT_ONCE):
        try_all(config, cases[index : index + AT_ONCE])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
