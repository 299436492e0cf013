"""Read renames.toml and changes.toml, and apply them to a golden text."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.golden.normalise import sort_cli_logs, sort_json, sort_log

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded"
RENAMES, CHANGES, DIGESTS = FOLDER / "renames.toml", FOLDER / "changes.toml", FOLDER / "digests.txt"


@dataclass(frozen=True, kw_only=True)
class Rename:
    """A word that is another one now, wherever it stands by itself."""

    old: str
    new: str
    issue: int
    where: str = "*"

    def apply(self, file: str, text: str) -> str:
        """Return the text with the new word; the same text if the old one is not in it, or the file
        is not meant.
        """
        if not fnmatchcase(file, self.where):
            return text
        before, after = (
            (r"(?<!\w)" if self.old[0].isalnum() else ""),
            (r"(?!\w)" if self.old[-1].isalnum() else ""),
        )
        return re.sub(f"{before}{re.escape(self.old)}{after}", lambda _: self.new, text)

    def __str__(self) -> str:
        return (
            f"renames.toml: {self.old!r} -> {self.new!r} (where {self.where}, issue {self.issue})"
        )


@dataclass(frozen=True, kw_only=True)
class Change:
    """Whole lines that are other ones now: replaced, removed (`new` is empty) or put in (`old` is
    empty).
    """

    file: str
    issue: int
    old: str = ""
    new: str = ""
    after: str = ""
    why: str = ""

    def apply(self, file: str, text: str) -> str:
        """Return the text with the new lines, everywhere where the old ones stand; the same text if
        nowhere.
        """
        if not fnmatchcase(file, self.file):
            return text
        lines, old, new = text.split("\n"), _lines(self.old or self.after), _lines(self.new)
        if not self.old:
            new = old + new
        result, place = [], 0
        while place < len(lines):
            if lines[place : place + len(old)] == old:
                result += new
                place += len(old)
            else:
                result.append(lines[place])
                place += 1
        return "\n".join(result)

    def __str__(self) -> str:
        first = (_lines(self.old) or _lines(self.after))[0]
        return f"changes.toml: the lines from {first!r} on in {self.file} (issue {self.issue})"


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def read_renames(text: str) -> list[Rename]:
    """Return the entries of a renames.toml; ValueError if one is not what it has to be."""
    return [
        _entry(Rename, table, required=("old", "new", "issue")) for table in _tables(text, "rename")
    ]


def read_changes(text: str) -> list[Change]:
    """Return the entries of a changes.toml; ValueError if one is not what it has to be."""
    changes = [
        _entry(Change, table, required=("file", "issue")) for table in _tables(text, "change")
    ]
    for change in changes:
        if bool(change.old) == bool(change.after):
            raise ValueError(
                (  # noqa: UP034
                    f"{change.file}: a change has either `old`, or `after` with the lines to put in "  # noqa: E501
                    "behind it"
                )
            )
    return changes


def _tables(text: str, name: str) -> Sequence[dict[str, Any]]:
    document = tomllib.loads(text)
    if unknown := set(document) - {name}:
        raise ValueError(f"unknown table {min(unknown)!r}; each entry is a [[{name}]]")
    return list(document.get(name, ()))


def _entry(kind: type[Any], table: dict[str, Any], *, required: Iterable[str]) -> Any:
    names = kind.__dataclass_fields__
    if unknown := set(table) - set(names):
        raise ValueError(f"unknown key {min(unknown)!r} in {table}; there are {', '.join(names)}")
    if missing := [name for name in required if table.get(name) in (None, "")]:
        raise ValueError(f"{missing[0]!r} is missing in {table}")
    return kind(**table)


def expect(file: str, text: str, renames: Iterable[Rename], changes: Iterable[Change]) -> str:
    """Return what a surface is to be now: its golden text, renamed and changed.

    `file` is "scenario/surface.txt".
    """
    for rename in renames:
        text = rename.apply(file, text)
    text = in_order(file, text)
    for change in changes:
        text = change.apply(file, text)
    return text


def in_order(file: str, text: str) -> str:
    """Return a text with that in order which has none by itself: keys of JSON, events of the same
    moment.
    """
    if file.endswith("/log.txt"):
        return sort_log(text)
    return sort_cli_logs(sort_json(text)) if file.endswith("/cli.txt") else sort_json(text)


def stale_entries(
    texts: dict[str, str], renames: Sequence[Rename], changes: Sequence[Change]
) -> list[Rename | Change]:
    """Return the entries that change no golden text any more, in their order."""
    useful: set[int] = set()
    for file, golden in texts.items():
        text = golden
        for number, entry in enumerate((*renames, *changes)):
            if number == len(renames):
                text = in_order(file, text)
            applied = entry.apply(file, text)
            if applied != text:
                useful.add(number)
            text = applied
    return [entry for number, entry in enumerate((*renames, *changes)) if number not in useful]


def golden_texts(folder: Path = RECORDED) -> dict[str, str]:
    """Return all golden texts by "scenario/surface.txt"."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("*/*.txt"))
    }


def digests_of(texts: dict[str, str]) -> str:
    """Return a line per golden text, as `sha256sum` writes them."""
    return "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {file}\n"
        for file, text in sorted(texts.items())
    )


def difference(file: str, expected: str, actual: str, *, most: int = 300) -> str:
    """Return how two texts differ, as `diff -u` says it, and where to write it down if it is
    meant.
    """
    lines = list(
        difflib.unified_diff(
            expected.split("\n"),
            actual.split("\n"),
            f"expected {file}",
            f"actual {file}",
            lineterm="",
        )
    )
    if len(lines) > most:
        lines[most:] = [f"… {len(lines) - most} more lines"]
    return "\n".join(lines)
