"""systemd holds the socket and starts the daemon at the first call: by systemd's own
systemd-socket-activate.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys

import pytest

from tests.acceptance.story import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not shutil.which("systemd-socket-activate"),
        reason="needs systemd-socket-activate: apt-get install systemd",
    ),
]


@pytest.fixture
async def socket_activation(home, tmp_path):
    """A home whose daemon is started by whoever calls first; gives the two sockets and the
    process.
    """
    control, hooks = tmp_path / "c.sock", tmp_path / "h.sock"
    # the tool passes next to nothing of its environment to the daemon
    environment = [
        word
        for name, value in (home.env | {"PYTHONPATH": str(ROOT)}).items()
        for word in ("-E", f"{name}={value}")
    ]
    process = await asyncio.create_subprocess_exec(
        "systemd-socket-activate", "-l", str(control), "-l", str(hooks), (
            "--fdname=control:hooks"
        ), *environment,
        sys.executable, "-m", "daemon.app.main", *map(str, home.places),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,  # noqa: E501
    )  # fmt: skip
    while b"Listening on" not in (line := await process.stderr.readline()):
        assert line, "systemd-socket-activate ended"
    yield control, hooks, process
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def call(home, socket_, *words):
    """Run agentctl on the socket that systemd holds."""
    return await home.run("agentctl", "--socket", socket_, *words)


async def test_the_first_agentctl_call_starts_the_daemon_and_is_answered(home, socket_activation):
    control, _, process = socket_activation
    home.routine(
        "hello", '[trigger]\nwebhook = true\n[run]\nprompt = "Hi"\n[[deliver]]\nto = "log"\n'
    )
    result = await call(home, control, "status", "--json")
    assert result.code == 0, result.err
    assert (result.json["socket"], result.json["pid"]) == (str(control), process.pid)
    assert (await call(home, control, "run", "hello")).code == 0


async def test_a_webhook_starts_the_daemon_and_its_run(home, socket_activation):
    control, hooks, _ = socket_activation
    home.routine(
        "hello", '[trigger]\nwebhook = true\n[run]\nprompt = "Hi"\n[[deliver]]\nto = "log"\n'
    )
    reader, writer = await asyncio.open_unix_connection(str(hooks))
    body = b'{"from": "outside"}'
    head = "POST /v1/hooks/hello HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 202 " in answer.split(b"\r\n")[0], answer
    writer.close()
    runs = (await call(home, control, "runs", "hello", "--json")).json["items"]
    assert [run["trigger"] for run in runs] == ["webhook"]


async def test_sockets_of_systemd_remain_after_the_daemon_stops(home, socket_activation):
    control, hooks, process = socket_activation
    assert (await call(home, control, "status")).code == 0
    process.send_signal(signal.SIGTERM)
    out, _ = await process.communicate()
    assert process.returncode == 0, json.dumps(out.decode())
    assert control.is_socket() and hooks.is_socket(), "who comes next must find the door"
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        # nobody holds it any more here; under systemd the manager does
        late.connect(os.fspath(control))
