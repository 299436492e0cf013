"""The three wire formats as functions on values."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import Unavailable
from daemon.models import FunctionCall, Json, LLMMessage, Usage
from daemon.providers.capabilities import Capabilities, capabilities_of
from daemon.providers.wire.base import ChatRequest, WireFormat, read_arguments, repair_text
from daemon.providers.wire.chat import CHAT
from daemon.providers.wire.messages import MESSAGES
from daemon.providers.wire.responses import RESPONSES
from tests.properties import scaled_settings
from tests.providers.calls import user

WIRES = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}


def question(
    *messages: LLMMessage, row: Capabilities | None = None, vendor: str = "v", **kw: Any
) -> ChatRequest:
    settings: Json = {
        "offers_tools": True,
        "temperature": None,
        "max_tokens": None,
        "cache_key": None,
        **kw,
    }
    return ChatRequest(
        model="m", vendor=vendor, messages=messages, capabilities=row or Capabilities(), **settings
    )


def chat_answer(finish: str = "stop", **message: Any) -> Json:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}]}


def chat_call(arguments: Any = "{}", call_id: Any = "c1", **more: Any) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
        **more,
    }


# --- a conversation that grows is written as a text that grows

texts = st.text(max_size=8)
vendors = st.sampled_from(["v", "another"])


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[LLMMessage]:
    """One answer of some model, with the results of its calls, or a word of the user's."""
    text = draw(texts)
    if draw(st.booleans()):
        return [LLMMessage(role=draw(st.sampled_from(["user", "system"])), content=text)]
    ids = [f"c{number}.{index}" for index in range(draw(st.integers(0, 2)))]
    calls = tuple(FunctionCall(name="f", arguments={"a": text}, id=call_id) for call_id in ids)
    extras = draw(st.sampled_from([None, "chat", "responses", "messages"]))
    blocks = (
        [{"role": "assistant", "type": "text", "text": text or "x", "content": text}]
        if draw(st.booleans())
        else []
    )
    answer = LLMMessage(
        role="assistant",
        content=text,
        tool_calls=calls,
        provider_extras=None
        if extras is None
        else {"vendor": draw(vendors), "model": "m", "api": extras, "blocks": blocks},
    )
    return [
        answer,
        *(LLMMessage(role="tool", content=text, tool_call_id=call_id) for call_id in ids),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[LLMMessage]]:
    """The same conversation at each moment at which a model may be asked."""
    messages = [LLMMessage(role="system", content="You are agentd."), user("Report.")]
    moments = [list(messages)]
    for number in range(draw(st.integers(1, 6))):
        messages += draw(turns(number))
        moments.append(list(messages))
    return moments


def pieces(wire: WireFormat, messages: list[LLMMessage]) -> list[str]:
    """What is sent, in the smallest pieces that a vendor compares."""
    body = wire.build_body(question(*messages))
    if wire is not MESSAGES:
        return [json.dumps(item) for item in body.get("messages") or body["input"]]
    return [
        json.dumps([message["role"], block])
        for message in body["messages"]
        for block in message["content"]
    ]


@pytest.mark.parametrize("api", WIRES)
@scaled_settings(100)
@given(moments=conversations())
def test_serialized_message_never_changes(api: str, moments: list[list[LLMMessage]]) -> None:
    requests = [pieces(WIRES[api], messages) for messages in moments]
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before


@pytest.mark.parametrize("api", WIRES)
def test_building_a_request_does_not_change_the_conversation(api: str) -> None:
    blocks = [{"type": "text", "text": "a"}]
    extras: Json = {"vendor": "v", "model": "m", "api": api, "blocks": blocks}
    message = LLMMessage(role="assistant", content="a", provider_extras=extras)
    messages = [user("x"), message, message, user("y"), user("z")]
    first = json.dumps(WIRES[api].build_body(question(*messages)))
    assert json.dumps(WIRES[api].build_body(question(*messages))) == first
    assert blocks == [{"type": "text", "text": "a"}]


# --- arguments


