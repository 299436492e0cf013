"""Rings when files have come to rest, and sleeps while nothing happens.

The folders of all watches are one subscription of the directory watcher. When folders change, the
watches concerned are rung for; whoever is rung for looks. A file that has changed since the look
before is watched on: a look stands then at the moment the last of them may have come to rest. So a
burst costs two looks, and a file that grows for an hour one per `settle`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from daemon.system.file_scan import MOST_FILES, MOST_FOLDERS, FolderScan, look
from daemon.system.patterns import Patterns
from daemon.system.watch import DirectoryWatcher, Subscription

log = structlog.get_logger()

REST = 0.1  # seconds between looks, at least


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """What to watch for."""

    globs: tuple[str, ...]
    """Relative to the root."""
    settle: float
    """Seconds that a file must have been left alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchLimits:
    """How far a watcher goes."""

    batch: int = 10_000
    """Files at once: a batch stays something that a run can be told of.

    What is over comes in the next one.
    """
    patience: int = 10
    """A burst is waited for as a whole, but not for ever: after so many settles what has come to
    rest goes ahead.
    """


@dataclass(slots=True)
class _Watched:
    watch: Watch
    patterns: Patterns
    folders: set[Path] = field(default_factory=set)
    files: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of those not handled yet: the version, and since when it is known."""
    timer: asyncio.TimerHandle | None = None
    told: set[str] = field(default_factory=set)
    """Complaints that stand in the log already."""


class Watcher:
    """Watches by name. `ring` is called with a name when it is worth a `look`."""

    def __init__(
        self,
        root: Path,
        ring: Callable[[str], None],
        directory_watcher: DirectoryWatcher,
        *,
        measures: WatchLimits | None = None,
    ) -> None:
        self._root, self._ring = root, ring
        self._measures = measures or WatchLimits()
        self._watched: dict[str, _Watched] = {}
        self._directory_watcher = directory_watcher
        self._subscription: Subscription | None = None

    def watch(self, wanted: Mapping[str, Watch]) -> None:
        """Watch for these and nothing else, and ring for those that are new or different."""
        for name in self._watched.keys() - wanted.keys():
            self._stop_timer(self._watched.pop(name))
        for name, watch in wanted.items():
            known = self._watched.get(name)
            if known is None or known.watch != watch:
                if known:
                    self._stop_timer(known)
                self._watched[name] = _Watched(watch, Patterns(watch.globs))
                self._ring(name)
        if not self._watched:
            self.close()

    async def look(self, name: str, handled: Collection[tuple[str, str]]) -> dict[str, str]:
        """Return what has come to rest and was not handled: versions by path, at most a batch of
        them.

        Nothing while a burst is under way; it is rung for again when that may be over.
        """
        watched = self._watched.get(name)
        if watched is None:
            return {}
        self._stop_timer(watched)
        found = await asyncio.to_thread(look, self._root, watched.patterns)
        if self._watched.get(name) is not watched:  # not wanted any more
            return {}
        watched.folders = {self._root, *(self._root / folder for folder in found.folders)}
        self._subscribe()
        loop, settle, most = asyncio.get_running_loop(), watched.watch.settle, self._measures
        self._complain(name, watched, found)
        now, before = loop.time(), watched.files
        watched.files = files = {
            path: before[path] if path in before and before[path][0] == version else (version, now)
            for path, version in found.files.items()
            if (path, version) not in handled
        }
        resting = sorted(path for path, (_, since) in files.items() if now - since >= settle)
        patient = all(now - since < most.patience * settle for _, since in files.values())
        if not files or (len(resting) < len(files) and patient):
            resting = []
        if len(resting) < len(files) or len(resting) > most.batch:
            youngest = max(since for _, since in files.values())
            self._ring_in(name, watched, max(REST, youngest + settle - now))
        return {path: files[path][0] for path in resting[: most.batch]}

    async def present(self, name: str) -> set[str]:
        """Return every file that fits now."""
        watched = self._watched.get(name)
        return (
            set((await asyncio.to_thread(look, self._root, watched.patterns)).files)
            if watched
            else set()
        )

    def close(self) -> None:
        """Watch for nothing more; safe to repeat."""
        for watched in self._watched.values():
            self._stop_timer(watched)
        self._watched.clear()
        if self._subscription:
            self._subscription.close()
            self._subscription = None

    # --- looking

    def _subscribe(self) -> None:
        """Watch the folders that were seen; the watches of new ones are rung for once those are
        watched.
        """
        folders: set[Path] = set().union(*(watched.folders for watched in self._watched.values()))
        if self._subscription:
            self._subscription.watch(folders)
        else:
            self._subscription = self._directory_watcher.subscribe(folders, self._changed)

    def _changed(self, folders: frozenset[Path]) -> None:
        for name, watched in self._watched.items():
            if watched.timer is None and folders & watched.folders:
                self._ring(name)

    def _ring_in(self, name: str, watched: _Watched, seconds: float) -> None:
        def ring() -> None:
            watched.timer = None
            self._ring(name)

        self._stop_timer(watched)
        watched.timer = asyncio.get_running_loop().call_later(seconds, ring)

    @staticmethod
    def _stop_timer(watched: _Watched) -> None:
        if watched.timer:
            watched.timer.cancel()
            watched.timer = None

    def _complain(self, name: str, watched: _Watched, found: FolderScan) -> None:
        """Say once what cannot be seen."""
        complaints = {f"{folder or os.curdir}: {why}" for folder, why in found.unread.items()}
        if found.full:
            complaints.add(
                f"more than {MOST_FOLDERS} folders or {MOST_FILES} files; name them more closely"
            )
        for complaint in complaints - watched.told:
            log.warning("watch.incomplete", routine=name, problem=complaint)
        watched.told = complaints
