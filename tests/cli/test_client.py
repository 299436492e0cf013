from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.cli.call import quote, socket_candidates, start_command
from daemon.cli.client import (
    ApiError,
    Client,
    ConnectionLost,
    Unreachable,
    _HttpAnswer,
    open_first,
)
from daemon.definitions.paths import socket_paths


@contextmanager
def answering(folder: Path, *answers: bytes) -> Iterator[str]:
    """Serve raw answers, one per connection."""
    path = os.fspath(folder / "raw.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nAgentd-Version: 9.9\r\nContent-Type: application/json\r\n"


def test_an_answer_is_read_whole_and_the_version_kept(tmp_path: Path) -> None:
    with answering(tmp_path, HEAD + b"Content-Length: 7\r\n\r\n" + b'{"a":1}') as path:
        client = Client(path)
        assert client.request("GET", "/") == {"a": 1}
        assert client.version == "9.9"


def test_a_chunked_answer_is_put_together(tmp_path: Path) -> None:
    body = b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\n" + b'{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    with answering(tmp_path, HEAD + body) as path:
        assert Client(path).request("GET", "/") == {"a": 1}


class Piece(bytes):
    """Bytes that count those which are copied to append it to them; a bytearray grows instead."""

    copied = 0

    def __radd__(self, other: object) -> bytes:
        if isinstance(other, bytes):
            Piece.copied += len(other)
        return NotImplemented


def test_an_answer_in_many_pieces_is_not_copied_for_each_of_them() -> None:
    head = HEAD + b"Content-Length: 100000\r\n\r\n"
    pieces = iter([Piece(head), *[Piece(b"x" * 1000)] * 100])
    connection: Any = SimpleNamespace(recv=lambda size: next(pieces))
    assert _HttpAnswer(connection).read_body() == b"x" * 100_000
    assert Piece.copied == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{}",
        HEAD + b"Content-Length: 6\r\n\r\n<html>",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"\xff\x00\r\n\r\n",
    ],
)
def test_an_interrupted_or_invalid_answer_is_a_lost_connection(
    tmp_path: Path, answer: bytes
) -> None:
    with answering(tmp_path, answer) as path, pytest.raises(ConnectionLost):
        Client(path).request("GET", "/")


def test_a_problem_has_the_fields_of_the_answer(tmp_path: Path) -> None:
    body = b'{"status": 404, "code": "not_found", "detail": "no such run"}'
    head = (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n"  # noqa: E501
        % len(body)
    )
    with (
        answering(tmp_path, head + body) as path,
        pytest.raises(ApiError, match="no such run") as error,
    ):
        Client(path).request("GET", "/")
    assert (error.value.status, error.value.code) == (404, "not_found")
    plain = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno"
    (tmp_path / "raw.sock").unlink()
    with answering(tmp_path, plain) as path, pytest.raises(ApiError, match="HTTP status 502"):
        Client(path).request("GET", "/")


def test_an_answer_before_the_end_of_the_request_is_read(tmp_path: Path) -> None:
    head = b"HTTP/1.1 413 Too Large\r\nContent-Type: application/problem+json\r\n"
    body = b'{"detail": "is too long"}'
    answer = head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with answering(tmp_path, answer) as path, pytest.raises(ApiError, match="is too long"):
        Client(path).request("POST", "/", {"text": "x" * 3_000_000})
    (tmp_path / "raw.sock").unlink()
    with answering(tmp_path, b"") as path, pytest.raises(ConnectionLost):
        Client(path).request("POST", "/", {"text": "x" * 3_000_000})


def test_an_event_stream_is_parsed_at_any_byte_boundary(tmp_path: Path) -> None:
    frame = b'id: 1\nevent: x\ndata: {"n": 1}\n\n'
    chunk = b"%x\r\n%s\r\n" % (len(frame), frame)
    with answering(
        tmp_path, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + chunk + b"0\r\n\r\n"
    ) as path:
        assert list(Client(path).stream("/")) == [{"n": 1}, {"n": 1}]
    (tmp_path / "raw.sock").unlink()
    with answering(tmp_path, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk) as path:
        events = Client(path).stream("/")
        assert next(events) == {"n": 1}
        with pytest.raises(ConnectionLost):
            next(events)


