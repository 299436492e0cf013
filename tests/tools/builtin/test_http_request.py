"""http_request contacts only hosts named by the policy, at checked addresses, despite redirects."""

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_address, ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from daemon.models import FunctionCall, ToolContext, ToolResult
from daemon.policy.policy import Policy
from daemon.tools.builtin import http_request
from daemon.tools.builtin.http_request.addresses import Address, explain_refusal
from daemon.tools.builtin.http_request.pages import extract_text, web_charsets
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

Ask: TypeAlias = Callable[..., Awaitable[ToolResult]]
LOOPBACK = IPv4Network("127.0.0.0/8")


@dataclass
class Server:
    """A web server on a real socket, which says what it is told to say and remembers what it was
    asked.
    """

    answers: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0
    address: str = "127.0.0.1"

    def says(self, path: str, body: bytes, status: str = "200 OK", **headers: str) -> None:
        lines = {
            "Content-Type": "text/plain",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.answers[path] = f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body

    def leads(self, path: str, to: str, status: str = "302 Found") -> None:
        self.says(path, b"", status, Location=to)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(
            (
                int(line[15:])
                for line in head.lower().splitlines()
                if line.startswith("content-length:")
            ),
            0,
        )
        self.requests.append(head + (await reader.readexactly(size)).decode())
        writer.write(
            self.answers.get(
                head.split()[1], b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"
            )
        )
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self._serve, self.address, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().serve() as server:
        yield server


@dataclass
class Names:
    """The name service: what each name means, one answer after the other."""

    means: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.requests.append(host)
        if host not in self.means:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.means[host]
        return [
            ip_address(address) for address in (answers.pop(0) if len(answers) > 1 else answers[0])
        ]


@pytest.fixture
def names() -> Names:
    return Names({"here.example": [["127.0.0.1"]], "there.example": [["127.0.0.1"]]})


@pytest.fixture
def asking(tmp_path: Path, names: Names) -> Callable[..., Ask]:
    """Return a way to call the tool under rules given as text."""

    def under(rules: str, tls: ssl.SSLContext | None = None, approved: str = "") -> Ask:
        path = tmp_path / "policy.toml"
        path.write_text(f"version = 1\n{rules}")
        (tmp_path / "workspace").mkdir(exist_ok=True)
        policy = Policy.load(path, workspace=tmp_path / "workspace")
        registry = FunctionRegistry()
        http_request.register(registry, SimpleNamespace(policy=policy), resolve=names, tls=tls)
        context = ToolContext(run="run", routine="x", workspace=tmp_path, approved=approved)

        async def ask(url: str, **arguments: Any) -> ToolResult:
            call = FunctionCall(name="http_request", arguments={"url": url, **arguments})
            return await ToolExecutor(registry).run(call, context)

        return ask

    return under


def rule(*hosts: str, methods: str = "", networks: str = '"127.0.0.0/8"') -> str:
    names = ", ".join(f'"{host}"' for host in hosts)
    more = f"methods = [{methods}]\n" if methods else ""
    return (
        f'[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = [{names}]\nnetworks = '
        f"[{networks}]\n{more}"
    )


async def test_http_request_returns_status_type_and_body(
    asking: Callable[..., Ask], server: Server
) -> None:
    ask = asking(rule(f"here.example:{server.port}"))
    server.says("/a?b=c", b"hello")
    server.says("/json", b'{"n": [1, 2]}', Content_Type="application/json; charset=utf-8")
    server.says("/page", b"<p>seen</p><script>unseen</script>", Content_Type="text/html")
    server.says("/latin", "schön".encode("latin-1"), Content_Type="text/plain; charset=iso-8859-1")
    server.says("/picture", b"\x89PNG\0\0", Content_Type="image/png")
    server.says("/packed", gzip.compress(b"packed"), Content_Encoding="GZIP")
    parts = gzip.compress(b"pac") + gzip.compress(b"ked") + b"\0\0"
    server.says("/parts", parts, Content_Encoding="gzip")
    here = f"http://here.example:{server.port}"

    assert (await ask(f"{here}/a?b=c")).value == {
        "status": 200,
        "url": f"{here}/a?b=c",
        "type": "text/plain",
        "body": "hello",
    }
    assert f"host: here.example:{server.port}" in server.requests[0].lower()
    for path, body in {
        "/json": {"n": [1, 2]},
        "/page": "seen",
        "/latin": "schön",
        "/picture": "(6 bytes that are no text)",
        "/packed": "packed",
        "/parts": "packed",
    }.items():
        assert (await ask(here + path)).value["body"] == body, path


async def test_a_model_reads_the_body_of_an_answer_as_it_is(
    asking: Callable[..., Ask], server: Server
) -> None:
    ask = asking(rule(f"here.example:{server.port}"))
    server.says("/page", b'<h1>Releases</h1><p>Version "2.0"</p>', Content_Type="text/html")
    server.says("/json", b'{"n": [1, 2]}', Content_Type="application/json")
    server.says("/empty", b"")
    here = f"http://here.example:{server.port}"
    texts = {path: (await ask(here + path)).text for path in ("/page", "/json", "/empty")}
    page_text = (await ask(f"{here}/page")).value["body"]
    assert "Releases\n" in page_text
    assert texts == {
        "/page": f"status: 200\nurl: {here}/page\ntype: text/html\n\n{page_text}",
        "/json": f'status: 200\nurl: {here}/json\ntype: application/json\n\n{{"n": [1, 2]}}',
        "/empty": f"status: 200\nurl: {here}/empty\ntype: text/plain",
    }


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("iso-8859-1", b"\x93sch\xf6n\x94", "“schön”"),  # as browsers read it
        ("GB2312", "日报".encode("gbk"), "日报"),
        ("Shift_JIS", "レポート".encode("cp932"), "レポート"),
        ("koi8-r", "отчёт".encode("koi8-r"), "отчёт"),
        ("utf-16", "schön".encode("utf-16"), "schön"),
        ("UTF8", "schön".encode(), "schön"),
        ("utf-8", b"sch\xf6n", r"sch\xf6n"),
        # not of the web: UTF-8
        ("utf-7", b"+ADw-a+AD4-", "+ADw-a+AD4-"),
        ("unicode_escape", rb"\u003ca\u003e", r"\u003ca\u003e"),
        ("raw_unicode_escape", rb"\u003ca\u003e", r"\u003ca\u003e"),
        ("idna", b"xn--schn-7qa", "xn--schn-7qa"),
        ("uu", b"begin 666 x", "begin 666 x"),
        ("rot13", b"plain", "plain"),
        ("hex", b"6162", "6162"),
        ("undefined", "schön".encode(), "schön"),
        ("iso-2022-kr", "schön".encode(), "schön"),
        ("no-such", "schön".encode(), "schön"),
        ("no-such", b"\x89PNG\0", "(5 bytes that are no text)"),
    ],
)
async def test_a_charset_is_one_of_the_web_or_utf_8(
    asking: Callable[..., Ask], server: Server, charset: str, body: bytes, text: str
) -> None:
    server.says("/", body, Content_Type=f"text/plain; charset={charset}")
    ask = asking(rule(f"here.example:{server.port}"))
    assert (await ask(f"http://here.example:{server.port}/")).value["body"] == text


