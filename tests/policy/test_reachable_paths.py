"""Tools reach the workspace and what `[paths] read` names, by whatever path; and * stands for names
that are there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from daemon.policy.lexer import CallRejected, Word, parse_line
from daemon.policy.reachable_paths import (
    MAX_ENTRIES,
    MAX_FOLDERS,
    MAX_NAMES,
    ReachablePaths,
    WildcardSearch,
    refuse_devices,
    resolve_links,
)
from tests.properties import scaled_settings


@pytest.fixture
def reach(workspace: Path, tmp_path: Path) -> ReachablePaths:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a.log").touch()
    (tmp_path / "alias").symlink_to("shared")
    return ReachablePaths.of(workspace, [tmp_path / "alias"])


def expand(reach: ReachablePaths, word: str) -> list[str]:
    parsed_word = parse_line(f"ls {word}")[0].commands[0].words[1]
    return [path.text for path in reach.expand(parsed_word)]


@pytest.mark.parametrize(
    ("given_path", "names"),
    [
        ("notes.md", ("notes.md",)),
        ("./src/../notes.md", ("notes.md",)),
        ("src//a.py", ("src/a.py",)),
        (".", (".",)),
        ("not/there/yet", ("not/there/yet",)),
    ],
)
def test_a_path_in_the_workspace_has_its_relative_name(
    reach: ReachablePaths, given_path: str, names: tuple[str, ...]
) -> None:
    assert reach.resolve(given_path).names == names


def test_a_linked_path_has_its_target_and_its_own_name(
    reach: ReachablePaths, workspace: Path
) -> None:
    (workspace / "safe").symlink_to(".env")
    assert reach.resolve("safe").names == (".env", "safe")
    assert reach.resolve(str(workspace / "notes.md")).names == ("notes.md",)


def test_a_readable_folder_is_reached_by_a_link_for_reading_only(
    reach: ReachablePaths, tmp_path: Path
) -> None:
    path = reach.resolve(f"{tmp_path}/alias/a.log")
    assert path.names[0] == f"{tmp_path}/shared/a.log"
    assert (path.root, path.path_in_root) == (f"{tmp_path}/shared", "a.log")
    with pytest.raises(CallRejected):
        reach.resolve(f"{tmp_path}/alias/a.log", for_writing=True)


@pytest.mark.parametrize(
    "given_path",
    ["..", "../x", "/", "/etc/passwd", "link_etc/x", "innocent.log", "src/../../x", "a\0b", ""],
)
def test_path_outside_the_readable_folders_is_not_reachable(
    reach: ReachablePaths, given_path: str
) -> None:
    with pytest.raises(CallRejected):
        reach.resolve(given_path)


_PARTS = st.lists(
    st.sampled_from(["src", "a.py", "loop", "up", "away", "near", "file", "nowhere", ".", "..", ""])
)


@scaled_settings(300, suppress=[HealthCheck.function_scoped_fixture])
@given(parts=_PARTS)
def test_resolved_links_equal_os_path_realpath(workspace: Path, parts: list[str]) -> None:
    links = {
        "loop": "loop",
        "up": "..",
        "away": "/etc",
        "near": "src/a.py",
        "src/up": "../src",
        "src/file": "up/a.py",
    }
    for name, target in links.items():
        if not (workspace / name).is_symlink():
            (workspace / name).symlink_to(target)
    path = "/".join((str(workspace), *parts))
    assert resolve_links(path) == os.path.realpath(path)


# The root folder of a process that may not be traced is followed by nobody but root, so root makes
# itself an ordinary user once all is imported.
_FOLLOW_A_FORBIDDEN_LINK = """
import ctypes, json, os, sys
from pathlib import Path
from daemon.policy.lexer import CallRejected
from daemon.policy.reachable_paths import ReachablePaths

PR_SET_DUMPABLE, NOBODY = 4, 65534
workspace = Path(sys.argv[1])
ready, is_ready = os.pipe()
parent_lives, parent_ends = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(parent_ends)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    os.write(is_ready, b".")
    os.read(parent_lives, 1)  # until the parent has ended
    os._exit(0)
os.read(ready, 1)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
link = f"/proc/{pid}/root"
try:
    followed = os.readlink(link)
except PermissionError:
    followed = None
reach = ReachablePaths.of(workspace, [Path(link)])
try:
    answer = reach.resolve(f"{link}/etc").real
except CallRejected as error:
    answer = error.problem
