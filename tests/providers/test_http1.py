"""Reading an answer of HTTP/1.1: the same as h11 reads, in whatever pieces it comes."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.providers.http1 import Answer, Malformed

_NAMES = st.sampled_from(["x-one", "X-Two", "server", "vary", "set-cookie"])
_VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=12)
_FIELDS = st.lists(st.tuples(_NAMES, _VALUES), max_size=4)
_BODIES = st.binary(max_size=300)
_STATUSES = st.sampled_from([200, 201, 204, 304, 400, 429, 500, 529])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw what a server may send for one request, perhaps with an interim answer before it."""
    lines = [f"HTTP/1.{draw(st.sampled_from('01'))} {draw(_STATUSES)}{draw(st.sampled_from(['', ' ', ' As it is']))}"]
    lines += [f"{name}: {value}" for name, value in draw(_FIELDS)]
    body, framing = draw(_BODIES), draw(st.sampled_from(["length", "chunked", "close"]))
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        body = _in_chunks(body, draw(st.lists(st.integers(1, 50), max_size=4)))
    if draw(st.booleans()):
        lines.append(f"Connection: {draw(st.sampled_from(['close', 'keep-alive', 'Close, upgrade']))}")
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" if draw(st.booleans()) else b""
    return interim + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _in_chunks(body: bytes, sizes: list[int]) -> bytes:
    chunks = []
    for size in sizes:
        if body[:size]:
            chunks.append(b"%x;name=value\r\n%s\r\n" % (len(body[:size]), body[:size]))
        body = body[size:]
    if body:
        chunks.append(b"%X\r\n%s\r\n" % (len(body), body))
    return b"".join(chunks) + b"0\r\nx-trailer: yes\r\n\r\n"


def by_h11(raw: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool]:
    """Read an answer with h11: status, fields, body, and whether another request may follow."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(raw)
    client.receive_data(b"")
    status, fields, body = 0, [], b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status, fields = event.status_code, list(event.headers)
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
    return status, fields, body, client.states[h11.SERVER] is h11.DONE and client.trailing_data[0] == b""


def read(raw: bytes, cuts: list[int]) -> tuple[Answer, bytes]:
    """Read it here, cut at these places."""
    answer, body, begin = Answer(), b"", 0
    for end in [*sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]:
        answer.feed(raw[begin:end])
        body, begin = body + answer.take(), end
    return answer, body


@given(answers(), st.lists(st.integers(0, 2000), max_size=6))
@settings(deadline=None, derandomize=True, max_examples=400)
def test_an_answer_reads_as_h11_reads_it_however_it_is_cut(raw: bytes, cuts: list[int]) -> None:
    try:
        status, fields, body, again = by_h11(raw)
    except h11.RemoteProtocolError:
        return  # a body where none may be: h11 takes it for the beginning of the next answer
    answer, told = read(raw, cuts)
    reusable = answer.reusable
    answer.end()
    assert answer.complete
    assert (answer.status, told) == (status, body)
    assert [(name.lower(), value) for name, value in answer.fields] == fields
    assert not reusable or again  # to close a connection too often does no harm
    framed = b"Content-Length" in raw or b"chunked" in raw
    if framed and raw.startswith(b"HTTP/1.1") and again and b"Connection" not in raw:
        assert reusable


@given(st.binary(max_size=60), st.lists(st.integers(0, 100), max_size=4))
@settings(deadline=None, derandomize=True, max_examples=400)
def test_rubbish_is_refused_or_waited_for_and_never_more(rubbish: bytes, cuts: list[int]) -> None:
    for raw in (
        rubbish,
        b"HTTP/1.1 200 OK\r\n" + rubbish,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + rubbish,
    ):
        try:
            answer, _ = read(raw, cuts)
            answer.end()
        except Malformed:
            continue
        assert answer.complete


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
        (b"HTTP/2 200\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nname : value\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n", "length"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n", "length"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "transferred"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnone\r\n", "size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n", "longer"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 70_000, "no end"),
    ],
)
def test_what_no_client_should_believe_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        Answer().feed(raw)


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    for raw in (b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"):
        answer = Answer()
        answer.feed(raw)
        with pytest.raises(Malformed, match="closed the connection"):
            answer.end()


def test_the_values_of_one_name_are_joined_and_a_folded_line_goes_on() -> None:
    answer = Answer()
    answer.feed(b"HTTP/1.1 200 OK\r\nVia: a\r\nvia: b\r\nX: one\r\n two\r\ncontent-length: 0\r\n\r\n")
    assert (answer.headers["via"], answer.headers["x"]) == ("a, b", "one two")
    assert answer.complete