@pytest.mark.parametrize(
    ("raw_value", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        ("", {}),  # what some servers send for a call without arguments
        ("  \n", {}),
        (None, {}),
        ({"a": 1}, {"a": 1}),  # what some send instead of a text
        ('{"a": "温度"}', {"a": "温度"}),
    ],
)
def test_arguments_of_a_call_are_parsed_in_several_forms(raw_value: Any, arguments: Json) -> None:
    assert read_arguments(raw_value) == (arguments, None)


@pytest.mark.parametrize(
    ("raw_value", "why"),
    [
        ('{"a": 1', "not JSON: Expecting ',' delimiter: line 1 column 8"),
        ("uptime", "not JSON"),
        ('["a"]', "must be a JSON object, not list"),
        ('"a"', "must be a JSON object, not str"),
        ("7", "not int"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": Infinity}', "Infinity is not JSON"),
        ('{"a": [1e999]}', "not JSON: 1e999 is larger than any number"),
        ("[" * 100_000, "nested too deeply"),
        (7, "not int"),
    ],
)
def test_unreadable_arguments_have_a_reason(raw_value: Any, why: str) -> None:
    arguments, problem = read_arguments(raw_value)
    assert arguments == {}
    assert why in str(problem)


@pytest.mark.parametrize(
    ("raw_value", "text"),
    [
        ("fine 温度 😀", "fine 温度 😀"),
        ("half \ud83d", "half \ufffd"),
        ("\ud83d\ude00", "😀"),
        (None, ""),
        (3, ""),
    ],
)
def test_any_text_can_be_serialized(raw_value: Any, text: str) -> None:
    assert repair_text(raw_value) == text


# --- Chat Completions


@pytest.mark.parametrize(
    ("echo", "came", "goes"),
    [
        ("never", {"reasoning_content": "hm"}, {}),
        ("received", {"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ("received", {"reasoning": "hm"}, {"reasoning": "hm"}),  # under the name it came with
        ("received", {}, {}),
        ("received", {"reasoning_content": None}, {}),
        ("required", {"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ("required", {"reasoning_content": ""}, {"reasoning_content": ""}),
        ("required", {}, {"reasoning_content": ""}),
    ],
)
def test_reasoning_is_sent_back_with_its_calls(echo: Any, came: Json, goes: Json) -> None:
    chat_request = question(user("x"), row=Capabilities(echo=echo))
    answer = CHAT.parse_answer(
        chat_answer("tool_calls", content=None, tool_calls=[chat_call()], **came), chat_request
    )
    follow = question(user("x"), answer.as_message(), row=Capabilities(echo=echo))
    message = CHAT.build_body(follow)["messages"][1]
    assert {key: value for key, value in message.items() if key.startswith("reasoning")} == goes


def test_reasoning_without_calls_is_not_sent_back() -> None:
    answer = CHAT.parse_answer(
        chat_answer(content="hello", reasoning_content="hm"),
        question(row=capabilities_of("deepseek-v4")),
    )
    assert answer.reasoning == "hm"
    assert answer.provider_extras == {
        "vendor": "v",
        "model": "m",
        "api": "chat",
        "blocks": [{"role": "assistant", "content": "hello"}],
    }


def test_a_foreign_call_has_the_empty_reasoning_required_by_deepseek() -> None:
    message = LLMMessage(
        role="assistant", tool_calls=(FunctionCall(name="f", arguments={}, id="toolu_1"),)
    )
    body = CHAT.build_body(question(user("x"), message, row=capabilities_of("deepseek-v4-pro")))
    assert body["messages"][1]["reasoning_content"] == ""


def test_calls_are_sent_back_unchanged() -> None:
    call = chat_call(
        '{"b":1,  "a":2}', extra_content={"google": {"thought_signature": "s"}}, index=0
    )
    answer = CHAT.parse_answer(
        chat_answer("tool_calls", content=None, tool_calls=[call]), question()
    )
    assert answer.provider_extras is not None
    (block,) = answer.provider_extras["blocks"]
    assert block["content"] is None
    del call["index"]  # what a server adds for its own use is refused by another of its kind
    assert block["tool_calls"] == [call]


@pytest.mark.parametrize("words", ['{"a": 1', "", None, {"a": 1}, "[]"])
def test_invalid_arguments_are_not_sent_back(words: Any) -> None:
    answer = CHAT.parse_answer(chat_answer("tool_calls", tool_calls=[chat_call(words)]), question())
    assert answer.provider_extras is not None
    arguments = answer.provider_extras["blocks"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == answer.function_calls[0].arguments


@pytest.mark.parametrize("call_id", ["functions.shell:0", "x" * 60, "", "naïve", "toolu_01A"])
def test_a_foreign_call_id_is_changed_together_with_its_result(call_id: str) -> None:
    message = LLMMessage(
        role="assistant", tool_calls=(FunctionCall(name="f", arguments={}, id=call_id),)
    )
    result = LLMMessage(role="tool", content="r", tool_call_id=call_id)
    chat = CHAT.build_body(question(user("x"), message, result))["messages"]
    assert chat[1]["tool_calls"][0]["id"] == chat[2]["tool_call_id"] != call_id
    assert re.fullmatch("[a-zA-Z0-9]{9}", chat[2]["tool_call_id"]), "Mistral takes no other"
    items = RESPONSES.build_body(question(user("x"), message, result))["input"]
    assert items[1]["call_id"] == items[2]["call_id"] == chat[2]["tool_call_id"]
    blocks = MESSAGES.build_body(question(user("x"), message, result))["messages"]
    assert (
        blocks[1]["content"][0]["id"]
        == blocks[2]["content"][0]["tool_use_id"]
        == chat[2]["tool_call_id"]
    )


def test_ids_of_the_same_vendor_are_sent_back_unchanged() -> None:
    """Kimi's template reads the number in `functions.shell:0`."""
    answer = CHAT.parse_answer(
        chat_answer("tool_calls", tool_calls=[chat_call(call_id="functions.f:0")]), question()
    )
    result = LLMMessage(role="tool", content="r", tool_call_id=answer.function_calls[0].id)
    messages = CHAT.build_body(question(user("x"), answer.as_message(), result))["messages"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "functions.f:0"


@pytest.mark.parametrize("empty_id", [None, "", 7])
def test_a_call_without_an_id_gets_one(empty_id: Any) -> None:
    answer = CHAT.parse_answer(
        chat_answer("tool_calls", tool_calls=[chat_call(call_id=empty_id)]), question()
    )
    assert str(answer.function_calls[0].id).startswith("call_")


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("hello", "hello", ""),
        ("<think>\nhm\n</think>\n\nhello", "hello", "hm"),
        ("\n<think></think>hello", "hello", ""),
        ("<think>cut off", "", "cut off"),
        ("The tag is <think>.", "The tag is <think>.", ""),
        ("hm, <b>\n</think>\n\nhello", "hello", "hm, <b>"),
        ("The tag is </think>.", "The tag is </think>.", ""),
        ("A block:\n<think>\nx\n</think>\n", "A block:\n<think>\nx\n</think>\n", ""),
        (None, "", ""),
        (
            [
                {"type": "thinking", "thinking": []},
                {"type": "text", "text": "hel"},
                {"type": "text", "text": "lo"},
            ],
            "hello",
            "",
        ),
    ],
)
def test_thinking_left_in_the_text_is_removed(content: Any, text: str, reasoning: str) -> None:
    answer = CHAT.parse_answer(chat_answer(content=content), question())
    assert (answer.content, answer.reasoning) == (text, reasoning)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_an_answer_about_thinking_is_whole_where_the_reasoning_is_sent_apart(key: str) -> None:
    content = "The end of it:\n</think>\nis a line of its own."
    answer = CHAT.parse_answer(chat_answer(content=content, **{key: "hm"}), question())
    assert (answer.content, answer.reasoning) == (content, "hm")
    # vLLM without a reasoning parser sends the key with null
    answer = CHAT.parse_answer(
        chat_answer(content="hm\n</think>\nhello", **{key: None}), question()
    )
    assert (answer.content, answer.reasoning) == ("hello", "hm")


@pytest.mark.parametrize(
    ("finish", "calls", "expected"),
    [
        ("stop", False, "stop"),
        ("tool_calls", True, "tool_calls"),
        ("stop", True, "tool_calls"),  # Ollama
        ("function_call", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("sensitive", False, "content_filter"),
        ("model_context_window_exceeded", False, "context"),
        ("model_length", False, "context"),
        ("content_filter: PROHIBITED_CONTENT", False, "content_filter"),
        (None, False, "stop"),
        ("new", False, "stop"),
    ],
)
def test_every_stop_reason_maps_to_a_finish_reason(finish: Any, calls: bool, expected: str) -> None:
    answer = CHAT.parse_answer(
        chat_answer(finish, content="x", tool_calls=[chat_call()] if calls else None), question()
    )
    assert answer.finish_reason == expected


def test_an_answer_that_gemini_filters_has_no_message() -> None:
    choice = {"index": 0, "finish_reason": "content_filter: PROHIBITED_CONTENT"}
    answer = CHAT.parse_answer({"choices": [choice]}, question())
    assert (answer.content, answer.finish_reason) == ("", "content_filter")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_broke_off_behind_a_gateway_is_a_failure(*, is_streamed: bool) -> None:
    """OpenRouter sends status 200, the beginning of the answer, and then why it ended."""
    error = {"code": 502, "message": "Provider disconnected"}
    data = {**chat_answer("error", content="The disks are"), "error": error}
    if is_streamed:
        assembler = CHAT.new_assembler()
        assembler.add_event("", {"choices": [{"delta": {"content": "The disks are"}}]})
        last_choice = {"delta": {"content": ""}, "finish_reason": "error"}
        assembler.add_event("", {"error": error, "choices": [last_choice]})
        data = assembler.assemble() or {}
    with pytest.raises(Unavailable, match=r"broke the answer off \(Provider disconnected\)"):
        CHAT.parse_answer(data, question())
    with pytest.raises(Unavailable, match=r"broke the answer off \(abort\)"):
        CHAT.parse_answer(chat_answer("abort", content="The disks are"), question())


# --- Messages


def test_blocks_are_sent_back_unchanged() -> None:
    """Unknown ones and unknown fields too; only what the API itself would refuse is left out."""
    content = [
        {"type": "thinking", "thinking": "", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "", "citations": None},
        {"type": "text", "text": "hello", "citations": None},
        {"type": "something_new", "x": [1]},
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "f",
            "input": {"b": 1, "a": 2},
            "caller": {"type": "direct"},
        },
        {"type": "thinking", "thinking": "more", "signature": "s2"},
    ]
    answer = MESSAGES.parse_answer({"content": content, "stop_reason": "tool_use"}, question())
    body = MESSAGES.build_body(question(user("x"), answer.as_message()))
    assert json.dumps(body["messages"][1]["content"]) == json.dumps([*content[:2], *content[3:6]])
    assert (answer.content, answer.reasoning) == ("hello", "more")


def test_a_request_has_the_thinking_and_extra_fields_of_its_model() -> None:
    row = Capabilities(thinking={"type": "adaptive"}, extra={"output_config": {"effort": "low"}})
    body = MESSAGES.build_body(question(user("x"), row=row))
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})
    glm = CHAT.build_body(question(user("x"), row=capabilities_of("glm-5")))
    assert glm["thinking"] == {"type": "enabled", "clear_thinking": False}


def test_the_cache_key_is_sent_only_to_vendors_that_support_it() -> None:
    options = {"cache_key": "routine:daily"}
    assert (
        CHAT.build_body(question(user("x"), vendor="api.openai.com", **options))["prompt_cache_key"]
        == "routine:daily"
    )
    assert "prompt_cache_key" not in CHAT.build_body(
        question(user("x"), vendor="api.deepseek.com", **options)
    )
    assert (
        RESPONSES.build_body(question(user("x"), **options))["prompt_cache_key"] == "routine:daily"
    )


def test_a_function_without_parameters_still_has_a_schema() -> None:
    tools = MESSAGES.convert_tools([{"name": "f", "parameters": None}])
    assert tools == [
        {"name": "f", "description": "", "input_schema": {"type": "object", "properties": {}}}
    ]


# --- Responses


def test_items_are_sent_back_without_nulls() -> None:
    output = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "encrypted_content": "sealed",
            "status": None,
            "content": None,
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": '{"b":1,  "a":2}',
            "caller": None,
        },
        {"type": "message", "role": "assistant", "id": "m", "phase": "commentary", "content": []},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "cut off"},
    ]
    answer = RESPONSES.parse_answer({"status": "completed", "output": output}, question())
    items = RESPONSES.build_body(question(user("x"), answer.as_message()))["input"]
    assert items[1:] == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": '{"b":1,  "a":2}',
        },
        {"type": "message", "role": "assistant", "id": "m", "phase": "commentary", "content": []},
    ]


