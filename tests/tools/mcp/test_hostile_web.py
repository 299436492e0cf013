"""What a server over HTTP may cost us, whatever bytes it answers; its token stays with it."""

import asyncio
import gzip
import itertools
import json
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from daemon.tools.mcp.http_transport import MAX_COOKIES
from tests.tools.mcp.hostile_web import STREAM, HostileWeb, event, respond, result
from tests.tools.mcp.test_servers import Shop, open_accepted_tools

# One loop for the file, as what a server is asked by lives in the loop that started it.
pytestmark = pytest.mark.asyncio(loop_scope="module")
FINE = {"content": [{"type": "text", "text": "fine"}]}
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
# The beginning of a stream that asks for being asked again at once, and says nothing.
BROKEN_OFF = b"retry: 0\nid: 1\ndata: \n\n"


@pytest_asyncio.fixture(loop_scope="module")
async def open_web(tmp_path):
    """Open a server and a shop that has its tools, with the token `secret`."""

    @asynccontextmanager
    async def open_web(answers=None, **config):
        async with HostileWeb() as web:
            web.answers |= answers or {}
            shop = Shop({"web": web.config | config}, accepted_tools, "secret")
            web.shop = shop
            await shop.servers.register_tools(["web__*"])
            yield web
            await shop.servers.close()

    async with open_accepted_tools(tmp_path) as accepted_tools:
        yield open_web


def with_session(request):
    """Answer `initialize` with a session."""
    answer = HostileWeb().answers["initialize"](request)
    return respond(result(request, answer), headers="mcp-session-id: s\r\n")


def endless(head, piece):
    """Answer with what never ends."""
    return lambda _request: itertools.chain([head], itertools.repeat(piece))


def call_result(text):
    """Answer a call with JSON in which `text` stands as it is."""
    return lambda request: respond(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"x":%s}}}'
        % (request.body["id"], text)
    )


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (lambda _: respond(b""), "Invalid JSON"),
        (lambda _: respond(b"nope \x1b[31m\xff"), "Invalid JSON"),
        (lambda _: respond(b"[]"), "Failed to parse"),
        (lambda _: respond(b"<html>", kind="text/html\x1b[31m"), "Unexpected content type"),
        (lambda _: respond(b"no", status="500 Oh"), "an error response"),
        (lambda _: respond(b"", status="202 Accepted"), "202 Accepted"),
        (lambda _: {"content": 7}, "valid list"),
        (lambda _: {"code": 1, "message": "\x1b]0;x\x07 no\x00"}, "no"),
        (call_result(b"9" * 5_000), "number out of range"),
        (call_result(b'"\\ud800"'), "hex escape"),
        (call_result(b"[" * 500_000), "recursion limit"),
        (
            lambda _: itertools.chain([CHUNKED], itertools.repeat(b"2710\r\n%10000d\r\n" % 0)),
            "more",
        ),
        (
            lambda _: itertools.chain([STREAM], itertools.repeat(b":" + b"x" * 60_000 + b"\n")),
            "more",
        ),
        (lambda _: itertools.chain([STREAM], itertools.repeat(b"x" * 60_000)), "exceeded"),
        (
            lambda _: [
                STREAM[:-2] + b"content-encoding: gzip\r\n\r\n",
                gzip.compress((b":" + b" " * 1_000 + b"\n") * 20_000),
            ],
            "unpacks to more",
        ),
        (
            lambda _: itertools.chain([b"HTTP/1.1 200 OK\r\n"], itertools.repeat(b"x: y\r\n")),
            "away",
        ),
        (lambda _: [STREAM, b"retry: " + b"9" * 4_000 + b"\nid: 1\ndata: \n\n"], "away"),
    ],
)
async def test_a_wrong_answer_is_a_named_failure_of_its_call(open_web, answer, fault):
    async with open_web({"tools/call": answer}) as web:
        outcome = await web.shop.call("web__t")
        assert not outcome.ok
        assert fault in outcome.text
        assert "\x1b" not in outcome.text
        web.answers["tools/call"] = lambda _: FINE
        assert (await web.shop.call("web__t")).text == "fine"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:{}/mcp", "http://127.0.0.1@localhost:{}/mcp", "file:///etc/passwd"]
)
@pytest.mark.parametrize("method", ["server/discover", "tools/call"])
async def test_no_redirect_takes_the_token_to_another_place(open_web, status, place, method):
    async with HostileWeb() as other:
        place = f"location: {place.format(other.port)}\r\n"
        answers = {method: lambda _: respond(b"", status=f"{status} Go", headers=place)}
        async with open_web(answers) as web:
            if method == "tools/call":
                outcome = await web.shop.call("web__t")
                assert not outcome.ok
                assert "not followed" in outcome.text
            assert {request.headers["authorization"] for request in web.requests} == {
                "Bearer secret"
            }
        assert other.requests == []