async def test_a_text_in_punycode_is_not_decoded(
    asking: Callable[..., Ask], server: Server
) -> None:
    """Python's codec takes the square of its length: more than the time that a call has."""
    body = b"a" * 1_000_000
    server.says("/", body, Content_Type="text/plain; charset=punycode")
    ask = asking(rule(f"here.example:{server.port}"))
    result = await ask(f"http://here.example:{server.port}/")
    assert result.value["body"] == body.decode()[: len(result.value["body"])]


@pytest.mark.parametrize(
    "content_type",
    [
        f'text/plain; a="{";" * 50_000}"; charset=koi8-r',
        f"text/plain; a={'b' * 50_000}; charset=koi8-r",
        f"text/plain; charset*=punycode''-{'b' * 50_000}",
    ],
)
async def test_of_a_long_content_type_the_beginning_is_read(
    asking: Callable[..., Ask], server: Server, content_type: str
) -> None:
    server.says("/", "schön".encode(), Content_Type=content_type)
    answer = await asking(rule(f"here.example:{server.port}"))(
        f"http://here.example:{server.port}/"
    )
    assert (answer.value["type"], answer.value["body"]) == ("text/plain", "schön")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_mark_of_utf_16_tells_the_charset(encoding: str) -> None:
    body = "\ufeffschön".encode(encoding)
    assert extract_text(body, "text/csv", "") == "schön"
    assert extract_text(body, "text/html", "utf-8") == "schön"
    assert extract_text(body, "audio/mpeg", "") == ""


