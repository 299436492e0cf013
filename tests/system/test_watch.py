"""Subscribers are called when their folders change, and only then."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from daemon.system.watch import DirectoryWatcher, Subscription

LIMIT = 60  # seconds; on a busy machine a change is seen late
WAKE_EVERY = 0.05  # seconds; a change is reported after one or two of them


class Subscriber:
    """Takes note of what it is called with."""

    def __init__(self, watcher: DirectoryWatcher, *folders: Path) -> None:
        self.calls: asyncio.Queue[frozenset[Path]] = asyncio.Queue()
        self.subscription: Subscription = watcher.subscribe(folders, self.calls.put_nowait)

    async def called_for(self, *folders: Path) -> None:
        """Wait until it was called for all of these folders."""
        folders_left = set(folders)
        async with asyncio.timeout(LIMIT):
            while folders_left:
                folders_left -= await self.calls.get()

    def forget(self) -> None:
        while not self.calls.empty():
            self.calls.get_nowait()


@pytest.fixture
async def watcher() -> AsyncIterator[DirectoryWatcher]:
    directory_watcher = DirectoryWatcher(wake_every=WAKE_EVERY)
    yield directory_watcher
    for subscription in list(directory_watcher._subscriptions):
        subscription.close()


async def subscribe(watcher: DirectoryWatcher, *folders: Path) -> Subscriber:
    """Subscribe, and wait until the folders are watched."""
    subscriber = Subscriber(watcher, *folders)
    await subscriber.called_for(*folders)
    return subscriber


@pytest.mark.parametrize(
    "change", ["make", "write", "append", "rename", "replace", "delete", "chmod"]
)
async def test_a_changed_file_is_reported(
    watcher: DirectoryWatcher, tmp_path: Path, change: str
) -> None:
    path, other_path = tmp_path / "a.toml", tmp_path / "b.toml"
    path.write_text("x")
    other_path.write_text("y")
    subscriber = await subscribe(watcher, tmp_path)
    {
        "make": (tmp_path / "new").touch,
        "write": lambda: path.write_text("y"),
        "append": lambda: path.open("a").close() or os.truncate(path, 5),
        "rename": lambda: path.rename(tmp_path / "c.toml"),
        "replace": lambda: other_path.replace(path),
        "delete": path.unlink,
        "chmod": lambda: path.chmod(0o600),
    }[change]()
    await subscriber.called_for(tmp_path)


async def test_changes_during_the_start_of_the_watcher_are_reported(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    subscriber = Subscriber(watcher, tmp_path)
    (tmp_path / "a").touch()
    async with asyncio.timeout(LIMIT):
        assert await subscriber.calls.get() == {tmp_path}, "a call on which the subscriber looks"


async def test_each_subscriber_is_called_for_its_own_folders(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    first_folder, two = tmp_path / "one", tmp_path / "two"
    first_folder.mkdir()
    two.mkdir()
    first, second, third = (
        await subscribe(watcher, first_folder),
        await subscribe(watcher, two),
        await subscribe(watcher, first_folder, two),
    )
    first.forget()
    (two / "a").touch()
    await second.called_for(two)
    await third.called_for(two)
    assert first.calls.empty()


async def test_five_hundred_subscribers_share_one_watcher_and_each_is_called(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(50)]
    for folder in folders:
        folder.mkdir()
    subscribers = [Subscriber(watcher, folders[number % 50]) for number in range(500)]
    for number, subscriber in enumerate(subscribers):
        await subscriber.called_for(folders[number % 50])
        subscriber.forget()
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "directory watcher"]
    assert len(tasks) == 1
    for folder in folders:
        (folder / "new").touch()
    for number, subscriber in enumerate(subscribers):
        await subscriber.called_for(folders[number % 50])


async def test_reads_and_changes_in_subfolders_are_not_reported(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_text("x")
    other_path = tmp_path.with_name(tmp_path.name + "-other")
    other_path.mkdir()
    subscriber = await subscribe(watcher, tmp_path, other_path)
    (tmp_path / "a").read_text()
    list(tmp_path.iterdir())
    (tmp_path / "deep" / "b").touch()
    (other_path / "last").touch()
    async with asyncio.timeout(LIMIT):
        assert await subscriber.calls.get() == {other_path}


async def test_a_missing_folder_is_reported_once_created(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    subscriber = await subscribe(watcher, folder)
    folder.mkdir(parents=True)
    await subscriber.called_for(folder)
    (folder / "a").touch()
    await subscriber.called_for(folder)


@pytest.mark.parametrize("how", ["deleted", "moved", "exchanged"])
async def test_a_replaced_folder_is_watched(
    watcher: DirectoryWatcher, tmp_path: Path, how: str
) -> None:
    folder, other_path = tmp_path / "routines", tmp_path / "other"
    folder.mkdir()
    (folder / "a").touch()
    other_path.mkdir()
    subscriber = await subscribe(watcher, folder)
    if how == "deleted":
        shutil.rmtree(folder)
        await subscriber.called_for(folder)
        folder.mkdir()
    elif how == "moved":
        folder.rename(tmp_path / "elsewhere")
        await subscriber.called_for(folder)
        folder.mkdir()
    else:
        folder.rename(tmp_path / "elsewhere")
        other_path.rename(folder)
    await subscriber.called_for(folder)
    subscriber.forget()
    (folder / "b").touch()
    await subscriber.called_for(folder)


async def test_a_folder_behind_a_link_is_watched_and_so_is_where_the_link_points(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    for name in ("v1", "v2"):
        (tmp_path / "releases" / name / "routines").mkdir(parents=True)
    current = tmp_path / "current"
    current.symlink_to("releases/v1")
    subscriber = await subscribe(watcher, current / "routines")
    (tmp_path / "releases/v1/routines/a").touch()
    await subscriber.called_for(current / "routines")
    (tmp_path / "next").symlink_to("releases/v2")
    (tmp_path / "next").rename(current)
    await subscriber.called_for(current / "routines")
    subscriber.forget()
    (tmp_path / "releases/v2/routines/a").touch()
    await subscriber.called_for(current / "routines")


async def test_two_names_of_one_folder_are_both_reported(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    subscriber = await subscribe(watcher, folder, link)
    (folder / "a").touch()
    await subscriber.called_for(folder, link)


async def test_unreported_changes_are_found_by_comparison(tmp_path: Path) -> None:
    watcher = DirectoryWatcher(check_every=0.1, wake_every=WAKE_EVERY)
    folder = tmp_path / "above" / "between" / "folder"
    folder.mkdir(parents=True)
    subscriber = await subscribe(watcher, folder)
    (tmp_path / "above").rename(tmp_path / "elsewhere")
    await subscriber.called_for(folder)
    folder.mkdir(parents=True)
    await subscriber.called_for(folder)
    subscriber.subscription.close()


async def test_a_change_among_ten_thousand_files_is_reported(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    for number in range(10_000):
        (tmp_path / f"{number}").touch()
    subscriber = await subscribe(watcher, tmp_path)
    (tmp_path / "7777").write_text("x")
    await subscriber.called_for(tmp_path)


async def test_a_name_that_is_no_utf8_stops_nothing(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    subscriber = await subscribe(watcher, tmp_path)
    with structlog.testing.capture_logs() as logs:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
        await subscriber.called_for(tmp_path)
        (tmp_path / "a").touch()
        await subscriber.called_for(tmp_path)
        (tmp_path / "b").touch()
        await subscriber.called_for(tmp_path)
    assert {line["event"] for line in logs} == {"watch.restarted"}
    assert "Unable to decode path" in logs[0]["problem"]


async def test_a_failing_subscriber_harms_no_other(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    watcher.subscribe([tmp_path], lambda _: 1 / 0)
    subscriber = await subscribe(watcher, tmp_path)
    (tmp_path / "a").touch()
    await subscriber.called_for(tmp_path)
    assert all(isinstance(failure, ZeroDivisionError) for failure in failures) and failures


async def test_watcher_without_folders_runs_no_task(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    assert watcher._task is None
    subscriber = await subscribe(watcher, tmp_path)
    task = watcher._task
    assert task is not None
    subscriber.subscription.close()
    subscriber.subscription.close()
    assert watcher._task is None
    await asyncio.wait([task])
    (tmp_path / "a").touch()
    again = await subscribe(watcher, tmp_path)
    (tmp_path / "b").touch()
    await again.called_for(tmp_path)
    assert subscriber.calls.empty()


async def test_a_new_subscriber_of_a_watched_folder_is_called_at_once(
    watcher: DirectoryWatcher, tmp_path: Path
) -> None:
    await subscribe(watcher, tmp_path)
    task = watcher._task
    subscriber = await subscribe(watcher, tmp_path)
    assert watcher._task is task, "nothing began anew"
    (tmp_path / "a").touch()
    await subscriber.called_for(tmp_path)


# --- limits of the system, each in a process of its own

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import structlog
from daemon.system.watch import DirectoryWatcher

structlog.configure(processors=[structlog.processors.JSONRenderer()])

async def main():
    folders = [Path(name) for name in sys.argv[2:]]
    show = lambda changed: print(json.dumps(sorted(map(str, changed))), flush=True)
    watcher = DirectoryWatcher(check_every=float(sys.argv[1]), wake_every=0.05)
    watcher.subscribe(folders, show)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Other:
    """A process that watches folders and prints what it is called with and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> object:
        assert self.process.stdout
        async with asyncio.timeout(LIMIT):
            return json.loads(await self.process.stdout.readline())

    async def wait_for_folders(self, *folders: Path) -> None:
        """Wait until it was called for all of these folders."""
        folders_left = {str(folder) for folder in folders}
        while folders_left:
            line = await self.line()
            folders_left -= set(line) if isinstance(line, list) else set()


