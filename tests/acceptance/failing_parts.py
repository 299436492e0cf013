"""A daemon of which one part fails: each of its tasks in turn, and each thread of its database.

`python -m tests.acceptance.failing_parts FOLDER` starts a daemon for each part and each way to
fail, and prints a line of JSON for each of their ends. Each is a fork, so that the imports are paid
for once. A failure is put where a part waits: a task gets a MemoryError, or a cancellation that
nobody asked for, as a library's own future may bring it; a thread gets a MemoryError.

With `--each-place` there is a daemon for each place in our code at which one of its tasks was seen
to wait, and the task gets a MemoryError there.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from daemon.app import lifecycle, wiring  # noqa: F401  paid for once
from daemon.app.main import main as agentd
from tests.acceptance.story import READY

PACKAGE = Path(lifecycle.__file__).parents[1]
THREADS = ("store writer", "store reader 0")
WAYS = ("fails", "is cancelled")
# Seconds in which a daemon must be ready, in which a part must be seen at a place, and in which a
# daemon that goes on may still fail.
START, SEARCH, AFTERMATH = 60.0, 10.0, 4.0
AT_ONCE = 4
DELIVER = '[[deliver]]\nto = "file"\npath = "often.md"\n'
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
    """A part, how it fails, and the place of its code at which it does; empty: where it waits."""

    part: str
    way: str
    place: str = ""


def innermost(task: asyncio.Task[object]) -> asyncio.Future[object] | None:
    """Return what a task waits for, through the tasks that it waits for."""
    waiter = task._fut_waiter  # type: ignore[attr-defined]
    while isinstance(waiter, asyncio.Task):
        waiter = waiter._fut_waiter  # type: ignore[attr-defined]
    return waiter  # type: ignore[no-any-return]


def place_of(task: asyncio.Task[object]) -> str | None:
    """Return the file and line of our code at which a task waits; None if it does not."""
    place = None
    coroutine = task.get_coro()
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            place = f"{file.relative_to(PACKAGE)}:{frame.f_lineno}"
        coroutine = coroutine.cr_await
    return place


def break_task(name: str, way: str, place: str) -> bool:
    """Let a task fail where it waits, at `place` only unless that is empty; return whether there
    was such a task that waits.
    """
    for task in asyncio.all_tasks():
        waiter = innermost(task) if task.get_name() == name else None
        if waiter is not None and not waiter.done() and place in ("", place_of(task)):
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
    elif break_task(case.part, case.way, case.place):
        mark.touch()
    elif loop.time() < until:
        if case.place:  # a task may be there for one turn of the loop
            loop.call_soon(break_when_there, case, until, mark)
        else:
            loop.call_later(0.05, break_when_there, case, until, mark)


def list_parts(report: Path) -> None:
    """Look at all tasks for two seconds, then write the names of those that waited most of the
    time, and the places at which each task was seen to wait.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + 2
    looks = 0
    waits: Counter[str] = Counter()
    places: dict[str, set[str]] = {}

    def look() -> None:
        nonlocal looks
        looks += 1
        for task in asyncio.all_tasks():
            if innermost(task) is not None:
                waits[task.get_name()] += 1
                places.setdefault(task.get_name(), set()).update({place_of(task) or ""} - {""})
        if loop.time() < end:
            loop.call_soon(look)
            return
        parts = sorted(name for name, count in waits.items() if count > looks / 2)
        places_by_name = {name: sorted(places[name]) for name in sorted(places)}
        report.write_text(json.dumps({"parts": parts, "places": places_by_name}))
        os.kill(os.getpid(), signal.SIGTERM)

    look()


class Life:
    """A daemon in a process of its own."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.state = folder / f"{case.part} {case.way} {case.place.replace('/', ' ')}"
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
        if self.case.part:
            until = loop.time() + SEARCH
            loop.call_soon_threadsafe(break_when_there, self.case, until, self.state / "broken")
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

    def wait_for_break(self) -> float:
        """Wait until the part was broken, the daemon has ended or nothing was found to break;
        return that time of the monotonic clock.
        """
        until = time.monotonic() + SEARCH
        while self.moment_of_break() is None and time.monotonic() < until:
            time.sleep(0.05)
        return time.monotonic()

    def moment_of_break(self) -> float | None:
        """Return when the part was broken, in seconds since the epoch; None if it was not."""
        file = self.state / "broken"
        return file.stat().st_mtime if file.exists() else None

    def count_runs_after_break(self) -> int:
        """Return how many runs began after the break and succeeded."""
        moment = self.moment_of_break()
        if moment is None:
            return 0
        with closing(sqlite3.connect(f"file:{self.state}/agentd.db?mode=ro", uri=True)) as database:
            query = "SELECT count(*) FROM run WHERE created > ? AND status = 'succeeded'"
            return int(database.execute(query, (moment * 1e6,)).fetchone()[0])

    def log(self) -> Iterator[str]:
        for line in (self.state / "logs" / "agentd.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["level"] in ("warning", "error", "critical"):
                yield record["event"]


def try_all(folder: Path, cases: Sequence[Case]) -> None:
    """Start a daemon for each case, side by side, and print how each ended."""
    lives = [Life(folder, case) for case in cases]
    for life in lives:
        life.wait_until_ready()
    for life in lives:
        os.kill(life.pid, signal.SIGUSR1)
    began = time.monotonic()
    for life in lives:
        case = life.case
        goes_on = case.place or (case.part, case.way) in MAY_GO_ON
        seconds = AFTERMATH if goes_on else 60.0
        if case.place:  # and a run is awaited, on a busy machine too
            seconds = 2 * AFTERMATH + life.wait_for_break() - began
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
            "place": case.place,
            "broken": life.moment_of_break() is not None,
            "runs_after": life.count_runs_after_break(),
            "code": code,
            "seconds": took,
            "stop": stop,
            "log": sorted(set(life.log())),
            "stderr": (life.state / "stderr").read_text()[-3000:],
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def main(folder: Path, *, each_place: bool) -> None:
    (folder / "config.toml").write_text("")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "routines").mkdir()
    (folder / "routines" / "often.toml").write_text(
        '[trigger]\nevery = "1s"\n[run]\nmode = "script"\n'
        '[[gather]]\nname = "now"\ntool = "sysinfo"\nargs = { parts = ["load"] }\n'
        + (DELIVER if each_place else "")
    )
    survey = Life(folder, Case("", ""))
    survey.wait_until_ready()
    os.kill(survey.pid, signal.SIGUSR1)
    assert survey.end(60) == 0
    survey_report = json.loads((survey.state / "parts").read_text())
    # runs and deliveries come and go, and libraries do not name their tasks; Task-1 is the daemon
    parts = [
        name
        for name in (survey_report["places"] if each_place else survey_report["parts"])
        if not name.startswith(("run ", "deliveries", "Task-")) or name == "Task-1"
    ]
    if each_place:
        cases = [
            Case(part, "fails", place) for part in parts for place in survey_report["places"][part]
        ]
    else:
        cases = [Case(part, way) for part in dict.fromkeys(parts) for way in WAYS]
        cases += [Case(name, "fails") for name in THREADS]
        # side by side, as they are waited for
        cases.sort(key=lambda case: (case.part, case.way) in MAY_GO_ON)
    for start in range(0, len(cases), AT_ONCE):
        try_all(folder, cases[start : start + AT_ONCE])


if __name__ == "__main__":
    main(Path(sys.argv[1]), each_place="--each-place" in sys.argv[2:])
