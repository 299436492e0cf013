"""Reading definitions again: on SIGHUP, and once files that changed have been left alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from daemon.definitions.file_versions import version_of, version_of_status
from daemon.errors import ConfigError
from daemon.system.clock import host_zone
from daemon.system.intervals import until_next_multiple
from daemon.system.watch import DirectoryWatcher, Subscription

log = structlog.get_logger()

# Seconds for which files must be left alone before they are read: editors write one in several
# steps.
SETTLE_SECONDS = 1.0
# Seconds after which files are read again where reading them failed by an error that is not theirs,
# such as a lack of threads or memory.
RETRY_SECONDS = 60.0

# Of files that definitions are made of.
SUFFIXES = (".toml", ".md", ".py")


async def watch_zone(
    callback: Callable[[], object],
    *,
    env: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    check_every: float = 60.0,
) -> None:
    """Call `callback` when the time zone of this host has changed, as on a laptop that travels.

    The zone is compared every `check_every` seconds. A watch of /etc would wake the daemon with
    each program that starts, as programs open files there.
    """
    zone = host_zone(env, root)
    while True:
        await asyncio.sleep(until_next_multiple(check_every))
        if (new_zone := host_zone(env, root)) != zone:
            log.info("zone.changed", before=zone, now=new_zone)
            zone = new_zone
            callback()


class DefinitionWatcher:
    """Read the definitions again after a change. A bad file is logged and changes nothing."""

    def __init__(
        self,
        reload: Callable[[Mapping[str, tuple[int, ...]]], Awaitable[object]],
        folders: Callable[[], Iterable[Path]],
        directory_watcher: DirectoryWatcher,
        *,
        named_files: Callable[[], Mapping[Path, tuple[int, ...]]] = dict,
        retry: float = RETRY_SECONDS,
    ) -> None:
        """`reload` takes the versions of the files in the folders, by path, as they were a moment
        before. `folders` hold the definitions. `named_files` returns the files elsewhere that the
        definitions in force name, each with the version that was read (`version_of`). `retry` is in
        seconds.
        """
        self._retry_delay = retry
        self._reload, self._folders, self._directory_watcher = reload, folders, directory_watcher
        self._named_files = named_files
        self._files: dict[str, tuple[int, ...]] = {}
        self._named_versions: dict[Path, tuple[int, ...]] = {}
        """Of the files elsewhere, as they were when they were last looked at."""
        self._subscription: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._reload_again = self._is_forced = self._is_closed = False
        self._look_is_over = asyncio.Event()
        """Set at the end of the next look at the files; each look has an event of its own."""

    async def note_files(self) -> set[Path]:
        """Take note of the files as they are, before they are read; return the folders to watch."""
        folders = set(self._folders())
        self._files, linked_folders = await asyncio.to_thread(list_files, folders)
        return folders | linked_folders

    def start(self, folders: Iterable[Path]) -> None:
        """Reload from now on whenever the files in `folders`, or those that the definitions name,
        differ from those that were noted.
        """
        self._subscription = self._directory_watcher.subscribe(
            {*folders, *self._folders_of_named_files()}, self._schedule
        )

    def reload_now(self) -> None:
        """Reload now, or once more after the reload under way."""
        self._is_forced = True
        self._begin()

    async def take_up_changes(self) -> None:
        """Reload now if files have changed, without waiting until they are left alone, and return
        when that is done; a reload under way is waited for. A bad file is logged, as ever.
        """
        if self._subscription is None or self._is_closed:  # what is in force is new, or the last
            return
        look_is_over = self._look_is_over
        self._begin()
        await look_is_over.wait()

    def close(self) -> None:
        """Stop watching, and cancel a reload that is due or under way."""
        if self._subscription:
            self._subscription.close()
        for timer in (self._timer, self._retry_timer):
            if timer:
                timer.cancel()
        if self._task:
            self._task.cancel()
        self._is_closed = True
        self._look_is_over.set()

    def _schedule(self, _changed: frozenset[Path]) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._reload_again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="reload")

    async def _run(self) -> None:
        while self._reload_again:
            is_forced, self._reload_again, self._is_forced = self._is_forced, False, False
            look_is_over, self._look_is_over = self._look_is_over, asyncio.Event()
            try:
                await self._reload_if_changed(is_forced=is_forced)
            except ConfigError as error:
                log.warning("definitions.kept", faults=[str(fault) for fault in error.faults])
            except Exception:  # the daemon goes on with what it has
                log.exception("definitions.kept", retry=self._retry_delay)
                # by force, as the files are noted already
                loop = asyncio.get_running_loop()
                self._retry_timer = loop.call_later(self._retry_delay, self.reload_now)
            finally:
                look_is_over.set()

    async def _reload_if_changed(self, *, is_forced: bool) -> None:
        """Look at the files, and reload if one of them has changed, or by force."""
        old_files = self._files
        folders = await self.note_files()
        has_changed = self._files != old_files or await self._have_named_files_changed()
        self._watch(folders)  # before they are read, so that no later change is missed
        if has_changed or is_forced:
            try:
                await self._reload(self._files)
            finally:
                self._watch(folders)  # what was read now may name other files

    def _watch(self, folders: set[Path]) -> None:
        if self._subscription:
            self._subscription.watch(folders | self._folders_of_named_files())

    def _folders_of_named_files(self) -> set[Path]:
        return {path.parent for path in self._named_files()}

    async def _have_named_files_changed(self) -> bool:
        """Tell whether a file that the definitions name is another one than was read, or than was
        there at the last look, where what it held then was of no use.
        """
        versions_read, last_versions = self._named_files(), self._named_versions
        self._named_versions = await asyncio.to_thread(
            lambda: {path: version_of(path) for path in versions_read}
        )
        return any(
            version != last_versions.get(path, versions_read[path])
            for path, version in self._named_versions.items()
        )


def list_files(folders: Iterable[Path]) -> tuple[dict[str, tuple[int, ...]], set[Path]]:
    """Return the version of each file in `folders` by its path, and the folders that links among
    them lead to.

    What counts is TOML, Markdown, Python (tools) and what only its owner may read, as files with
    keys must be; not what this process writes all the time: a journal beside the config, and a file
    that takes its output.
    """
    versions: dict[str, tuple[int, ...]] = {}
    outputs = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            status = os.fstat(descriptor)
            outputs.add((status.st_dev, status.st_ino))
    linked_folders: set[Path] = set()
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            versions[os.fspath(folder)] = (0,)
            for entry in entries:
                try:
                    status = entry.stat()
                    is_file = entry.is_file()
                except OSError:  # gone meanwhile, or a link that leads nowhere
                    continue
                is_secret = (
                    not status.st_mode & 0o077
                    and ".db" not in entry.name
                    and (status.st_dev, status.st_ino) not in outputs
                )
                if is_file and (is_secret or entry.name.endswith(SUFFIXES)):
                    versions[entry.path] = version_of_status(status)
                    if entry.is_symlink():
                        linked_folders.add(Path(os.path.realpath(entry.path)).parent)
    return versions, linked_folders
