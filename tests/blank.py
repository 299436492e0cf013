"""A database with our tables and nothing in them, to be copied: to make one takes ten times as
long.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from daemon.store.connection import open_writer
from daemon.store.database import MIGRATIONS


def blank(path: Path) -> Path:
    """Put one there, unless there is a database already; return its path."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(_body())
    return path


@cache
def _body() -> bytes:
    """Return what a daemon finds after its first start; made once by each process of tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agentd.db"
        open_writer(path, MIGRATIONS).close()
        return path.read_bytes()
