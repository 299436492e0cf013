from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.api.listener import open_door
from daemon.errors import ConfigError, SocketBusy, StateBusy
from tests.api.harness import Access, ApiHarness, ask, open_harness


def test_the_socket_is_for_its_owner_alone_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agentd.sock"
    before = os.umask(0o002)
    try:
        door = open_door(path, {})
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    door.close()
    assert not path.exists()


def test_the_socket_of_a_daemon_that_died_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(os.fspath(path))
    dead.close()
    open_door(path, {}).close()


async def test_a_living_daemon_is_not_pushed_aside(harness: ApiHarness) -> None:
    with pytest.raises(
        SocketBusy, match=rf"process {os.getpid()} answers on the control socket .* already"
    ) as caught:
        open_door(harness.path, {})
    assert isinstance(caught.value, StateBusy)  # and so ends with the same exit code
    assert caught.value.pid == os.getpid()
    assert (await ask(harness.path, "GET", "/v1/status")).status == 200


def test_a_daemon_too_busy_to_answer_is_not_pushed_aside_either(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(os.fspath(path))
        busy.listen(0)
        callers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(os.fspath(path))
        with pytest.raises(SocketBusy, match="another process answers"):
            open_door(path, {})
        for caller in callers:
            caller.close()


def test_what_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    path.write_text("my thesis")
    with pytest.raises(ConfigError, match=f"^{path}: something that is not a socket is in the way"):
        open_door(path, {})
    assert path.read_text() == "my thesis"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is left alone"):
        open_door(path, {})


def test_a_path_that_is_too_long_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 108) / "agentd.sock"
    with pytest.raises(ConfigError) as caught:
        open_door(path, {})
    assert "\n" not in str(caught.value)
    assert "may have 107; name a shorter one" in str(caught.value)
    assert not path.parent.exists()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match=f"mode 0777.*chmod 700 {folder}"):
        open_door(folder / "agentd.sock", {})
    folder.chmod(0o1777)  # as /tmp: there nobody can remove the files of others
    open_door(folder / "agentd.sock", {}).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be made: Permission denied"):
        open_door(tmp_path / "sub" / "agentd.sock", {})


def test_a_successors_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    door = open_door(path, {})
    path.unlink()
    successor = open_door(path, {})
    door.close()
    assert path.is_socket()
    successor.close()


INHERIT = """
import os, sys
from pathlib import Path
from daemon.api.listener import open_door
env = {"LISTEN_FDS": sys.argv[1], "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": sys.argv[2]}
door = open_door(Path("/nowhere/agentd.sock"), env)
connection, _ = door.socket.accept()
connection.sendall(b"%d %s" % (door.socket.fileno(), os.fsencode(door.path)))
connection.close()
door.close()
"""


@pytest.mark.parametrize(("names", "place"), [("agentd.socket", 0), ("hooks:control", 1), ("", 0)])
async def test_an_inherited_socket_is_used_and_its_file_is_left(
    tmp_path: Path, names: str, place: int
) -> None:
    sockets = []
    for number in range(2):
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(os.fspath(tmp_path / f"{number}.sock"))
        sockets[-1].listen()

    def hand_down() -> None:  # as systemd does: from descriptor 3 on
        high = [
            fcntl.fcntl(each.fileno(), fcntl.F_DUPFD, 100) for each in sockets
        ]  # else one may overwrite the next
        for number, fd in enumerate(high):
            os.dup2(fd, 3 + number)

    child = subprocess.Popen(
        [sys.executable, "-c", INHERIT, "2", names], preexec_fn=hand_down, close_fds=False
    )
    try:
        reader, writer = await asyncio.open_unix_connection(os.fspath(tmp_path / f"{place}.sock"))
        assert await reader.read() == f"{3 + place} {tmp_path}/{place}.sock".encode()
        writer.close()
    finally:
        assert await asyncio.to_thread(child.wait) == 0
        for each in sockets:
            each.close()
    assert (tmp_path / f"{place}.sock").exists()


def test_descriptors_meant_for_another_process_are_not_taken(tmp_path: Path) -> None:
    door = open_door(tmp_path / "agentd.sock", {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getppid())})
    assert door.path == tmp_path / "agentd.sock"
    door.close()


