"""A daemon or worker that starts without its PostgreSQL server waits, then exits with 75; wrong
settings exit with 78 at once.

What a person has to mend ends the start at once (78).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster.site import Site
from tests.acceptance.story import Home
from tests.fakes.vendor import VendorProcess
from tests.postgres import Server

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

CLUSTER = '[executor]\nkind = "procrastinate"\n'
MARKS = {"tool_calls": [{"name": "mark", "arguments": {"seconds": 0.0}}]}


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that these tests may stop."""
    server = Server(tcp=True)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def server(own_server: Server) -> Iterator[Server]:
    """The same, away until a test starts it."""
    own_server.stop()
    try:
        yield own_server
    finally:
        if not (own_server.folder / "d" / "postmaster.pid").exists():
            own_server.start()


def store(url: str, wait: str = "60s") -> str:
    return f'[store]\nurl = "{url}"\nwait = "{wait}"\n'


@pytest.mark.parametrize("way", ["socket", "port"])
async def test_a_daemon_started_before_its_database_server_becomes_ready_by_itself(
    home: Home, server: Server, way: str
) -> None:
    url = server.url(port=server.port if way == "port" else None)
    home.write("config.toml", store(url))
    starting = asyncio.create_task(home.start())
    log_lines = await home.wait_for_log("database.away")
    assert "postgresql://" in log_lines[0]["database"]
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(120):
        await starting
    assert (await home.agentctl("status")).code == 0
    assert await home.stop() == 0
    assert "database.back" in home.complaints
    assert "Traceback" not in home.complaints


async def test_systemd_is_notified_while_a_start_waits_for_the_database(
    home: Home, server: Server, tmp_path: Path
) -> None:
    home.write("config.toml", store(server.url()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(60)
        home.env["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        starting = asyncio.create_task(home.start())
        message = await asyncio.to_thread(channel.recv, 4096)
        assert message.startswith(b"STATUS=waiting for the database: ")
        assert re.search(rb"\nEXTEND_TIMEOUT_USEC=\d+$", message)
        await asyncio.to_thread(server.start)
        await starting
    assert await home.stop() == 0


@pytest.mark.parametrize(
    "verb", [(), ("worker",), ("once", "work")], ids=["daemon", "worker", "once"]
)
async def test_a_start_without_its_database_server_ends_with_75(
    home: Home, unused_address: str, verb: tuple[str, ...]
) -> None:
    pytest.importorskip("psycopg", reason="needs the extra postgres: pip install -e '.[postgres]'")
    url = f"postgresql://me:hunter2hunter2@{unused_address}/agentd"
    home.write("config.toml", store(url, "0.5s") + CLUSTER)
    result = await home.agentd(*verb)
    assert result.code == 75, result.err
    (sentence,) = [line for line in result.err.splitlines() if line.startswith("agentd: ")]
    assert f"postgresql://{unused_address}/agentd is away, waited for 0.5 s" in sentence
    assert "Connection refused" in sentence
    assert "hunter2" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "url",
    ["postgresql://me@no.such.host.invalid/agentd", "postgresql:///agentd?host=/no/such/folder"],
    ids=["unknown host", "no socket"],
)
async def test_an_unknown_database_host_ends_a_start_with_the_temporary_code_75(
    home: Home, url: str
) -> None:
    pytest.importorskip("psycopg", reason="needs the extra postgres: pip install -e '.[postgres]'")
    home.write("config.toml", store(url, "0s"))
    result = await home.agentd()
    assert result.code == 75, result.err


@pytest.mark.parametrize("verb", [(), ("worker",)], ids=["daemon", "worker"])
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://agentd@127.0.0.1:{port}/nope", 'database "nope" does not exist'),
        ("postgresql://nobody_here@127.0.0.1:{port}/postgres", 'role "nobody_here" does not exist'),
        ("postgresql://shy:wrong@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://shy@127.0.0.1:{port}/postgres", "no password supplied"),
        ("postgresql://barred@127.0.0.1:{port}/postgres", "pg_hba.conf"),
        ("postgresql://weak@127.0.0.1:{port}/postgres", "permission denied for"),
    ],
    ids=["database", "role", "password", "no password", "pg_hba", "rights"],
)
async def test_a_wrong_database_setting_ends_a_start_at_once_with_78(
    home: Home, refusing: Server, url: str, problem: str, verb: tuple[str, ...]
) -> None:
    home.write("config.toml", store(url.format(port=refusing.port), "1h") + CLUSTER)
    async with asyncio.timeout(120):  # far less than it would wait
        result = await home.agentd(*verb)
    assert result.code == 78, result.err
    assert problem in result.err
    assert "Traceback" not in result.err


