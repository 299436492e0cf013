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

from daemon.api.listener import open_listener
from daemon.errors import ConfigError, SocketBusy, StateBusy
from tests.api.harness import Access, ApiHarness, ask, open_harness
from tests.cli.agentctl import agentctl


def test_the_socket_is_private_from_its_creation(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agentd.sock"
    before = os.umask(0o002)
    try:
        listener = open_listener(path, {})
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    assert not path.exists()


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(os.fspath(path))
    dead.close()
    open_listener(path, {}).close()


async def test_the_socket_of_a_running_daemon_is_not_replaced(harness: ApiHarness) -> None:
    with pytest.raises(
        SocketBusy, match=rf"process {os.getpid()} answers on the control socket .* already"
    ) as error:
        open_listener(harness.path, {})
    assert isinstance(error.value, StateBusy)  # and so ends with the same exit code
    assert error.value.pid == os.getpid()
    assert (await ask(harness.path, "GET", "/v1/status")).status == 200


def test_the_socket_of_a_busy_daemon_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(os.fspath(path))
        busy.listen(0)
        callers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(os.fspath(path))
        with pytest.raises(SocketBusy, match="another process answers"):
            open_listener(path, {})
        for caller in callers:
            caller.close()


def test_a_file_in_place_of_the_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    path.write_text("my thesis")
    with pytest.raises(ConfigError, match=f"^{path}: something that is not a socket is in the way"):
        open_listener(path, {})
    assert path.read_text() == "my thesis"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is left alone"):
        open_listener(path, {})


def test_a_too_long_socket_path_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 108) / "agentd.sock"
    with pytest.raises(ConfigError) as error:
        open_listener(path, {})
    assert "\n" not in str(error.value)
    assert "may have 107; name a shorter one" in str(error.value)
    assert not path.parent.exists()


def test_a_socket_folder_writable_by_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match=f"mode 0777.*chmod 700 {folder}"):
        open_listener(folder / "agentd.sock", {})
    folder.chmod(0o1777)  # as /tmp: there nobody can remove the files of others
    open_listener(folder / "agentd.sock", {}).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_socket_folder_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be made: Permission denied"):
        open_listener(tmp_path / "sub" / "agentd.sock", {})


def test_closing_keeps_the_socket_of_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "agentd.sock"
    listener = open_listener(path, {})
    path.unlink()
    successor = open_listener(path, {})
    listener.close()
    assert path.is_socket()
    successor.close()


INHERIT = """
import os, sys
from pathlib import Path
from daemon.api.listener import open_listener
env = {"LISTEN_FDS": sys.argv[1], "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": sys.argv[2]}
listener = open_listener(Path("/nowhere/agentd.sock"), env)
connection, _ = listener.socket.accept()
connection.sendall(b"%d %s" % (listener.socket.fileno(), os.fsencode(listener.path)))
connection.close()
listener.close()
"""


@pytest.mark.parametrize(("names", "index"), [("agentd.socket", 0), ("hooks:control", 1), ("", 0)])
async def test_an_inherited_socket_is_used_and_its_file_remains(
    tmp_path: Path, names: str, index: int
) -> None:
    sockets = []
    for number in range(2):
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(os.fspath(tmp_path / f"{number}.sock"))
        sockets[-1].listen()

    def hand_down() -> None:  # as systemd does: from descriptor 3 on
        # else one may overwrite the next
        high = [fcntl.fcntl(socket_.fileno(), fcntl.F_DUPFD, 100) for socket_ in sockets]
        for number, fd in enumerate(high):
            os.dup2(fd, 3 + number)

    child = subprocess.Popen(
        [sys.executable, "-c", INHERIT, "2", names], preexec_fn=hand_down, close_fds=False
    )
    try:
        reader, writer = await asyncio.open_unix_connection(os.fspath(tmp_path / f"{index}.sock"))
        assert await reader.read() == f"{3 + index} {tmp_path}/{index}.sock".encode()
        writer.close()
    finally:
        assert await asyncio.to_thread(child.wait) == 0
        for socket_ in sockets:
            socket_.close()
    assert (tmp_path / f"{index}.sock").exists()


