"""The listener limits time and number of connections, in total and per peer."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from daemon.api.connections import ConnectionLimits, limits_for, peer_of
from daemon.api.embedded_uvicorn import SocketServer
from daemon.api.listener import open_listener
from daemon.api.public import PublicServer
from daemon.api.webhooks import Hooks, make_hooks_application
from daemon.telemetry.redaction import Secrets
from tests.api.harness import Answer, open_harness, parse

LONG = 3600.0
PATIENCE = 120.0  # seconds that a test waits for what has to happen
LARGE = b"x" * 10_000_000


class Site:
    """An application whose streams go on until the test ends them."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[bytes] = asyncio.Queue()
        self.app = Starlette(
            routes=[
                Route("/stream", self._stream),
                Route("/large", self._large),
                Route("/read", self._read, methods=["GET", "POST"]),
            ]
        )

    async def _stream(self, _request: Request) -> Response:
        async def words() -> AsyncIterator[bytes]:
            yield b"begin\n"
            while word := await self.words.get():
                yield word

        return StreamingResponse(words())

    async def _large(self, _request: Request) -> Response:
        return Response(LARGE)

    async def _read(self, request: Request) -> Response:
        return PlainTextResponse(f"{len(await request.body())} bytes")


class ServedSocket:
    """A server at work, and the clients that a test has connected to it."""

    def __init__(self, socket_server: SocketServer) -> None:
        self.socket_server, self.clients = socket_server, list[Client]()

    async def connect(self, source: str = "127.0.0.1") -> Client:
        socket_of_listener = self.socket_server._listener_socket.socket
        connection = socket.socket(socket_of_listener.family, socket.SOCK_STREAM)
        connection.setblocking(False)
        if socket_of_listener.family != socket.AF_UNIX:
            connection.bind((source, 0))
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, socket_of_listener.getsockname())
        reader = Reader()
        transport, protocol = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader), sock=connection
        )
        client = Client(reader, asyncio.StreamWriter(transport, protocol, reader, loop), connection)
        self.clients.append(client)
        return client

    async def has(self, count: int) -> None:
        """Wait until the listener counts so many connections."""
        async with asyncio.timeout(PATIENCE):
            while len(self.socket_server.connections) != count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serve_socket(socket_server: SocketServer) -> AsyncIterator[ServedSocket]:
    serving = asyncio.create_task(socket_server.serve())
    await socket_server.ready()
    server = ServedSocket(socket_server)
    try:
        yield server
    finally:
        for client in server.clients:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()
        socket_server.stop()
        await serving


@asynccontextmanager
async def site(
    folder: Path, limits: ConnectionLimits
) -> AsyncIterator[tuple[ServedSocket, asyncio.Queue[bytes]]]:
    site = Site()
    async with serve_socket(
        SocketServer(
            site.app,
            open_listener(folder / "run" / "site.sock", {}),
            {"agentd-version": "9"},
            limits=limits,
        )
    ) as server:
        yield server, site.words


class Reader(asyncio.StreamReader):
    """A reader that returns what came before the other side closed the connection without reading
    everything.
    """

    def set_exception(self, exc: Exception) -> None:
        self.feed_eof()


