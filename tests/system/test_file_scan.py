"""A file scan finds matching files with their versions, and follows no link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.system.file_scan import FolderScan, scan_files
from daemon.system.patterns import Patterns


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def scan_root(root: Path, *globs: str) -> FolderScan:
    return scan_files(root, Patterns(globs))


def test_a_scan_finds_matching_files_and_the_folders_to_watch(root: Path) -> None:
    put(root / "inbox/a.csv")
    put(root / "inbox/b.txt")
    put(root / "inbox/sub/c.csv")
    put(root / "other/d.csv")
    scan = scan_root(root, "inbox/*.csv")
    assert set(scan.files) == {"inbox/a.csv"}
    assert scan.folders == {"", "inbox"}
    deep = scan_root(root, "inbox/**/*.csv")
    assert set(deep.files) == {"inbox/a.csv", "inbox/sub/c.csv"}
    assert deep.folders == {"", "inbox", "inbox/sub"}


def test_a_missing_folder_is_watched_in_its_parent(root: Path) -> None:
    assert scan_root(root, "inbox/*.csv").folders == {""}
    assert scan_root(root / "gone", "inbox/*.csv") == FolderScan()


def test_a_version_changes_with_content_time_and_inode(root: Path) -> None:
    path = put(root / "a")
    versions = [scan_root(root, "*").files["a"]]
    path.write_text("longer")
    versions.append(scan_root(root, "*").files["a"])
    os.utime(path, ns=(0, 12345))
    versions.append(scan_root(root, "*").files["a"])
    os.utime(put(root / "b", "longer"), ns=(0, 12345))
    (root / "b").replace(path)
    versions.append(scan_root(root, "*").files["a"])
    assert len(set(versions)) == 4
    path.chmod(0o600)
    assert scan_root(root, "*").files["a"] == versions[-1]


def test_a_scan_follows_no_links_and_finds_only_plain_files(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret/key.csv")
    (root / "inbox").symlink_to(tmp_path / "secret")
    (root / "link.csv").symlink_to(tmp_path / "secret/key.csv")
    (root / "folder.csv").mkdir()
    os.mkfifo(root / "pipe.csv")
    scan = scan_root(root, "*.csv", "inbox/*.csv", "**/*.csv")
    assert scan.files == {}
    assert scan.folders == {"", "folder.csv"}


def test_links_where_files_or_folders_are_expected_are_reported(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "elsewhere/key.csv")
    put(root / "inbox/real.csv")
    (root / "inbox/link.csv").symlink_to(tmp_path / "elsewhere/key.csv")
    (root / "inbox/dangling.csv").symlink_to(tmp_path / "gone.csv")
    (root / "inbox/notes.txt").symlink_to(tmp_path / "gone.txt")  # it matches nothing
    (root / "other").symlink_to(tmp_path / "elsewhere")
    (root / "tool").symlink_to(tmp_path / "elsewhere/key.csv")  # neither, it is no folder
    scan = scan_root(root, "**/*.csv")
    assert set(scan.files) == {"inbox/real.csv"}
    assert scan.links == {"inbox/link.csv", "inbox/dangling.csv", "other"}


def test_the_root_of_a_scan_may_be_a_link(root: Path, tmp_path: Path) -> None:
    put(root / "a.csv")
    (tmp_path / "link").symlink_to(root)
    assert set(scan_root(tmp_path / "link", "*.csv").files) == {"a.csv"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_is_reported_and_others_are_scanned(root: Path) -> None:
    put(root / "closed/a.csv")
    put(root / "open/a.csv")
    (root / "closed").chmod(0)
    scan = scan_root(root, "*/*.csv")
    (root / "closed").chmod(0o700)
    assert set(scan.files) == {"open/a.csv"}
    assert scan.unreadable == {"closed": "Permission denied"}


def test_file_names_that_are_not_utf_8_are_escaped(root: Path) -> None:
    for name in (b"caf\xe9.csv", b"caf\xe8.csv", "中.csv".encode()):
        (root / os.fsdecode(name)).write_text("x")
    scan = scan_root(root, "*.csv")
    assert set(scan.files) == {"caf\\udce9.csv", "caf\\udce8.csv", "中.csv"}
    assert scan.misnamed == {"caf\\udce9.csv", "caf\\udce8.csv"}


def test_scan_ends_for_any_tree(root: Path) -> None:
    for number in range(20):
        put(root / f"{number}/a.csv")
    few = scan_files(root, Patterns(["**/*.csv"]), max_folders=5)
    assert few.is_truncated and len(few.folders) <= 6
    few = scan_files(root, Patterns(["**/*.csv"]), max_files=5)
    assert few.is_truncated and len(few.files) == 5
    assert not scan_files(root, Patterns(["**/*.csv"])).is_truncated


def test_the_depth_of_a_scan_is_limited(root: Path) -> None:
    deep = root
    for _ in range(100):
        deep = deep / "d"
    put(deep / "a.csv")
    assert scan_root(root, "**/*.csv").files == {}
