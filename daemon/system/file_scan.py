"""Scan folders for the files that match patterns, each with its version, and for the folders in
which such files may appear.

Nothing leads out of the root: every folder is opened by itself, relative to its parent and without
following links, and only regular files are returned.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from daemon.system.patterns import Patterns, States

# A scan must end, and each of its folders takes one of the kernel's watches: patterns that match
# more than this name the wrong folder.
MAX_FOLDERS = 5_000
MAX_FILES = 100_000
MAX_DEPTH = 64

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class FolderScan:
    """What a scan has found."""

    files: dict[str, str] = field(default_factory=dict)
    """Versions by path, relative to the root."""
    folders: set[str] = field(default_factory=set)
    """Where a matching file may appear, relative to the root, which is the empty text."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Folders that could not be read, and why."""
    links: set[str] = field(default_factory=set)
    """Symbolic links in the place of a matching file or of a folder that would have been scanned,
    whether their target exists or not.
    """
    misnamed: set[str] = field(default_factory=set)
    """Those of the files whose path is not UTF-8: it is spelt out, and opens no file."""
    is_truncated: bool = False
    """Whether the scan ended early, as there are too many folders or files."""


def scan_files(
    root: Path,
    patterns: Patterns,
    *,
    max_folders: int = MAX_FOLDERS,
    max_files: int = MAX_FILES,
) -> FolderScan:
    """Scan the folders beneath the root; a missing root has no files."""
    scanner = _Scanner(patterns, max_folders, max_files)
    with suppress(FileNotFoundError):
        # The root itself may be a link: its owner chose it.
        descriptor = os.open(root, _OPEN_FOLDER & ~os.O_NOFOLLOW)
        scanner.scan_folder(descriptor, "", patterns.start)
    return scanner.scan


class _Scanner:
    """Walk down the folders in which a matching file may be, and collect a FolderScan."""

    def __init__(self, patterns: Patterns, max_folders: int, max_files: int) -> None:
        self.scan = FolderScan()
        self._patterns, self._max_folders, self._max_files = patterns, max_folders, max_files

    def scan_folder(self, descriptor: int, path: str, states: States) -> None:
        """Scan an open folder and those beneath it, and close its descriptor.

        `path` is that of the folder, relative to the root; `states` say how far the patterns have
        matched it.
        """
        scan = self.scan
        try:
            scan.folders.add(path)
            # Where only some names can match, these are looked up and the folder is not read.
            names = self._patterns.possible_names(states)
            for name in os.listdir(descriptor) if names is None else names:
                try:
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError:  # gone since the folder was read, or a name that no file can have
                    continue
                if self._is_over_limit():
                    scan.is_truncated = True
                    return
                matches, child_states = self._patterns.step(states, name)
                child_path = f"{path}/{name}" if path else name
                if matches and stat.S_ISREG(status.st_mode):
                    version = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
                    printable_path = _printable(child_path)
                    scan.files[printable_path] = version
                    if printable_path != child_path:
                        scan.misnamed.add(printable_path)
                elif (
                    child_states
                    and stat.S_ISDIR(status.st_mode)
                    and child_path.count("/") < MAX_DEPTH
                ):
                    self._scan_child(descriptor, name, child_path, child_states)
                elif stat.S_ISLNK(status.st_mode) and (
                    matches or (child_states and _is_folder(descriptor, name))
                ):
                    scan.links.add(_printable(child_path))
        except OSError as error:
            scan.unreadable[path] = error.strerror or str(error)
        finally:
            os.close(descriptor)

    def _scan_child(self, parent: int, name: str, path: str, states: States) -> None:
        """Open the folder `name` of an open folder, and scan it."""
        try:
            descriptor = os.open(name, _OPEN_FOLDER, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):  # gone or replaced meanwhile
            return
        except OSError as error:
            self.scan.unreadable[path] = error.strerror or str(error)
            return
        self.scan_folder(descriptor, path, states)

    def _is_over_limit(self) -> bool:
        scan = self.scan
        return (
            scan.is_truncated
            or len(scan.folders) > self._max_folders
            or len(scan.files) + len(scan.links) >= self._max_files
        )


def _is_folder(parent: int, name: str) -> bool:
    """Tell whether a symbolic link in an open folder leads to a folder."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent).st_mode)
    except OSError:
        return False


def _printable(path: str) -> str:
    """Return a path as text: what of a name is no UTF-8 is spelt out, so that a journal and a model
    can take it.
    """
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()
