"""Globs for files beneath a folder: `inbox/*.csv`, `**/report-?.txt`.

`*`, `?` and `[…]` stay within a name, and `**` stands for any number of folders. A name that begins
with a dot matches only a pattern that begins with one: editors and copying programs use such names
for files that they have not finished.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import TypeAlias

# Positions in patterns: the number of a pattern, and how many of its parts have matched so far.
States: TypeAlias = frozenset[tuple[int, int]]

_ANY_FOLDERS = "**"
_MAGIC = re.compile(r"[*?\[]")


class PatternError(ValueError):
    """A glob that cannot be used: what is wrong, and what to write instead."""

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem, self.hint = problem, hint
        super().__init__(problem)


def parse(text: str) -> tuple[str, ...]:
    """Return the parts of a glob; PatternError if it is none, or leaves the folder."""
    if not text.strip():
        raise PatternError("must not be empty", 'like "inbox/*.csv"')
    if text.startswith(("/", "~")):
        raise PatternError(
            "leaves the workspace",
            'files are watched beneath it: give a relative path, like "inbox/*"',
        )
    if "\0" in text:
        raise PatternError("holds a NUL, as no file name does")
    if text.endswith("/"):
        raise PatternError("names a folder", f'add what to look for in it, like "{text}*"')
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PatternError("leaves the workspace", "leave out the ..")
    if not parts:
        raise PatternError("names a folder", 'add what to look for in it, like "inbox/*"')
    for part in parts:
        if _ANY_FOLDERS in part and part != _ANY_FOLDERS:
            raise PatternError(
                f"** stands for whole folders and not within a name (found {part!r})",
                f"write {part.replace('**', '*')}",
            )
    return (*parts, "*") if parts[-1] == _ANY_FOLDERS else parts


class Patterns:
    """Several globs, matched step by step while a tree of folders is walked: a step takes one
    name.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        self._parts = [parse(text) for text in globs]
        self._matchers = {
            part: re.compile(translate(part)).match
            for parts in self._parts
            for part in parts
            if part != _ANY_FOLDERS
        }

    @property
    def start(self) -> States:
        """Where a walk begins."""
        return self._add_states_after_any_folders((number, 0) for number in range(len(self._parts)))

    def step(self, states: States, name: str) -> tuple[bool, States]:
        """Return whether a file of this name matches, and the states for a folder of this name."""
        matches, next_states = False, set()
        for number, position in states:
            parts = self._parts[number]
            part = parts[position]
            if name.startswith(".") and not part.startswith("."):
                continue  # as in a shell, a wildcard does not match a hidden file
            if part == _ANY_FOLDERS:
                next_states.add((number, position))
            elif self._matchers[part](name):
                if position + 1 == len(parts):
                    matches = True
                else:
                    next_states.add((number, position + 1))
        return matches, self._add_states_after_any_folders(next_states)

    def possible_names(self, states: States) -> set[str] | None:
        """Return the only names that can match in a folder with these states; None if a part has a
        wildcard, so that the folder must be read.
        """
        parts = {self._parts[number][position] for number, position in states}
        return None if any(_MAGIC.search(part) for part in parts) else parts

    def matches(self, path: str) -> bool:
        """Tell whether a relative path matches."""
        *folders, name = path.split("/")
        states = self.start
        for folder in folders:
            _, states = self.step(states, folder)
        return self.step(states, name)[0]

    def _add_states_after_any_folders(self, states: Iterable[tuple[int, int]]) -> States:
        """Add the states behind each `**`, which may stand for no folder at all."""
        states_after = set()
        for number, position in states:
            states_after.add((number, position))
            while self._parts[number][position] == _ANY_FOLDERS:
                position += 1
                states_after.add((number, position))
        return frozenset(states_after)