@pytest.mark.parametrize("flood", [b":\n\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
async def test_the_answer_to_a_call_that_was_given_up_is_left(open_web, flood):
    ended = asyncio.Event()

    async def answer(_request):
        try:
            if flood.startswith(b":"):
                yield STREAM
            while True:
                yield flood
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with open_web({"tools/call": answer}, timeout="0.2s") as web:
        outcome = await web.shop.call("web__t")
        assert "did not answer within 0.2 s" in outcome.text
        async with asyncio.timeout(20):
            await ended.wait()


async def test_no_stream_is_opened_for_what_a_server_says_unasked(open_web):
    answers = {"initialize": with_session, "GET": lambda _: [STREAM, BROKEN_OFF]}
    async with open_web(answers) as web:
        for _ in range(10):
            assert (await web.shop.call("web__t")).ok
        assert "GET" not in web.methods()


@pytest.mark.slow
async def test_an_answer_that_breaks_off_is_asked_for_again_once_a_second(open_web):
    def go_on(request):
        assert request.headers["last-event-id"] == "1"
        (call,) = [each for each in web.requests if each.method == "tools/call"]
        return [STREAM, event(result(call, FINE))]

    async with open_web({"tools/call": lambda _: [STREAM, BROKEN_OFF], "GET": go_on}) as web:
        assert (await web.shop.call("web__t")).text == "fine"
        assert web.methods().count("GET") == 1
    async with open_web(
        {name: lambda _: [STREAM, BROKEN_OFF] for name in ("tools/call", "GET")}, timeout="0.5s"
    ) as web:
        assert not (await web.shop.call("web__t")).ok
        assert web.methods().count("GET") <= 1


@pytest.mark.slow
async def test_a_server_that_never_hears_of_the_end_does_not_hold_it_up(open_web):
    async def wait_forever(_request):
        await asyncio.Event().wait()
        yield b""

    async with asyncio.timeout(20):
        async with open_web({"initialize": with_session, "DELETE": wait_forever}) as web:
            pass
        assert web.methods()[-1] == "DELETE"


async def test_the_cookies_of_a_server_do_not_pile_up(open_web):
    numbers = itertools.count()

    def answer(request):
        cookies = [f"set-cookie: c{next(numbers)}=v\r\n" for _ in range(2 * MAX_COOKIES)]
        cookies.insert(0, f"set-cookie: long={'v' * 5_000}\r\n")
        return respond(result(request, FINE), headers="".join(cookies))

    async with open_web({"tools/call": answer}) as web:
        for _ in range(3):
            assert (await web.shop.call("web__t")).ok
        cookies = web.requests[-1].headers["cookie"].split("; ")
        assert 1 <= len(cookies) <= MAX_COOKIES
        assert not any(cookie.startswith("long=") for cookie in cookies)


async def test_a_long_event_is_a_message_like_any_other(open_web):
    content = {"content": [{"type": "text", "text": "x" * 2_000_000}]}
    async with open_web(
        {"tools/call": lambda request: [STREAM, event(result(request, content))]}
    ) as web:
        assert (await web.shop.call("web__t")).ok


async def test_requests_of_a_server_are_refused_and_cost_no_call(open_web):
    methods = ["sampling/createMessage", "roots/list", "elicitation/create", "ping", "\x1b"]

    def answer(request):
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": {}}
            for number, method in enumerate(methods * 100)
        ]
        own = b"".join(event(json.dumps(each).encode()) for each in requests)
        return [STREAM, own, event(result(request, FINE))]

    async with open_web({"tools/call": answer}) as web:
        assert (await web.shop.call("web__t")).text == "fine"
        answers = [
            each.body for each in web.requests if "id" in each.body and "method" not in each.body
        ]
        assert {answer["id"] % len(methods) for answer in answers if "result" in answer} <= {3}
