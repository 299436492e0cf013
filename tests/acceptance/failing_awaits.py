"""A daemon of which one task fails at one `await`, for each `await` of our code at which a task of
the daemon waits between its start and its end.

`python -m tests.acceptance.failing_awaits FOLDER` lets a daemon start, execute some runs and stop
while all its tasks are watched. Then it starts a daemon for each place that was seen, in which the
task gets a MemoryError the first time that it waits there, and prints a line of JSON for each of
their ends. With `--cluster` the daemons are of a cluster, each alone with a PostgreSQL database.
`--every N` tries each N-th place alone.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

from daemon.app import lifecycle
from tests.acceptance.failing_parts import AT_ONCE, Life, is_lasting, write_definitions
from tests.postgres import Server

PACKAGE = Path(lifecycle.__file__).parents[1]
DELIVER = '[[deliver]]\nto = "file"\npath = "often.md"\n'
# Seconds between READY and the stop: what is done after the start, some runs, and a look at the
# database. Seconds in which a daemon has to end, or to execute a run after its task has failed.
WORK, END = 4.0, 60.0


def place_of(coroutine: object) -> str:
    """Return the files and lines of our code at which a coroutine and those that it awaits wait,
    from the outside to the inside; empty if there is none.
    """
    places = []
    while coroutine is not None and (frame := getattr(coroutine, "cr_frame", None)) is not None:
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            places.append(f"{file.relative_to(PACKAGE)}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return " > ".join(places)


class Watched:
    """Awaits a coroutine; wherever that waits, `at_wait` is asked with the names of task and place
    whether to raise a MemoryError instead.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], at_wait: Callable[[str, str], bool]
    ) -> None:
        self._coroutine, self._at_wait = coroutine, at_wait

    def __await__(self) -> Generator[Any, None, Any]:
        error: BaseException | None = None
        while True:
            try:
                if error is None:
                    waiter = self._coroutine.send(None)
                else:
                    waiter = self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            task, place = asyncio.current_task(), place_of(self._coroutine)
            if task is not None and place and self._at_wait(task.get_name(), place):
                error = MemoryError("injected")
                continue
            try:
                yield waiter
            except BaseException as raised:  # noqa: BLE001  the coroutine gets it
                error = raised


class WatchingPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes event loops in which every task is watched, from the first one on."""

    def __init__(self, at_wait: Callable[[str, str], bool]) -> None:
        super().__init__()
        self._at_wait = at_wait

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        async def watch(coroutine: Coroutine[Any, Any, Any]) -> Any:
            return await Watched(coroutine, self._at_wait)

        def make_task(
            loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
        ) -> asyncio.Task[Any]:
            return asyncio.Task(watch(coroutine), loop=loop, **options)

        loop = super().new_event_loop()
        loop.set_task_factory(make_task)  # type: ignore[arg-type]
        return loop


class Site:
    """Where the daemons live: a folder of definitions, and for a cluster a database server."""

    def __init__(self, folder: Path, server: Server | None) -> None:
        self.folder, self._server = folder, server
        write_definitions(folder, more=DELIVER)

    def start(self, name: str, at_wait: Callable[[str, str], bool]) -> Life:
        """Start a daemon with a state folder and, in a cluster, a database of its own."""
        config = self.folder / f"{name}.toml"
        config.write_text("")
        if self._server:
            url = self._server.url(self._server.create())
            config.write_text(f'[store]\nurl = "{url}"\n[executor]\nkind = "procrastinate"\n')
        policy = WatchingPolicy(at_wait)
        return Life(config, self.folder / name, lambda: asyncio.set_event_loop_policy(policy))


def list_places(site: Site) -> list[tuple[str, str]]:
    """Return each task with each place of our code at which it waits, in the order in which they
    come.
    """
    file = site.folder / "places"

    def note(task: str, place: str) -> bool:
        with file.open("a") as places:
            places.write(f"{json.dumps([task, place])}\n")
        return False

    life = site.start("survey", note)
    assert life.wait_until_ready(), life.stderr()
    time.sleep(WORK)
    os.kill(life.pid, signal.SIGTERM)
    assert life.end(END) == 0, life.stderr()
    pairs = (json.loads(line) for line in file.read_text().splitlines())
    return [(task, place) for task, place in dict.fromkeys(map(tuple, pairs)) if is_lasting(task)]


def break_at(site: Site, number: int, task: str, place: str) -> Life:
    """Start a daemon of which a task fails the first time that it waits at a place."""
    mark = site.folder / f"life-{number}" / "broken"

    def is_there(waiting_task: str, waiting_place: str) -> bool:
        if (waiting_task, waiting_place) != (task, place) or mark.exists():
            return False
        mark.touch()
        return True

    return site.start(f"life-{number}", is_there)


def is_locked(state: Path) -> bool:
    """Return whether some process still has the state folder."""
    with (state / "agentd.lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def try_all(site: Site, first: int, cases: Sequence[tuple[str, str]]) -> None:
    """Start a daemon for each case, side by side, and print how each ended."""
    lives = [
        break_at(site, first + index, task, place) for index, (task, place) in enumerate(cases)
    ]
    are_ready = [life.wait_until_ready() for life in lives]
    until = time.monotonic() + WORK
    for (task, place), life, is_ready in zip(cases, lives, are_ready, strict=True):
        code = life.end(until - time.monotonic() if is_ready else END)
        deadline = time.monotonic() + END  # on a busy machine the break may have come just now
        while (
            code is None
            and life.moment_of_break() is not None
            and not life.count_runs_after_break()
            and time.monotonic() < deadline
        ):
            code = life.end(0.2)
        was_stopped = code is None
        broken_before, runs_after = life.moment_of_break() is not None, 0
        if was_stopped:
            runs_after = life.count_runs_after_break()
            os.kill(life.pid, signal.SIGTERM)
            code = life.end(END)
        if code is None:
            os.kill(life.pid, signal.SIGKILL)
            life.end(END)
        result = {
            "task": task,
            "place": place,
            "broken": life.moment_of_break() is not None,
            "broken_before_stop": broken_before,
            "stopped": was_stopped,
            "runs_after": runs_after,
            "code": code,
            "locked": is_locked(life.state),
            "log": life.events(),
            "stderr": life.stderr(),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    server = Server() if options.cluster else None
    try:
        site = Site(options.folder, server)
        cases = list_places(site)[:: options.every]
        for index in range(0, len(cases), AT_ONCE):
            try_all(site, index, cases[index : index + AT_ONCE])
    finally:
        if server:
            server.remove()


if __name__ == "__main__":
    main()
