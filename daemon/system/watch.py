"""Watching folders for changes: one watcher per process, and everyone who is interested subscribes
to it.

watchfiles collects the events of the system (inotify, FSEvents, ...) in a thread that by default
wakes once a second, so a change is reported after one to two seconds. Some changes are not
reported: a folder above was moved, a link points elsewhere, another machine wrote on a shared disk,
or the queue of events overflowed. They are found by comparing the folders with what they were,
whenever anything is reported and once a minute.
"""

# ruff: noqa: PTH100, PTH112, PTH116, PTH118, PTH120  # pathlib is slow, and thousands of folders
# may be compared
from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import structlog

from daemon.system.intervals import read_interval, until_next_multiple

log = structlog.get_logger()

# Seconds before the watching begins: subscriptions come in groups, and a tree that is unpacked
# brings folders by the dozen: one start serves them all.
START_DELAY = 0.1
SECONDS_BETWEEN_WAKES = 1.0
# For tests that start a daemon: the seconds between two wakes of its thread.
SECONDS_BETWEEN_WAKES_VARIABLE = "AGENTD_WATCH_SECONDS"
# The kernel's queue holds 16,384 events, and watchfiles does not say that some were lost. So many
# changes at once mean that any folder may have changed.
LARGE_BURST = 1_000


def seconds_between_wakes(env: Mapping[str, str]) -> float:
    """Return how often a daemon with this environment looks at the events of the system. Raises
    ConfigError.
    """
    return read_interval(env, SECONDS_BETWEEN_WAKES_VARIABLE) or SECONDS_BETWEEN_WAKES


