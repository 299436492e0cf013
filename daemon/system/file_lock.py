"""Lock a file or a folder against other processes that lock it, too."""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress

_RETRY_SECONDS = 0.02


def lock_file(descriptor: int, seconds: float) -> None:
    """Lock an open file or folder until its descriptor is closed.

    Raises TimeoutError if somebody else keeps the lock for longer than `seconds`, another OSError
    where the file system has no such locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        # not inside an `except`: the error has the number of a machine that lacks room
        if time.monotonic() > deadline:
            raise TimeoutError(f"another process keeps the lock for more than {seconds:g} s")
        time.sleep(_RETRY_SECONDS)
