"""Damage of a database file, as a failing disk leaves it."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

# https://sqlite.org/fileformat2.html: what the first byte of such a page is.
INDEX_LEAF = 10


def empty_index(path: Path, index: str) -> None:
    """Overwrite an index of a closed database that takes one page by one without entries."""
    page, size = _find_root_page(path, index)
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(struct.pack(">BHHHB", INDEX_LEAF, 0, 0, size, 0))


def empty_leaf(path: Path, index: str) -> None:
    """Overwrite the last page of entries of an index that takes several pages by an empty one."""
    page, size = _find_root_page(path, index)
    with path.open("r+b") as file:
        while True:
            file.seek((page - 1) * size)
            kind, right_child = struct.unpack(">B7xI", file.read(12))
            if kind == INDEX_LEAF:
                break
            page = right_child
        file.seek((page - 1) * size)
        file.write(struct.pack(">BHHHB", INDEX_LEAF, 0, 0, size, 0))


def change_entry(path: Path, index: str) -> None:
    """Change a bit of the oldest entry of an index of a closed database that takes one page: its
    row is not found by it. The index has as many entries as before.
    """
    page, size = _find_root_page(path, index)
    with path.open("r+b") as file:
        file.seek(page * size - 1)  # SQLite fills a page from its end
        (last,) = file.read(1)
        file.seek(page * size - 1)
        file.write(bytes([last ^ 1]))


def _find_root_page(path: Path, index: str) -> tuple[int, int]:
    """Return the number of the first page of an index, and the bytes of a page."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)
        ).fetchone()
    return page, size
