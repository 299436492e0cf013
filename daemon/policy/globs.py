"""Patterns of paths as rules have them, in the manner of .gitignore.

    notes.md        that name, in any folder          reports/**      everything beneath reports
    *.pem           such names, in any folder         reports/*.md    directly in reports
    **/.git/**      beneath a .git, wherever it is
    /var/log/*.log  an absolute path of the machine
    .               the workspace itself, and nothing in it

`*` and `?` do not cross a `/`. A folder's own pattern does not cover what is in it: that is what
`/**` says. In rules that forbid it does, if it ends without a wildcard (`with_content`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache


class BadPattern(ValueError):
    """A pattern that is not understood, or could not mean what its writer hopes."""


@dataclass(frozen=True, slots=True)
class Glob:
    """One pattern. Raises BadPattern for a pattern that it cannot read."""

    pattern: str
    ignore_case: bool = False
    """For rules that forbid: a file system may take `.ENV` for `.env`."""
    in_workspace: bool = False
    """Whether it covers paths of the workspace only, and begins there: `x` is not `sub/x`."""
    with_content: bool = False
    """Whether it covers what lies beneath a folder that it covers, too: for rules that forbid, and
    a pattern that ends without a wildcard.
    """
    _matcher: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        matcher = _compile(self.pattern, self.ignore_case, self.in_workspace, self.with_content)
        object.__setattr__(self, "_matcher", matcher)

    def covers(self, path: str) -> bool:
        """Tell whether the pattern fits a path, which is relative to the workspace, or absolute
        outside of it.
        """
        if path.startswith("/") and self.at_any_depth:
            return self._matcher.fullmatch(path[1:]) is not None
        if path.startswith("/") and self.in_workspace:
            return False
        return self._matcher.fullmatch(path) is not None

    @property
    def at_any_depth(self) -> bool:
        """Whether the pattern applies at any depth, also outside the workspace."""
        return not self.in_workspace and (self.pattern.startswith("**/") or "/" not in self.pattern)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns that say together the same without `with_content`."""
        return (self.pattern, f"{self.pattern}/**") if self.with_content else (self.pattern,)

    @property
    def plain_name(self) -> str | None:
        """The pattern of a file's name, if the pattern says nothing of folders; else None.

        It is what `grep --exclude` takes.
        """
        name = self.pattern.removeprefix("**/")
        is_plain = "/" not in name and name != "**" and not self.in_workspace
        return name if is_plain else None

    @property
    def folder_name(self) -> str | None:
        """The folder's name, if the pattern covers everything beneath folders of that name wherever
        they are; else None.
        """
        name = self.pattern.removeprefix("**/").removesuffix("/**")
        is_whole_folder = self.pattern == f"**/{name}/**" and not self.in_workspace
        return name if is_whole_folder and "/" not in name and name not in ("*", "**") else None

    def relative_to(self, folder: str) -> frozenset[str]:
        """Return the patterns that say the same of paths relative to a folder (`.` is the
        workspace).

        `**` among them is everything in the folder. Without patterns, nothing in the folder is
        covered.
        """
        if self.pattern.startswith("/") != folder.startswith("/") and not self.at_any_depth:
            return frozenset()
        parts = self.pattern.strip("/").split("/")
        remainders = {("**", *parts) if self.at_any_depth and parts[0] != "**" else tuple(parts)}
        for name in [name for name in folder.split("/") if name not in ("", ".")]:
            next_remainders: set[tuple[str, ...]] = set()
            for remaining in remainders:
                while remaining[0] == "**":  # ** stands for this folder, or ends before it
                    next_remainders.add(remaining)
                    if len(remaining) == 1:
                        break
                    remaining = remaining[1:]
                if (len(remaining) > 1 or self.with_content) and re.fullmatch(
                    _part_regex(remaining[0]), name, re.DOTALL | re.IGNORECASE * self.ignore_case
                ):
                    next_remainders.add(remaining[1:] or ("**",))
            remainders = next_remainders
        if self.with_content:
            remainders |= {(*remaining, "**") for remaining in remainders if remaining[-1] != "**"}
        return frozenset("/".join(remaining) for remaining in remainders)

    def covers_all_of(self, folder: str) -> bool:
        """Tell whether the pattern covers everything beneath a folder."""
        if self.with_content and folder != "." and self.covers(folder):
            return True
        return self.pattern.endswith("**") and self.covers("x" if folder == "." else f"{folder}/x")

    def may_lie_beneath(self, folder: str) -> bool:
        """Tell whether something that the pattern covers could be beneath a folder (`.` is the
        workspace). False is always right; True may be wrong.
        """
        if self.at_any_depth:
            return True
        if self.pattern.startswith("/") != folder.startswith("/"):
            return False
        start, pattern = "" if folder == "." else folder.rstrip("/"), self.pattern
        if self.ignore_case:
            start, pattern = start.casefold(), pattern.casefold()
        if not start:
            return True
        fixed_part, *wild_parts = re.split(r"[*?]", pattern, maxsplit=1)
        if not wild_parts:
            is_within = self.with_content and f"{start}/".startswith(f"{pattern}/")
            return is_within or pattern.startswith(f"{start}/")
        # the folders before the first wildcard
        fixed_part = fixed_part.rpartition("/")[0]
        return (
            f"{fixed_part}/".startswith(f"{start}/")
            or f"{start}/".startswith(f"{fixed_part}/")
            or not fixed_part
        )


