"""A bell that rings when a folder's files change, and costs nothing while they don't.

watchfiles asks its thread for news 20 times a second whatever its settings; an inotify descriptor on the event loop
sleeps (inotify(7)). Where there is no inotify, watchfiles rings instead.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

# inotify(7): a file was written and closed, moved in or out, made, deleted, or its mode changed; the folder went away
_MASK = 0x00000008 | 0x00000040 | 0x00000080 | 0x00000100 | 0x00000200 | 0x00000004 | 0x00000400 | 0x00000800
_MODIFIED = 0x00000002
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Bell:
    """Call `ring` on the event loop whenever something in the folders changes; a burst may ring once or more often.

    With `writes` each write rings, not only the end of writing. A folder that is missing is passed over.
    """

    def __init__(self, folders: Iterable[Path], ring: Callable[[], None], *, writes: bool = False) -> None:
        self._ring = ring
        self._fd: int | None = None
        self._task: asyncio.Task[None] | None = None
        present = [folder for folder in folders if folder.is_dir()]
        if not present:
            return
        if sys.platform == "linux":
            self._listen(present, _MASK | (_MODIFIED if writes else 0))
        else:
            self._task = asyncio.create_task(self._watch(present), name="file bell")

    def _listen(self, folders: Iterable[Path], mask: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1: " + os.strerror(ctypes.get_errno()))
        for folder in folders:
            if libc.inotify_add_watch(self._fd, os.fsencode(folder), ctypes.c_uint32(mask)) < 0:
                self.close()
                raise OSError(ctypes.get_errno(), f"cannot watch {folder}: {os.strerror(ctypes.get_errno())}")
        asyncio.get_running_loop().add_reader(self._fd, self._heard)

    def _heard(self) -> None:
        assert self._fd is not None  # noqa: S101  # the reader is removed before the descriptor goes
        with suppress(BlockingIOError):
            while os.read(self._fd, 65536):
                pass
        self._ring()

    async def _watch(self, folders: Iterable[Path]) -> None:
        from watchfiles import awatch

        async for _ in awatch(*folders, recursive=False, step=1000):
            self._ring()

    def close(self) -> None:
        """Stop listening; safe to repeat."""
        if self._task:
            self._task.cancel()
        if self._fd is not None:
            with suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
