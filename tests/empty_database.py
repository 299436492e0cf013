"""A database with our tables and nothing in them, to be copied: to make one takes ten times as
long.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from daemon.store.connection import open_writer
from daemon.store.database import MIGRATIONS


def copy_empty_database(path: Path) -> Path:
    """Write an empty database to a path, unless there is a database already; return the path."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(_empty_database())
    return path


@cache
def _empty_database() -> bytes:
    """Return the file that a daemon leaves at its first start; made once by each process."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agentd.db"
        open_writer(path, MIGRATIONS).close()
        return path.read_bytes()
