"""Limits of vendors: cut answers, and more tools than a model accepts."""

import pytest

from daemon.agent.agent import Agent
from daemon.agent.loop import LoopLimits
from daemon.models import Status
from daemon.tools.registry import FunctionRegistry
from tests.fakes.vendor import FakeVendor
from tests.providers import calls

CUT = {"text": "It begins with", "finish": "length"}
WAYS = ("claude opus", "openai responses", "openai chat", "deepseek", "minimax")


@pytest.fixture
async def agent_of():
    providers = []

    def make(way, vendor, registry=None, limits=None, **settings):
        providers.append(calls.provider(way, vendor, **settings))
        return Agent(providers[-1], registry, limits=limits)

    yield make
    for provider in providers:
        await provider.close()


def asked_for(request):
    body = request.body
    return next(
        body[key]
        for key in ("max_tokens", "max_completion_tokens", "max_output_tokens")
        if key in body
    )


def messages_of(request):
    return request.body.get("messages") or request.body["input"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_cut_answer_is_requested_once_more_with_a_larger_limit(agent_of, way):
    async with FakeVendor([CUT, "It begins with all of it."]) as vendor:
        reply = await agent_of(way, vendor, max_tokens=500).process_message("Tell.")
    first, second = vendor.requests
    assert (asked_for(first), asked_for(second)) == (500, 2000)
    assert messages_of(first) == messages_of(second), "what was cut is no part of the conversation"
    assert reply.status is Status.SUCCEEDED and reply.content == "It begins with all of it."
    assert (
        reply.detail == "an answer was cut off by its limit, and asked for again with 2000 tokens"
    )
    assert reply.usage.output > 0 and reply.iterations == 1 and not vendor.refusals


@pytest.mark.parametrize("way", WAYS)
async def test_a_cut_tool_call_is_not_executed_and_requested_again(agent_of, way):
    texts, registry = [], FunctionRegistry()
    registry.register(
        "write",
        "Write.",
        lambda text: texts.append(text),
        {"type": "object", "properties": {"text": {"type": "string"}}},
    )
    broken_reply = {
        "tool_calls": [{"name": "write", "arguments": '{"text": "half of'}],
        "finish": "length",
    }
    whole = {"tool_calls": [{"name": "write", "arguments": {"text": "half of it and more"}}]}
    async with FakeVendor([broken_reply, whole, "Written."]) as vendor:
        reply = await agent_of(way, vendor, registry, max_tokens=500).process_message("Write.")
    assert texts == ["half of it and more"] and reply.status is Status.SUCCEEDED
    assert [call["ok"] for call in reply.function_calls] == [True]
    assert [asked_for(request) for request in vendor.requests] == [500, 2000, 500]


async def test_answer_cut_twice_fails_and_names_both_attempts(agent_of):
    async with FakeVendor([CUT, CUT]) as vendor:
        reply = await agent_of("claude opus", vendor).process_message("Tell.")
    assert [asked_for(request) for request in vendor.requests] == [16_384, 65_536]
    assert reply.status is Status.FAILED and reply.content.startswith("It begins with\n\n[cut:")
    assert reply.detail == (
        "cut: the answer reached the model's output limit; "
        "an answer was cut off by its limit, and asked for again with 65536 tokens"
    )


async def test_answer_cut_without_room_for_more_is_asked_for_once(agent_of):
    async with FakeVendor([CUT]) as vendor:
        settings = {"max_tokens": 900, "capabilities": {"output": 900}}
        assert (
            await agent_of("claude opus", vendor, **settings).process_message("Tell.")
        ).status is Status.FAILED
    async with FakeVendor([CUT]) as other_vendor:  # the vendor's own limit: nobody has set one
        assert (
            await agent_of("deepseek", other_vendor).process_message("Tell.")
        ).status is Status.FAILED
    assert len(vendor.requests) == len(other_vendor.requests) == 1


async def test_refused_larger_limit_keeps_the_cut_answer(agent_of):
    async with FakeVendor([CUT, {"error": 400, "message": "max_tokens: 2000 > 900"}]) as vendor:
        reply = await agent_of(
            "claude opus", vendor, limits=LoopLimits(max_tokens=500)
        ).process_message("Tell.")
    assert (
        len(vendor.requests) == 2
        and reply.status is Status.FAILED
        and reply.content.startswith("It begins with")
    )


@pytest.mark.parametrize(
    "way", ["openai responses", "openai chat", "openai responses, no reasoning"]
)
async def test_tools_over_the_limit_of_a_model_are_left_out_and_named(agent_of, way):
    registry = FunctionRegistry()
    for number in range(131):
        registry.register(
            f"tool_{number}", "Do.", lambda: "done", {"type": "object", "properties": {}}
        )
    async with FakeVendor(
        [{"tool_calls": [{"name": "tool_127", "arguments": {}}]}, "Done."]
    ) as vendor:
        reply = await agent_of(way, vendor, registry).process_message("Work.")
    assert not vendor.refusals and [len(request.body["tools"]) for request in vendor.requests] == [
        128,
        128,
    ]
    assert reply.status is Status.SUCCEEDED and str(reply.detail).endswith(
        (  # noqa: UP034
            "takes 128 tools and was offered 131; the last ones were left out: tool_128, tool_129, "
            "tool_130"
        )
    )


async def test_vendors_without_a_tool_limit_get_every_tool(agent_of):
    registry = FunctionRegistry()
    for number in range(131):
        registry.register(
            f"tool_{number}", "Do.", lambda: "done", {"type": "object", "properties": {}}
        )
    async with FakeVendor(["Done."]) as vendor:
        reply = await agent_of("claude opus", vendor, registry).process_message("Work.")
    assert len(vendor.requests[0].body["tools"]) == 131 and reply.detail is None