@pytest.fixture(scope="module")
def refusing(own_server: Server) -> Server:
    """A server that asks one role for a password, lets another one not in, and gives a third no
    rights.
    """
    file = own_server.folder / "d" / "pg_hba.conf"
    rules = "host all shy 127.0.0.1/32 scram-sha-256\nhost all barred 127.0.0.1/32 reject\n"
    file.write_text(rules + file.read_text())
    for statement in (
        "CREATE ROLE shy LOGIN PASSWORD 'right'",
        "CREATE ROLE barred LOGIN",
        "CREATE ROLE weak LOGIN",
        "REVOKE CREATE ON SCHEMA public FROM public",
        "SELECT pg_reload_conf()",
    ):
        own_server.sql(statement)
    own_server.crash()  # no connection is judged by the rules of before
    return own_server


async def test_a_start_waits_for_a_database_server_with_too_many_connections(
    home: Home, own_server: Server
) -> None:
    own_server.sql("CREATE ROLE busy LOGIN SUPERUSER CONNECTION LIMIT 0")
    own_server.sql("ALTER ROLE busy NOSUPERUSER")
    try:
        home.write(
            "config.toml", store(f"postgresql://busy@127.0.0.1:{own_server.port}/postgres", "0.5s")
        )
        result = await home.agentd()
        assert result.code == 75, result.err
        assert "too many connections" in result.err
    finally:
        own_server.sql("DROP ROLE busy")


async def test_offline_commands_do_not_wait_for_the_server(home: Home, unused_address: str) -> None:
    pytest.importorskip("psycopg", reason="needs the extra postgres: pip install -e '.[postgres]'")
    home.write("config.toml", store(f"postgresql://me@{unused_address}/agentd", "1h"))
    async with asyncio.timeout(120):
        assert (await home.agentd("validate")).code == 0
        doctor = await home.agentd("doctor")
        assert doctor.code == 1
        assert f"postgresql://{unused_address}/agentd is away" in doctor.out
        for verb in (("replay", "01ABCDEF"), ("export", "all.jsonl")):
            result = await home.agentd(*verb)
            assert result.code == 75, result.err
            assert "is away" in result.err


@pytest.fixture
async def site(tmp_path: Path, server: Server) -> AsyncIterator[Site]:
    with VendorProcess([MARKS, "Done."], by="conversation") as vendor:
        cluster_site = Site(tmp_path, server.url("cluster"), vendor.url)
        try:
            yield cluster_site
        finally:
            await cluster_site.close()


async def test_a_cluster_starts_before_its_database_server(site: Site, server: Server) -> None:
    server.start()
    server.sql("DROP DATABASE IF EXISTS cluster WITH (FORCE)")
    server.sql("CREATE DATABASE cluster")
    server.stop()
    site.routine("work", "")
    processes = [site.daemon("one"), site.daemon("two"), site.worker("worker")]
    for process in processes:
        process.config.write_text(
            process.config.read_text().replace("[store]\n", '[store]\nwait = "60s"\n')
        )
    starting = asyncio.gather(*(process.start() for process in processes))
    async with asyncio.timeout(120):
        while not all(process.log("database.away") for process in processes):
            await asyncio.sleep(0.05)
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(120):
        await starting
    result = await processes[0].agentctl("run", "work")
    assert (result.code, result.out) == (0, "Done.\n"), (result.err, processes[2].complaints)
    server.sql("SELECT 1", "cluster")
