"""HTTP as servers really speak it, below every provider: framing, packing, stale connections, TLS,
addresses.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from daemon.errors import ConfigError, Fatal, TransportError
from daemon.system.http_client import connection_settings, proxy_for, shared_tls_context
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import KEY, TRANSPORTS, Opener, user

# In the languages of all of TRANSPORTS at once.
BODY = json.dumps(
    {
        "id": "1",
        "choices": [
            {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
        ],
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
    }
).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
OK = b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY


@asynccontextmanager
async def server(
    *answers: bytes, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, list[int], list[bytes]]]:
    """Answer the requests of all connections with these bytes, one after the other, and hang up
    after the last one.

    Yields the address, the number of the connection of each request, and the head of each request.
    """
    answers_left, connections, heads, count = list(answers), list[int](), list[bytes](), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number = count
        try:
            while answers_left:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(
                    int(head.lower().partition(b"content-length: ")[2].split()[0])
                )
                connections.append(number)
                heads.append(head)
                writer.write(answers_left.pop(0))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async with await asyncio.start_server(serve, host, 0, ssl=tls) as http_server:
        scheme, port = "https" if tls else "http", http_server.sockets[0].getsockname()[1]
        authority = f"[{host}]" if ":" in host else host
        yield f"{scheme}://{authority}:{port}", connections, heads


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\n%b\r\n%x\r\n%b\r\n0\r\nx-trailer: yes\r\n\r\n"  # noqa: E501
        % (BODY[:3], len(BODY) - 3, BODY[3:]),
        b"HTTP/1.1 200 OK\r\n" + LENGTH + LENGTH + b"\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\ncontent-encoding: UTF-8\r\n" + LENGTH + b"\r\n" + BODY,
    ],
    ids=[
        "an interim answer",
        "chunks",
        "its length twice",
        "a character set in the place of a packing",
    ],
)
async def test_each_http_framing_is_read_and_the_connection_reused(
    way: str, answer: bytes, provider_for: Opener
) -> None:
    async with server(answer, OK) as (url, connections, _):
        provider = provider_for(way, url)
        for _ in range(2):
            assert (await provider.chat([user("hi")])).content == "hello"
        assert connections == [1, 1]


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_connection_closed_by_the_server_is_not_reused(
    way: str, provider_for: Opener
) -> None:
    async with server(
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + LENGTH + b"\r\n" + BODY, OK
    ) as (
        url,
        connections,
        _,
    ):
        provider = provider_for(way, url)
        for _ in range(2):
            assert (await provider.chat([user("hi")])).content == "hello"
        assert connections == [1, 2]


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_bytes_sent_at_connection_close_do_not_answer_the_next_request(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor)
        assert (await provider.chat([user("hi")])).content == "a"
        (idle,) = vendor.connections
        idle.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        assert (await provider.chat([user("hi")])).content == "b"
        assert vendor.connection_count == 2


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_an_abandoned_stream_does_not_answer_the_next_request(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([{"text": "one two three four", "pause": 0.01}, "next"]) as vendor:
        provider = provider_for(way, vendor)
        stream = provider.chat_stream([user("hi")])
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await provider.chat([user("hi")])).content == "next"
        assert vendor.connection_count == 2


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        OK[:-1],
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnone\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n" + LENGTH + b"\r\n" + BODY,
    ],
    ids=[
        "nothing",
        "no HTTP",
        "half a body",
        "another version",
        "no header",
        "two lengths",
        "a negative length",
        "a chunk without size",
        "a chunk longer than it says",
        "not packed although it says so",
    ],
)
async def test_an_incomplete_answer_is_an_interrupted_connection(
    way: str, answer: bytes, provider_for: Opener
) -> None:
    async with server(answer) as (url, _, _):
        with pytest.raises(
            TransportError, match=r"the connection to 127\.0\.0\.1:\d+ broke off: ."
        ) as error:
            await provider_for(way, url).chat([user("hi")])
    assert error.value.unsure
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize(
    ("name", "compressed"),
    [("gzip", gzip.compress(BODY, mtime=0)), ("deflate", zlib.compress(BODY))],
)
async def test_compressed_answers_are_decompressed(
    way: str, name: str, compressed: bytes, provider_for: Opener
) -> None:
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-length: {len(compressed)}\r\ncontent-encoding: {name}\r\n\r\n"
    ).encode()
    async with server(head + compressed, head + compressed) as (url, connections, heads):
        provider = provider_for(way, url)
        for _ in range(2):
            assert (await provider.chat([user("hi")])).content == "hello"
        assert connections == [1, 1]
        assert b"accept-encoding: gzip, deflate\r\n" in heads[0].lower()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """The key and the certificate of 127.0.0.1, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl (apt install openssl)")
    pem = tmp_path / "server.pem"
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    keys = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-keyout",
        str(pem),
        "-out",
        f"{pem}.cert",
    ]
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", *keys, *subject], check=True, capture_output=True
    )
    pem.write_bytes(pem.read_bytes() + Path(f"{pem}.cert").read_bytes())
    return pem


