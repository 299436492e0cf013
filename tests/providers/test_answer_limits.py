"""How much is read of a vendor's answer: whatever it does, an end is made of it soon after the
limit.
"""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from daemon.errors import AnswerTooLarge, ProviderError, TransportError
from daemon.providers import LLMProvider
from tests.fakes.flood import MEGABYTE, Flood
from tests.fakes.vendor import FakeVendor
from tests.properties import combinations_of
from tests.providers.calls import LANGUAGES, TRANSPORTS, Opener, user

# What the server may get rid of until it notices: a limit of 1 MB, and what the system's buffers
# hold.
SOON = 24 * MEGABYTE

TOO_LARGE = (
    "chunks",
    "to the end of the connection",
    "a huge length",
    "a length of many digits",
    "an error",
    "packed",
    "a packed error",
    "packed to nothing",
)
STREAMED = ("one line", "tiny events", "comments", "chunks", "an error")
# What is more than any server has to say around an answer.
AROUND = ("headers", "trailers")
# What the libraries pass over without keeping it, and for which the time of a call is the bound.
PASSED_OVER = ("interim answers", "extensions of chunks")


async def failure_of(provider: LLMProvider) -> ProviderError:
    with pytest.raises(ProviderError) as error:
        await provider.chat([user("hi")])
    return error.value


@combinations_of(kind=TOO_LARGE, way=LANGUAGES)
async def test_an_answer_over_its_limit_is_a_named_failure(
    way: str, kind: str, provider_for: Opener
) -> None:
    async with Flood(kind) as flood:
        provider = provider_for(way, flood.url, name="mine", max_answer_mb=1)
        for attempt in (1, 2):
            error = await failure_of(provider)
            assert type(error) is AnswerTooLarge
            assert str(error).startswith(f"mine ({provider.model_name}): the answer is too large")
            assert "raise max_answer_mb of [providers.mine]" in str(error)
            assert "1,000,000 bytes" in str(error)
            assert error.unsure, "the vendor may charge for it"
            assert flood.sent_bytes < SOON
            assert flood.requests == attempt


@combinations_of(kind=STREAMED, way=LANGUAGES)
async def test_a_stream_over_its_limit_is_a_named_failure(
    way: str, kind: str, provider_for: Opener
) -> None:
    async with Flood(kind) as flood:
        provider = provider_for(
            way, flood.url, name="mine", max_answer_mb=1, capabilities={"stream": True}
        )
        error = await failure_of(provider)
    assert type(error) is AnswerTooLarge
    assert "raise max_answer_mb of [providers.mine]" in str(error)
    assert error.unsure
    assert flood.sent_bytes < SOON


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize("kind", AROUND)
async def test_endless_data_around_an_answer_is_limited(
    way: str, kind: str, provider_for: Opener
) -> None:
    async with Flood(kind) as flood:
        error = await failure_of(provider_for(way, flood.url, timeout=30))
    assert type(error) is TransportError
    assert "no answer within" not in str(error)
    assert flood.sent_bytes < SOON


@combinations_of(kind=PASSED_OVER, way=TRANSPORTS)
async def test_a_missing_answer_ends_at_the_usual_timeout(
    way: str, kind: str, provider_for: Opener
) -> None:
    async with Flood(kind, most=1_000_000 * MEGABYTE) as flood:
        error = await failure_of(provider_for(way, flood.url, timeout=0.5))
    assert type(error) is TransportError
    assert "no answer within 0.5 s" in str(error)


@combinations_of(kind=["deep", "many values", "a long number"], way=TRANSPORTS)
async def test_hostile_json_is_refused_as_malformed(
    way: str, kind: str, provider_for: Opener
) -> None:
    async with Flood(kind, most=15 * MEGABYTE) as flood:
        error = await failure_of(provider_for(way, flood.url))
    assert type(error) is TransportError
    assert "not of the agreed form" in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("way", ["openai chat", "deepseek"])
async def test_an_answer_just_below_the_limit_is_read(way: str, provider_for: Opener) -> None:
    async with Flood("a text", most=15 * MEGABYTE) as flood:
        response = await provider_for(way, flood.url).chat([user("hi")])
        assert len(response.content) > 14 * MEGABYTE
        error = await failure_of(provider_for(way, flood.url, max_answer_mb=14))
        assert type(error) is AnswerTooLarge
        assert (
            await provider_for(way, flood.url, max_answer_mb=20).chat([user("hi")])
        ).content == response.content


@combinations_of(streams=[False, True], way=TRANSPORTS)
async def test_the_answer_limit_applies_per_answer_and_not_per_connection(
    way: str, streams: bool, provider_for: Opener
) -> None:
    # some 700 kB; as a stream, which may have four times as much, some 1.8 MB of 4
    text = "All is well. " * (120_000 if streams else 50_000)
    async with FakeVendor([{"text": text, "piece": 2_000}] * 4) as vendor:
        provider = provider_for(way, vendor, max_answer_mb=1, capabilities={"stream": streams})
        for _ in range(4):
            assert (await provider.chat([user("hi")])).content == text


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_compressed_answer_within_the_limit_is_decompressed(
    way: str, provider_for: Opener
) -> None:
    body = gzip.compress(
        json.dumps({"error": {"message": "packed", "code": "x" * 200_000}}).encode()
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = (
            "HTTP/1.1 400 No\r\ncontent-encoding: gzip\r\ncontent-length: "
            f"{len(body)}\r\nconnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(2):
            error = await failure_of(provider_for(way, url, max_answer_mb=1))
            assert "packed" in str(error)


@pytest.mark.parametrize("way", LANGUAGES)
async def test_a_list_of_models_has_the_same_limit(way: str, provider_for: Opener) -> None:
    async with Flood("chunks") as flood:
        with pytest.raises(AnswerTooLarge, match="max_answer_mb"):
            await provider_for(way, flood.url, max_answer_mb=1).list_models()
        assert flood.sent_bytes < SOON


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize("kind", ["chunks", "packed", "a packed error"])
@pytest.mark.parametrize("streams", [False, True])
async def test_the_answer_limit_applies_through_a_proxy(
    way: str, kind: str, streams: bool, provider_for: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Flood(kind) as flood:
        monkeypatch.setenv("http_proxy", flood.url)
        provider = provider_for(
            way,
            "http://vendor.invalid",
            name="mine",
            max_answer_mb=1,
            capabilities={"stream": streams},
        )
        for _ in range(2):
            error = await failure_of(provider)
            assert type(error) is AnswerTooLarge
            assert flood.sent_bytes < SOON
