"""A pattern covers the paths its writer means, in the manner of .gitignore."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.policy.globs import BadPattern, Glob, make_case_insensitive
from tests.properties import scaled_settings


@pytest.mark.parametrize(
    ("pattern", "matches", "other_paths"),
    [
        (
            "notes.md",
            ["notes.md", "a/notes.md", "a/b/notes.md"],
            ["notes.mdx", "notes.md/x", "xnotes.md"],
        ),
        (".env*", [".env", ".env.local", "config/.env"], ["env", ".envs/x", "a.env"]),
        ("*.pem", ["a.pem", "a/b.pem", ".pem"], ["a.pem/x", "apem"]),
        ("reports/**", ["reports/a", "reports/a/b"], ["reports", "x/reports/a", "reportsx/a"]),
        ("reports/*.md", ["reports/a.md"], ["reports/a/b.md", "x/reports/a.md", "reports/a.mdx"]),
        (
            "**/.git/**",
            [".git/config", "a/.git/hooks/x"],
            [".git", "a/.git", ".gitignore", "x.git/config"],
        ),
        ("**/secret", ["secret", "a/secret"], ["secret/x", "asecret"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "b"]),
        ("**", ["a", "a/b", "."], []),
        ("a?c", ["abc", "x/a.c"], ["ac", "a/c", "abbc"]),
        ("/var/log/**", ["/var/log/a", "/var/log/a/b"], ["var/log/a", "/var/log", "/var/logs/a"]),
        ("/etc/os-release", ["/etc/os-release"], ["etc/os-release", "/etc/os-release/x"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)", "a.bb(c)"]),
    ],
)
def test_glob_matches_the_paths_it_names(
    pattern: str, matches: list[str], other_paths: list[str]
) -> None:
    glob = Glob(pattern)
    assert [path for path in matches if not glob.covers(path)] == []
    assert [path for path in other_paths if glob.covers(path)] == []


def test_a_glob_for_any_depth_matches_outside_the_workspace() -> None:
    assert Glob(".env*").covers("/home/a/project/.env")
    assert Glob("**/.ssh/**").covers("/home/a/.ssh/id")
    assert not Glob("reports/**").covers("/reports/a")


def test_a_glob_can_ignore_case() -> None:
    assert Glob(".env*", ignore_case=True).covers(".ENV")
    assert not Glob("reports/**").covers("Reports/a")


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " a",
        "!a",
        "~/a",
        "./a",
        "../a",
        "a/../b",
        "a/..",
        "a/./b",
        "a/.",
        "..",
        "/.",
        "a/",
        "a//b",
        "a**",
        "**a/b",
        "[a]",
        "a\\b",
        "a\0b",
        "a\nb",
    ],
)
def test_an_ambiguous_glob_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Glob(pattern)


@pytest.mark.parametrize(
    ("pattern", "folder", "may"),
    [
        (".env*", ".", True),
        (".env*", "src", True),
        ("private/**", ".", True),
        ("private/**", "private", True),
        ("private/**", "private/a", True),
        ("private/**", "src", False),
        ("private/**", "privates", False),
        ("/var/log/auth.log", "/var/log", True),
        ("/var/log/auth.log", ".", False),
        ("private/**", "/var/log", False),
        ("*/secret", "src", True),
    ],
)
def test_a_glob_knows_whether_matches_may_lie_beneath_a_folder(
    pattern: str, folder: str, may: bool
) -> None:
    assert Glob(pattern).may_lie_beneath(folder) is may


@pytest.mark.parametrize(
    ("pattern", "folder", "may"),
    [
        ("/srv/private", "/srv/private", True),
        ("/srv/private", "/srv/private/a", True),
        ("/srv/private", "/SRV", True),
        ("/srv/private", "/", True),
        ("/srv/private", "/srv/reports", False),
        ("/srv/private", "/srv/private-not", False),
        ("store/private", "store", True),
        ("store/private", "store/reports", False),
        ("store/private/**", "/", False),
        ("/*", "/", True),
    ],
)
def test_a_folder_named_whole_lies_beneath_its_parents_and_not_beside_itself(
    pattern: str, folder: str, may: bool
) -> None:
    with_content = not pattern.endswith("*")
    glob = Glob(pattern, ignore_case=True, with_content=with_content)
    assert glob.may_lie_beneath(folder) is may


@pytest.mark.parametrize(
    ("pattern", "folder", "beneath"),
    [
        ("*.pem", ".", {"**/*.pem"}),
        ("*.pem", "/srv/a", {"**/*.pem"}),
        ("my secrets/**", ".", {"my secrets/**"}),
        ("my secrets/**", "my secrets", {"**"}),
        ("my secrets/**", "other", set()),
        ("a/*/c", "a", {"*/c"}),
        ("a/*/c", "a/b", {"c"}),
        ("a", "a", {"**/a"}),
        ("**/.ssh/**", "home", {"**/.ssh/**"}),
        ("**/.ssh/**", "home/.ssh", {"**/.ssh/**", "**"}),
        ("**/a/b", "x/a", {"**/a/b", "b"}),
        ("/srv/a/**", "/srv", {"a/**"}),
        ("/srv/a/**", "/srv/a/b", {"**"}),
        ("/srv/a/**", "srv", set()),
        ("srv/a/**", "/srv", set()),
    ],
)
def test_a_glob_is_rewritten_relative_to_a_folder(
    pattern: str, folder: str, beneath: set[str]
) -> None:
    assert Glob(pattern).relative_to(folder) == beneath


def test_an_exclude_glob_of_a_program_matches_both_cases() -> None:
    assert make_case_insensitive("*.pem?") == "*.[pP][eE][mM]?"
    assert make_case_insensitive("7-ä界") == "7-*界"


_NAME = st.sampled_from(["a", "b", "ab", ".env", "reports", "x.pem"])
_PART = st.sampled_from(["a", "b", "*", "**", "a*", "?", ".env*", "reports", "*.pem"])


def _glob(pattern: str, with_content: bool) -> Glob:
    ends_wild = bool({"*", "?"} & {*pattern.rpartition("/")[2]})
    return Glob(pattern, with_content=with_content and not ends_wild)


@scaled_settings(300)
@given(
    pattern=st.lists(_PART, min_size=1, max_size=3).map("/".join),
    path=st.lists(_NAME, min_size=1, max_size=4),
    with_content=st.booleans(),
)
def test_a_glob_matching_a_path_may_lie_beneath_each_parent_folder(
    pattern: str, path: list[str], with_content: bool
) -> None:
    glob = _glob(pattern, with_content)
    if glob.covers("/".join(path)):
        assert all(
            glob.may_lie_beneath("/".join(path[:depth]) or ".") for depth in range(len(path))
        )
    if glob.covers_all_of("/".join(path)):
        assert glob.covers("/".join([*path, "b", "x.pem"]))


@scaled_settings(300)
@given(
    pattern=st.lists(_PART, min_size=1, max_size=3).map("/".join),
    path=st.lists(_NAME, min_size=2, max_size=4),
    with_content=st.booleans(),
)
def test_a_glob_relative_to_a_folder_matches_the_same_paths(
    pattern: str, path: list[str], with_content: bool
) -> None:
    glob = _glob(pattern, with_content)
    for depth in range(1, len(path)):
        beneath = glob.relative_to("/".join(path[:depth]))
        # of one part only, a pattern is for any depth, unless it is told from the root
        is_covered = any(
            Glob(f"/{remainder}").covers("/" + "/".join(path[depth:])) for remainder in beneath
        )
        assert is_covered == glob.covers("/".join(path))
    covering_patterns = [each for each in glob.patterns if Glob(each).covers("/".join(path))]
    assert bool(covering_patterns) == glob.covers("/".join(path))
