"""The connection below the providers that use no SDK: HTTP as servers really speak it."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from daemon.http_body import BodyDamaged
from daemon.providers.direct import BrokenOff, Direct, Form, Unreachable, address_of, form_of

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def server(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[int]]]:
    """Answer the requests of all connections with these bytes, one after the other; tell which connection asked."""
    left, asked, count = list(answers), [], 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        mine = count
        try:
            while left and await reader.readuntil(b"\r\n\r\n"):
                asked.append(mine)
                writer.write(left.pop(0))
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        scheme, port = "https" if tls else "http", listening.sockets[0].getsockname()[1]
        yield f"{scheme}://127.0.0.1:{port}/", asked


def to(url: str) -> Form:
    return form_of("GET", address_of(url))


async def get(way: Direct, url: str) -> bytes:
    reply = await way.ask(to(url), patience=20.0)
    return await reply.read(1_000_000)


@pytest.fixture
async def way() -> AsyncIterator[Direct]:
    found = Direct()
    yield found
    await found.aclose()


async def test_an_interim_answer_is_not_the_answer(way: Direct) -> None:
    async with server(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n" + OK) as (url, _):
        assert await get(way, url) == b"ok"


async def test_a_body_in_chunks_is_put_together(way: Direct) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with server(chunked, OK) as (url, asked):
        assert await get(way, url) == b"abcde"
        assert await get(way, url) == b"ok"
        assert asked == [1, 1]


async def test_what_a_server_says_as_it_hangs_up_is_no_answer_to_the_next_request(way: Direct) -> None:
    parting = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    async with server(OK + parting, OK) as (url, asked):
        assert await get(way, url) == b"ok"
        assert await get(way, url) == b"ok"
        assert asked == [1, 2]


async def test_a_connection_that_the_server_wants_closed_is_not_used_again(way: Direct) -> None:
    async with server(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), OK) as (url, asked):
        assert await get(way, url) == b"ok"
        assert await get(way, url) == b"ok"
        assert asked == [1, 2]


async def test_an_answer_that_nobody_read_to_its_end_is_no_answer_to_the_next_request(way: Direct) -> None:
    async with server(OK.replace(b"2", b"4"), OK) as (url, asked):
        reply = await way.ask(to(url))
        await reply.aclose()
        assert await get(way, url) == b"ok"
        assert asked == [1, 2]


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", OK[:-1]], ids=["nothing", "no HTTP", "half a body"]
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes, way: Direct) -> None:
    async with server(answer) as (url, _):
        with pytest.raises(BrokenOff):
            await get(way, url)


async def test_where_nobody_listens_there_is_no_connection(way: Direct) -> None:
    async with server() as (url, _):
        pass
    with pytest.raises(Unreachable):
        await get(way, url)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """The key and the certificate of 127.0.0.1, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl (apt install openssl)")
    made = tmp_path / "server.pem"
    what = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    keys = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(made), "-out", f"{made}.cert"]
    subprocess.run(["openssl", "req", "-x509", "-nodes", *keys, *what], check=True, capture_output=True)
    made.write_bytes(made.read_bytes() + Path(f"{made}.cert").read_bytes())
    return made


@pytest.fixture
def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_requests_over_tls_share_a_connection(certificate: Path, serving: ssl.SSLContext) -> None:
    way = Direct(ssl.create_default_context(cafile=f"{certificate}.cert"))
    async with server(OK, OK, tls=serving) as (url, asked):
        assert await get(way, url) == b"ok"
        assert await get(way, url) == b"ok"
        assert asked == [1, 1]
        await way.aclose()


@pytest.mark.parametrize("name", ["the certificate is not trusted", "the certificate is another host's"])
async def test_a_server_that_is_not_whom_it_should_be_gets_no_request(
    name: str, certificate: Path, serving: ssl.SSLContext
) -> None:
    trusted = None if "trusted" in name else f"{certificate}.cert"
    way = Direct(ssl.create_default_context(cafile=trusted))
    async with server(OK, tls=serving) as (url, asked):
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            await get(way, url if "trusted" in name else url.replace("127.0.0.1", "localhost"))
        assert asked == []


@pytest.mark.parametrize("packed", [gzip.compress(b"ok" * 400), zlib.compress(b"ok" * 400)], ids=["gzip", "deflate"])
async def test_what_a_server_packed_unasked_is_unpacked(
    packed: bytes, way: Direct, request: pytest.FixtureRequest
) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(packed)}\r\ncontent-encoding: {request.node.callspec.id}\r\n\r\n"
    async with server(*[head.encode() + packed] * 2) as (url, _):
        assert await get(way, url) == b"ok" * 400
        reply = await way.ask(to(url))
        assert b"".join([piece async for piece in reply.pieces(1_000_000)]) == b"ok" * 400


async def test_what_says_it_is_packed_and_is_not_is_an_error(way: Direct) -> None:
    async with server(OK.replace(b"200 OK", b"200 OK\r\ncontent-encoding: gzip")) as (url, _):
        with pytest.raises(BodyDamaged, match="unpacked"):
            await get(way, url)


async def test_a_character_set_in_the_place_of_a_packing_is_passed_over(way: Direct) -> None:
    async with server(OK.replace(b"200 OK", b"200 OK\r\ncontent-encoding: UTF-8")) as (url, _):
        assert await get(way, url) == b"ok"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://a.example", (False, "a.example", 80, b"/", b"a.example")),
        ("https://A.example:8443/v1/chat?x=1", (True, "a.example", 8443, b"/v1/chat?x=1", b"a.example:8443")),
        ("http://[::1]:11434/v1", (False, "::1", 11434, b"/v1", b"[::1]:11434")),
        (
            "https://bücher.example/ein weg/ü",
            (True, "bücher.example", 443, b"/ein%20weg/%C3%BC", b"xn--bcher-kva.example"),
        ),
        ("http://a/b%20c", (False, "a", 80, b"/b%20c", b"a")),
    ],
)
def test_an_address_is_read_as_it_is_meant(url: str, address: tuple[object, ...]) -> None:
    assert address_of(url) == address
