"""Scan folders for the files that match patterns, each with its version, and for the folders in
which such files may appear.

Nothing leads out of the root: every folder is opened by itself, relative to its parent and without
following links, and only regular files are returned.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from daemon.system.patterns import Patterns, States

# Whoever names more has named the wrong folder: a scan must end, and each folder takes one of the
# kernel's watches.
MAX_FOLDERS = 5_000
MAX_FILES = 100_000
MAX_DEPTH = 64

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class FolderScan:
    """What a scan has found."""

    files: dict[str, str] = field(default_factory=dict)
    """Versions by path, relative to the root."""
    folders: set[str] = field(default_factory=set)
    """Where a matching file may appear, relative to the root, which is the empty text."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Folders that could not be read, and why."""
    full: bool = False
    """Whether the scan ended early, as there are too many folders or files."""


def scan_files(
    root: Path,
    patterns: Patterns,
    *,
    max_folders: int = MAX_FOLDERS,
    max_files: int = MAX_FILES,
) -> FolderScan:
    """Scan the folders beneath the root; a missing root has no files."""
    scan = FolderScan()
    with suppress(FileNotFoundError):
        # The root itself may be a link: its owner chose it.
        folder = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
        _enter(folder, "", patterns.start, _Walk(patterns, scan, max_folders, max_files))
    return scan


@dataclass(frozen=True, slots=True)
class _Walk:
    patterns: Patterns
    scan: FolderScan
    max_folders: int
    max_files: int

    def is_done(self) -> bool:
        scan = self.scan
        scan.full = (
            scan.full or len(scan.folders) > self.max_folders or len(scan.files) >= self.max_files
        )
        return scan.full


def _enter(folder: int, path: str, states: States, walk: _Walk) -> None:
    scan = walk.scan
    try:
        scan.folders.add(path)
        for name, mode, version in _entries(folder, walk.patterns.only(states)):
            if walk.is_done():
                return
            fits, child_states = walk.patterns.step(states, name)
            child_path = f"{path}/{name}" if path else name
            if fits and stat.S_ISREG(mode):
                scan.files[_printable(child_path)] = version
            elif child_states and stat.S_ISDIR(mode) and child_path.count("/") < MAX_DEPTH:
                _enter_child(folder, name, child_path, child_states, walk)
    except OSError as error:
        scan.unreadable[path] = error.strerror or str(error)
    finally:
        os.close(folder)


def _printable(path: str) -> str:
    """Return a path as text: what of a name is no UTF-8 is spelt out, so that a journal and a model
    can take it.
    """
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def _enter_child(folder: int, name: str, path: str, states: States, walk: _Walk) -> None:
    try:
        child = os.open(name, _FOLDER, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):  # gone or replaced meanwhile
        return
    except OSError as error:
        walk.scan.unreadable[path] = error.strerror or str(error)
        return
    _enter(child, path, states, walk)


def _entries(folder: int, only: set[str] | None) -> Iterator[tuple[str, int, str]]:
    """Yield name, mode and version of what is in a folder."""
    for name in only if only is not None else os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # gone since the folder was read, or a name that no file can have
            continue
        yield name, status.st_mode, f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