def any_covers(globs: Iterable[Glob], *paths: str) -> bool:
    """Tell whether one of the globs covers one of the paths."""
    return any(glob.covers(path) for glob in globs for path in paths)


@lru_cache(maxsize=512)
def _compile(
    pattern: str, ignore_case: bool, in_workspace: bool, with_content: bool
) -> re.Pattern[str]:
    """Return the regular expression of a pattern; raise BadPattern."""
    if not pattern or pattern != pattern.strip():
        raise BadPattern("is empty or has blanks around it")
    parts = pattern.removeprefix("/").split("/")
    is_dotted = pattern != "." and not {".", ".."}.isdisjoint(parts)
    if pattern.startswith(("!", "~")) or pattern.endswith("/") or is_dotted:
        raise BadPattern(
            "is written relative to the workspace, without ! ~ . and .. and without a / at its end"
        )
    if "[" in pattern or "\\" in pattern:
        raise BadPattern("knows * ? and **, but no [ and no backslash")
    if re.search(r"[\x00-\x1f\x7f-\x9f]", pattern):
        raise BadPattern("holds a control character, which no program can be told to pass over")
    if not all(parts) or any("**" in part and part != "**" for part in parts):
        raise BadPattern("** stands for whole folders: a/**/b, **/name, folder/**")
    if len(parts) == 1 and parts != ["**"] and not (pattern.startswith("/") or in_workspace):
        parts = ["**", *parts]  # a name alone is that name in any folder
    text = "/" if pattern.startswith("/") else ""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            text += ".+" if is_last else "(?:[^/]+/)*"
        else:
            text += _part_regex(part) + ("" if is_last else "/")
    if with_content:
        text += "(?:/.+)?"
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _part_regex(part: str) -> str:
    """Return the regular expression of the part of a pattern between two slashes."""
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in part)


# What re.IGNORECASE takes for these letters besides their two cases.
_OTHER_CASES = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}


def make_case_insensitive(pattern: str) -> str:
    """Return a glob, as fnmatch(3) reads it, that covers what a pattern covers, in upper and lower
    case.

    A letter beyond ASCII becomes `*`: programs differ in which cases it has.
    """
    text = ""
    for char in pattern:
        lower, upper = char.lower(), char.upper()
        if char.isascii() and char.isalpha():
            text += f"[{lower}{upper}{_OTHER_CASES.get(lower, '')}]"
        elif lower != upper:
            text += "*"
        else:
            text += char
    return text
