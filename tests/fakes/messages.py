"""The Messages API of Anthropic, and MiniMax's reading of it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.rules import (
    Json,
    Refusal,
    check_effort,
    check_image,
    check_model,
    digest,
    parts,
    require,
    tokens,
    words,
)

_FIELDS = words(
    """
    max_tokens messages model cache_control container metadata output_config service_tier stop_sequences stream
    system thinking tool_choice tools
    """  # noqa: E501
)
_STATUS_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def check(body: Json, *, context: int | None, name: str) -> None:
    """Refuse what the vendor of that model refuses."""
    model = check_model(body)
    for key in body:
        is_known = key in _FIELDS or (model.family == "minimax" and key == "temperature")
        require(is_known, f"{key}: Extra inputs are not permitted")
    require(
        isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0,
        "max_tokens: Field required",
    )
    temperature = body.get("temperature")
    require(
        temperature is None or 0 < temperature <= 1,
        f"invalid params, temperature should be in (0.0, 1.0], got {temperature}",
    )
    effort = (body.get("output_config") or {}).get("effort")
    knows_effort = not re.match(r"claude-(haiku|opus|sonnet)-4-[1-5]", body["model"])
    require(effort is None or knows_effort, "This model does not support the effort parameter.")
    check_effort(model, "output_config.effort", effort)
    _check_thinking_field(body)
    _check_tools(body)
    _check_cache(body)
    system = body.get("system")
    for index, block in enumerate(system if isinstance(system, list) else ()):
        require(block.get("type") == "text", f"system.{index}.type: Input should be 'text'")
        require(block.get("text", "").strip(), "system: text content blocks must be non-empty")
    messages = body.get("messages")
    require(isinstance(messages, list) and messages, "messages: at least one message is required")
    assert isinstance(messages, list)
    require(messages[0].get("role") == "user", 'messages: first message must use the "user" role')
    _check_messages(body, messages, name)
    # sent back as it is, to be gone on with
    is_paused = _blocks(messages[-1]["content"])[-1]["type"] == "server_tool_use"
    require(
        messages[-1]["role"] == "user" or model.family != "anthropic" or is_paused,
        (
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message."
        ),
    )
    used_tokens = tokens(messages)
    require(
        context is None or used_tokens <= context,
        f"prompt is too long: {used_tokens} tokens > {context} maximum",
    )


def _check_thinking_field(body: Json) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type")
    require(
        kind in ("adaptive", "enabled", "disabled", "between_tools"),
        "thinking: Input tag does not match",
    )
    always = re.match(r"claude-(opus-5-5|fable|mythos)", body["model"])
    require(
        not always or kind == "adaptive",
        f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive".',
    )
    if kind == "enabled":
        budget = thinking.get("budget_tokens", 0)
        require(
            budget >= 1024,
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        )
        require(
            budget < body["max_tokens"],
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        )


def _check_tools(body: Json) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        name = tool.get("name", "")
        require(
            re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name),
            f"tools.{index}.custom.name: String should match pattern",
        )
        require(name not in names, "tools: Tool names must be unique.")
        names.add(name)
        for key in tool:
            is_known = key in (
                "name",
                "description",
                "input_schema",
                "cache_control",
                "type",
                "strict",
            )
            require(is_known, f"tools.{index}.custom.{key}: Extra inputs are not permitted")
        schema = tool.get("input_schema")
        require(isinstance(schema, dict), f"tools.{index}.custom.input_schema: Field required")
        require(
            schema.get("type") == "object",
            f"tools.{index}.custom.input_schema.type: Input should be 'object'",
        )
        for key in ("anyOf", "oneOf", "allOf"):
            require(
                key not in schema,
                f"tools.{index}.custom.input_schema: {key} is not supported at the top level",
            )
    if "tool_choice" in body:
        require(body.get("tools"), "tool_choice: may only be specified while providing tools")
        is_forced = body["tool_choice"].get("type") in ("any", "tool")
        require(
            not (is_forced and re.match(r"claude-(opus-5-5|fable-5-[1-9])", body["model"])),
            "tool_choice: forcing a tool is not supported for this model",
        )


def _check_cache(body: Json) -> None:
    system = body["system"] if isinstance(body.get("system"), list) else []
    places = [body, *system, *(body.get("tools") or ())]
    for message in body.get("messages") or ():
        places += message["content"] if isinstance(message.get("content"), list) else []
    markers = sum("cache_control" in block for block in places)
    require(
        markers <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {markers}."
    )


def _check_messages(body: Json, messages: list[Json], name: str) -> None:
    prefix: list[object] = [_blocks(body.get("system") or []), body.get("tools") or []]
    ids: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        require(
            message.get("role") in ("user", "assistant"),
            f"messages.{index}.role: Input should be 'user' or 'assistant'",
        )
        for key in message:
            require(
                key in ("role", "content"),
                f"messages.{index}.{key}: Extra inputs are not permitted",
            )
        blocks = _blocks(message.get("content"))
        require(blocks, f"messages.{index}: all messages must have non-empty content")
        if message["role"] == "user":
            _check_results(blocks, open_calls, index)
            open_calls = []
        else:
            require(
                not open_calls,
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks",
            )
        for position, block in enumerate(blocks):
            where = f"messages.{index}.content.{position}"
            _check_block(block, message["role"], where)
            if block["type"] in ("thinking", "redacted_thinking"):
                _check_signature(block, prefix, where, is_bound=_binds_thinking(body["model"]))
            if block["type"] == "tool_use":
                require(block["id"] not in ids, "messages: `tool_use` ids must be unique")
                ids.add(block["id"])
                open_calls.append(block["id"])
                _check_thought_kept(block, blocks, where, name)
            prefix.append([message["role"], block])
        if message["role"] == "assistant":
            require(
                blocks[-1]["type"] not in ("thinking", "redacted_thinking"),
                f"messages.{index}: The final block in an assistant message cannot be `thinking`.",
            )
        uses = any(block["type"] in ("tool_use", "tool_result") for block in blocks)
        require(
            not uses or body.get("tools"),
            "Requests which include `tool_use` blocks must define tools.",
        )
    missing_ids = ", ".join(open_calls)
    require(
        not open_calls,
        f"`tool_use` ids were found without `tool_result` blocks immediately after: {missing_ids}.",
    )


def _blocks(content: object) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])  # type: ignore[call-overload]


def _check_results(blocks: list[Json], open_calls: list[str], index: int) -> None:
    results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    for result in results:
        require(
            result in open_calls,
            f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {result}. "
            "Each `tool_result` "
            "block must have a corresponding `tool_use` block in the previous message.",
        )
    require(
        len(results) == len(set(results)),
        f"messages.{index}: each tool_use must have a single result.",
    )
    missing_ids = [call for call in open_calls if call not in results]
    first = [block.get("type") for block in blocks[: len(results)]]
    require(
        not missing_ids and all(kind == "tool_result" for kind in first),
        f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately "
        "after: "
        f"{', '.join(missing_ids or open_calls)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the "
        "next message.",
    )


def _check_block(block: Json, role: str, where: str) -> None:
    kind = block.get("type")
    allowed_kinds = {
        "user": ("text", "image", "tool_result"),
        "assistant": ("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"),
    }
    require(
        kind in allowed_kinds[role],
        f"{where}: Input tag '{kind}' does not match any of the expected tags",
    )
    if kind == "text":
        require(block.get("text", "").strip(), "messages: text content blocks must be non-empty")
    elif kind == "image":
        check_image(block["source"].get("media_type"), block["source"].get("data"))
    elif kind == "tool_use":
        require(
            re.fullmatch(r"[a-zA-Z0-9_-]+", str(block.get("id"))),
            f"{where}.tool_use.id: String should match pattern",
        )
        require(
            isinstance(block.get("input"), dict),
            f"{where}.tool_use.input: Input should be a valid dictionary",
        )
    elif kind == "tool_result":
        for part in block["content"] if isinstance(block.get("content"), list) else ():
            require(part.get("text"), "messages: text content blocks must be non-empty")


def _binds_thinking(model: str) -> bool:
    """Tell whether this model's thinking is bound to the exact conversation before it."""
    return bool(
        re.match(r"claude-(fable-5-[1-9]|mythos-5-[2-9]|(opus|sonnet|haiku)-5-[5-9])", model)
    )