@pytest.fixture
def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusting(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment names the certificate as the only authority to trust."""
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.cert")
    shared_tls_context.cache_clear()
    yield
    shared_tls_context.cache_clear()


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.usefixtures("trusting")
async def test_certificate_authorities_of_the_environment_are_trusted(
    way: str, serving: ssl.SSLContext, provider_for: Opener
) -> None:
    async with server(OK, OK, tls=serving) as (url, connections, _):
        provider = provider_for(way, url)
        for _ in range(2):
            assert (await provider.chat([user("hi")])).content == "hello"
        assert connections == [1, 1]
        await provider.close()


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_server_whose_certificate_is_not_trusted_gets_no_request(
    way: str, serving: ssl.SSLContext, provider_for: Opener
) -> None:
    async with server(OK, tls=serving) as (url, connections, _):
        with pytest.raises(TransportError, match=r"(?i)no connection to .*certificate"):
            await provider_for(way, url).chat([user("hi")])
        assert connections == []


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.usefixtures("trusting")
async def test_a_server_with_the_certificate_of_another_host_gets_no_request(
    way: str, serving: ssl.SSLContext, provider_for: Opener
) -> None:
    async with server(OK, tls=serving) as (url, connections, _):
        with pytest.raises(TransportError, match=r"(?i)no connection to .*certificate"):
            await provider_for(way, url.replace("127.0.0.1", "localhost")).chat([user("hi")])
        assert connections == []


async def test_all_clients_of_a_process_share_one_tls_context() -> None:
    verify = {
        id(connection_settings(url)["verify"])
        for url in ("https://a.example", "https://b.example", "http://c")
    }
    assert verify == {id(shared_tls_context())}
    assert shared_tls_context().verify_mode is ssl.CERT_REQUIRED
    assert shared_tls_context().check_hostname
    assert shared_tls_context().cert_store_stats()["x509_ca"] > 50


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_host_with_one_dead_address_is_reached(way: str, provider_for: Opener) -> None:
    # localhost is ::1 as well on many machines, where nobody listens
    async with server(OK) as (
        url,
        _,
        _,
    ):
        answer = await provider_for(way, url.replace("127.0.0.1", "localhost")).chat([user("hi")])
    assert answer.content == "hello"


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_ipv6_server_is_reached(way: str, provider_for: Opener) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with server(OK, host="::1") as (url, _, heads):
        assert (await provider_for(way, url).chat([user("hi")])).content == "hello"
    assert f"host: {url.removeprefix('http://')}\r\n".encode() in heads[0].lower()


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_path_is_encoded_once(way: str, provider_for: Opener) -> None:
    async with server(OK) as (url, _, heads):
        await provider_for(way, "", base_url=f"{url}/ein weg/ü/b%20c/v1").chat([user("hi")])
    assert heads[0].startswith(b"POST /ein%20weg/%C3%BC/b%20c/v1/")


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_an_invalid_host_name_is_reported(way: str, provider_for: Opener) -> None:
    with pytest.raises(Fatal, match="base_url: Invalid IDNA hostname"):
        await provider_for(way, "http://☃.example").chat([user("hi")])
    with pytest.raises(ConfigError, match="is not an address"):
        provider_for(way, "http://a\x01b.example")


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_request_body_is_always_valid_utf_8(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["hello"]) as vendor:
        await provider_for(way, vendor).chat([user("早上好, half a character: \ud83d.")])
    assert "早上好, half a character: ?.".encode() in vendor.requests[0].raw


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_requests_have_only_the_necessary_headers(way: str, provider_for: Opener) -> None:
    async with server(OK, OK) as (url, _, heads):
        provider = provider_for(way, url)
        await provider.chat([user("hi")])
        await provider.chat([user("hi")])
    for head in heads:
        fields = dict(line.split(": ", 1) for line in head.decode().lower().splitlines()[1:-1])
        assert fields.keys() - {"anthropic-version", "x-api-key", "connection"} == {
            *(
                "host",
                "content-length",
                "content-type",
                "accept",
                "accept-encoding",
                "user-agent",
                "authorization",
            )
        }
        assert fields["authorization"] == f"bearer {KEY}"
        assert fields["user-agent"] == "agentd"


@pytest.mark.parametrize("way", ["openai chat", "claude opus"])
async def test_the_raw_post_of_the_sdks_takes_bytes_and_returns_a_stream_of_bytes(
    way: str, provider_for: Opener
) -> None:
    """A contract that the SDKs' types do not know: `stream=True` together with
    `cast_to=httpx2.Response`.
    """
    import anthropic
    import httpx2
    import openai

    message = (
        "the SDK no longer hands out raw streams: look at `post` in its _base_client.py, and at "
        "providers/sdk.py"
    )
    body = (
        '{"model": "x",   "messages": [{"role": "user", "content": "these bytes: ü"}], '
        '"max_tokens": 9}'
    ).encode()
    async with FakeVendor(["hello"], strict=False) as vendor:
        kind = openai.AsyncOpenAI if way == "openai chat" else anthropic.AsyncAnthropic
        path = "/chat/completions" if way == "openai chat" else "/v1/messages"
        async with kind(api_key=KEY, base_url=vendor.url, max_retries=0) as client:
            response = await client.post(path, content=body, cast_to=httpx2.Response, stream=True)  # type: ignore
            assert isinstance(response, httpx2.Response), message
            assert not response.is_stream_consumed, message
            await response.aread()
            await response.aclose()
    assert vendor.requests[0].raw == body, message


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_an_unsupported_proxy_is_ignored_where_not_needed(
    way: str, provider_for: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    async with FakeVendor(["hello"]) as vendor:
        assert (await provider_for(way, vendor).chat([user("hi")])).content == "hello"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://a.example/v1", {"http_proxy": "http://p:3128"}, "http://p:3128"),
        ("https://a.example/v1", {"http_proxy": "http://p:3128"}, None),
        ("https://a.example/v1", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://a.example/v1", {"all_proxy": "socks5://p:1080"}, "socks5://p:1080"),
        ("http://a.example/v1", {"http_proxy": "http://p:3128", "no_proxy": ".example"}, None),
        (
            "http://a.example:8000/v1",
            {"http_proxy": "http://p:3128", "no_proxy": "a.example:8000"},
            None,
        ),
        ("http://a.example/v1", {"http_proxy": "http://p:3128", "no_proxy": "*"}, None),
        ("http://[::1", {"http_proxy": "http://p:3128"}, None),
    ],
)
def test_proxies_are_read_from_the_environment(
    url: str, environment: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("http", "https", "all", "no"):
        for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()):
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy


async def test_a_request_that_ends_after_closing_leaves_no_connection(provider_for: Opener) -> None:
    async with FakeVendor(
        [{"text": "late", "together": 2}, {"text": "late", "together": 2}]
    ) as vendor:
        provider = provider_for("deepseek", vendor)
        under_way = asyncio.create_task(provider.chat([user("hi")]))
        while not vendor.requests:
            await asyncio.sleep(0)
        await provider.close()
        assert (await provider_for("deepseek", vendor).chat([user("hi")])).content == "late"
        assert (await under_way).content == "late"
        while len(vendor.connections) > 1:
            await asyncio.sleep(0)
