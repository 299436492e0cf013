"""Find files that have settled: nobody has changed them for a while.

The folders of all file watches are one subscription of the directory watcher. When something
changes in them, `on_change` is called for the watches concerned, and its receiver asks for the
settled files. Files that have changed since the last scan are waited for: `on_change` is called
again when the last of them may have settled. So a burst of changes costs two scans, and a file that
grows for an hour one scan per settle time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from daemon.system.file_scan import MAX_FILES, MAX_FOLDERS, FolderScan, scan_files
from daemon.system.patterns import Patterns
from daemon.system.watch import DirectoryWatcher, Subscription

log = structlog.get_logger()

MIN_SCAN_INTERVAL = 0.1  # seconds
MAX_FILES_LOGGED = 20  # of one watch; a folder may hold thousands


@dataclass(frozen=True, kw_only=True, slots=True)
class FileWatch:
    """Which files to watch."""

    globs: tuple[str, ...]
    """Relative to the root."""
    settle: float
    """Seconds after its last change until a file counts as settled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchLimits:
    """How many files are handed out, and how long a burst of changes is waited for."""

    batch: int = 10_000
    """Files handed out at once, so that a run can be told of all; further ones come next time."""
    max_settles: int = 10
    """A burst is waited for as a whole, but at most this many times the settle time: then the files
    that have settled are handed out.
    """


@dataclass(slots=True)
class _WatchState:
    watch: FileWatch
    patterns: Patterns
    folders: set[Path] = field(default_factory=set)
    files: dict[str, tuple[str, float]] = field(default_factory=dict)
    """(version, since) of each file that is not handled yet, by path; `since` is when this version
    was first seen, in the time of the event loop.
    """
    timer: asyncio.TimerHandle | None = None
    logged_problems: set[str] = field(default_factory=set)


class SettledFileWatcher:
    """Watch files by name of a watch; `on_change` gets the name when files may have settled."""

    def __init__(
        self,
        root: Path,
        on_change: Callable[[str], None],
        directory_watcher: DirectoryWatcher,
        *,
        limits: WatchLimits | None = None,
    ) -> None:
        self._root, self._on_change = root, on_change
        self._limits = limits or WatchLimits()
        self._states: dict[str, _WatchState] = {}
        self._directory_watcher = directory_watcher
        self._subscription: Subscription | None = None

    def watch(self, watches: Mapping[str, FileWatch]) -> None:
        """Replace the watches; `on_change` is called for those that are new or different."""
        for name in self._states.keys() - watches.keys():
            self._stop_timer(self._states.pop(name))
        for name, watch in watches.items():
            state = self._states.get(name)
            if state is None or state.watch != watch:
                if state:
                    self._stop_timer(state)
                self._states[name] = _WatchState(watch, Patterns(watch.globs))
                self._on_change(name)
        if not self._states:
            self.close()

    async def collect_settled(
        self, name: str, handled_versions: Collection[tuple[str, str]]
    ) -> dict[str, str]:
        """Return the versions of settled files by path, at most a batch of them.

        `handled_versions` are pairs of path and version that are left out. Returns nothing during a
        burst of changes; `on_change` is called again when it may be over.
        """
        state = self._states.get(name)
        if state is None:
            return {}
        self._stop_timer(state)
        scan = await asyncio.to_thread(scan_files, self._root, state.patterns)
        if self._states.get(name) is not state:  # the watch was replaced meanwhile
            return {}
        state.folders = {self._root, *(self._root / folder for folder in scan.folders)}
        self._subscribe()
        self._log_problems(name, state, scan)
        settle, limits = state.watch.settle, self._limits
        now, old_files = asyncio.get_running_loop().time(), state.files
        files: dict[str, tuple[str, float]] = {}
        for path, version in scan.files.items():
            if (path, version) in handled_versions:
                continue
            is_unchanged = path in old_files and old_files[path][0] == version
            files[path] = old_files[path] if is_unchanged else (version, now)
        state.files = files
        settled_paths = sorted(path for path, (_, since) in files.items() if now - since >= settle)
        may_wait = all(now - since < limits.max_settles * settle for _, since in files.values())
        if not files or (len(settled_paths) < len(files) and may_wait):
            settled_paths = []
        if len(settled_paths) < len(files) or len(settled_paths) > limits.batch:
            latest_change = max(since for _, since in files.values())
            delay = max(MIN_SCAN_INTERVAL, latest_change + settle - now)
            self._call_back_in(name, state, delay)
        return {path: files[path][0] for path in settled_paths[: limits.batch]}

    async def list_matching(self, name: str) -> dict[str, str]:
        """Return the versions of all files that match now, settled or not, by path."""
        state = self._states.get(name)
        if state is None:
            return {}
        return (await asyncio.to_thread(scan_files, self._root, state.patterns)).files

    def close(self) -> None:
        """Watch nothing any more; may be repeated."""
        for state in self._states.values():
            self._stop_timer(state)
        self._states.clear()
        if self._subscription:
            self._subscription.close()
            self._subscription = None

    def _subscribe(self) -> None:
        """Watch the folders of all scans; the directory watcher reports new ones once it watches
        them.
        """
        folders: set[Path] = set().union(*(state.folders for state in self._states.values()))
        if self._subscription:
            self._subscription.watch(folders)
        else:
            self._subscription = self._directory_watcher.subscribe(folders, self._handle_change)

    def _handle_change(self, folders: frozenset[Path]) -> None:
        for name, state in self._states.items():
            if state.timer is None and folders & state.folders:
                self._on_change(name)

    def _call_back_in(self, name: str, state: _WatchState, seconds: float) -> None:
        def call_back() -> None:
            state.timer = None
            self._on_change(name)

        self._stop_timer(state)
        state.timer = asyncio.get_running_loop().call_later(seconds, call_back)

    @staticmethod
    def _stop_timer(state: _WatchState) -> None:
        if state.timer:
            state.timer.cancel()
            state.timer = None

    def _log_problems(self, name: str, state: _WatchState, scan: FolderScan) -> None:
        """Log once what a scan could not read, or does not follow."""
        problems = {
            f"{folder or os.curdir}: {reason}" for folder, reason in scan.unreadable.items()
        }
        problems |= {
            f"{link}: is a symbolic link, which is not followed; put a copy in its place"
            for link in sorted(scan.links)[:MAX_FILES_LOGGED]
        }
        problems |= {
            f"{path}: its name is not UTF-8, so that no run can read it; rename it"
            for path in sorted(scan.misnamed)[:MAX_FILES_LOGGED]
        }
        if scan.is_truncated:
            problems.add(
                f"more than {MAX_FOLDERS} folders or {MAX_FILES} files; name them more closely"
            )
        for problem in problems - state.logged_problems:
            log.warning("watch.incomplete", routine=name, problem=problem)
        state.logged_problems = problems