def test_each_charset_of_the_web_has_a_codec() -> None:
    codecs_by_label = web_charsets()
    for label, codec in codecs_by_label.items():
        assert bytes(range(256)).decode(codec, errors="replace"), label
    assert {label for label in codecs_by_label if label != label.lower()} == set()
    assert len(codecs_by_label) > 200


async def test_an_http_error_status_is_a_failure_with_its_body(
    asking: Callable[..., Ask], server: Server
) -> None:
    result = await asking(rule(f"here.example:{server.port}"))(
        f"http://here.example:{server.port}/none"
    )
    assert (result.ok, result.transient) == (False, False)
    assert result.text.endswith("the server answered 404 Not Found\n[partial output]\nnone")
    server.says("/busy", b"later", "503 Service Unavailable")
    assert (
        await asking(rule(f"here.example:{server.port}"))(f"http://here.example:{server.port}/busy")
    ).transient


async def test_no_request_is_sent_to_an_address_without_a_rule(
    asking: Callable[..., Ask], server: Server, names: Names
) -> None:
    ask = asking(rule(f"here.example:{server.port}"))
    for url, arguments in [
        (f"http://there.example:{server.port}/", {}),
        (f"http://here.example:{server.port}/", {"method": "POST", "body": "x"}),
        ("http://here.example/", {"headers": {"Host": "there.example"}}),
        (f"http://here.example:{server.port}@there.example/", {}),
    ]:
        assert not (await ask(url, **arguments)).ok, url
    assert (server.requests, names.requests) == ([], [])


async def test_headers_and_body_are_sent_unchanged(
    asking: Callable[..., Ask], server: Server
) -> None:
    ask = asking(rule(f"here.example:{server.port}", methods='"POST"'))
    server.says("/", b"taken")
    result = await ask(
        f"http://here.example:{server.port}/",
        method="POST",
        body='{"a": 1}',
        headers={"X-Key": "k"},
    )
    assert result.ok
    assert server.requests[0].startswith("POST / HTTP/1.1") and server.requests[0].endswith(
        '\r\n\r\n{"a": 1}'
    )
    assert (
        "content-type: application/json" in server.requests[0] and "x-key: k" in server.requests[0]
    )
    for headers in (
        {"X": "a\r\nHost: b"},
        {"A b": "c"},
        {"Transfer-Encoding": "chunked"},
        {"Content-Length": "0"},
    ):
        assert not (
            await ask(f"http://here.example:{server.port}/", method="POST", headers=headers)
        ).ok
    assert len(server.requests) == 1