class Subscription:
    """Some folders, and whom to call when they change."""

    def __init__(
        self, watcher: DirectoryWatcher, callback: Callable[[frozenset[Path]], object]
    ) -> None:
        self._watcher, self._callback = watcher, callback
        self.folders: frozenset[Path] = frozenset()

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch these folders from now on; the callback is called once the new ones are watched."""
        old_folders, self.folders = self.folders, frozenset(folders)
        if self.folders != old_folders:
            self._watcher.update(self)

    def close(self) -> None:
        """Call no more; safe to repeat."""
        self.watch(())

    def notify(self, changed_folders: frozenset[Path]) -> None:
        """Call the subscriber if some of its folders are among the changed ones."""
        if changed_folders := changed_folders & self.folders:
            self._callback(changed_folders)


class DirectoryWatcher:
    """Call subscribers with those of their folders in which files may have come, gone or changed.

    Subfolders are not looked into. A subscriber is also called when the watching of its folders
    begins and whenever it begins anew, as what happened in between went unnoticed: whoever looks
    when called misses nothing. A folder may be missing, be replaced, or be reached by symbolic
    links. While nobody watches a folder, no thread runs.
    """

    def __init__(
        self, *, check_every: float = 60.0, wake_every: float = SECONDS_BETWEEN_WAKES
    ) -> None:
        """`check_every`: seconds between looks at what the system says nothing about. `wake_every`:
        seconds between looks at its events; a change is reported after one or two of them.
        """
        self._check_every, self._wake_every = check_every, wake_every
        self._subscriptions: set[Subscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_starting = False
        """Whether START_DELAY runs: folders that are added meanwhile are watched as well."""
        self._watched_folders: frozenset[Path] = frozenset()
        """Folders whose changes are noticed; empty while the watching begins."""
        self._problem = ""
        """What was last logged: a problem that stays is said once."""

    def subscribe(
        self, folders: Iterable[Path], callback: Callable[[frozenset[Path]], object]
    ) -> Subscription:
        """Call `callback` on the event loop when something in `folders` has changed."""
        subscription = Subscription(self, callback)
        subscription.watch(folders)
        return subscription

    def update(self, subscription: Subscription) -> None:
        """Watch the folders that a subscription has now."""
        self._subscriptions.discard(subscription)
        if subscription.folders:
            self._subscriptions.add(subscription)
        if not self._subscriptions:
            self._stop()
        elif subscription.folders <= self._watched_folders:
            asyncio.get_running_loop().call_soon(subscription.notify, subscription.folders)
        elif not self._is_starting:
            self._stop()
            self._is_starting = True
            self._begin()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name="directory watcher")
        self._task.add_done_callback(self._begin_again)

    def _begin_again(self, task: asyncio.Task[None]) -> None:
        """Watch anew after a failure that `_run` did not mend; not after a cancellation."""
        if task is not self._task or (task.cancelled() and task.cancelling()):
            return
        problem = "" if task.cancelled() else repr(task.exception())
        log.error("watch.ended", problem=problem or "what it waited for was cancelled")
        self._begin()

    def _stop(self) -> None:
        if self._task:
            self._task.cancel()
        self._task, self._is_starting, self._watched_folders = None, False, frozenset()

    def _notify(self, changed_folders: frozenset[Path]) -> None:
        loop = asyncio.get_running_loop()
        for subscription in self._subscriptions:
            # Not called from here: a failure of the subscriber would end the watching.
            loop.call_soon(subscription.notify, changed_folders)

    async def _run(self) -> None:
        """Watch the folders of all subscriptions, and begin anew when one of them came or went, or
        after a failure.
        """
        while True:
            self._is_starting, self._watched_folders = True, frozenset()
            await asyncio.sleep(START_DELAY)
            self._is_starting = False
            folders = frozenset[Path]().union(
                *(subscription.folders for subscription in self._subscriptions)
            )
            try:
                await self._watch(folders)
            except FileNotFoundError:  # a folder went while the watching began
                pass
            except Exception as error:  # noqa: BLE001  one background task: it begins anew
                cause: Exception = error
                while isinstance(cause, ExceptionGroup):  # awatch waits in a task group
                    cause = cause.exceptions[0]
                has_begun, is_new = bool(self._watched_folders), str(cause) != self._problem
                self._problem = str(cause)
                if has_begun and is_new:
                    log.warning("watch.restarted", problem=self._problem)
                elif is_new:
                    log.warning(
                        "watch.failed",
                        folders=len(folders),
                        problem=self._problem,
                        hint=(
                            "if a limit is reached, raise fs.inotify.max_user_watches or "
                            "max_user_instances"
                        ),
                        looking_every=self._check_every,
                    )
                if not has_begun:
                    self._notify(folders)  # whoever is called looks for itself
                    await asyncio.sleep(self._check_every)

    async def _watch(self, folders: frozenset[Path]) -> None:
        """Report changes until one of the folders, or what leads to it, came, went or was
        replaced.
        """
        # Imported with the first watch: `agentctl logs` without -f needs none of it.
        from watchfiles import awatch

        snapshot = await asyncio.to_thread(_take_snapshot, folders)
        changes = awatch(
            *snapshot.paths,
            watch_filter=None,
            step=round(1000 * self._wake_every),
            # none: watchfiles would throw away what came in the moment that it passed
            rust_timeout=0,
            recursive=False,
            # True would hide every failure, also that the system is out of watches
            ignore_permission_denied=False,
        )
        next_changes = asyncio.ensure_future(anext(changes))
        try:
            await asyncio.sleep(0)  # awatch sets up its watches in its first step, before it waits
            if next_changes.done():
                next_changes.result()  # raises what went wrong
            self._watched_folders = folders
            self._notify(folders)
            paths: set[str] = set()
            while True:
                new_snapshot = await asyncio.to_thread(_take_snapshot, folders)
                if new_snapshot.paths != snapshot.paths or not paths.isdisjoint(new_snapshot.paths):
                    return
                parents = {os.path.dirname(path) for path in paths}
                changed_folders = {
                    folder
                    for folder, state in new_snapshot.folders.items()
                    if state.path in parents
                    or state != snapshot.folders[folder]
                    or len(paths) >= LARGE_BURST
                }
                self._notify(frozenset(changed_folders))
                snapshot, paths = new_snapshot, set()
                await asyncio.wait([next_changes], timeout=until_next_multiple(self._check_every))
                if next_changes.done():
                    paths = {path for _, path in next_changes.result()}
                    next_changes = asyncio.ensure_future(anext(changes))
                self._problem = ""
        finally:
            next_changes.cancel()
            await asyncio.gather(next_changes, return_exceptions=True)
            await changes.aclose()


@dataclass(frozen=True, slots=True)
class _FolderState:
    path: str
    """Without symbolic links; empty if the folder is missing."""
    modified_at: int = 0
    """Nanoseconds: when a file of it last came or went."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The watched folders at one moment, to compare with a later one."""

    folders: dict[Path, _FolderState]
    paths: dict[str, tuple[int, int, int]]
    """What to watch, and which folder that is: device, inode and mode."""


def _take_snapshot(folders: Iterable[Path]) -> _Snapshot:
    """Find out what must be watched to hear of changes in `folders`.

    That is each folder itself, the nearest folder above one that is missing, and those that hold
    the symbolic links on the way to it.
    """
    states: dict[Path, _FolderState] = {}
    paths: dict[str, tuple[int, int, int]] = {}

    def add(path: str) -> os.stat_result | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        # watchfiles takes no names that are not UTF-8, and the kernel no folders that we may not
        # read
        if path.encode(errors="ignore").decode() == path and os.access(path, os.R_OK):
            paths[path] = status.st_dev, status.st_ino, status.st_mode
        return status

    @cache
    def resolve(path: str) -> str:
        """Return the real path of a folder; empty if it is missing."""
        parent, name = os.path.split(path)
        if not name:
            return path
        if not (real_parent := resolve(parent)):
            return ""
        child = os.path.join(real_parent, name)
        try:
            mode = os.lstat(child).st_mode
        except OSError:
            mode = 0
        if stat.S_ISDIR(mode):
            return child
        add(real_parent)
        return os.path.realpath(child) if stat.S_ISLNK(mode) and os.path.isdir(child) else ""

    for folder in folders:
        path = resolve(os.path.abspath(folder))
        status = add(path) if path else None
        states[folder] = _FolderState(path, status.st_mtime_ns) if status else _FolderState("")
    return _Snapshot(states, paths)
