"""A path is opened beneath its folder or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from daemon.system.safe_open import has_openat2, open_beneath, walk_beneath

Way: TypeAlias = Callable[[str, str], int]


def _walk(root: str, inside: str) -> int:
    return walk_beneath(root, inside, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "walk":
        return _walk
    if not has_openat2():
        pytest.skip("this kernel (or container) has no openat2")
    return open_beneath


def error_number(opening: Callable[[], int]) -> int | None:
    """Return the error code with which something was not opened, None if it was."""
    try:
        os.close(opening())
    except OSError as error:
        return error.errno
    return None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    (folder / "within").symlink_to("sub/file")
    (folder / "folder").symlink_to("sub")
    (folder / "etc").symlink_to("/etc")
    return folder


def test_a_file_beneath_is_opened(way: Way, root: Path) -> None:
    with os.fdopen(way(str(root), "sub/file")) as file:
        assert file.read() == "inside"


@pytest.mark.parametrize(
    ("inside", "codes"),
    [
        ("../secret", {errno.EXDEV}),
        ("sub/../../secret", {errno.EXDEV}),
        ("/etc/passwd", {errno.EXDEV}),
        ("out", {errno.ELOOP}),
        ("up", {errno.ELOOP}),
        ("within", {errno.ELOOP}),
        ("folder/file", {errno.ELOOP, errno.ENOTDIR}),
        ("etc/passwd", {errno.ELOOP, errno.ENOTDIR}),
        ("sub/file/x", {errno.ENOTDIR}),
        ("nothing", {errno.ENOENT}),
    ],
)
def test_a_path_leading_elsewhere_is_refused(
    way: Way, root: Path, inside: str, codes: set[int]
) -> None:
    assert error_number(lambda: way(str(root), inside)) in codes


def test_a_magic_link_of_proc_is_not_followed(way: Way) -> None:
    assert error_number(lambda: way("/proc/self", "root/etc/passwd")) in {
        errno.ELOOP,
        errno.ENOTDIR,
        errno.ENOENT,
    }


def test_a_single_file_may_be_the_root(root: Path) -> None:
    with os.fdopen(open_beneath(str(root / "sub" / "file"), ".")) as file:
        assert file.read() == "inside"


def test_a_root_replaced_by_a_link_is_refused(root: Path) -> None:
    assert error_number(lambda: open_beneath(str(root / "out"), ".")) == errno.ELOOP


def test_opening_a_fifo_does_not_block(way: Way, root: Path) -> None:
    os.mkfifo(root / "fifo")
    os.close(way(str(root), "fifo"))


def test_opened_descriptors_are_not_inherited(way: Way, root: Path) -> None:
    fd = way(str(root), "sub/file")
    assert not os.get_inheritable(fd)
    os.close(fd)
