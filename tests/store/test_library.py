"""SQLite as a process uses it that reads and writes from several threads; in processes of their own, as it is told so
before it begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNTED = """
import ctypes, sqlite3, _sqlite3
from daemon.store.library import count_no_memory

library = ctypes.PyDLL(_sqlite3.__file__)
library.sqlite3_memory_used.restype = ctypes.c_int64

def opened():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5 (body)")
    connection.execute("INSERT INTO words VALUES ('hello')")
    return connection

def found(connection):
    return connection.execute("SELECT json_group_array(body) FROM words WHERE words MATCH 'hello'").fetchone()[0]
"""


def said(code: str) -> list[str]:
    """Return what this code prints in a fresh interpreter, line by line."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COUNTED + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere SQLite is left as it is")
def test_sqlite_counts_no_memory_where_it_is_told_so_first_and_works_as_before():
    code = "print(count_no_memory())\nheld = opened()\nprint(library.sqlite3_memory_used(), found(held))"
    assert said(code) == ["True", "0", '["hello"]']


def test_what_is_open_is_left_alone():
    code = "held = opened()\nprint(count_no_memory(), library.sqlite3_memory_used() > 0, found(held))"
    assert said(code) == ["False", "True", '["hello"]']


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere SQLite is left as it is")
def test_saying_it_twice_does_no_harm_to_what_was_opened_in_between():
    code = "print(count_no_memory())\nheld = opened()\nprint(count_no_memory(), found(held))"
    assert said(code) == ["True", "True", '["hello"]']