def _check_signature(block: Json, prefix: list[object], where: str, *, is_bound: bool) -> None:
    text, signature = (
        block.get("thinking", block.get("data", "").partition(".")[0]),
        _signature(block),
    )
    sealed_prefix, _, seal = signature.partition("-")
    require(
        seal == digest(text, sealed_prefix), f"{where}: Invalid `signature` in `thinking` block"
    )
    require(
        not is_bound or sealed_prefix == digest(*prefix),
        f"{where}: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation. Remove the "
        'block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
    )


def _signature(block: Json) -> str:
    if block["type"] == "redacted_thinking":
        return str(block.get("data", "")).partition(".")[2]
    return str(block.get("signature"))


def _check_thought_kept(use: Json, blocks: list[Json], where: str, name: str) -> None:
    """Ids that this fake gave out carry a mark of the thinking that came with them."""
    if not use["id"].startswith(f"toolu_{name}_t"):
        return
    thoughts = [
        _signature(block) for block in blocks if block["type"] in ("thinking", "redacted_thinking")
    ]
    require(
        use["id"].split("_")[2] == "t" + digest(thoughts)[:8],
        f"{where}: Expected `thinking` or `redacted_thinking` before `tool_use`. These blocks must "
        "remain as they were "
        "in the original response.",
    )