async def test_the_file_goes_when_the_server_stops(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        assert harness.path.is_socket()
    assert not harness.path.exists()


async def test_a_request_of_another_user_is_refused(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, access=Access(operators=frozenset({os.geteuid() + 1}))
    ) as harness:
        answer = await ask(harness.path, "GET", "/v1/status")
    assert (answer.status, answer.json["code"]) == (403, "foreign")
    assert f"not for uid:{os.geteuid()}" in answer.json["detail"]


AS_NOBODY = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: agentd\\r\\nConnection: close\\r\\n\\r\\n")
data = b""
while chunk := s.recv(65536): data += chunk
sys.stdout.buffer.write(data)
"""


async def test_who_may_look_changes_nothing(tmp_path: Path) -> None:
    reader = Access(operators=frozenset({os.geteuid() + 1}), readers=frozenset({os.geteuid()}))
    async with open_harness(tmp_path, access=reader) as harness:
        assert (await ask(harness.path, "GET", "/v1/routines")).status == 200
        answer = await ask(harness.path, "POST", "/v1/routines/heartbeat/pause")
        assert (answer.status, answer.json["code"]) == (403, "read_only")
        assert "may look and change nothing" in answer.json["detail"]
        assert not harness.engine.states["heartbeat"].paused


def modes(path: Path) -> tuple[int, int]:
    return stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir(mode=0o700)
    return made


def test_a_group_is_let_through_the_folder_to_the_socket_and_nobody_else_is(folder: Path) -> None:
    door = open_door(folder / "agentd.sock", {}, group=os.getegid())
    assert modes(door.path) == (0o710, 0o660)
    assert (door.path.stat().st_gid, folder.stat().st_gid) == (os.getegid(),) * 2
    hooks = open_door(folder / "agentd-hooks.sock", {}, name="hooks", group=os.getegid())
    assert modes(hooks.path) == (0o710, 0o660)
    hooks.close()
    door.close()


def test_a_folder_that_everybody_may_pass_through_stays_as_it_is(folder: Path) -> None:
    folder.chmod(0o711)
    door = open_door(folder / "agentd.sock", {}, group=os.getegid())
    assert modes(door.path) == (0o711, 0o660)
    door.close()


def test_no_group_is_let_into_the_folder_of_a_session(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"XDG_RUNTIME_DIR.*RUNTIME_DIRECTORY"):
        open_door(folder / "agentd.sock", {"XDG_RUNTIME_DIR": str(folder)}, group=os.getegid())
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may give a file to any group")
def test_a_group_that_is_not_ours_is_one_clear_line(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match="cannot be given to the group: Operation not permitted; who runs agentd"
    ):
        open_door(folder / "agentd.sock", {}, group=0)
    assert list(folder.iterdir()) == []


def test_a_fault_names_the_socket_that_is_meant(folder: Path) -> None:
    (folder / "agentd-hooks.sock").write_text("not a socket")
    with pytest.raises(ConfigError, match="in the way of the webhook socket"):
        open_door(folder / "agentd-hooks.sock", {}, name="hooks")


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give folders to groups: sudo pytest -m root"
)
def test_two_groups_share_a_folder_that_can_belong_to_one(folder: Path) -> None:
    door = open_door(folder / "agentd.sock", {}, group=4)
    hooks = open_door(folder / "agentd-hooks.sock", {}, name="hooks", group=5)
    assert modes(door.path) == (0o711, 0o660)
    assert (door.path.stat().st_gid, hooks.path.stat().st_gid) == (4, 5)
    hooks.close()
    door.close()


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user: sudo pytest -m root"
)
async def test_the_kernel_says_who_speaks_even_where_the_file_lets_others_in() -> None:
    import shutil
    import tempfile

    folder = Path(
        tempfile.mkdtemp()
    )  # pytest's own folders keep other users out, which is not what is tested here
    try:
        async with open_harness(folder) as harness:
            for each in (folder, harness.path.parent, harness.path):
                each.chmod(0o777)
            asked = await asyncio.to_thread(
                subprocess.run,
                ["/usr/bin/env", sys.executable, "-c", AS_NOBODY, harness.path],
                stdout=subprocess.PIPE,
                check=True,
            )
    finally:
        shutil.rmtree(folder)
    assert asked.stdout.startswith(b"HTTP/1.1 403")
    assert b"not for uid:65534" in asked.stdout
