"""Tell a file from an earlier one at its path."""

from __future__ import annotations

import os
from pathlib import Path


def version_of(path: Path) -> tuple[int, ...]:
    """Return what tells a file from an earlier one at its path; empty if there is none."""
    try:
        return version_of_status(path.stat())
    except OSError:
        return ()


def version_of_status(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from an earlier one at its path.

    The last item is when the file was changed, in nanoseconds since 1970: unlike the time that a
    program may set (`st_mtime_ns`), this one also moves with mode and owner (inode(7)).
    """
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
