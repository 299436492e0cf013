"""Globs of watched files: matching, faults, and confinement to the workspace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.system.patterns import PatternError, Patterns, parse
from tests.properties import scaled_settings

MATCHES = [
    ("inbox/*.csv", "inbox/a.csv", True),
    ("inbox/*.csv", "inbox/a.txt", False),
    ("inbox/*.csv", "inbox/deep/a.csv", False),
    ("inbox/*.csv", "a.csv", False),
    ("inbox/*.csv", "inbox/a.csv/b.csv", False),
    ("*", "a", True),
    ("./inbox//a", "inbox/a", True),
    ("*/a.csv", "x/a.csv", True),
    ("**/a.csv", "a.csv", True),
    ("**/a.csv", "x/y/z/a.csv", True),
    ("in/**/out/*.csv", "in/out/a.csv", True),
    ("in/**/out/*.csv", "in/1/2/out/a.csv", True),
    ("in/**/out/*.csv", "in/1/2/a.csv", False),
    ("in/**/**/a", "in/a", True),
    ("in/**", "in/x/y", True),
    ("in/**", "in", False),
    ("**", "a", True),
    ("a?.txt", "ab.txt", True),
    ("[ab].txt", "c.txt", False),
    ("[!ab].txt", "c.txt", True),
    ("*", ".a.csv.swp", False),
    ("inbox/*", "inbox/.a.csv.part", False),
    ("**/*.csv", ".git/a.csv", False),
    (".*", ".hidden", True),
    ("A.csv", "a.csv", False),
    ("中*", "中文.txt", True),
    ("a[", "a[", True),
]


@pytest.mark.parametrize(("glob", "path", "matches"), MATCHES)
def test_glob_matches_listed_paths(glob: str, path: str, matches: bool) -> None:
    assert Patterns([glob]).matches(path) is matches


@pytest.mark.parametrize(
    ("glob", "word"),
    [
        ("", "empty"),
        ("/etc/*", "leaves the workspace"),
        ("~/x", "leaves the workspace"),
        ("../x", "leaves the workspace"),
        ("inbox/../../x", "leaves the workspace"),
        ("inbox/", "names a folder"),
        (".", "names a folder"),
        ("a**b", "whole folders"),
        ("a\0", "NUL"),
    ],
)
def test_an_invalid_glob_is_refused(glob: str, word: str) -> None:
    with pytest.raises(PatternError, match=word):
        parse(glob)


def test_globs_of_a_list_are_combined() -> None:
    patterns = Patterns(["inbox/*.csv", "data/**/*.json"])
    assert patterns.matches("inbox/a.csv")
    assert patterns.matches("data/x/a.json")
    assert not patterns.matches("inbox/a.json")


def test_a_glob_names_the_only_possible_entries_of_a_folder() -> None:
    patterns = Patterns(["inbox/*.csv", "inbox/new/x"])
    assert patterns.possible_names(patterns.start) == {"inbox"}
    assert patterns.possible_names(patterns.step(patterns.start, "inbox")[1]) is None


names = st.text(st.sampled_from("ab."), min_size=1, max_size=3).filter(
    lambda name: name not in (".", "..")
)
parts = st.lists(st.one_of(names, st.sampled_from(["*", "**", "a*", "?b"])), min_size=1, max_size=4)


def by_recursion(parts: list[str], path: list[str]) -> bool:
    """Fit as one would explain it: each part takes a name, `**` any number of them."""
    from fnmatch import fnmatchcase

    if not parts or not path:
        return not parts and not path
    first, name = parts[0], path[0]
    if first == "**":
        return by_recursion(parts[1:], path) or (
            len(path) > 1 and not name.startswith(".") and by_recursion(parts, path[1:])
        )
    is_hidden = name.startswith(".") and not first.startswith(".")
    return not is_hidden and fnmatchcase(name, first) and by_recursion(parts[1:], path[1:])


@scaled_settings(100)
@given(parts, st.lists(names, min_size=1, max_size=4))
def test_glob_matching_equals_a_recursive_reference(parts: list[str], path: list[str]) -> None:
    whole = [*parts, "*"] if parts[-1] == "**" else parts
    assert Patterns(["/".join(parts)]).matches("/".join(path)) is by_recursion(whole, path)
