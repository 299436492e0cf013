"""Streamed answers equal whole answers, and faults within a stream have their class."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import Overloaded, Retryable, TransportError, Unavailable
from daemon.models import Chunk, Json, LLMResponse, Usage
from daemon.providers import LLMProvider
from daemon.providers.wire.chat import CHAT
from daemon.providers.wire.messages import MESSAGES
from daemon.providers.wire.sse import Event, EventStreamParser
from tests.fakes.vendor import FakeVendor
from tests.properties import combinations_of, scaled_settings
from tests.providers.calls import LANGUAGES, TRANSPORTS, WAYS, Opener, Talk, user
from tests.providers.test_loops import LOOP
from tests.providers.test_wire import question


class StreamedTalk(Talk):
    """A conversation whose answers come in pieces."""

    async def ask(self, **kw: Any) -> LLMResponse:
        self.provider = _Streaming(self.provider)  # type: ignore[assignment]
        try:
            return await super().ask(**kw)
        finally:
            self.chunks = self.provider.chunks  # type: ignore[attr-defined]
            self.provider = self.provider.inner  # type: ignore[attr-defined]


class _Streaming:
    def __init__(self, inner: LLMProvider) -> None:
        self.inner = inner
        self.chunks: list[Chunk] = []

    async def chat(self, *args: Any, **kw: Any) -> LLMResponse:
        self.chunks = [chunk async for chunk in self.inner.chat_stream(*args, **kw)]
        response = self.chunks[-1].response
        assert response is not None
        return response


@pytest.mark.parametrize("way", WAYS)
async def test_a_streamed_tool_loop_equals_the_unstreamed_tool_loop(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(LOOP) as vendor, FakeVendor(LOOP) as plain:
        talk, whole = StreamedTalk(provider_for(way, vendor)), Talk(provider_for(way, plain))
        for turn in LOOP:
            answer, expected = await talk.ask(), await whole.ask()
            assert "".join(chunk.delta for chunk in talk.chunks) == turn.get("text", "")
            if answer.reasoning:
                assert "".join(chunk.thinking for chunk in talk.chunks) == answer.reasoning
            for key in (
                "content",
                "function_calls",
                "finish_reason",
                "usage",
                "reasoning",
                "request_id",
            ):
                assert getattr(answer, key) == getattr(expected, key)
        requests = [
            json.dumps(request.body.get("messages") or request.body["input"])
            for request in vendor.requests
        ]
    assert vendor.refusals == []
    assert all(request.body["stream"] is True for request in vendor.requests)
    for before, after in pairwise(requests):
        assert after.startswith(before.removesuffix("]"))


@pytest.mark.parametrize("way", LANGUAGES)
async def test_each_piece_is_yielded_on_arrival(way: str, provider_for: Opener) -> None:
    async with FakeVendor(
        [{"text": "one two three four", "pause": 0.01}, {"text": "x", "hang": True}]
    ) as vendor:
        provider = provider_for(way, vendor)
        pieces = [chunk.delta async for chunk in provider.chat_stream([user("hi")])]
        assert len([piece for piece in pieces if piece]) == 3
        assert pieces[-1] == ""  # the last one carries the response
        # whoever has seen enough leaves, and the connection is let go
        async with aclosing(provider.chat_stream([user("hi")])) as stream:
            task = asyncio.ensure_future(anext(stream))
            while len(vendor.requests) < 2:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_completed_stream_leaves_a_reusable_connection(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b", "c"]) as vendor:
        provider = provider_for(way, vendor)
        for _ in range(3):
            assert [chunk async for chunk in provider.chat_stream([user("hi")])][-1].response
        assert vendor.connection_count == 1


@pytest.mark.parametrize("way", LANGUAGES)
async def test_possibly_long_answers_are_streamed_without_a_watcher(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(["short", "long"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.chat([user("hi")], max_tokens=2000)
        answer = await provider.chat([user("hi")], max_tokens=64_000)
    assert answer.content == "long"
    assert [request.body.get("stream", False) for request in vendor.requests] == [False, True]
    assert vendor.refusals == []


async def test_a_stream_only_model_is_always_streamed(provider_for: Opener) -> None:
    async with FakeVendor(["x"]) as vendor:
        answer = await provider_for("qwen", vendor, capabilities={"stream": True}).chat(
            [user("hi")]
        )
    assert answer.content == "x"
    assert vendor.requests[0].body["stream"] is True


BREAKS: dict[str, tuple[Json, str]] = {
    "reset": ({"reset": True}, "broke off"),
    "cut off": ({"truncate": 1}, "broke off"),
    "stands still": ({"hang": True}, "stood still for 2 s"),
}


@pytest.mark.slow
@combinations_of(fault=BREAKS, way=LANGUAGES)
async def test_an_interrupted_stream_is_no_answer(
    way: str, fault: str, provider_for: Opener
) -> None:
    turn, saying = BREAKS[fault]
    async with FakeVendor([{"text": "All is well, all is we", **turn}, "well again"]) as vendor:
        provider = provider_for(way, vendor, stall=2 if fault == "stands still" else 60)
        await provider.load()
        with pytest.raises(TransportError, match=saying) as error:
            await provider.chat([user("hi")], max_tokens=30_000)
        again = await provider.chat([user("hi")], max_tokens=30_000)
    assert str(error.value).startswith(f"{provider.name} (")
    assert again.content == "well again"


@pytest.mark.slow
@pytest.mark.parametrize("way", LANGUAGES)
async def test_a_stream_that_never_begins_ends_at_the_usual_timeout(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([{"hang": True, "after": 0}, {"hang": True, "latency": 9}]) as vendor:
        provider = provider_for(way, vendor, timeout=0.5, stall=0.01)
        await provider.load()  # which takes longer than that
        with pytest.raises(TransportError, match=r"stood still for 0.5 s"):
            await provider.chat([user("hi")], max_tokens=30_000)
        with pytest.raises(TransportError, match=r"no answer within 0.5 s"):
            await provider.chat([user("hi")], max_tokens=30_000)


@pytest.mark.parametrize(
    ("way", "kind"),
    [("openai chat", Unavailable), ("openai responses", Unavailable), ("claude opus", Overloaded)],
)
async def test_an_error_within_a_stream_has_its_class(
    way: str, kind: type[Retryable], provider_for: Opener
) -> None:
    async with FakeVendor([{"text": "All is well", "stream_error": True}]) as vendor:
        with pytest.raises(kind) as error:
            await provider_for(way, vendor).chat([user("hi")], max_tokens=30_000)
    assert error.value.request_id == "req_1"


@pytest.mark.parametrize("way", LANGUAGES)
async def test_an_error_before_a_stream_has_its_class(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"error": 429, "retry_after": 7}]) as vendor:
        with pytest.raises(Overloaded) as error:
            await provider_for(way, vendor).chat([user("hi")], max_tokens=30_000)
    assert error.value.retry_after == 7


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_answer_of_a_server_without_streaming_is_read(way: str, provider_for: Opener) -> None:
    whole = {
        "openai chat": '{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}',
        "deepseek": '{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}',
        "claude opus": (
            '{"content": [{"type": "text", "text": "whole"}], "stop_reason": "end_turn"}'
        ),
    }[way]
    portal = "<html><title>Log in</title></html>"
    turns: list[Any] = [{"raw": whole, "content_type": "application/json"}, {"raw": portal}]
    async with FakeVendor(turns) as vendor:
        provider = provider_for(way, vendor)
        chunks = [chunk async for chunk in provider.chat_stream([user("hi")])]
        assert [chunk.delta for chunk in chunks] == ["whole", ""]
        with pytest.raises(TransportError, match="a web page titled “Log in”"):
            await provider.chat([user("hi")], max_tokens=30_000)


# --- events, however the network cuts them ---

EVENTS = [("message", "one"), ("delta", "zwei\n三"), ("message", "{}"), ("ping", "")]
WIRE = (
    "data: one\n\nevent: delta\ndata: zwei\ndata: 三\n\n: a comment\ndata:{}\nid: 7\n\nevent: "
    "ping\ndata:\n\n"
)


@scaled_settings(200)
@given(
    cuts=st.lists(st.integers(0, 200), max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
)
def test_stream_events_are_parsed_at_any_byte_boundary(
    cuts: list[int], end: str, mark: bool
) -> None:
    wire = (b"\xef\xbb\xbf" if mark else b"") + WIRE.replace("\n", end).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]
    reader = EventStreamParser()
    events = [event for begin, stop in pairwise(edges) for event in reader.feed(wire[begin:stop])]
    assert [*events, *reader.finish()] == [Event(name, data) for name, data in EVENTS]


@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_stream_event_without_an_empty_line_is_read(line_end: bytes) -> None:
    reader = EventStreamParser()
    assert list(reader.feed(b"data: last" + line_end)) == []
    assert list(reader.finish()) == [Event("message", "last")]


# --- calls of servers that number them oddly ---


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Json:
    part: Json = {"function": {"name": name, "arguments": arguments}}
    return (
        part
        | ({"index": index} if index is not None else {})
        | ({"id": call_id} if call_id else {})
    )


@pytest.mark.parametrize(
    "parts",
    [
        [
            call(0, "a", "f", ""),
            call(0, None, None, '{"x":'),
            call(0, None, None, " 1}"),
            call(1, "b", "g", "{}"),
        ],
        [call(0, "a", "f", '{"x": 1}'), call(0, "b", "g", "{}")],  # all numbered 0
        [call(None, "a", "f", '{"x": 1}'), call(None, "b", "g", "{}")],  # no numbers
        [
            call(0, "a", "f", '{"x"'),
            call(0, "a", "f", ": 1}"),
            call(1, "b", "g", {}),
        ],  # ids and names repeated
        [
            call(1, "a", "f", {"x": 1}),
            call(2, "b", "g", None),
        ],  # numbered from 1, arguments as a table or left out
    ],
)
def test_streamed_calls_are_kept_apart(parts: list[Json]) -> None:
    assembler = CHAT.new_assembler()
    for part in parts:
        assembler.add_event("", {"choices": [{"delta": {"tool_calls": [part]}}]})
    assert assembler.assemble() is None
    assembler.add_event("", {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    answer = CHAT.parse_answer(assembler.assemble() or {}, question())
    assert [(call.id, call.name, call.arguments) for call in answer.function_calls] == [
        ("a", "f", {"x": 1}),
        ("b", "g", {}),
    ]


def test_a_null_at_the_end_of_a_stream_wipes_no_count() -> None:
    assembler = MESSAGES.new_assembler()
    counts = {"input_tokens": 1000, "cache_read_input_tokens": 50, "output_tokens": 1}
    for data in (
        {"type": "message_start", "message": {"content": [], "usage": counts}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": None, "output_tokens": 5},
        },
        {"type": "message_stop"},
    ):
        assembler.add_event("", data)
    answer = MESSAGES.parse_answer(assembler.assemble() or {}, question())
    assert answer.usage == Usage(input=1050, cache_read=50, output=5)