def answer(turn: Json, body: Json, number: int, *, name: str) -> Json:
    """Say what the turn says, in this API's form."""
    prefix: list[object] = [_blocks(body.get("system") or []), body.get("tools") or []]
    for message in body["messages"]:
        prefix += [[message["role"], block] for block in _blocks(message["content"])]
    blocks = _thoughts(turn, prefix)
    thoughts = [_signature(block) for block in blocks]
    if turn.get("text"):
        blocks.append({"type": "text", "text": turn["text"], "citations": None})
    for index, call in enumerate(turn.get("tool_calls", ())):
        mark = f"t{digest(thoughts)[:8]}" if thoughts else "n"
        use = {
            "type": "tool_use",
            "id": call.get("id", f"toolu_{name}_{mark}_{number}_{index}"),
            "name": call["name"],
        }
        blocks.append(use | {"input": call.get("arguments", {})})
    if turn.get("finish") == "pause_turn":
        search = {"query": "the rest of it"}
        blocks.append(
            {
                "type": "server_tool_use",
                "id": f"srvtoolu_{number}",
                "name": "web_search",
                "input": search,
            }
        )
    finish = turn.get("finish", "tool_calls" if turn.get("tool_calls") else "stop")
    finish = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}.get(
        finish, finish
    )
    stop_details = {"type": "refusal", "category": "cyber", "explanation": turn.get("refusal")}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": finish,
        "stop_sequence": None,
        "stop_details": stop_details if finish == "refusal" else None,
        "usage": {
            "input_tokens": tokens(body["messages"]),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": tokens(blocks) + 1,
        }
        | turn.get("usage", {}),
    }


def _thoughts(turn: Json, prefix: list[object]) -> list[Json]:
    blocks: list[Json] = []
    if "thinking" in turn:
        seal = digest(*prefix)
        text = turn["thinking"]
        blocks.append(
            {"type": "thinking", "thinking": text, "signature": f"{seal}-{digest(text, seal)}"}
        )
    if turn.get("redacted"):
        seal = digest(*prefix, *(["assistant", block] for block in blocks))
        blocks.append({"type": "redacted_thinking", "data": f"x.{seal}-{digest('x', seal)}"})
    return blocks


def least_cached(body: Json) -> int | None:
    """Return from how many tokens on the vendor caches; None if nothing is marked for it.

    MiniMax does so unasked.
    """
    if body["model"].lower().startswith("minimax"):
        return 512
    if not (
        "cache_control" in body
        or any("cache_control" in block for block in _blocks(body.get("system")))
    ):
        return None
    return (
        512
        if _binds_thinking(body["model"])
        else 4096
        if re.match(r"claude-(opus|haiku)-4-[56]", body["model"])
        else 1024
    )


def pieces(body: Json) -> list[object]:
    """Return a request in the order in which it is cached."""
    parts: list[object] = [body.get("tools"), *_blocks(body.get("system"))]
    for message in body["messages"]:
        parts += [[message["role"], block] for block in _blocks(message["content"])]
    return parts


def count_cached(usage: Json, read_tokens: int, written_tokens: int) -> None:
    """Say how much was read from the cache and written to it, which then is not counted as
    input.
    """
    usage |= {
        "cache_read_input_tokens": read_tokens,
        "cache_creation_input_tokens": max(0, written_tokens - read_tokens),
    }
    usage["input_tokens"] = 3 if written_tokens else usage["input_tokens"]


def stream(answer: Json, body: Json, size: int) -> list[tuple[str, Any]]:
    """Return the same answer as the events of a stream, `size` characters of text in each."""
    start = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {**answer["usage"], "output_tokens": 1},
    }
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(answer["content"]):
        deltas: list[Json] = []
        match block["type"]:
            case "text":
                first_block = {**block, "text": ""}
                deltas = [
                    {"type": "text_delta", "text": part} for part in parts(block["text"], size)
                ]
            case "thinking":
                first_block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": part}
                    for part in parts(block["thinking"], size)
                ]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use":
                first_block = {**block, "input": {}}
                words = (
                    block["input"]
                    if isinstance(block["input"], str)
                    else json.dumps(block["input"])
                )
                deltas = [
                    {"type": "input_json_delta", "partial_json": part}
                    for part in ["", *parts(words, size)]
                ]
            case _:
                first_block = block
        events.append({"type": "content_block_start", "index": index, "content_block": first_block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    stop = {key: answer[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    output = {"output_tokens": answer["usage"]["output_tokens"]}
    events += [{"type": "message_delta", "delta": stop, "usage": output}, {"type": "message_stop"}]
    return [(event["type"], event) for event in events]


def stream_error(body: Json) -> tuple[str, Any]:
    """Return the event that the vendor breaks a stream off with."""
    return "error", error(Refusal("Overloaded", status=529), body)


def error(refusal: Refusal, body: Any) -> Json:
    """Put a refusal into Anthropic's words."""
    kind = refusal.type or _STATUS_TYPES.get(refusal.status, "api_error")
    detail: Json = {"type": kind, "message": str(refusal)}
    if refusal.code:
        detail["details"] = {"error_code": refusal.code}
    return {"type": "error", "error": detail, "request_id": "req_fake"}
