"""Who could have written a file."""

import os
import stat

import pytest

from daemon.system.ownership import explain_other_writers

_NO_SUCH_ID = 2**31 - 7


def _status(mode: int, *, uid: int | None = None, gid: int = _NO_SUCH_ID) -> os.stat_result:
    uid = os.geteuid() if uid is None else uid
    return os.stat_result((mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    "mode", [stat.S_IFREG | 0o600, stat.S_IFREG | 0o755, stat.S_IFDIR | 0o1777]
)
def test_what_only_we_can_change_has_no_other_writers(mode: int) -> None:
    assert explain_other_writers(_status(mode)) is None
    assert explain_other_writers(_status(mode, uid=0)) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (_status(stat.S_IFREG | 0o602), ("can be written by everybody", "chmod o-w")),
        (_status(stat.S_IFREG | 0o1602), ("can be written by everybody", "chmod o-w")),
        (_status(stat.S_IFDIR | 0o777), ("can be written by everybody", "chmod o-w")),
        (
            _status(stat.S_IFREG | 0o660),
            (f"can be written by group {_NO_SUCH_ID}", "chmod g-w"),
        ),
    ],
)
def test_others_who_could_change_it_are_named(
    status: os.stat_result, expected: tuple[str, str]
) -> None:
    assert explain_other_writers(status) == expected


def test_another_owner_is_named() -> None:
    problem, hint = explain_other_writers(_status(stat.S_IFREG | 0o600, uid=_NO_SUCH_ID)) or (
        "",
        "",
    )
    assert problem == f"belongs to user {_NO_SUCH_ID}"
    assert hint.startswith("chown it to ")
