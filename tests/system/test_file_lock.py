"""A folder is locked against others who lock it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.system.file_lock import lock_file


def test_a_lock_is_kept_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        lock_file(first, 0)
        with pytest.raises(TimeoutError, match="another process keeps the lock"):
            lock_file(second, 0)
        os.close(first)
        lock_file(second, 0)
    finally:
        os.close(second)
