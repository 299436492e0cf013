"""The agent in a Python program: only a provider is needed."""

import re
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.agent.tool_calls import AllowAll
from daemon.errors import ToolFailed
from daemon.models import (
    Effect,
    FunctionCall,
    LLMMessage,
    LLMResponse,
    Status,
    Taint,
    Usage,
    Verdict,
)
from daemon.providers import create_provider
from daemon.tools.registry import FunctionRegistry


class AskAlways:
    """A policy that wants a person to be asked about everything."""

    def judge(self, tool, arguments, *, routine, tainted=False):
        return Verdict(effect=Effect.ASK, rule="rule 1")

    def is_read_only(self, tool, arguments):
        return False


def script(*replies):
    return create_provider("scripted", replies=list(replies))


def calling(name, **arguments):
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def system(provider):
    return provider.calls[-1].messages[0].content


async def test_registered_function_is_called_and_reply_lists_the_call():
    provider = script(calling("weather", city="北京"), "22 度,晴天。")
    agent = Agent(provider, system_prompt="你是天气助手。")
    agent.register_function(
        "weather", "Weather of a city.", lambda city: {"city": city, "temperature": 22}
    )
    reply = await agent.process_message("北京今天天气怎么样?")
    assert (
        reply.content == "22 度,晴天。"
        and reply.iterations == 2
        and reply.status is Status.SUCCEEDED
    )
    assert [(call["name"], call["arguments"], call["ok"]) for call in reply.function_calls] == [
        ("weather", {"city": "北京"}, True)
    ]
    assert [message.role for message in agent.history] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert agent.history[0].content == "你是天气助手。"
    assert '"temperature": 22' in agent.history[3].content


async def test_injected_skills_and_sections_are_in_the_prompt():
    provider = script("Done.")
    agent = Agent(provider)
    agent.set_routine_name("daily-report")
    agent.inject_skill_context("# How to brew\nHot water first.")
    agent.inject_identity_context("Ada's machine. She hates jargon.")
    await agent.process_message("Report.")
    prompt = system(provider)
    assert "Hot water first." in prompt and "She hates jargon." in prompt
    assert "You run unattended on a schedule" in prompt and "daily-report" in prompt


async def test_an_agent_can_continue_and_clear_a_given_history():
    provider = script("As I said.", "Who are you?")
    agent = Agent(provider)
    agent.set_history(
        [
            LLMMessage(role="system", content="Be brief."),
            LLMMessage(role="user", content="Tea?"),
            LLMMessage(role="assistant", content="At four."),
        ]
    )
    await agent.process_message("When?")
    assert [message.content for message in provider.calls[0].messages] == [
        "Be brief.",
        "Tea?",
        "At four.",
        "When?",
    ]
    agent.clear_history()
    await agent.process_message("Hello.")
    assert [message.content for message in provider.calls[1].messages] == ["Be brief.", "Hello."]


class Tainting:
    """An inspector that finds the words of strangers in every result."""

    async def inspect(self, call_id, call, result):
        return replace(result, taint=Taint.TAINTED)


async def test_words_of_strangers_are_marked_after_the_history_was_cleared_or_given():
    provider = script(*[calling("page"), "Read."] * 3)
    agent = Agent(provider, services=AgentServices(policy=AllowAll(), inspector=Tainting()))
    agent.register_function("page", "A page.", lambda: "words of strangers")
    for prepare in (
        agent.clear_history,
        agent.clear_history,
        lambda: agent.set_history([LLMMessage(role="system", content="Be brief.")]),
    ):
        prepare()
        await agent.process_message("Read the page.")
        result = provider.calls[-1].messages[-1].content
        assert re.fullmatch(r"<data ([0-9a-f]{32})>\nwords of strangers\n</data \1>", result)


async def test_the_system_prompt_stands_before_a_history_that_has_none():
    provider = script("At four.")
    agent = Agent(provider, system_prompt="Be brief.")
    agent.set_history([LLMMessage("user", "Tea?"), LLMMessage("assistant", "When?")])
    await agent.process_message("Today.")
    roles = [message.role for message in provider.calls[0].messages]
    assert roles == ["system", "user", "assistant", "user"]


async def test_a_question_before_the_first_turn_is_asked_once():
    provider = script("It is full.")
    prompt = {
        "system": "Be brief.",
        "functions": [],
        "route": {"question": "Which disk?", "tokens": {}},
    }
    agent = Agent(provider, options=AgentOptions(frozen_prompt=prompt))
    assert (await agent.process_message("Look at the disk.")).content == "Which disk?"
    assert (await agent.process_message("The first one.")).content == "It is full."


