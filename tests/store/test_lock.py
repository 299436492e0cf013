"""The state folder is locked by one daemon and private."""

from __future__ import annotations

import fcntl
import os
import resource
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.errors import ConfigError, StateBusy
from daemon.store.lock import filesystem, find_holder, lock_state

HOLD = """
import sys
from pathlib import Path
from daemon.store.lock import lock_state
lock = lock_state(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_daemon_on_a_state_folder_names_the_first_process(tmp_path: Path) -> None:
    with hold(tmp_path / "state") as first:
        with pytest.raises(
            StateBusy, match=f"is in use by process {first.pid}; stop it first"
        ) as error:
            lock_state(tmp_path / "state")
        assert error.value.pid == first.pid
        first.communicate()
    lock_state(tmp_path / "state").release()


def test_the_state_lock_ends_with_its_killed_process(tmp_path: Path) -> None:
    with hold(tmp_path) as first:
        first.kill()
    with lock_state(tmp_path) as lock:
        assert lock.path.read_text() == f"{os.getpid()}\n"


def test_a_start_waits_for_a_child_of_a_killed_daemon_that_is_not_yet_a_program(
    tmp_path: Path,
) -> None:
    """Until its exec the child has a copy of the lock."""
    with hold(tmp_path) as first:
        first.kill()
    file = tmp_path / "agentd.lock"
    with file.open("r+") as copy:
        fcntl.flock(copy, fcntl.LOCK_EX)
        with ThreadPoolExecutor() as pool:
            start = pool.submit(lock_state, tmp_path)
            with pytest.raises(TimeoutError):
                start.result(timeout=0.2)
            fcntl.flock(copy, fcntl.LOCK_UN)
            start.result(timeout=60).release()


def test_a_released_state_lock_leaves_no_pid(tmp_path: Path) -> None:
    lock = lock_state(tmp_path)
    with pytest.raises(StateBusy):
        lock_state(tmp_path)
    lock.release()
    lock.release()
    assert lock.path.read_text() == ""
    with lock_state(tmp_path):
        pass


def test_the_daemon_of_a_state_folder_is_found_by_its_lock(tmp_path: Path) -> None:
    assert find_holder(tmp_path) is None
    with lock_state(tmp_path):
        assert find_holder(tmp_path) == os.getpid()
    assert find_holder(tmp_path) is None


def test_a_state_lock_without_a_pid_is_reported_without_a_pid(tmp_path: Path) -> None:
    with lock_state(tmp_path) as lock:
        lock.path.write_text("")
        with pytest.raises(StateBusy, match="is in use by another process") as error:
            lock_state(tmp_path)
    assert error.value.pid is None


def test_a_child_process_does_not_inherit_the_state_lock(tmp_path: Path) -> None:
    lock = lock_state(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
    ) as child:
        lock.release()
        with lock_state(tmp_path):
            pass
        child.communicate(b"\n")


def test_the_state_folder_is_created_and_kept_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "state"
    # root's tools run as another user, who must be able to pass
    expected = 0o711 if os.geteuid() == 0 else 0o700
    with lock_state(folder) as lock:
        assert stat.S_IMODE(folder.stat().st_mode) == expected
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    folder.chmod(0o755)
    with lock_state(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == expected


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file takes a byte
    try:
        with pytest.raises(ConfigError, match="the state folder cannot be written: File too large"):
            lock_state(tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_in_place_of_the_state_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(ConfigError, match="the state folder cannot be used: File exists"):
        lock_state(tmp_path / "state")


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(
        f"22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"36 22 0:31 / {tmp_path}/home rw,relatime shared:9 master:2 - nfs4 box:/home rw,vers=4.2\n"
        f"37 36 0:32 / {tmp_path}/home/local rw - xfs /dev/vdb rw\n"
        f"38 22 0:33 / {tmp_path}/my\\040share rw - fuse.sshfs me@box: rw\n"
        f"39 22 0:34 / {tmp_path}/covered rw - ext4 /dev/vdc rw\n"
        f"40 22 0:35 / {tmp_path}/covered rw - cifs //box/share rw\n"
    )
    return file


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("state", "ext4"),
        ("home/me/state", "nfs4"),
        ("homes/me/state", "ext4"),
        ("home/local/state", "xfs"),
        ("my share/state", "fuse.sshfs"),
        ("covered/state", "cifs"),
    ],
)
def test_the_file_system_is_the_one_mounted_nearest(
    tmp_path: Path, mounts: Path, folder: str, expected: str
) -> None:
    assert filesystem(tmp_path / folder, mounts) == expected


def test_a_link_does_not_hide_a_network_file_system(tmp_path: Path, mounts: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home")
    assert filesystem(tmp_path / "link" / "state", mounts) == "nfs4"


@pytest.mark.parametrize("folder", ["home/state", "my share/state", "covered/state"])
def test_a_network_file_system_is_refused_by_name(
    tmp_path: Path, mounts: Path, folder: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"a network file system cannot hold the database \(found \S+\); choose a"
    ):
        lock_state(tmp_path / folder, mounts=mounts)


def test_a_state_folder_is_accepted_if_mounts_are_unknown(tmp_path: Path) -> None:
    with lock_state(tmp_path / "state", mounts=tmp_path / "absent"):
        pass
