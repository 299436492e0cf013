"""A bell that rings when a folder's files change, and costs nothing while they don't.

watchfiles asks its thread for news 20 times a second whatever its settings; an inotify descriptor on the event loop
sleeps (inotify(7)). Where there is no inotify, watchfiles rings instead.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

# inotify(7): a file was written and closed, moved in or out, made, deleted, or its mode changed; the folder went away
_MASK = 0x00000008 | 0x00000040 | 0x00000080 | 0x00000100 | 0x00000200 | 0x00000004 | 0x00000400 | 0x00000800
_MODIFIED = 0x00000002
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


_EVENT = struct.Struct("iIII")  # watch, what happened, a cookie, the length of the name that follows
_LOST = -1  # the watch of an event that says that others were lost
_GONE = 0x00008000 | 0x00000800  # the kernel gave the watch up, or it went elsewhere with its folder


class Bell:
    """Call `ring` on the event loop whenever something in the folders changes; a burst may ring once or more often.

    With `writes` each write rings, not only the end of writing. After ringing it keeps quiet for `rest` seconds; what
    happens meanwhile rings afterwards. A folder that is missing is passed over; OSError where the system is out of
    watches.
    """

    def __init__(
        self, folders: Iterable[Path], ring: Callable[[], None], *, writes: bool = False, rest: float = 0.0
    ) -> None:
        self._ring, self._rest = ring, rest
        self._fd: int | None = None
        self._folders: dict[int, Path] = {}
        self._changed: set[Path] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        present = [folder for folder in folders if folder.is_dir()]
        if not present:
            return
        if sys.platform == "linux":
            self._open(present, _MASK | (_MODIFIED if writes else 0))
            self._listen()
        else:
            self._folders = dict(enumerate(present))
            self._task = asyncio.create_task(self._watch(present), name="file bell")

    @property
    def folders(self) -> set[Path]:
        """The folders it hangs over: one that was deleted or moved is none of them, though another take its place."""
        return set(self._folders.values())

    def changed(self) -> set[Path]:
        """Return the folders in which something has changed since this was last asked."""
        self._drain()
        changed, self._changed = self._changed, set()
        return changed

    def _open(self, folders: Iterable[Path], mask: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            self._fd = None
            raise OSError(ctypes.get_errno(), "inotify_init1: " + os.strerror(ctypes.get_errno()))
        for folder in folders:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(folder), ctypes.c_uint32(mask))
            if watch >= 0:
                self._folders[watch] = folder
            elif (number := ctypes.get_errno()) not in (errno.ENOENT, errno.ENOTDIR):  # not gone since we looked
                self.close()
                raise OSError(number, f"cannot watch {folder}: {os.strerror(number)}")

    def _listen(self) -> None:
        self._resting = None
        if self._fd is not None:
            asyncio.get_running_loop().add_reader(self._fd, self._heard)

    def _heard(self) -> None:
        assert self._fd is not None  # noqa: S101  # the reader is removed before the descriptor goes
        self._drain()
        if self._rest:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            self._resting = loop.call_later(self._rest, self._listen)
        self._ring()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._fd is not None and (events := os.read(self._fd, 65536)):
                self._note(events)

    def _note(self, events: bytes) -> None:
        place = 0
        while place < len(events):
            watch, what, _, length = _EVENT.unpack_from(events, place)
            place += _EVENT.size + length
            if watch == _LOST:
                self._changed.update(self._folders.values())
            elif watch in self._folders:
                self._changed.add(self._folders[watch])
                if what & _GONE:
                    del self._folders[watch]

    async def _watch(self, folders: Iterable[Path]) -> None:
        from watchfiles import awatch

        async for changes in awatch(*folders, recursive=False, step=max(1000, int(1000 * self._rest))):
            self._changed.update(Path(path).parent for _, path in changes)
            self._ring()

    def close(self) -> None:
        """Stop listening; safe to repeat."""
        if self._task:
            self._task.cancel()
        if self._resting:
            self._resting.cancel()
        if self._fd is not None:
            with suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