@contextlib.asynccontextmanager
async def other(
    *folders: Path, check_every: float = 60, prefix: tuple[str, ...] = ()
) -> AsyncIterator[Other]:
    words = (*prefix, sys.executable, "-c", PROGRAM, str(check_every), *map(str, folders))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        yield Other(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_changes_dropped_by_the_kernel_are_found(tmp_path: Path) -> None:
    busy_folder, new_folder, edited_folder = (
        tmp_path / "loud",
        tmp_path / "made",
        tmp_path / "edited",
    )
    for folder in (busy_folder, new_folder, edited_folder):
        folder.mkdir()
    (edited_folder / "a").write_text("x")
    async with other(busy_folder, new_folder, edited_folder) as other_process:
        await other_process.wait_for_folders(busy_folder, new_folder, edited_folder)
        other_process.process.send_signal(signal.SIGSTOP)
        most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        for number in range(most // 2):  # three notices each: opened, written, closed
            (busy_folder / f"{number % 5000}").write_text(f"{number}")
        (new_folder / "b").touch()
        (edited_folder / "a").write_text("y")
        other_process.process.send_signal(signal.SIGCONT)
        await other_process.wait_for_folders(busy_folder, new_folder, edited_folder)


def limit_command(name: str, number: int) -> tuple[str, ...]:
    """Return the start of a command that runs with a limit of its own."""
    script = f'echo {number} > /proc/sys/user/{name} && exec "$@"'
    prefix = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here (unshare, package util-linux)")
    return prefix


@pytest.mark.parametrize("limit", ["max_inotify_watches", "max_inotify_instances"])
async def test_without_kernel_watches_folders_are_polled(tmp_path: Path, limit: str) -> None:
    first_folder, two = tmp_path / "one", tmp_path / "two"
    first_folder.mkdir()
    two.mkdir()
    prefix = limit_command(limit, 1 if limit == "max_inotify_watches" else 0)
    async with other(first_folder, two, check_every=0.1, prefix=prefix) as other_process:
        line = await other_process.line()
        assert isinstance(line, dict)
        assert line["event"] == "watch.failed"
        assert "fs.inotify.max_user_watches" in line["hint"]
        for _ in range(3):
            assert await other_process.line() == [str(first_folder), str(two)], (
                "the problem is said once"
            )


async def test_watcher_ends_with_its_event_loop(tmp_path: Path) -> None:
    program = PROGRAM.replace("await asyncio.Event().wait()", "await asyncio.sleep(0.5)")
    words = (sys.executable, "-W", "error", "-c", program, "60", str(tmp_path))
    process = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1)
    async with asyncio.timeout(LIMIT):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out.splitlines()[0]) == [str(tmp_path)]
