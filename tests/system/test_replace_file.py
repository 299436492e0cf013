"""A file is replaced at once or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.system.replace_file import replace_file


def test_a_file_is_replaced_with_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    replace_file(file, b"a = 1\n")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"a = 1\n", 0o600)
    replace_file(file, b"a = 2\n", mode=0o664)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"a = 2\n", 0o664)
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_replaced_stays_and_leaves_no_draft(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("in the way")
    with pytest.raises(OSError, match="folder"):
        replace_file(folder, b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.root
def test_the_group_stays_or_has_no_access(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "tidy.toml"
    file.write_text("a = 1\n")
    os.chown(file, -1, 12345)
    replace_file(file, b"a = 2\n", mode=0o664, group=12345)
    assert (file.stat().st_gid, file.stat().st_mode & 0o777) == (12345, 0o664)
    os.chown(folder, 65534, 65534)
    os.chown(file, 65534, 12345)
    os.setegid(65534)
    os.seteuid(65534)  # who is not in that group
    try:
        replace_file(file, b"a = 3\n", mode=0o664, group=12345)
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert file.read_bytes() == b"a = 3\n"
    assert (file.stat().st_gid, file.stat().st_mode & 0o777) == (65534, 0o604)