async def test_stream_yields_events_in_order():
    provider = script({"text": "I look.", **calling("clock")}, "Four o'clock.")
    agent, events = Agent(provider), []
    agent.register_function("clock", "The time.", lambda: "16:00")
    reply = await agent.process_message_stream("What time is it?", events.append)
    assert reply.content == "Four o'clock."
    assert [event["type"] for event in events] == [
        "thinking",
        "delta",
        "tool_started",
        "tool_finished",
        "thinking",
        "delta",
    ]
    assert "".join(event.get("text", "") for event in events) == "I look.Four o'clock."
    start, finish = events[2], events[3]
    assert (start["tool"], start["args"]) == ("clock", {})
    assert (finish["tool"], finish["ok"], finish["preview"]) == ("clock", True, "16:00")
    assert start["call"] == finish["call"]


async def test_stream_yields_the_thinking_of_the_model():
    events = []
    await Agent(script({"text": "4", "reasoning": "2 + 2"})).process_message_stream(
        "2 + 2?", events.append
    )
    assert [event.get("text") for event in events if event["type"] == "thinking"] == [None, "2 + 2"]


async def test_only_read_only_tools_are_retried_after_a_temporary_failure():
    tries = {"look": 0, "write": 0}

    def look():
        tries["look"] += 1
        if tries["look"] < 3:
            raise ToolFailed("busy", transient=True)
        return "seen"

    def write():
        tries["write"] += 1
        raise ToolFailed("busy", transient=True)

    registry = FunctionRegistry()
    registry.register("look", "Look.", look, read_only=True)
    registry.register("write", "Write.", write)
    provider = script(calling("look"), calling("write"), "Done.")
    agent = Agent(provider, registry, limits=LoopLimits(tool_retry_delay=0.0))
    reply = await agent.process_message("Go.")
    assert [call["ok"] for call in reply.function_calls] == [True, False] and tries == {
        "look": 3,
        "write": 1,
    }
    tries["look"] = -10
    again = Agent(
        script(calling("look"), "Done."),
        registry,
        limits=LoopLimits(tool_retries=1, tool_retry_delay=0.0),
    )
    assert [call["ok"] for call in (await again.process_message("Go.")).function_calls] == [False]
    assert tries["look"] == -8


def test_an_llm_response_has_metadata_and_usage():
    extras = {
        "vendor": "v",
        "model": "m",
        "api": "messages",
        "blocks": [{"type": "text", "text": "Hi."}],
    }
    answer = LLMResponse(
        content="Hi.",
        function_calls=(FunctionCall(name="f", arguments={}, id="toolu_1"),),
        reasoning="Hm.",
        provider_extras=extras,
        usage=Usage(input=10, cache_read=4, output=2),
    )
    assert answer.metadata["thinking"] == "Hm."
    assert answer.metadata["usage"] == {
        "input": 10,
        "cache_read": 4,
        "cache_write": 0,
        "output": 2,
        "reasoning": 0,
    }
    assert answer.raw_response == answer.as_message().provider_extras == extras


async def test_chat_returns_content_calls_and_iterations_as_a_dict():
    registry = FunctionRegistry()

    def get_weather(city: str) -> dict:
        return {"city": city, "temperature": 22}

    registry.register("get_weather", "获取城市天气信息", get_weather)
    provider = script(calling("get_weather", city="北京"), "22 度。")
    agent = Agent(provider, function_registry=registry, system_prompt="你是天气助手")
    response = await agent.chat("北京今天天气怎么样？")
    assert response["content"] == "22 度。"
    assert [call["name"] for call in response["function_calls"]] == ["get_weather"]
    assert response["iterations"] == 2


def test_tools_and_function_registry_are_one_argument():
    with pytest.raises(TypeError, match="give one of them"):
        Agent(script(), FunctionRegistry(), function_registry=FunctionRegistry())


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_a_program_with_a_user_asks_the_user(answer, is_coroutine):
    texts, questions = [], []

    def confirm(call, verdict):
        questions.append((call.name, call.arguments, verdict.rule))
        return answer

    async def confirm_later(call, verdict):
        return confirm(call, verdict)

    registry = FunctionRegistry()
    registry.register("write", "Write.", lambda text: texts.append(text) or "written")
    agent = Agent(
        script(calling("write", text="hello"), "Done."),
        registry,
        policy=AskAlways(),
        confirm=confirm_later if is_coroutine else confirm,
    )
    reply = await agent.process_message("Write hello.")
    assert questions == [("write", {"text": "hello"}, "rule 1")]
    assert texts == (["hello"] if answer else [])
    assert [call["ok"] for call in reply.function_calls] == [answer]


@pytest.mark.parametrize("policy", [None, AllowAll()])
def test_an_agent_without_a_policy_logs_a_warning(policy):
    with capture_logs() as logs:
        Agent(script(), policy=policy)
    assert [line["event"] for line in logs] == ([] if policy else ["agent.no_policy"])


async def test_a_message_with_a_textual_timestamp_is_parsed():
    provider = script('[{"item": "tea"}]')
    assert await Agent(provider).parse_message("Ada", "昨天下午", "茶") == [{"item": "tea"}]
    assert "[Ada, 昨天下午]" in provider.calls[0].messages[-1].content
