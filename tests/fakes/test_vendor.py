"""The fake vendor refuses the requests that real vendors refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.rules import Json
from tests.fakes.vendor import FakeVendor, VendorProcess

TOOL = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
ITEM_TOOLS = [{"type": "function", "strict": False, **TOOL}]
BLOCK_TOOLS = [{"name": "f", "description": "d", "input_schema": TOOL["parameters"]}]
HI = {"role": "user", "content": "hi"}


def call_turn(arguments: Any = "{}", call_id: str = "c1", **more: Any) -> Json:
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def result(call_id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "r"}


def chat(model: str, *messages: Json, **more: Any) -> tuple[str, Json]:
    return "/v1/chat/completions", {"model": model, "messages": list(messages or [HI]), **more}


def items(*input_items: Json, model: str = "gpt-6-astra", **more: Any) -> tuple[str, Json]:
    return "/v1/responses", {
        "model": model,
        "input": list(input_items or [HI]),
        "store": False,
        **more,
    }


def blocks(*messages: Json, model: str = "claude-opus-5-5", **more: Any) -> tuple[str, Json]:
    return "/v1/messages", {
        "model": model,
        "max_tokens": 100,
        "messages": list(messages or [HI]),
        **more,
    }


def uses(*ids: str) -> Json:
    return {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ids
        ],
    }


def results(*ids: str, before: Json | None = None) -> Json:
    blocks_of_results = [
        {"type": "tool_result", "tool_use_id": call_id, "content": "r"} for call_id in ids
    ]
    return {
        "role": "user",
        "content": [before, *blocks_of_results] if before else blocks_of_results,
    }


FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}

REFUSED: dict[str, tuple[tuple[str, Json], str]] = {
    "no model": (("/v1/chat/completions", {"messages": [HI]}), "model parameter"),
    "no messages": (("/v1/chat/completions", {"model": "gpt-4.1", "messages": []}), "empty array"),
    "unknown field": (chat("gpt-4.1", colour="blue"), "Unknown parameter: 'colour'"),
    "unknown message field": (
        chat("gpt-4.1", {**HI, "x": 1}),
        "Unknown parameter: 'messages[0].x'",
    ),
    "reasoning sent to openai": (
        chat("gpt-4.1", call_turn(reasoning_content="h"), result()),
        "reasoning_content",
    ),
    "no tools in tools": (chat("gpt-4.1", tools=[]), "Invalid 'tools': empty array"),
    "tool choice without tools": (chat("gpt-4.1", tool_choice="auto"), "only allowed when"),
    "two tools of a name": (chat("gpt-4.1", tools=CHAT_TOOLS * 2), "must be unique"),
    "tool with an odd name": (
        chat("gpt-4.1", tools=[{"type": "function", "function": {"name": "a.b"}}]),
        "pattern",
    ),
    "array without items": (
        chat(
            "gpt-4.1",
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "parameters": {"type": "object", "properties": {"a": {"type": "array"}}},
                    },
                }
            ],
        ),
        "missing items",
    ),
    "temperature and reasoning": (
        chat("gpt-6-astra", temperature=0.1),
        "'temperature' does not support 0.1",
    ),
    "temperature too high": (chat("gpt-4.1", temperature=3), "between 0 and 2"),
    "max_tokens and reasoning": (chat("o3-mini", max_tokens=9), "Use 'max_completion_tokens'"),
    "unknown role": (chat("gpt-4.1", {"role": "robot", "content": "x"}), "Invalid value: 'robot'"),
    "null content": (chat("gpt-4.1", {"role": "assistant", "content": None}), "got null"),
    "empty tool calls": (
        chat("gpt-4.1", HI, {"role": "assistant", "content": "x", "tool_calls": []}),
        "empty array",
    ),
    "arguments not a string": (chat("gpt-4.1", call_turn({"a": 1}), result()), "expected a string"),
    "unanswered call": (chat("gpt-4.1", call_turn(), HI), "did not have response messages: c1"),
    "unanswered at the end": (chat("gpt-4.1", call_turn()), "did not have response messages: c1"),
    "orphan result": (chat("gpt-4.1", HI, result()), "must be a response to a preceeding"),
    "another call's result": (chat("gpt-4.1", call_turn(), result("c2")), "must be a response"),
    "deepseek without reasoning": (
        chat("deepseek-v4-pro", call_turn(), result()),
        "must be passed back",
    ),
    "kimi without reasoning": (
        chat("kimi-k2", call_turn(), result()),
        "missing in assistant tool call message at index 0",
    ),
    "deepseek, reasoning altered": (
        chat(
            "deepseek-v4-pro",
            call_turn(call_id="call_v_r0000000_1_0", reasoning_content="x"),
            result("call_v_r0000000_1_0"),
        ),
        "must be passed back",
    ),
    "vllm, broken arguments": (chat("vllm/x", call_turn("{"), result()), "not valid JSON"),
    "llama.cpp, broken arguments": (
        chat("llamacpp/x", call_turn("{"), result()),
        "Failed to parse tool call arguments",
    ),
    "items, unknown field": (items(messages=[HI]), "Unknown parameter: 'messages'"),
    "items, nothing": (
        ("/v1/responses", {"model": "gpt-4.1", "input": []}),
        "Missing required parameter: 'input'",
    ),
    "items, temperature": (items(temperature=0.1), "not supported with this model"),
    "items, no tools in tools": (items(tools=[]), "empty array"),
    "items, nested tool": (items(tools=CHAT_TOOLS), "Unknown parameter: 'tools[0].function'"),
    "items, strictness left open": (items(tools=[{"type": "function", **TOOL}]), "tools[0].strict"),
    "items, strict with an optional": (
        items(tools=[{**ITEM_TOOLS[0], "strict": True}]),
        "must be false",
    ),
    "items, null": (items(HI, {**REASONING, "status": None}), "got null"),
    "items, unsealed reasoning": (items(HI, REASONING, FUNCTION_CALL, OUTPUT), "not persisted"),
    "items, altered seal": (
        items(HI, {**REASONING, "encrypted_content": "x"}, FUNCTION_CALL, OUTPUT),
        "could not be verified",
    ),
    "items, reasoning alone": (
        items({**REASONING, "encrypted_content": "sealed:"}, store=True),
        "could not be verified",
    ),
    "items, reasoning lost": (
        items(
            HI, {**FUNCTION_CALL, "call_id": "call_v_r1_0"}, {**OUTPUT, "call_id": "call_v_r1_0"}
        ),
        "without its required 'reasoning' item",
    ),
    "items, orphan output": (items(HI, OUTPUT), "No tool call found"),
    "items, unanswered call": (
        items(HI, FUNCTION_CALL),
        "No tool output found for function call c1",
    ),
    "items, seal of a plain model": (
        items(model="gpt-4.1", include=["reasoning.encrypted_content"]),
        "not supported with this model",
    ),
    "blocks, temperature": (blocks(temperature=0.5), "temperature: Extra inputs are not permitted"),
    "blocks, minimax at zero": (
        blocks(model="MiniMax-M3", temperature=0),
        "should be in (0.0, 1.0]",
    ),
    "blocks, a forced tool": (
        blocks(tools=BLOCK_TOOLS, tool_choice={"type": "any"}),
        "forcing a tool",
    ),
    "effort that OpenAI does not have": (
        chat("gpt-6-astra", reasoning_effort="much"),
        "'reasoning_effort' does not support 'much'",
    ),
    "effort of a model that does not reason": (
        chat("gpt-4.1", reasoning_effort="low"),
        "'reasoning_effort' does not support 'low'",
    ),
    "effort in responses": (
        ("/v1/responses", {"model": "gpt-4.1", "input": [HI], "reasoning": {"effort": "low"}}),
        "'reasoning.effort' does not support 'low'",
    ),
    "effort of an old model": (
        blocks(HI, model="claude-haiku-4-5", output_config={"effort": "low"}),
        "does not support the effort",
    ),
    "effort and tools": (
        chat("gpt-6-astra", tools=CHAT_TOOLS, reasoning_effort="low"),
        "use /v1/responses",
    ),
    "glm without reasoning": (
        chat("glm-5", call_turn(call_id="call_v_r0000000_1_0"), result("call_v_r0000000_1_0")),
        "must be preserved",
    ),
    "blocks, no limit": (
        ("/v1/messages", {"model": "claude-opus-5-5", "messages": [HI]}),
        "max_tokens: Field required",
    ),
    "blocks, parameters": (blocks(tools=[TOOL]), "Extra inputs are not permitted"),
    "blocks, thinking turned off": (
        blocks(thinking={"type": "disabled"}),
        'Use "thinking.type.adaptive"',
    ),
    "blocks, budget over the limit": (
        blocks(model="claude-haiku-4-5", thinking={"type": "enabled", "budget_tokens": 2048}),
        "must be greater than",
    ),
    "blocks, assistant first": (
        blocks({"role": "assistant", "content": "x"}),
        "first message must use",
    ),
    "blocks, prefill": (
        blocks(HI, {"role": "assistant", "content": "x"}),
        "does not support assistant message prefill",
    ),
    "blocks, empty text": (
        blocks({"role": "user", "content": [{"type": "text", "text": " "}]}),
        "must be non-empty",
    ),
    "blocks, no content": (
        blocks(HI, {"role": "assistant", "content": []}, HI),
        "non-empty content",
    ),
    "blocks, system role": (
        blocks(HI, {"role": "system", "content": "x"}),
        "'user' or 'assistant'",
    ),
    "blocks, unanswered use": (
        blocks(HI, uses("a"), HI, tools=BLOCK_TOOLS),
        "without `tool_result` blocks",
    ),
    "blocks, half the results": (
        blocks(HI, uses("a", "b"), results("a"), tools=BLOCK_TOOLS),
        "immediately after: b",
    ),
    "blocks, text before results": (
        blocks(
            HI, uses("a"), results("a", before={"type": "text", "text": "x"}), tools=BLOCK_TOOLS
        ),
        "immediately after: a",
    ),
    "blocks, two results": (
        blocks(HI, uses("a"), results("a", "a"), tools=BLOCK_TOOLS),
        "single result",
    ),
    "blocks, orphan result": (
        blocks(HI, uses("a"), results("a", "b"), tools=BLOCK_TOOLS),
        "unexpected `tool_use_id`",
    ),
    "blocks, ids twice": (
        blocks(HI, uses("a"), results("a"), uses("a"), results("a"), tools=BLOCK_TOOLS),
        "ids must be unique",
    ),
    "blocks, odd id": (
        blocks(HI, uses("a:0"), results("a:0"), tools=BLOCK_TOOLS),
        "should match pattern",
    ),
    "blocks, tools taken away": (blocks(HI, uses("a"), results("a")), "must define tools"),
    "blocks, thinking last": (
        blocks(
            HI, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x.-"}]}, HI
        ),
        "Invalid `signature`",
    ),
    "blocks, invented signature": (
        blocks(
            HI,
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "x", "signature": "a-b"}],
            },
            HI,
        ),
        "Invalid `signature`",
    ),
    "blocks, five markers": (
        blocks(system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5),
        "maximum of 4",
    ),
    "nowhere": (("/v1/embeddings", {"model": "gpt-4.1"}), "Unknown request URL"),
    "unknown model": (chat("no-such-model"), "does not exist"),
}


async def post(
    vendor: FakeVendor, path: str, body: Any, key: str = "k", version: str = "2026-10-21"
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        headers = ({"authorization": f"Bearer {key}"} if key else {}) | {
            "anthropic-version": version
        }
        return await client.post(vendor.url + path, json=body, headers=headers)


@pytest.mark.parametrize("rule", REFUSED)
async def test_the_fake_vendor_refuses_invalid_requests_like_the_vendor(rule: str) -> None:
    (path, body), words = REFUSED[rule]
    async with FakeVendor(["not said"]) as vendor:
        response = await post(vendor, path, body)
    assert response.status_code >= 400
    assert words in str(vendor.refusals)
    assert words in json.dumps(response.json(), ensure_ascii=False).replace('\\"', '"')


FINE: dict[str, tuple[str, Json]] = {
    "chat": chat(
        "gpt-4.1", HI, call_turn(), result(), tools=CHAT_TOOLS, temperature=0.1, max_tokens=9
    ),
    "chat, reasoning": chat("gpt-6-astra", max_completion_tokens=9, temperature=1),
    "deepseek": chat(
        "deepseek-v4-pro", call_turn(reasoning_content=""), result(), thinking={"type": "enabled"}
    ),
    "local": chat("whatever", {**HI, "x": 1}, y=2),
    "items": items(HI, FUNCTION_CALL, OUTPUT, tools=ITEM_TOOLS),
    "blocks": blocks(
        HI,
        uses("a", "b"),
        results("b", "a"),
        tools=BLOCK_TOOLS,
        cache_control={"type": "ephemeral"},
    ),
    "minimax": blocks(model="MiniMax-M3", temperature=1.0),
}


@pytest.mark.parametrize("fine", FINE)
async def test_the_fake_vendor_accepts_valid_requests_like_the_vendor(fine: str) -> None:
    async with FakeVendor(["said"]) as vendor:
        response = await post(vendor, *FINE[fine])
    assert (response.status_code, vendor.refusals) == (200, [])


async def ask_thinking_model(
    vendor: FakeVendor, model: str = "claude-opus-5-5"
) -> tuple[Json, Json]:
    """Return a question and the turn that it led to."""
    path, body = blocks(model=model, tools=BLOCK_TOOLS, system="You are agentd.")
    answer = (await post(vendor, path, body)).json()
    return body, {"role": "assistant", "content": answer["content"]}


THINKS: Json = {"thinking": "hm", "redacted": True, "tool_calls": [{"name": "f", "id": "x"}]}


@pytest.mark.parametrize(
    ("model", "change", "refusal"),
    [
        ("claude-opus-5-5", {}, None),
        (
            "claude-opus-5-5",
            {"system": "You are somebody else."},
            "bound to a different conversation",
        ),
        (
            "claude-opus-5-5",
            {"tools": [{**BLOCK_TOOLS[0], "description": "e"}]},
            "bound to a different conversation",
        ),
        (
            "claude-opus-5-5",
            {"cache_control": {"type": "ephemeral"}},
            None,
        ),  # markers are no part of it
        (
            "claude-haiku-4-5",
            {"system": "You are somebody else."},
            None,
        ),  # an older model does not mind
    ],
)
async def test_a_thinking_block_is_valid_only_after_its_original_conversation(
    model: str, change: Json, refusal: str | None
) -> None:
    async with FakeVendor([THINKS, "said"]) as vendor:
        body, turn = await ask_thinking_model(vendor, model)
        follow = {**body, "messages": [*body["messages"], turn, results("x")], **change}
        await post(vendor, "/v1/messages", follow)
    assert (refusal in str(vendor.refusals)) if refusal else vendor.refusals == []


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
async def test_a_turn_without_its_thinking_blocks_is_refused(kind: str) -> None:
    async with FakeVendor([{**THINKS, "tool_calls": [{"name": "f"}]}] * 2) as vendor:
        body, turn = await ask_thinking_model(vendor)
        turn["content"] = [block for block in turn["content"] if block["type"] != kind]
        call_id = turn["content"][-1]["id"]
        await post(
            vendor,
            "/v1/messages",
            {**body, "messages": [*body["messages"], turn, results(call_id)]},
        )
    (refusal,) = vendor.refusals
    assert "remain as they were" in refusal or "different conversation" in refusal


async def test_claude_requires_the_version_header() -> None:
    async with FakeVendor(["said"]) as vendor:
        response = await post(vendor, *blocks(), version="2022-01-01")
    assert (response.status_code, vendor.refusals) == (
        400,
        ["anthropic-version: header is required"],
    )


async def test_a_wrong_api_key_is_refused_and_a_local_server_needs_none() -> None:
    async with FakeVendor(["said"]) as vendor:
        assert (await post(vendor, *chat("gpt-4.1"), key="wrong")).status_code == 401
        assert (await post(vendor, *blocks(), key="wrong")).status_code == 401
        assert (await post(vendor, *chat("ollama/x"), key="")).status_code == 200


async def test_scripted_turns_are_answered_in_order_or_by_a_word_of_the_request() -> None:
    async with FakeVendor(
        [{"text": "for b", "when": "bbb"}, "first", {"text": "again", "repeat": 2}]
    ) as vendor:
        answers = [
            (await post(vendor, *chat("x", {"role": "user", "content": text}))).json()
            for text in ("aaa", "bbb", "ccc", "ddd", "eee")
        ]
    texts = [answer["choices"][0]["message"]["content"] for answer in answers[:4]]
    assert texts == ["first", "for b", "again", "again"]
    assert "used up" in answers[4]["error"]["message"]


async def test_a_scripted_vendor_can_answer_each_conversation_from_the_start() -> None:
    async with FakeVendor(["one", "two"], by="conversation") as vendor:
        hello, bye = {"role": "assistant", "content": "x"}, {"role": "assistant", "content": "y"}
        for messages, expected in [
            ((HI,), "one"),
            ((HI, hello, HI), "two"),
            ((HI,), "one"),
            ((HI, hello, HI, bye, HI), "two"),
        ]:
            answer = (await post(vendor, *chat("x", *messages))).json()
            assert answer["choices"][0]["message"]["content"] == expected


def test_a_vendor_process_logs_requests_and_ends_with_its_context(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with VendorProcess(["said"], log=log) as vendor:
        for _ in range(2):
            body = {"model": "x", "messages": [HI]}
            httpx.post(f"{vendor.url}/v1/chat/completions", json=body, timeout=60)
        url = vendor.url
    assert [(line["number"], line["status"], line["path"]) for line in vendor.requests()] == [
        (1, 200, "/v1/chat/completions"),
        (2, 400, "/v1/chat/completions"),
    ]
    assert vendor.requests()[0]["body"]["messages"] == [HI]
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=60)


async def test_answers_can_wait_until_all_requests_have_arrived() -> None:
    async with FakeVendor([{"text": "x", "repeat": 5, "together": 5}]) as vendor:
        await asyncio.gather(*(post(vendor, *chat("x")) for _ in range(5)))
    assert vendor.most_at_once == 5
