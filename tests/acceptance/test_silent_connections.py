"""Silent connections cost a daemon neither runs, log lines nor other clients."""

from __future__ import annotations

import asyncio
import json
import resource
import socket

import pytest

from tests.api.harness import ask, parse

DESCRIPTORS = 256
CLIENTS = 400  # on each of three listeners

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit(2) (Linux)"),
]


@pytest.fixture
def room():
    """Room for as many sockets in the test itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = 3 * CLIENTS + 500
    if soft < descriptors:
        if hard < descriptors:
            pytest.skip(f"needs {descriptors} open files: ulimit -n {descriptors}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(addresses):
    """Open connections to each address and say nothing."""
    connections = []
    for address in addresses:
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        for _ in range(CLIENTS):
            connection = socket.socket(family)
            connections.append(connection)
            connection.settimeout(30)
            connection.connect(address)
    return connections


async def test_silent_connections_do_not_stop_a_daemon_with_few_descriptors(
    home, room, record_property
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home.descriptors = DESCRIPTORS
    home.routine("often", '[trigger]\nevery = "2s"\n[run]\nprompt = "Hi"\n')
    home.routine("door", '[trigger]\nwebhook = true\n[run]\nprompt = "Hi"\n')
    home.write("config.toml", f'[listen]\naddress = "127.0.0.1:{port}"\n')
    await home.start()
    hooks = home.socket.with_name("agentd-hooks.sock")
    silent = await asyncio.to_thread(connect, [str(hooks), ("127.0.0.1", port), str(home.socket)])
    try:
        # all at once, while the connections are held
        assert (await home.agentctl("status")).code == 0
        assert (await ask(hooks, "POST", "/v1/hooks/door", b"{}")).status == 202
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert parse(await reader.read()).status == 200
        writer.close()
        await writer.wait_closed()
        # ten seconds after its start it looks at itself, for which it opens pipes
        [log_line] = await home.wait_for_log("doctor.looked")
        assert log_line["checks"] > 0
        await home.wait_for_log("run.finished", 3, routine="often", status="succeeded")
        assert (await home.agentctl("status")).code == 0
    finally:
        for connection in silent:
            connection.close()
    record_property("log lines", len(home.log_lines()))
    library_lines = [line for line in home.log_lines() if line["event"] == "library.logged"]
    assert library_lines == []
    full = [line for line in home.log_lines() if line["event"] == "listener.full"]
    assert len([line for line in full if "repeated" not in line]) == 3, "one for each listener"
    assert len(full) <= 6
    assert await home.stop() == 0


async def test_a_daemon_without_free_descriptors_answers_once_one_is_free(home):
    await home.start()
    _, hard = resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE)
    # fewer than it has open already: each attempt to open one more fails from now on
    resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE, (3, hard))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(home.socket))
        client.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await home.wait_for_log("library.logged", logger="asyncio")
        # what it does once it is up, such as to look at itself, cannot be done now
        [put_off] = await home.wait_for_log("background_task.retry_scheduled")
        assert "Too many open files" in put_off["detail"]
        resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        client.settimeout(30)
        assert (await asyncio.to_thread(client.recv, 12)) == b"HTTP/1.1 200"
    assert (await home.agentctl("status")).code == 0
    await home.wait_for_log("doctor.looked")
    assert len([line for line in home.log_lines() if "socket.accept()" in json.dumps(line)]) == 1
    assert await home.stop() == 0


async def test_the_soft_limit_on_open_files_is_raised_to_the_hard_one(home):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 500), hard))
    try:
        await home.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
