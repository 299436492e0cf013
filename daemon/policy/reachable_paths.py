"""The paths that tools can reach at all: the workspace, and what `[paths] read` names.

Rules choose among these paths.

Links in a path are resolved before it is judged, so a link is judged by its destination. Our own
tools then open the resolved path, and follow no link in it (system/safe_open.py). A program opens
its files by name, though: a link that is put into the workspace between the verdict and the opening
would lead it elsewhere. No tool can make one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from daemon.policy.globs import Glob
from daemon.policy.lexer import CallRejected, Word
from daemon.policy.tables import word_list

MAX_SHOWN = 500  # characters of a path in an error
MAX_PATH = 4096  # characters; the kernel opens no longer one, and each of its folders is looked up
# How deep a file may be written, as what removes a tree often recurses; and how many parts a path
# with * or ? may have, as each of them is looked up for each part behind it.
MAX_FOLDERS = 64
MAX_NAMES = 500  # what one * or ? may stand for; every one of them is followed and judged
# Folders that are looked into for all * and ? of a line: `*/../*/../*` names the same ones again
# and again.
MAX_SEARCHED = 5_000
MAX_ENTRIES = 200_000  # names that are looked at in these folders
MAX_EXPANDED_WORDS = 1_000  # of a line, once * and ? are replaced by names


@dataclass(frozen=True, slots=True)
class CallPath:
    """One path of a call."""

    text: str
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
    def path_in_root(self) -> str:
        """The path relative to its root; `.` is the root itself."""
        return self.real[len(self.root.rstrip("/")) + 1 :] or "."


@dataclass(slots=True)
class WildcardSearch:
    """Counts what the * and ? of one line cost."""

    folders: int = 0
    entries: int = 0
    words: int = 0

    def count_words(self, number: int) -> None:
        """Count that many more words of the line; raise CallRejected if they are too many."""
        self.words += number
        if self.words > MAX_EXPANDED_WORDS:
            raise CallRejected(
                "* and ? stand for too many names in this line", "narrow them, or use find"
            )

    def count_folder(self, text: str) -> None:
        """Count one more folder that is looked into for the word `text`; raise CallRejected if they
        are too many.
        """
        self.folders += 1
        if self.folders > MAX_SEARCHED:
            raise CallRejected(
                f"more than {MAX_SEARCHED} folders would be searched for {text[:MAX_SHOWN]}",
                "narrow it, or use find",
            )

    def count_entry(self, text: str) -> None:
        """Count one more name that is looked at for the word `text`; raise CallRejected if they are
        too many.
        """
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise CallRejected(
                f"more than {MAX_ENTRIES:,} names would be looked at for {text[:MAX_SHOWN]}",
                "narrow it, or use find",
            )


@dataclass(frozen=True, slots=True)
class ReachablePaths:
    """The folders tools may look into; all paths absolute and followed."""

    workspace: str
    readable: tuple[str, ...] = ()
    on_disk: bool = True
    """Follow links and expand * and ?; without it only the text of a path counts."""

    @classmethod
    def of(cls, workspace: Path, readable: Sequence[Path] = ()) -> ReachablePaths:
        """Return the paths in these folders, and these single files, with all links followed."""
        return cls(os.path.realpath(workspace), tuple(_follow(path) for path in readable))

    def resolve(self, text: str, *, for_writing: bool = False) -> CallPath:
        """Follow a path; raise CallRejected if it leads to where tools may not go."""
        if not text or "\0" in text:
            raise CallRejected(
                "a path is empty or holds a NUL", "name a file or folder of the workspace"
            )
        if len(text) > MAX_PATH:
            raise CallRejected(
                f"a path is longer than {MAX_PATH} characters",
                "name a file or folder of the workspace",
            )
        absolute = self._absolute(text)
        try:
            os.fsencode(absolute)
            real = resolve_links(absolute) if self.on_disk else os.path.normpath(absolute)
        except UnicodeEncodeError:
            raise CallRejected(
                "a path holds half of a surrogate pair, which no name of a file has",
                "name a file or folder of the workspace",
            ) from None
        except OSError as error:  # the links of another user's process may not be followed
            raise CallRejected(
                f"{text[:MAX_SHOWN]} cannot be followed: {error.strerror}", self._suggest()
            ) from None
        is_in_workspace = _is_within(real, self.workspace)
        if for_writing and is_in_workspace and (name := _find_code_name(self._name(real))):
            raise CallRejected(
                f"{text} is not written: programs run or obey what stands in {name}",
                "use another name",
            )
        for root in (self.workspace, *(() if for_writing else self.readable)):
            if _is_within(real, root):
                call_path = CallPath(text, real, root, self._names(absolute, real))
                if for_writing and call_path.path_in_root.count("/") > MAX_FOLDERS:
                    raise CallRejected(
                        f"{text[:MAX_SHOWN]} lies more than {MAX_FOLDERS} folders deep",
                        "write it nearer to the workspace",
                    )
                return call_path
        raise CallRejected(
            f"{text} lies outside {self._describe(for_writing=for_writing)}",
            self._suggest(for_writing=for_writing),
        )

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.workspace}/{path}"

    def _names(self, absolute: str, real: str) -> tuple[str, ...]:
        normal = os.path.normpath(absolute)
        return (self._name(real),) if normal == real else (self._name(real), self._name(normal))

    def _name(self, path: str) -> str:
        if path == self.workspace:
            return "."
        return path.removeprefix(self.workspace.rstrip("/") + "/")

    def _describe(self, *, for_writing: bool) -> str:
        return "the workspace" if for_writing or not self.readable else "what may be read"

    def _suggest(self, *, for_writing: bool = False) -> str:
        return "paths are relative to the workspace" + "".join(
            f", or {path}" for path in (() if for_writing else self.readable[:8])
        )

    def expand(self, word: Word, search: WildcardSearch | None = None) -> tuple[Word, ...]:
        """Return the file names that a word with * or ? stands for; if there are none it stands for
        itself, as in bash. `search` is that of the line.

        Names in the workspace begin with ./ so that none can be taken for an option.
        """
        if not self.on_disk:
            return (word,)
        search = search or WildcardSearch()
        parts = word.pattern.strip("/").split("/")
        if len(parts) > MAX_FOLDERS:
            raise CallRejected(
                f"{word.text[:MAX_SHOWN]} has more than {MAX_FOLDERS} parts",
                "write it without .., or use find",
            )
        names = ["/" if word.pattern.startswith("/") else "."]
        for part in parts:
            folders, names = names, []
            for folder in folders:
                search.count_folder(word.text)
                names += self._find_matches(folder, part, word, search)
        if word.pattern.endswith("/"):
            names = [f"{name}/" for name in names if os.path.isdir(self._absolute(name))]  # noqa: PTH112  # no error where it may not be seen
        if len(names) > MAX_NAMES:
            raise CallRejected(
                f"{word.text} stands for more than {MAX_NAMES} names", "narrow it, or use find"
            )
        if not names:
            return (Word(word.text),)
        if word.text.startswith("-"):
            raise CallRejected(
                f"{word.text} would be replaced by {names[0]}", "put it in single quotes"
            )
        return tuple(Word(name, pattern=word.pattern) for name in sorted(names))

    def _find_matches(
        self, folder: str, part: str, word: Word, search: WildcardSearch
    ) -> list[str]:
        """Return the paths in a folder that one part of the pattern of a word stands for."""
        prefix = folder.rstrip("/") + "/"
        real = _follow(Path(self._absolute(folder)))
        is_reachable = any(_is_within(real, root) for root in (self.workspace, *self.readable))
        is_on_the_way = folder[0] == "/" and any(_is_within(root, real) for root in self.readable)
        if not is_reachable and not is_on_the_way:
            self.resolve(folder)  # which raises
        if not any(char in part for char in "*?"):
            name = _unescape(part)
            if name == ".":
                return [folder]
            if not is_reachable and not self._leads_to_readable(prefix + name):
                self.resolve(prefix + name)  # which raises, whether there is such a file or not
            names = [name] if os.path.lexists(self._absolute(prefix + name)) else []
        else:
            names = []
            try:
                with os.scandir(self._absolute(folder)) as entries:
                    for entry in entries:
                        search.count_entry(word.text)
                        if entry.name[0] == "." and part[0] != ".":
                            continue
                        if fnmatchcase(entry.name, part):
                            names.append(entry.name)
            except OSError:
                return []
        # on the way to what may be read nothing is seen but the way
        paths = [prefix + name for name in names]
        return paths if is_reachable else list(filter(self._leads_to_readable, paths))

    def _leads_to_readable(self, path: str) -> bool:
        """Tell whether a path is what may be read, lies in it or is a folder above it."""
        real = _follow(Path(self._absolute(path)))
        return any(_is_within(root, real) or _is_within(real, root) for root in self.readable)

    def find_other_globs(self, glob: Glob) -> Iterator[Glob]:
        """Yield globs that cover, under the names that rules compare, what a pattern covers under
        another name: one that leads through a link, or an absolute one of the workspace.

        Links are followed up to the first wildcard of the pattern.
        """
        if glob.at_any_depth:
            return
        parts = glob.pattern.split("/")
        wild_parts = (index for index, part in enumerate(parts) if "*" in part or "?" in part)
        end = next(wild_parts, len(parts))
        fixed_part = "/".join(parts[:end])
        is_absolute = glob.pattern.startswith("/")
        written_path = (
            fixed_part or "/" if is_absolute else f"{self.workspace}/{fixed_part}".rstrip("/")
        )
        for path in dict.fromkeys((written_path, _follow(Path(written_path)))):
            # what a pattern cannot say is any character there
            text = re.sub(r"[\[\\*\x00-\x1f\x7f-\x9f]|\s$", "?", path).rstrip("/")
            if not text and end == len(parts):
                continue
            other_glob = Glob(
                "/".join((text, *parts[end:])), glob.ignore_case, with_content=glob.with_content
            )
            if path != written_path and not _is_within(path, self.workspace):
                yield other_glob
            for pattern in sorted(other_glob.relative_to(self.workspace)):
                # all of a folder in which the workspace lies is what is beside the workspace
                covers_all_above = pattern == "**" and not _is_within(path, self.workspace)
                if pattern not in glob.patterns and not covers_all_above:
                    pattern_text = re.sub(r"^[\s!~]", "?", pattern)
                    yield Glob(pattern_text, glob.ignore_case, in_workspace=True)


def _follow(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a link of another user's process, which may not be followed by us either
        return os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps ..


def resolve_links(path: str) -> str:
    """Return where an absolute path leads: what os.path.realpath says, several times as soon where
    no link is in it.
    """
    if os.path.normpath(path) == path and not path.startswith("//"):
        try:
            if not _has_link(path):
                return path
        except OSError:
            pass  # realpath knows what is to be said of files that are not there
    return os.path.realpath(path)


def _has_link(path: str) -> bool:
    end = 0
    while end >= 0:
        end = path.find("/", end + 1)
        if stat.S_ISLNK(os.lstat(path if end < 0 else path[:end]).st_mode):
            return True
    return False


def _unescape(part: str) -> str:
    """Return the text that a pattern without wildcards stands for."""
    return re.sub(r"\[([*?[])]", r"\1", part)


def _find_code_name(path: str) -> str:
    """Return the part of a path that makes what is written there code, if there is one."""
    return next(
        (part for part in path.split("/") if part.casefold() in word_list("files", "code")), ""
    )


def refuse_devices(path: CallPath) -> None:
    """Refuse what is neither file nor folder: reading it could wait, or go on, for ever."""
    try:
        mode = Path(path.real).stat().st_mode
    except (OSError, ValueError):
        return  # the program says best what is wrong with it
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise CallRejected(f"{path.text} is neither a file nor a folder", "name a regular file")


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