print(json.dumps([followed, list(reach.readable) == [link], answer.replace(link, "LINK")]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_readable_path_that_may_not_be_followed_keeps_its_name(workspace: Path) -> None:
    """Only its owner may follow the root folder of a process, and not in every container."""
    result = subprocess.run(
        [sys.executable, "-c", _FOLLOW_A_FORBIDDEN_LINK, str(workspace)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    path, keeps_name, answer = json.loads(result.stdout)
    assert (path, keeps_name) == (None, True)
    # os.path.realpath raises PermissionError in Python 3.11, and leaves the name as it is in 3.14
    assert answer in ("LINK/etc cannot be followed: Permission denied", "LINK/etc")


def test_a_file_is_written_a_bounded_number_of_folders_deep(
    reach: ReachablePaths, workspace: Path
) -> None:
    path = "a/" * MAX_FOLDERS + "file.md"
    assert reach.resolve(path, for_writing=True).real == str(workspace / path)
    with pytest.raises(CallRejected, match=f"more than {MAX_FOLDERS} folders deep"):
        reach.resolve(f"a/{path}", for_writing=True)
    assert reach.resolve(f"a/{path}").names, "what lies there may be read"


def test_fifos_and_sockets_are_refused(reach: ReachablePaths, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    with pytest.raises(CallRejected, match="neither a file nor a folder"):
        refuse_devices(reach.resolve("fifo"))
    refuse_devices(reach.resolve("notes.md"))
    refuse_devices(reach.resolve("src"))
    refuse_devices(reach.resolve("nothing"))


def test_expanded_wildcards_never_look_like_options(reach: ReachablePaths, workspace: Path) -> None:
    (workspace / "-rf.csv").touch()
    assert expand(reach, "*.csv") == ["./-rf.csv", "./data.csv"]
    assert expand(reach, "src/*.py") == ["./src/a.py"]
    assert expand(reach, "s??/*") == ["./src/a.py", "./sub/keep"]
    assert expand(reach, "s*/") == ["./src/", "./sub/"]
    assert expand(reach, "./*.md") == ["./notes.md"]
    assert expand(reach, "'n'*\".md\"") == ["./notes.md"]


def test_wildcards_match_hidden_files_only_with_an_explicit_dot(reach: ReachablePaths) -> None:
    assert "./.env" not in expand(reach, "*")
    assert expand(reach, ".e*") == ["./.env"]


def test_a_wildcard_without_matches_stays_literal(reach: ReachablePaths, workspace: Path) -> None:
    assert expand(reach, "*.none") == ["*.none"]
    assert expand(reach, "--include=*.none") == ["--include=*.none"]
    (workspace / "--include=x").touch()
    with pytest.raises(CallRejected, match="would be replaced"):
        expand(reach, "--include=*")


def test_a_wildcard_outside_the_reachable_paths_is_refused(
    reach: ReachablePaths, tmp_path: Path
) -> None:
    assert expand(reach, f"{tmp_path}/shared/*.log") == [f"{tmp_path}/shared/a.log"]
    for word in ("/etc/*", "link_etc/pass*", "../*", "/root/.s*/*"):
        with pytest.raises(CallRejected):
            expand(reach, word)


def test_a_wildcard_with_too_many_matches_is_refused(
    reach: ReachablePaths, workspace: Path
) -> None:
    (workspace / "many").mkdir()
    for number in range(MAX_NAMES + 1):
        (workspace / "many" / str(number)).touch()
    with pytest.raises(CallRejected, match="more than 500"):
        expand(reach, "many/*")


def test_a_path_outside_the_workspace_is_called_that_wherever_it_is(reach: ReachablePaths) -> None:
    with pytest.raises(CallRejected, match="lies outside the workspace") as refusal:
        reach.resolve("/home/u/.config/x", for_writing=True)
    # and not what may only be read
    assert refusal.value.alternative == "paths are relative to the workspace"


def test_a_path_that_no_kernel_opens_is_refused_without_a_look(reach: ReachablePaths) -> None:
    assert reach.resolve("a/" * 2000).names[0].startswith("a/a/")
    with pytest.raises(CallRejected, match="a path is longer than 4096 characters"):
        reach.resolve("a/" * 20_000)


def test_wildcards_that_go_up_and_down_again_are_refused_after_a_bounded_search(
    reach: ReachablePaths, workspace: Path
) -> None:
    for number in range(8):
        (workspace / f"folder{number}").mkdir()
    with pytest.raises(CallRejected, match="more than 5000 folders"):
        expand(reach, "folder*/../" * 12 + "*")


def test_a_pattern_of_very_many_parts_is_refused_without_a_look(reach: ReachablePaths) -> None:
    assert expand(reach, "src/../" * 31 + "s*c/*.py") == ["./" + "src/../" * 31 + "src/a.py"]
    search = WildcardSearch()
    text = "src/../" * 32 + "*"
    with pytest.raises(CallRejected, match="has more than 64 parts"):
        reach.expand(Word(text, pattern=text), search)
    assert search == WildcardSearch()


def test_the_names_that_wildcards_look_at_are_counted(reach: ReachablePaths) -> None:
    search = WildcardSearch()
    reach.expand(Word("src/*.py", pattern="src/*.py"), search)
    assert (search.folders, search.entries) == (2, 1)
    search.entries = MAX_ENTRIES - 2
    with pytest.raises(CallRejected, match=f"more than {MAX_ENTRIES:,} names"):
        reach.expand(Word("*.none", pattern="*.none"), search)
    assert search.entries == MAX_ENTRIES + 1, "it looked on"


def test_examples_of_a_policy_are_judged_without_the_disk(workspace: Path) -> None:
    reach = ReachablePaths(str(workspace), on_disk=False)
    assert reach.resolve("innocent.log").names == ("innocent.log",)
    assert reach.expand(Word("*.csv", pattern="*.csv"))[0].text == "*.csv"
    with pytest.raises(CallRejected):
        reach.resolve("src/../../x")


def test_of_the_folders_above_what_may_be_read_only_the_way_is_seen(
    reach: ReachablePaths, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").touch()
    (tmp_path / "secret.txt").touch()
    parent = tmp_path.parent
    assert expand(reach, f"{tmp_path}/*") == [f"{tmp_path}/alias", f"{tmp_path}/shared"]
    assert expand(reach, f"{tmp_path}/sh*d/a.log") == [f"{tmp_path}/shared/a.log"]
    for rest in ("secret.txt", "private/key", "private", "missing", "missing/x"):
        with pytest.raises(CallRejected, match="lies outside"):
            expand(reach, f"{parent}/{tmp_path.name[:-1]}?/{rest}")
    assert expand(reach, f"{parent}/*/s*t") == [f"{parent}/*/s*t"]


def test_nothing_is_seen_through_a_link_that_leads_outside(reach: ReachablePaths) -> None:
    for word in ("link_e*/passwd", "link_e*/missing", "link_e*/*"):
        with pytest.raises(CallRejected):
            expand(reach, word)