def test_unencrypted_reasoning_is_not_sent_back() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    ]
    output += [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hello"}],
        }
    ]
    answer = RESPONSES.parse_answer({"status": "completed", "output": output}, question())
    assert (answer.content, answer.reasoning) == ("hello", "hm")
    assert answer.provider_extras is not None
    assert answer.provider_extras["blocks"] == output[1:]


@pytest.mark.parametrize("words", ['{"a": 1', "", None, "[]"])
def test_invalid_items_are_repaired_before_sending_them_back(words: Any) -> None:
    output = [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": words,
            "status": "incomplete",
        }
    ]
    answer = RESPONSES.parse_answer({"status": "completed", "output": output}, question())
    (item,) = RESPONSES.build_body(question(answer.as_message()))["input"]
    assert json.loads(item["arguments"]) == answer.function_calls[0].arguments == {}


@pytest.mark.parametrize("api", WIRES)
def test_provider_extras_of_one_wire_format_are_not_sent_in_another(api: str) -> None:
    """A gateway may speak all three, under one address."""
    message = LLMMessage(
        role="assistant",
        content="hello",
        provider_extras={
            "vendor": "v",
            "model": "m",
            "api": "a fourth",
            "blocks": [{"role": "x", "type": "strange"}],
        },
    )
    assert "strange" not in json.dumps(WIRES[api].build_body(question(user("x"), message)))


