"""One look: what fits is seen with its version, and nothing leads out."""

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


def seen(root: Path, *globs: str) -> FolderScan:
    return scan_files(root, Patterns(globs))


def test_files_that_fit_are_seen_with_the_folders_they_may_come_into(root: Path) -> None:
    put(root / "inbox/a.csv")
    put(root / "inbox/b.txt")
    put(root / "inbox/sub/c.csv")
    put(root / "other/d.csv")
    found = seen(root, "inbox/*.csv")
    assert set(found.files) == {"inbox/a.csv"}
    assert found.folders == {"", "inbox"}
    deep = seen(root, "inbox/**/*.csv")
    assert set(deep.files) == {"inbox/a.csv", "inbox/sub/c.csv"}
    assert deep.folders == {"", "inbox", "inbox/sub"}


def test_a_missing_folder_is_waited_for_in_the_one_above(root: Path) -> None:
    assert seen(root, "inbox/*.csv").folders == {""}
    assert seen(root / "gone", "inbox/*.csv") == FolderScan()


def test_a_version_changes_with_content_time_and_inode(root: Path) -> None:
    path = put(root / "a")
    versions = [seen(root, "*").files["a"]]
    path.write_text("longer")
    versions.append(seen(root, "*").files["a"])
    os.utime(path, ns=(0, 12345))
    versions.append(seen(root, "*").files["a"])
    os.utime(put(root / "b", "longer"), ns=(0, 12345))
    (root / "b").replace(path)
    versions.append(seen(root, "*").files["a"])
    assert len(set(versions)) == 4
    path.chmod(0o600)
    assert seen(root, "*").files["a"] == versions[-1]


def test_no_link_leads_out_and_only_plain_files_count(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret/key.csv")
    (root / "inbox").symlink_to(tmp_path / "secret")
    (root / "link.csv").symlink_to(tmp_path / "secret/key.csv")
    (root / "folder.csv").mkdir()
    os.mkfifo(root / "pipe.csv")
    found = seen(root, "*.csv", "inbox/*.csv", "**/*.csv")
    assert found.files == {}
    assert found.folders == {"", "folder.csv"}


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    put(root / "a.csv")
    (tmp_path / "link").symlink_to(root)
    assert set(seen(tmp_path / "link", "*.csv").files) == {"a.csv"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_told_and_the_others_are_seen(root: Path) -> None:
    put(root / "closed/a.csv")
    put(root / "open/a.csv")
    (root / "closed").chmod(0)
    found = seen(root, "*/*.csv")
    (root / "closed").chmod(0o700)
    assert set(found.files) == {"open/a.csv"}
    assert found.unreadable == {"closed": "Permission denied"}


def test_names_that_are_no_text_are_spelt_out(root: Path) -> None:
    for name in (b"caf\xe9.csv", b"caf\xe8.csv", "中.csv".encode()):
        (root / os.fsdecode(name)).write_text("x")
    assert set(seen(root, "*.csv").files) == {"caf\\udce9.csv", "caf\\udce8.csv", "中.csv"}


def test_scan_ends_for_any_tree(root: Path) -> None:
    for number in range(20):
        put(root / f"{number}/a.csv")
    few = scan_files(root, Patterns(["**/*.csv"]), max_folders=5)
    assert few.full and len(few.folders) <= 6
    few = scan_files(root, Patterns(["**/*.csv"]), max_files=5)
    assert few.full and len(few.files) == 5
    assert not scan_files(root, Patterns(["**/*.csv"])).full


def test_folders_are_entered_to_a_depth_that_cannot_hurt(root: Path) -> None:
    deep = root
    for _ in range(100):
        deep = deep / "d"
    put(deep / "a.csv")
    assert seen(root, "**/*.csv").files == {}
