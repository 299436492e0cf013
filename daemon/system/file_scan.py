"""One look at what is there: the files that fit, each with its version, and the folders they may
appear in.

Nothing leads out of the root: every folder is opened by itself, relative to its parent and
following no link, and of files only plain ones count.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from daemon.system.patterns import Patterns, States

# Beyond these somebody has named the wrong folder; a look must end, and each folder takes one of
# the kernel's watches.
MOST_FOLDERS = 5_000
MOST_FILES = 100_000
DEEPEST = 64

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class FolderScan:
    """What there was."""

    files: dict[str, str] = field(default_factory=dict)
    """Versions by path, relative to the root."""
    folders: set[str] = field(default_factory=set)
    """Where a file that fits may appear; the root is empty text."""
    unread: dict[str, str] = field(default_factory=dict)
    """Folders that could not be read, and why."""
    full: bool = False
    """There is more than a look takes in."""


def look(
    root: Path,
    patterns: Patterns,
    *,
    most_folders: int = MOST_FOLDERS,
    most_files: int = MOST_FILES,
) -> FolderScan:
    """Return what is beneath the root; a root that is missing holds nothing."""
    found = FolderScan()
    with suppress(FileNotFoundError):
        # the root itself is the owner's choice, be it a link
        folder = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
        _enter(folder, "", patterns.start, _Errand(patterns, found, most_folders, most_files))
    return found


@dataclass(frozen=True, slots=True)
class _Errand:
    patterns: Patterns
    found: FolderScan
    most_folders: int
    most_files: int

    def is_done(self) -> bool:
        found = self.found
        found.full = (
            found.full
            or len(found.folders) > self.most_folders
            or len(found.files) >= self.most_files
        )
        return found.full


def _enter(folder: int, path: str, states: States, errand: _Errand) -> None:
    found = errand.found
    try:
        found.folders.add(path)
        for name, mode, version in _entries(folder, errand.patterns.only(states)):
            if errand.is_done():
                return
            fits, deeper = errand.patterns.step(states, name)
            inside = f"{path}/{name}" if path else name
            if fits and stat.S_ISREG(mode):
                found.files[_readable(inside)] = version
            elif deeper and stat.S_ISDIR(mode) and inside.count("/") < DEEPEST:
                _enter_child(folder, name, inside, deeper, errand)
    except OSError as error:
        found.unread[path] = error.strerror or str(error)
    finally:
        os.close(folder)


def _readable(path: str) -> str:
    """Return a path as text: what of a name is no UTF-8 is spelt out, so that a journal and a model
    can take it.
    """
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def _enter_child(folder: int, name: str, inside: str, states: States, errand: _Errand) -> None:
    try:
        child = os.open(name, _FOLDER, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):  # gone or replaced meanwhile
        return
    except OSError as error:
        errand.found.unread[inside] = error.strerror or str(error)
        return
    _enter(child, inside, states, errand)


def _entries(folder: int, only: set[str] | None) -> Iterator[tuple[str, int, str]]:
    """Yield name, mode and version of what is in a folder."""
    for name in only if only is not None else os.listdir(folder):
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # gone since the folder was read, or a name that no file can have
            continue
        yield name, about.st_mode, f"{about.st_mtime_ns}-{about.st_size}-{about.st_ino}"
