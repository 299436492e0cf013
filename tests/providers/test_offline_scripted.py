"""The offline and the scripted provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.agent.texts import say
from daemon.definitions.config.loading import load_config
from daemon.errors import BadRequest, ConfigError, Overloaded
from daemon.models import (
    ADVICE_AFTER_DENIAL,
    Chunk,
    Fact,
    FunctionCall,
    LLMMessage,
    LLMResponse,
    Usage,
)
from daemon.providers import create_provider
from daemon.providers.facts import new_boundary, wrap
from daemon.providers.offline import report_of
from daemon.providers.scripted import ScriptedProvider
from tests.providers.calls import user

HOST = Fact(
    name="host",
    tool="sysinfo",
    ok=True,
    text="### Disks\n\n- **/**: 84 %",
    changes=("disk / 71 % → 84 %", "rebooted 3 h ago"),
)
MAIL = Fact(name="mail_queue", tool="shell", ok=False, text="[failed] postqueue: command not found")


async def test_offline_prints_the_gathered_facts_under_a_notice() -> None:
    provider = create_provider("offline")
    task = LLMMessage(role="user", content="Write the report.", facts=(HOST, MAIL))
    answer = await provider.chat([LLMMessage(role="system", content="You are agentd."), task])
    lines = answer.content.splitlines()
    assert lines[0].startswith("*No model was asked")
    assert "config.toml" in lines[0]
    assert answer.content.endswith(
        """
## What changed

- Host: disk / 71 % → 84 %
- Host: rebooted 3 h ago

## Host

### Disks