class Client:
    """A connection that says what a test tells it to, when it tells it to."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: socket.socket | None = None,
    ) -> None:
        self.reader, self.writer, self.connection = reader, writer, connection

    async def say(self, text: str) -> None:
        self.writer.write(text.encode())
        await self.writer.drain()

    async def until(self, mark: str) -> str:
        async with asyncio.timeout(PATIENCE):
            return (await self.reader.readuntil(mark.encode())).decode()

    async def read_to_end(self) -> bytes:
        """Return what comes until the other side closes."""
        pieces = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while piece := await self.reader.read(65536):
                    pieces += piece
            except ConnectionError:  # it closed without reading all that was sent
                return pieces
        return pieces

    async def answer(self) -> Answer:
        return parse(await self.read_to_end())


def make_limits(**changes: Any) -> ConnectionLimits:
    settings: dict[str, Any] = {
        "connections": 100,
        "per_peer": 100,
        "head": LONG,
        "body": LONG,
        "idle": LONG,
    }
    return ConnectionLimits(**(settings | changes))


async def drip(client: Client, end: asyncio.Future[Any]) -> None:
    """Send a byte now and then, as long as the other side takes it."""
    while not end.done():
        assert client.connection
        with suppress(OSError):  # past the transport, which would read no more once it cannot write
            client.connection.send(b"x")
        await asyncio.wait([end], timeout=0.02)


GET = "GET /read HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = "GET /read HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
STREAM = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"


# --- times


async def test_a_silent_connection_is_closed_without_an_answer(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(head=0.1)) as (server, _):
        client = await server.connect()
        assert await client.read_to_end() == b""


@pytest.mark.parametrize("head", ["G", "GET /read HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_slow_request_head_is_answered_with_408(tmp_path: Path, head: str) -> None:
    async with site(tmp_path, make_limits(head=0.2)) as (server, _):
        client = await server.connect()
        await client.say(head)
        answering = asyncio.ensure_future(client.answer())
        if len(head) > 1:
            await drip(client, answering)
        answer = await answering
    assert (answer.status, answer.headers["content-type"]) == (408, "application/problem+json")
    assert answer.json == {
        "title": "Request Timeout",
        "status": 408,
        "detail": "the head of the request was not complete within 0.2 s",
        "code": "timeout",
    }


async def test_a_slow_request_body_is_answered_with_408(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(body=0.2)) as (server, _):
        client = await server.connect()
        await client.say("POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        answering = asyncio.ensure_future(client.answer())
        await drip(client, answering)
        answer = await answering
    assert (answer.status, answer.json["code"]) == (408, "timeout")
    assert answer.json["detail"] == "the body of the request was not complete within 0.2 s"


async def test_an_interrupted_webhook_logs_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def start(name: str, **_: object) -> Any:
        raise AssertionError(f"{name} is started by half a message")

    hooks = Hooks(
        version="9",
        start=start,
        sender_of=lambda name: None,
        settings=SimpleNamespace(webhook_secret=None, senders={}),
        secrets=Secrets(),
    )
    socket_server = SocketServer(
        make_hooks_application(hooks),
        open_listener(tmp_path / "h.sock", {}),
        {"agentd-version": "9"},
        limits=make_limits(body=0.2),
    )
    async with serve_socket(socket_server) as server:
        client = await server.connect()
        await client.say(
            'POST /v1/hooks/door HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"a'
        )
        assert (await client.answer()).status == 408
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(idle=0.2)) as (server, _):
        client = await server.connect()
        for _ in range(2):
            await client.say(GET)
            assert (await client.until("0 bytes")).startswith("HTTP/1.1 200")
        assert await client.read_to_end() == b""


async def test_the_head_limit_applies_to_a_second_request(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(head=0.2)) as (server, _):
        client = await server.connect()
        await client.say(GET)
        await client.until("0 bytes")
        await client.say("G")  # uvicorn's own limit for idle connections ends here
        assert (await client.answer()).status == 408
        client = await server.connect()
        # and a request that came with the one before is read by another way
        await client.say(f"{GET}G")
        await client.until("0 bytes")
        assert (await client.answer()).status == 408


async def test_the_body_limit_applies_to_a_second_request(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(body=0.2)) as (server, _):
        client = await server.connect()
        await client.say(f"{GET}POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        await client.until("0 bytes")
        assert (await client.answer()).status == 408


async def test_the_body_limit_applies_to_an_unread_body(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(body=0.2)) as (server, _):
        client = await server.connect()
        await client.say("POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        await client.until("\r\n\r\nNot Found")
        ending = asyncio.ensure_future(client.read_to_end())
        await drip(client, ending)
        assert await ending == b""


async def test_an_event_stream_outlives_the_time_limits(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(head=0.1, body=0.1, idle=0.1)) as (server, words):
        stream = await server.connect()
        await stream.say(STREAM)
        await stream.until("begin\n")
        for _ in range(3):  # each of these is closed by a limit that began after the stream did
            assert await (await server.connect()).read_to_end() == b""
        words.put_nowait(b"still here\n")
        await stream.until("still here\n")


async def test_a_client_that_does_not_read_its_answer_is_disconnected(tmp_path: Path) -> None:
    async with site(tmp_path, make_limits(idle=0.2)) as (server, _):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(os.fspath(server.socket_server.path))
            deaf.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            poll = select.poll()
            poll.register(deaf, 0)  # hears of nothing but the end
            assert await asyncio.to_thread(poll.poll, PATIENCE * 1000)


# --- places


async def test_a_new_connection_replaces_the_longest_silent_connection(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, make_limits(per_peer=3)) as (server, _):
        silent = [await server.connect() for _ in range(3)]
        await server.has(3)
        for number in range(3):
            client = await server.connect()
            await client.say(LAST)
            assert (await client.answer()).status == 200
            await server.has(2)
            assert await silent[number].read_to_end() == b""
            silent.append(await server.connect())
            await server.has(3)


async def test_a_thousand_silent_connections_replace_only_each_other(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, make_limits(connections=40, per_peer=30)) as (server, words):
        stream = await server.connect()
        await stream.say(STREAM)
        await stream.until("begin\n")
        for _ in range(1000):
            await server.connect()
        client = await server.connect()
        await client.say(LAST)
        assert (await client.answer()).status == 200
        assert len(server.socket_server.connections) <= 30
        words.put_nowait(b"still here\n")
        await stream.until("still here\n")


async def test_a_connection_over_the_limit_of_busy_connections_is_refused(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, make_limits(per_peer=2)) as (server, _):
        streams = [await server.connect() for _ in range(2)]
        for stream in streams:
            await stream.say(STREAM)
            await stream.until("begin\n")
        answer = await (await server.connect()).answer()
        assert (answer.status, answer.headers["connection"], answer.headers["agentd-version"]) == (
            503,
            "close",
            "9",
        )
        assert answer.json["code"] == "too_many_connections"
        streams[0].writer.close()
        await server.has(1)
        client = await server.connect()
        await client.say(LAST)
        assert (await client.answer()).status == 200


async def test_a_listener_without_free_descriptors_does_not_spin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def complaints() -> int:
        return len([record for record in caplog.records if "socket.accept()" in record.message])

    async with site(tmp_path, make_limits()) as (server, _):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(server.socket_server.path))
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                async with asyncio.timeout(PATIENCE):
                    while complaints() < 3:  # it looks again once a second
                        await asyncio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert complaints() < 20
            client.sendall(LAST.encode())
            client.settimeout(PATIENCE)
            assert (await asyncio.to_thread(client.recv, 12)) == b"HTTP/1.1 200"


async def test_one_address_cannot_use_all_connections(tmp_path: Path) -> None:
    async def start(name: str, **_: object) -> Any:
        raise AssertionError(f"{name} is started by half a message")

    hooks = Hooks(
        version="9",
        start=start,
        sender_of=lambda name: None,
        settings=SimpleNamespace(webhook_secret=None, senders={}),
        secrets=Secrets(),
    )
    async with open_harness(tmp_path) as harness:
        limits = make_limits(connections=4, per_peer=3)
        server = PublicServer("127.0.0.1:0", harness.api, metrics=True, hooks=hooks, limits=limits)
        async with serve_socket(server) as served_socket:
            for _ in range(3):
                client = await served_socket.connect()
                head = (
                    "POST /v1/hooks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: "
                    "100-continue\r\n\r\n"
                )
                await client.say(head)
                await client.until("HTTP/1.1 100")
            assert (await (await served_socket.connect()).answer()).status == 503
            client = await served_socket.connect(source="127.0.0.2")
            await client.say("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await client.answer()).status == 200


def test_addresses_of_one_ipv6_network_are_one_peer() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 on this machine")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            assert peer_of(connection)[0] == "::/64"


def test_connections_use_at_most_half_of_the_descriptors() -> None:
    for descriptors in (64, 256, 1024, 20_000, 524_288, 2**30):
        limits = limits_for(descriptors)
        assert 3 * limits.connections <= descriptors / 2
        assert 0 < limits.per_peer < limits.connections <= 4096


async def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_read(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, make_limits()) as (server, _):
        client = await server.connect()
        lengths = "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"
        await client.say(f"POST / HTTP/1.1\r\nHost: x\r\n{lengths}\r\n0\r\n\r\n{GET}")
        answer = (await client.read_to_end()).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    assert "a request has either content-length or transfer-encoding" in answer
    assert answer.count("HTTP/1.1") == 1