async def test_http_request_ignores_proxies_of_the_environment(
    asking: Callable[..., Ask], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.says("/", b"direct")
    assert (
        await asking(rule(f"here.example:{server.port}"))(f"http://here.example:{server.port}/")
    ).ok


# --- addresses


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
        ),
        *(
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "168.63.129.16",
        ),
        *(
            "192.88.99.1",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fe80::1%eth0",
        ),
        *(
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "fec0::1",
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
            "100::1",
        ),
        *(
            "64:ff9b::7f00:1",
            "::ffff:0:127.0.0.1",
            "::ffff:0:a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
        ),
        *(
            "2002:a00:1::1",
            "2001:0:7f00:1::",
            "2001:0:808:808:0:0:80ff:fffe",
            "2606:4700::5efe:7f00:1",
        ),
    ],
)
def test_private_and_special_addresses_are_refused(address: str) -> None:
    assert explain_refusal(ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2a00:1450::1"]
)
def test_public_addresses_are_accepted(address: str) -> None:
    assert explain_refusal(ip_address(address)) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_a_network_named_by_a_rule_is_accepted_in_every_notation(address: str) -> None:
    assert explain_refusal(ip_address(address), [LOOPBACK]) == ""
    assert explain_refusal(ip_address(address), [ip_network("10.0.0.0/8")])


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
    ],
)
async def test_a_host_with_one_private_address_gets_no_request(
    asking: Callable[..., Ask], server: Server, names: Names, addresses: list[str]
) -> None:
    names.means["here.example"] = [addresses]
    result = await asking(rule(f"here.example:{server.port}", networks=""))(
        f"http://here.example:{server.port}/"
    )
    assert (
        "which is this machine" not in result.text
        and "not asked, unless a rule's `networks` names it" in result.text
    )
    assert server.requests == []


async def test_the_checked_address_is_the_connected_address(
    asking: Callable[..., Ask], names: Names
) -> None:
    """A name that changes its meaning between the vetting and the dialling gains nothing: nobody
    asks again.
    """
    async with Server(address="127.0.0.2").serve() as inside, Server().serve() as outside:
        outside.says("/", b"outside")
        names.means["here.example"] = [["127.0.0.1"], ["127.0.0.2"]]
        ask = asking(rule("*", f"*:{outside.port}", f"*:{inside.port}", networks='"127.0.0.1"'))
        assert (await ask(f"http://here.example:{outside.port}/")).value["body"] == "outside"
        assert names.requests == ["here.example"]
        assert not (await ask(f"http://here.example:{inside.port}/")).ok
        assert inside.requests == []


async def test_an_unknown_host_is_reported(asking: Callable[..., Ask]) -> None:
    assert "gone.example was not found" in (await asking(rule("*"))("https://gone.example/")).text


# --- redirects


async def test_a_redirect_is_judged_like_a_new_request(
    asking: Callable[..., Ask], server: Server, names: Names
) -> None:
    here, there = f"http://here.example:{server.port}", f"http://there.example:{server.port}"
    server.says("/end", b"arrived")
    server.leads("/near", "/end")
    server.leads("/far", f"{there}/end")
    server.leads("/address", f"http://127.0.0.1:{server.port}/end")
    server.leads("/file", "file:///etc/passwd")
    server.leads("/user", f"http://x@here.example:{server.port}/end")
    server.leads("/round", "/round")
    ask = asking(rule(f"here.example:{server.port}"))
    assert (await ask(f"{here}/near")).value["url"] == f"{here}/end"
    for path in ("/far", "/address", "/file", "/user"):
        assert not (await ask(here + path)).ok, path
    assert "more than 3 redirects" in (await ask(f"{here}/round")).text
    assert sum("/end" in request for request in server.requests) == 1
    assert "there.example" not in names.requests


async def test_credentials_are_not_sent_to_another_origin(
    asking: Callable[..., Ask], server: Server
) -> None:
    server.says("/end", b"arrived")
    server.leads("/near", "/end")
    server.leads("/far", f"http://there.example:{server.port}/end")
    ask = asking(rule(f"here.example:{server.port}", f"there.example:{server.port}"))
    secrets = {"Authorization": "Bearer k", "Cookie": "k", "X-Api-Key": "k", "Accept": "text/plain"}
    assert (await ask(f"http://here.example:{server.port}/near", headers=secrets)).ok
    assert "authorization: Bearer k" in server.requests[-1]
    assert (await ask(f"http://here.example:{server.port}/far", headers=secrets)).ok
    assert (
        "Bearer" not in server.requests[-1]
        and "api-key" not in server.requests[-1]
        and "accept: text/plain" in server.requests[-1]
    )


