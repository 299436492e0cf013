"""Say which paths a rule speaks of, in the manner of .gitignore.

    notes.md        that name, in any folder          reports/**      everything beneath reports
    *.pem           such names, in any folder         reports/*.md    directly in reports
    **/.git/**      beneath a .git, wherever it is    /var/log/*.log  an absolute path of the machine

`*` and `?` do not cross a `/`. A folder's own pattern does not cover what is in it: that is what `/**` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from daemon.values import dataclass


class BadPattern(ValueError):
    """A pattern that could not mean what its writer hopes."""


@dataclass(frozen=True, slots=True)
class Glob:
    """One pattern; `fold` makes case not matter, for rules that forbid."""

    pattern: str
    fold: bool = False
    _matcher: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_matcher", _compiled(self.pattern, self.fold))

    def covers(self, path: str) -> bool:
        """Tell whether it speaks of this path: relative to the workspace, or absolute outside it."""
        if path.startswith("/") and self.floating:
            return self._matcher.fullmatch(path[1:]) is not None
        return self._matcher.fullmatch(path) is not None

    @property
    def floating(self) -> bool:
        """It applies at any depth, also outside the workspace."""
        return self.pattern.startswith("**/") or "/" not in self.pattern

    @property
    def base(self) -> str | None:
        """The name it speaks of, if a name is all that it asks for; what `grep --exclude` takes."""
        name = self.pattern.removeprefix("**/")
        return name if "/" not in name and name != "**" else None

    @property
    def folder(self) -> str | None:
        """The folder's name, if it speaks of everything beneath folders of that name, wherever they are."""
        name = self.pattern.removeprefix("**/").removesuffix("/**")
        whole = self.pattern == f"**/{name}/**"
        return name if whole and "/" not in name and name not in ("*", "**") else None

    def covers_all_of(self, folder: str) -> bool:
        """Tell whether it speaks of everything beneath a folder."""
        return self.pattern.endswith("**") and self.covers("x" if folder == "." else f"{folder}/x")

    def may_lie_beneath(self, folder: str) -> bool:
        """Tell whether something it covers could be beneath a folder (`.` is the workspace); never wrongly no."""
        if self.floating:
            return True
        if self.pattern.startswith("/") != folder.startswith("/"):
            return False
        fixed = re.split(r"[*?]", self.pattern, maxsplit=1)[0].rpartition("/")[0]  # what leads to the first wildcard
        here = "" if folder == "." else folder
        if self.fold:
            fixed, here = fixed.casefold(), here.casefold()
        return not here or f"{fixed}/".startswith(f"{here}/") or f"{here}/".startswith(f"{fixed}/") or not fixed


def any_covers(globs: Iterable[Glob], *paths: str) -> bool:
    return any(glob.covers(path) for glob in globs for path in paths)


@lru_cache(maxsize=512)
def _compiled(pattern: str, fold: bool) -> re.Pattern[str]:
    if not pattern or pattern != pattern.strip():
        raise BadPattern("is empty or has blanks around it")
    if pattern.startswith(("!", "~", "./", "../")) or "/../" in pattern or pattern.endswith(("/..", "/")):
        raise BadPattern("is written relative to the workspace, without ! ~ . and .. and without a / at its end")
    if "[" in pattern or "\\" in pattern:
        raise BadPattern("knows * ? and **, but no [ and no backslash")
    parts = pattern.removeprefix("/").split("/")
    if not all(parts) or any("**" in part and part != "**" for part in parts):
        raise BadPattern("** stands for whole folders: a/**/b, **/name, folder/**")
    if len(parts) == 1 and parts != ["**"]:
        parts = ["**", *parts] if not pattern.startswith("/") else parts
    text = "/" if pattern.startswith("/") else ""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
        else:
            text += _part(part) + ("" if last else "/")
    return re.compile(text, re.DOTALL | (re.IGNORECASE if fold else 0))


def _part(part: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in part)
