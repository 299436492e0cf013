"""Know what tools can reach at all: the workspace, and what `[paths] read` names.

Rules choose within that.

Paths are followed through every link before they are judged, so a link is judged by where it leads.
What our own tools open afterwards (system/safe_open.py) is the followed path, and no link in it. A
program opens its files by name, though: whoever can put a link into the workspace between the
judging and the opening leads it elsewhere. No tool can.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from daemon.policy.lexer import Unreadable, Word
from daemon.policy.tables import word_list

MAX_NAMES = 500  # what one * or ? may stand for; every one of them is followed and judged


@dataclass(frozen=True, slots=True)
class CallPath:
    """One path of a call."""

    asked: str
    """As the model wrote it."""
    real: str
    """Absolute, with every link followed."""
    root: str
    """The folder (or single file) that made it reachable."""
    names: tuple[str, ...]
    """What rules compare: relative to the workspace or absolute outside it; as followed, and as
    written.
    """

    @property
    def inside(self) -> str:
        """The path relative to its root; `.` is the root itself."""
        return self.real[len(self.root.rstrip("/")) + 1 :] or "."


@dataclass(frozen=True, slots=True)
class Reach:
    """The folders tools may look into; all paths absolute and followed."""

    workspace: str
    readable: tuple[str, ...] = ()
    on_disk: bool = True
    """Follow links and expand * and ?; without it only the text of a path counts."""

    @classmethod
    def of(cls, workspace: Path, readable: Sequence[Path] = ()) -> Reach:
        return cls(os.path.realpath(workspace), tuple(os.path.realpath(path) for path in readable))

    def find(self, asked: str, *, writing: bool = False) -> CallPath:
        """Follow a path; raise Unreadable if it leads to where tools may not go."""
        if not asked or "\0" in asked:
            raise Unreadable(
                "a path is empty or holds a NUL", "name a file or folder of the workspace"
            )
        joined = self._absolute(asked)
        real = followed(joined) if self.on_disk else os.path.normpath(joined)
        if writing and (name := _code_in(self._name(real))):
            raise Unreadable(
                f"{asked} is not written: programs run or obey what stands in {name}",
                "use another name",
            )
        for root in (self.workspace, *(() if writing else self.readable)):
            if _within(real, root):
                return CallPath(asked, real, root, self._names(joined, real))
        raise Unreadable(
            f"{asked} lies outside {self._described(writing=writing)}", self._instead()
        )

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.workspace}/{path}"

    def _names(self, joined: str, real: str) -> tuple[str, ...]:
        written = os.path.normpath(joined)
        return (self._name(real),) if written == real else (self._name(real), self._name(written))

    def _name(self, path: str) -> str:
        if path == self.workspace:
            return "."
        return path.removeprefix(self.workspace.rstrip("/") + "/")

    def _described(self, *, writing: bool) -> str:
        return "the workspace" if writing or not self.readable else "what may be read"

    def _instead(self) -> str:
        return "paths are relative to the workspace" + "".join(
            f", or {path}" for path in self.readable[:8]
        )

    def expand(self, word: Word) -> tuple[Word, ...]:
        """Return the file names that a word with * or ? stands for; if there are none it stands for
        itself, as in bash.

        Names in the workspace begin with ./ so that none can be taken for an option.
        """
        if not self.on_disk:
            return (word,)
        folders = ["/" if word.pattern.startswith("/") else "."]
        *parts, last = word.pattern.strip("/").split("/")
        for part in parts:
            folders = [name for folder in folders for name in self._matching(folder, part)]
        found = [name for folder in folders for name in self._matching(folder, last)]
        if word.pattern.endswith("/"):
            found = [f"{name}/" for name in found if Path(self._absolute(name)).is_dir()]
        if len(found) > MAX_NAMES:
            raise Unreadable(
                f"{word.text} stands for more than {MAX_NAMES} names", "narrow it, or use find"
            )
        if not found:
            return (Word(word.text),)
        if word.text.startswith("-"):
            raise Unreadable(
                f"{word.text} would be replaced by {found[0]}", "put it in single quotes"
            )
        return tuple(Word(name, pattern=word.pattern) for name in sorted(found))

    def _matching(self, folder: str, part: str) -> list[str]:
        """Return the paths in a folder that one part of a pattern stands for."""
        prefix = folder.rstrip("/") + "/"
        if not any(char in part for char in "*?"):
            name = _unescaped(part)
            if name == ".":
                return [folder]
            return [prefix + name] if os.path.lexists(self._absolute(prefix + name)) else []
        if not any(_within(root, folder) for root in self.readable):
            self.find(folder)  # on the way to what may be read, folders may be looked through
        try:
            with os.scandir(self._absolute(folder)) as entries:
                names = [entry.name for entry in entries]
        except OSError:
            return []
        return [
            prefix + name
            for name in names
            if fnmatchcase(name, part) and (name[0] != "." or part[0] == ".")
        ]


def followed(path: str) -> str:
    """Return where an absolute path leads: what os.path.realpath says, several times as soon where
    no link is in it.
    """
    if os.path.normpath(path) == path and not path.startswith("//"):
        try:
            if not _holds_link(path):
                return path
        except OSError:
            pass  # realpath knows what is to be said of files that are not there
    return os.path.realpath(path)


def _holds_link(path: str) -> bool:
    end = 0
    while end >= 0:
        end = path.find("/", end + 1)
        if stat.S_ISLNK(os.lstat(path if end < 0 else path[:end]).st_mode):
            return True
    return False


def _unescaped(part: str) -> str:
    """Return the text that a pattern without wildcards stands for."""
    return re.sub(r"\[([*?[])]", r"\1", part)


def _code_in(path: str) -> str:
    """Return the part of a path that makes what is written there code, if there is one."""
    return next(
        (part for part in path.split("/") if part.casefold() in word_list("files", "code")), ""
    )


def refuse_devices(place: CallPath) -> None:
    """Refuse what is neither file nor folder: reading it could wait, or go on, for ever."""
    try:
        mode = Path(place.real).stat().st_mode
    except OSError:
        return  # the program says best what is wrong with it
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise Unreadable(f"{place.asked} is neither a file nor a folder", "name a regular file")


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