async def test_a_redirected_post_needs_a_rule_for_post_at_the_target(
    asking: Callable[..., Ask], server: Server
) -> None:
    here, there = f"here.example:{server.port}", f"there.example:{server.port}"
    server.says("/end", b"arrived")
    server.leads("/get", f"http://{there}/end", "303 See Other")
    server.leads("/post", f"http://{there}/end", "307 Temporary Redirect")
    ask = asking(rule(here, methods='"POST"') + rule(there))
    assert (await ask(f"http://{here}/get", method="POST", body="secret")).ok
    assert server.requests[-1].startswith("GET") and "secret" not in server.requests[-1]
    assert (
        "no rule allows POST"
        in (await ask(f"http://{here}/post", method="POST", body="secret")).text
    )
    assert server.requests[-1].startswith("POST /post")


async def test_an_approved_post_is_made_once_and_not_where_the_answer_leads(
    asking: Callable[..., Ask], server: Server
) -> None:
    here = f"here.example:{server.port}"
    server.leads("/comment", "/delete-all", "307 Temporary Redirect")
    asked = rule(here, methods='"POST"').replace('effect = "allow"', 'effect = "ask"')
    answer = await asking(asked, approved="an approval")(
        f"http://{here}/comment", method="POST", body="hello"
    )
    assert "not asked, " in answer.text
    assert [request.split()[1] for request in server.requests] == ["/comment"]


async def test_the_address_that_is_requested_is_the_one_that_was_judged(
    asking: Callable[..., Ask], names: Names
) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    names.means["::1"] = [["::1"]]
    async with Server(address="::1").serve() as server:
        server.says("/a;b=1/c;d?e;f", b"hello")
        ask = asking(rule(f"[::1]:{server.port}", networks='"::1/128"'))
        answer = await ask(f"http://[::1]:{server.port}/a;b=1/c;d?e;f#top")
    assert answer.value["body"] == "hello"
    assert f"\r\nhost: [::1]:{server.port}\r\n" in server.requests[0].lower()


async def test_blanks_around_the_value_of_a_header_are_left_out(
    asking: Callable[..., Ask], server: Server
) -> None:
    server.says("/", b"done")
    ask = asking(rule(f"here.example:{server.port}"))
    headers = {"Authorization": " Bearer x "}
    assert (await ask(f"http://here.example:{server.port}/", headers=headers)).ok
    assert "authorization: Bearer x\r\n" in server.requests[0]


async def test_a_post_without_a_body_says_that_it_has_none(
    asking: Callable[..., Ask], server: Server
) -> None:
    server.says("/", b"done")
    ask = asking(rule(f"here.example:{server.port}", methods='"POST"'))
    assert (await ask(f"http://here.example:{server.port}/", method="POST")).ok
    assert "content-length: 0" in server.requests[0].lower()


async def test_a_redirect_may_be_written_in_utf_8_and_with_blanks(
    asking: Callable[..., Ask], server: Server
) -> None:
    server.leads("/", "/sch\xf6n/日 報?q=ü")
    server.says("/sch%C3%B6n/%E6%97%A5%20%E5%A0%B1?q=%C3%BC", b"found")
    ask = asking(rule(f"here.example:{server.port}"))
    assert (await ask(f"http://here.example:{server.port}/")).value["body"] == "found"


# --- bad servers


async def test_long_and_compressed_bodies_are_cut(
    asking: Callable[..., Ask], server: Server
) -> None:
    server.says("/long", b"x" * 300_000)
    server.says("/bomb", gzip.compress(b"0" * 50_000_000), Content_Encoding="gzip")
    ask = asking(rule(f"here.example:{server.port}"))
    for path in ("/long", "/bomb"):
        answer = (await ask(f"http://here.example:{server.port}{path}")).value
        assert (len(answer["body"]), answer["cut"][:27]) == (
            200_000,
            "the body is longer than wha",
        ), path


