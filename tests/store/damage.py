"""Damage of a database file, as a failing disk leaves it."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path


def empty_index(path: Path, index: str) -> None:
    """Overwrite an index of a closed database that takes one page by one without entries."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)
        ).fetchone()
    with path.open("r+b") as file:  # https://sqlite.org/fileformat2.html: an empty leaf of an index
        file.seek((page - 1) * size)
        file.write(b"\x0a" + struct.pack(">HHHB", 0, 0, size, 0))