def test_an_event_holds_any_character_that_ends_a_line_for_python(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d"
    frame = f'event: x\ndata: {{"text": "{text}"}}\n\n'.encode()
    chunk = b"%x\r\n%s\r\n" % (len(frame), frame)
    with answering(
        tmp_path, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
    ) as path:
        assert list(Client(path).stream("/")) == [{"text": text}]


def test_an_event_may_come_in_pieces_with_a_pause_between_them(tmp_path: Path) -> None:
    path, is_idle = os.fspath(tmp_path / "slow.sock"), threading.Event()
    frame = b'data: {"n": 1}\n\n'
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(frame)
                connection.sendall(head + frame[:9])
                is_idle.wait(60)
                connection.sendall(frame[9:] + b"\r\n0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        assert list(Client(path).stream("/", is_idle.set)) == [{"n": 1}]
        thread.join()


def test_each_socket_without_a_daemon_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as dead_socket:
        dead_socket.bind(os.fspath(tmp_path / "dead"))
    paths = [str(tmp_path / name) for name in ("none", "file", "dead", "file/under", "x" * 120)]
    with pytest.raises(Unreachable) as error:
        open_first(paths)
    assert [path for path, _ in error.value.attempts] == paths
    assert [why for _, why in error.value.attempts] == [
        "no such file",
        "is a file, not a socket",
        "a daemon was here, but nobody listens any more",
        "no such file",
        "the path is too long for a socket",
    ]


def test_the_first_socket_with_a_daemon_is_used(tmp_path: Path) -> None:
    answer = HEAD + b"Content-Length: 2\r\n\r\n{}"
    with answering(tmp_path, answer, answer) as path:
        client = open_first([str(tmp_path / "none"), path])
        assert client.socket_path == path
        assert [client.request("GET", "/") for _ in range(2)] == [{}, {}]


STRANGER = """
import os, socket, sys, threading
os.setgid(65534); os.setuid(65534)
theirs = sys.argv[1] + ".theirs"
listener = socket.socket(socket.AF_UNIX); listener.bind(theirs); os.chmod(theirs, 0o777); listener.listen()
def answer(connection):
    if connection.recv(65536):
        connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 13\\r\\n\\r\\n{"items": []}')
        connection.close()
print("up", flush=True)
while True:
    threading.Thread(target=answer, args=[listener.accept()[0]]).start()
"""  # noqa: E501

ASK = """
import os, sys
from daemon.cli.client import Client, Unreachable
os.setgid(65533); os.setuid(65533)
try:
    Client(sys.argv[1]).connect()
except Unreachable as error:
    print(error.attempts[0][1])
"""

TOP = """
import os, sys
from daemon.cli import top
from daemon.cli.main import main
os.setgid(65533); os.setuid(65533)
sys.exit(main(["--socket", sys.argv[1], "--json", "top"]))
"""


@contextmanager
def daemon_of_another_user() -> Iterator[str]:
    """Serve empty lists at a socket that everybody may open, as another user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    child = subprocess.Popen([sys.executable, "-c", STRANGER, folder / "s"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        yield f"{folder}/s.theirs"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        shutil.rmtree(folder)


def run_as_a_third(code: str, socket_path: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code, socket_path]
    return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout


@pytest.mark.root
def test_a_daemon_of_another_user_is_not_trusted() -> None:
    with daemon_of_another_user() as path:
        output = run_as_a_third(ASK, path)
    assert output == "the daemon there belongs to another user (uid 65534)\n"


@pytest.mark.root
def test_top_shows_a_named_daemon_of_another_user() -> None:
    with daemon_of_another_user() as path:
        snapshot = json.loads(run_as_a_third(TOP, path))
    assert snapshot["latest"] == []


@pytest.mark.parametrize(
    ("socket_option", "env"),
    [
        ("/x/named.sock", {"AGENTD_SOCKET": "/y/agentd.sock", "XDG_RUNTIME_DIR": "/run/user/7"}),
        (None, {"AGENTD_SOCKET": "/y/agentd.sock", "XDG_RUNTIME_DIR": "/run/user/7"}),
        (None, {"XDG_RUNTIME_DIR": "/run/user/7"}),
        (None, {"STATE_DIRECTORY": "/var/lib/other"}),
        (None, {"XDG_RUNTIME_DIR": ""}),
        (None, {}),
    ],
)
def test_socket_candidates_of_the_client_equal_those_of_the_daemon(
    socket_option: str | None, env: dict[str, str]
) -> None:
    paths = socket_paths(socket_option, env, Path.home(), uid=os.getuid())
    assert list(socket_candidates(socket_option, env)) == [os.fspath(row) for row in paths]


def test_names_are_quoted_for_a_url() -> None:
    assert quote("daily-report_1.x~") == "daily-report_1.x~"
    assert quote("a/b c?日") == "a%2Fb%20c%3F%E6%97%A5"


def test_the_command_that_starts_the_daemon_fits_how_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["agentctl"])
    assert start_command() == "agentd"
    (tmp_path / "agentd").touch(mode=0o700)
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/agentctl"])
    assert start_command() == f"{tmp_path}/agentd"
    (tmp_path / ".config/systemd/user").mkdir(parents=True)
    (tmp_path / ".config/systemd/user/agentd.service").write_text("")
    assert start_command() == "systemctl --user start agentd"