@pytest.mark.parametrize("length", [99_000, 300_000])
async def test_of_a_long_body_the_model_reads_the_beginning(
    asking: Callable[..., Ask], server: Server, length: int
) -> None:
    server.says("/long", b"begin " + b"x" * length + b" end")
    result = await asking(rule(f"here.example:{server.port}"))(
        f"http://here.example:{server.port}/long"
    )
    head, _, body = result.text.partition("\n\n")
    assert head.splitlines()[-1].endswith("read at once; this is its beginning")
    assert body.startswith("begin xxx") and body.endswith("xxx")
    assert len(result.text) < 100_000 and "characters cut" not in result.text


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
        + gzip.compress(b"text" * 9, mtime=0)[:-9],
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
)
async def test_a_malformed_http_answer_is_a_failure_in_one_line(
    asking: Callable[..., Ask], server: Server, answer: bytes
) -> None:
    server.answers["/"] = answer
    result = await asking(rule(f"here.example:{server.port}"))(
        f"http://here.example:{server.port}/"
    )
    assert not result.ok and result.text.startswith("[failed]") and "\n" not in result.text


@pytest.mark.parametrize("body", ["[" * 5000 + "]" * 5000, '{"a": NaN}', "{", ""])
async def test_invalid_json_bodies_stay_text(
    asking: Callable[..., Ask], server: Server, body: str
) -> None:
    server.says("/", body.encode(), Content_Type="application/json")
    answer = (
        await asking(rule(f"here.example:{server.port}"))(f"http://here.example:{server.port}/")
    ).value
    assert answer["body"] == body


def test_an_html_page_becomes_its_visible_text() -> None:
    page = (
        "<!DOCTYPE html><html><head><title>T</title><style>x</style></head><body><!-- hidden "
        "--><h1>Head</h1>"
        "<p>1 &lt; 2 &amp; 3 < 4 <a class=x "
        "href='https://a.example/b?c=1&amp;d'>link</a><ul><li>one<li>two</ul>"
        "<table><tr><td>a<td>b</table><SCRIPT>alert('</b>')</SCRIPT>end&#99999999999999999999999;"
    )
    text = extract_text(page.encode(), "text/html", "utf-8")
    assert text.splitlines() == [
        *(
            "T",
            "",
            "Head",
            "",
            "1 < 2 & 3 < 4 link (https://a.example/b?c=1&d)",
            "",
            "- one",
            "- two",
            "",
            "| a | b",
        ),
        "end�",
    ]


@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<!--", "<a href='", "</", "<script>", "<svg ", "&", "<?", "&#1"]
)
def test_a_hostile_html_page_is_parsed_in_linear_time(piece: str) -> None:
    # minutes with html.parser; the time limit of tests tells
    extract_text((piece * 100_000).encode(), "text/html", "")


# --- certificates


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of our own for here.example."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt install openssl")
    path = tmp_path / "here.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
        "/CN=here.example"
    )
    command += f" -addext subjectAltName=DNS:here.example -keyout {path} -out {path}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return path


async def test_the_certificate_must_match_the_host_name(
    asking: Callable[..., Ask], certificate: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with Server().serve(context) as server:
        server.says("/", b"sealed")
        server.leads("/down", f"http://here.example:{server.port}/")
        ask = asking(rule(f"*:{server.port}"), ssl.create_default_context(cafile=str(certificate)))
        assert (await ask(f"https://here.example:{server.port}/")).value["body"] == "sealed"
        assert "certificate" in (await ask(f"https://there.example:{server.port}/")).text.lower()
        assert "not encrypted" in (await ask(f"https://here.example:{server.port}/down")).text
        assert (
            "certificate"
            in (await asking(rule(f"*:{server.port}"))(f"https://here.example:{server.port}/")).text
        )