- **/**: 84 %

## Mail queue

**This could not be gathered** (shell):

[failed] postqueue: command not found
"""
    )
    assert answer.usage == Usage()
    assert not provider.supports_function_calling()


async def test_text_of_the_task_is_no_fact_for_offline() -> None:
    forgery = wrap([HOST], new_boundary())
    answer = await create_provider("offline").chat([user(forgery)], routine="heartbeat")
    assert "gathers no facts" in answer.content


async def test_offline_without_facts_answers_in_a_sentence() -> None:
    answer = await create_provider("offline").chat([user("Say good morning.")], routine="heartbeat")
    assert answer.content.startswith("*No model was asked")
    assert "gathers no facts" in answer.content
    assert answer.finish_reason == "stop"


async def test_offline_answers_a_question_with_how_to_configure_a_model() -> None:
    answer = await create_provider("offline").chat([user("how full are the disks?")])
    assert answer.content.startswith("*There is no model to answer.")
    assert "agentctl memory search" in answer.content


def test_offline_marks_a_fact_without_text() -> None:
    empty = Fact(name="a", tool="t", ok=True, text=""), Fact(name="b", tool="t", ok=False, text="")
    assert "## A\n\nnothing" in report_of(empty)
    assert "no reason was given" in report_of(empty)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_offline_does_not_tell_a_person_what_a_denial_tells_a_model(language: str) -> None:
    told = say("denied", language, rule="default", reason="no rule allows shell", allowed=" A, b.")
    report = report_of([Fact(name="disks", tool="shell", ok=False, text=told)])
    assert "no rule allows shell" in report
    assert "A, b." in report
    assert ADVICE_AFTER_DENIAL[language] in told
    assert ADVICE_AFTER_DENIAL[language] not in report


async def test_scripted_replies_are_used_once_in_order() -> None:
    provider = create_provider(
        "scripted", name="mine", replies=["one", {"text": "two", "reasoning": "hm"}]
    )
    assert [(await provider.chat([user("hi")])).content for _ in range(2)] == ["one", "two"]
    for _ in range(2):  # calls beyond the script are not counted as replies
        with pytest.raises(BadRequest, match=r"'mine' is used up after 2 replies.*`replies`"):
            await provider.chat([user("hi")])


async def test_a_scripted_reply_may_call_tools() -> None:
    calls = [
        {"name": "shell", "arguments": {"command": "uptime"}},
        {"name": "finish", "invalid": "not JSON"},
    ]
    provider = create_provider(
        "scripted",
        replies=[{"tool_calls": calls}, {"tool_calls": calls[:1], "finish_reason": "length"}],
    )
    first, second = [await provider.chat([user("hi")]) for _ in range(2)]
    assert first.function_calls == (
        FunctionCall(name="shell", arguments={"command": "uptime"}, id="call_1"),
        FunctionCall(name="finish", arguments={}, id="call_2", invalid="not JSON"),
    )
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "length")
    assert second.function_calls[0].id == "call_3"


async def test_a_scripted_reply_may_fail() -> None:
    provider = ScriptedProvider([Overloaded("busy", retry_after=2)])
    with pytest.raises(Overloaded):
        await provider.chat([user("hi")])
    provider.enqueue(LLMResponse(content="as it stands", usage=Usage(input=3)))
    assert (await provider.chat([user("hi")])).usage.input == 3
    assert provider.remaining == 0


async def test_scripted_provider_records_its_calls() -> None:
    provider = ScriptedProvider(["a"])
    await provider.chat([user("hi")], [{"name": "shell"}], temperature=0.3, routine="daily")
    (call,) = provider.calls
    assert call.messages == (user("hi"),)
    assert (call.functions, call.temperature, call.options) == (
        [{"name": "shell"}],
        0.3,
        {"routine": "daily"},
    )


async def test_usage_can_be_set_for_a_rehearsal() -> None:
    provider = ScriptedProvider(
        [{"text": "x", "usage": {"input": 7, "output": 5}}, "four words of text"]
    )
    assert (await provider.chat([user("hi")])).usage == Usage(input=7, output=5)
    assert (await provider.chat([user("some words")])).usage.total > 0


async def test_every_provider_streams_at_least_in_one_piece() -> None:
    pieces = [
        piece
        async for piece in ScriptedProvider([{"text": "hello", "reasoning": "hm"}]).chat_stream(
            [user("hi")]
        )
    ]
    assert [(piece.delta, piece.thinking) for piece in pieces] == [("hello", "hm")]
    assert isinstance(pieces[-1], Chunk)
    assert pieces[-1].response is not None


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (
            "{ tool_calls = 1 }",
            '.tool_calls: expected a list of tables, like [{ name = "shell" }] (found 1)',
        ),
        (
            '{ tool_calls = ["x"] }',
            '.tool_calls[0]: a tool call is a table, like { name = "shell" } (found "x")',
        ),
        ("{ tool_calls = [{}] }", ".tool_calls[0].name: is missing; a tool call needs a name"),
        (
            "{ tool_calls = [{ name = 1 }] }",
            ".tool_calls[0].name: expected text in quotes (found 1)",
        ),
        (
            '{ tool_calls = [{ name = "a", arguments = 3 }] }',
            ".tool_calls[0].arguments: the arguments of a tool call are a table (found 3)",
        ),
        (
            '{ tool_calls = [{ name = "a", argument = {} }] }',
            (
                ".tool_calls[0].argument: unknown key, a tool call knows arguments, id, invalid, "
                "name (found an empty table)"
            ),
        ),
        ("{ text = 3 }", ".text: expected text in quotes (found 3)"),
        (
            "{ usage = 1 }",
            ".usage: expected a table, like { input = 1200, output = 85 } (found 1)",
        ),
        (
            '{ usage = { input = "x" } }',
            '.usage.input: expected a whole number of tokens (found "x")',
        ),
        (
            "{ usage = { inputs = 1 } }",
            (
                ".usage.inputs: unknown key, usage knows input, cache_read, cache_write, output, "
                "reasoning (found 1)"
            ),
        ),
        (
            '{ content = "a" }',
            (
                ".content: unknown key, a reply knows finish_reason, reasoning, text, tool_calls, "
                'usage (found "a")'
            ),
        ),
        ("3", ': expected text in quotes or a table of keys and values (found 3); write "3"'),
        ("[1]", ": expected text in quotes or a table of keys and values (found [1])"),
    ],
)
def test_a_reply_of_no_valid_form_is_one_fault_with_its_key_and_line(
    tmp_path: Path, reply: str, fault: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[providers.mine]\nkind = "scripted"\nreplies = [\n"a",\n{reply},\n]\n')
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value) == f"{file}:5: providers.mine.replies[1]{fault}"


@pytest.mark.parametrize("reply", [{"tool_calls": 1}, 3, {"usage": {"input": 1.5}}])
def test_a_program_that_scripts_an_invalid_reply_gets_a_config_error(reply: Any) -> None:
    with pytest.raises(ConfigError, match=r"providers\.mine\.replies"):
        create_provider("scripted", name="mine", replies=[reply])
