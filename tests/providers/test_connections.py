"""Connections: few when little happens, enough when much does, none when it is over."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.vendor import FakeVendor
from tests.providers.calls import TRANSPORTS, Opener, user


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_sequential_calls_share_one_connection(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["a", "b", "c"]) as vendor:
        provider = provider_for(way, vendor)
        for _ in range(3):
            await provider.chat([user("hi")])
        assert vendor.connection_count == 1


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_hundred_calls_run_at_once(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"text": "hello", "repeat": 100, "together": 100}]) as vendor:
        provider = provider_for(way, vendor)
        answers = await asyncio.gather(*(provider.chat([user("hi")]) for _ in range(100)))
    assert [answer.content for answer in answers] == ["hello"] * 100


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_concurrent_calls_are_limited_by_the_config(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"text": "hello", "repeat": 8, "together": 2}]) as vendor:
        provider = provider_for(way, vendor, max_concurrency=2)
        await asyncio.gather(*(provider.chat([user("hi")]) for _ in range(8)))
    assert vendor.most_at_once == 2


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_closed_provider_reopens_at_the_next_call(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.close()  # never opened: fine
        await provider.chat([user("hi")])
        await provider.close()
        await provider.close()
        assert (await provider.chat([user("hi")])).content == "b"
        assert vendor.connection_count == 2


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_each_concurrent_request_has_a_connection_and_later_ones_use_it_again(
    way: str, provider_for: Opener
) -> None:
    answers = [{"text": "hello", "together": 6}] * 6 + [{"text": "again"}] * 3
    async with FakeVendor(answers, strict=False) as vendor:
        provider = provider_for(way, vendor)
        await asyncio.gather(*(provider.chat([user("hi")]) for _ in range(6)))
        opened = set(vendor.connections)
        assert len(opened) == 6
        for _ in range(3):
            await provider.chat([user("hi")])
        assert set(vendor.connections) == opened


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_closing_ends_every_connection(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"text": "hello", "repeat": 20, "together": 20}]) as vendor:
        provider = provider_for(way, vendor)
        await asyncio.gather(*(provider.chat([user("hi")]) for _ in range(20)))
        assert vendor.connections
        await provider.close()
        while vendor.connections:
            await asyncio.sleep(0)


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_connection_dropped_by_the_server_is_replaced(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor(["a", "b"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.chat([user("hi")])
        for connection in list(vendor.connections):
            connection.transport.close()
        while vendor.connections:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await provider.chat([user("hi")])).content == "b"


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_concurrent_warm_ups_open_one_client(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["a"]) as vendor:
        provider = provider_for(way, vendor)
        await asyncio.gather(provider.load(), provider.load())
        assert vendor.connection_count == 0  # nothing is said to the vendor yet
        await provider.chat([user("hi")])