# --- usage


@pytest.mark.parametrize(
    ("wire", "usage", "expected"),
    [
        (
            CHAT,
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=100, cache_read=60, cache_write=10, output=20, reasoning=5),
        ),
        (
            CHAT,
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4},
            Usage(input=9, cache_read=4),
        ),  # DeepSeek
        (
            CHAT,
            {"prompt_tokens": 9, "cached_tokens": 4, "completion_tokens_details": None},
            Usage(input=9, cache_read=4),
        ),
        (
            CHAT,  # xAI counts the reasoning in the total only
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(input=32, output=103, reasoning=94),
        ),
        (CHAT, None, Usage()),
        (
            RESPONSES,
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=100, cache_read=60, cache_write=10, output=20, reasoning=5),
        ),
        (
            MESSAGES,  # `input_tokens` is what was neither read from the cache nor written to it
            {
                "input_tokens": 30,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 10,
                "output_tokens": 20,
                "output_tokens_details": {"thinking_tokens": 5},
            },
            Usage(input=100, cache_read=60, cache_write=10, output=20, reasoning=5),
        ),
        (
            MESSAGES,
            {"input_tokens": 3, "cache_read_input_tokens": None, "output_tokens": 2},
            Usage(input=3, output=2),
        ),
    ],
)
def test_usage_has_one_convention_for_all_vendors(
    wire: WireFormat, usage: Any, expected: Usage
) -> None:
    answers: dict[str, Json] = {
        "chat": chat_answer(content="x"),
        "responses": {"status": "completed", "output": [{"type": "message", "content": []}]},
        "messages": {"content": []},
    }
    assert wire.parse_answer(answers[wire.api] | {"usage": usage}, question()).usage == expected