def test_inherited_sockets_of_another_process_are_not_used(tmp_path: Path) -> None:
    listener = open_listener(
        tmp_path / "agentd.sock", {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getppid())}
    )
    assert listener.path == tmp_path / "agentd.sock"
    listener.close()


async def test_the_socket_file_is_removed_when_the_server_stops(tmp_path: Path) -> None:
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


async def test_a_reader_may_read_and_not_change(tmp_path: Path) -> None:
    reader = Access(operators=frozenset({os.geteuid() + 1}), readers=frozenset({os.geteuid()}))
    async with open_harness(tmp_path, access=reader) as harness:
        assert (await ask(harness.path, "GET", "/v1/routines")).status == 200
        answer = await ask(harness.path, "POST", "/v1/routines/heartbeat/pause")
        assert (answer.status, answer.json["code"]) == (403, "read_only")
        assert "may look and change nothing" in answer.json["detail"]
        result = await agentctl(harness.path, "pause", "heartbeat")
        assert (result.code, "may look and change nothing" in result.err) == (5, True)
        assert not harness.engine.states["heartbeat"].paused


def modes(path: Path) -> tuple[int, int]:
    return stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "run"
    new_folder.mkdir(mode=0o700)
    return new_folder


def test_only_the_named_group_gets_access_to_the_socket(folder: Path) -> None:
    listener = open_listener(folder / "agentd.sock", {}, group=os.getegid())
    assert modes(listener.path) == (0o710, 0o660)
    assert (listener.path.stat().st_gid, folder.stat().st_gid) == (os.getegid(),) * 2
    hooks = open_listener(folder / "agentd-hooks.sock", {}, name="hooks", group=os.getegid())
    assert modes(hooks.path) == (0o710, 0o660)
    hooks.close()
    listener.close()


def test_the_mode_of_a_world_traversable_socket_folder_is_kept(folder: Path) -> None:
    folder.chmod(0o711)
    listener = open_listener(folder / "agentd.sock", {}, group=os.getegid())
    assert modes(listener.path) == (0o711, 0o660)
    listener.close()


def test_a_group_socket_in_the_session_folder_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"XDG_RUNTIME_DIR.*RUNTIME_DIRECTORY"):
        open_listener(folder / "agentd.sock", {"XDG_RUNTIME_DIR": str(folder)}, group=os.getegid())
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may give a file to any group")
def test_a_foreign_socket_group_is_reported_in_one_line(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match="cannot be given to the group: Operation not permitted; who runs agentd"
    ):
        open_listener(folder / "agentd.sock", {}, group=0)
    assert list(folder.iterdir()) == []


def test_a_socket_fault_names_the_socket(folder: Path) -> None:
    (folder / "agentd-hooks.sock").write_text("not a socket")
    with pytest.raises(ConfigError, match="in the way of the webhook socket"):
        open_listener(folder / "agentd-hooks.sock", {}, name="hooks")


@pytest.mark.root
def test_sockets_of_two_groups_share_a_folder(folder: Path) -> None:
    listener = open_listener(folder / "agentd.sock", {}, group=4)
    hooks = open_listener(folder / "agentd-hooks.sock", {}, name="hooks", group=5)
    assert modes(listener.path) == (0o711, 0o660)
    assert (listener.path.stat().st_gid, hooks.path.stat().st_gid) == (4, 5)
    hooks.close()
    listener.close()


@pytest.mark.root
async def test_the_peer_user_is_checked_even_with_an_open_socket_file() -> None:
    import shutil
    import tempfile

    # pytest's own folders keep other users out, which is not what is tested here
    folder = Path(tempfile.mkdtemp())
    try:
        async with open_harness(folder) as harness:
            for path in (folder, harness.path.parent, harness.path):
                path.chmod(0o777)
            process = await asyncio.to_thread(
                subprocess.run,
                ["/usr/bin/env", sys.executable, "-c", AS_NOBODY, harness.path],
                stdout=subprocess.PIPE,
                check=True,
            )
    finally:
        shutil.rmtree(folder)
    assert process.stdout.startswith(b"HTTP/1.1 403")
    assert b"not for uid:65534" in process.stdout
