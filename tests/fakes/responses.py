"""The Responses API of OpenAI, with function tools and reasoning items, stateless."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.rules import (
    Json,
    Refusal,
    check_cache_key,
    check_effort,
    check_function,
    check_image_url,
    check_model,
    check_unknown,
    digest,
    model_named,
    parts,
    require,
    tokens,
    words,
)

_FIELDS = words(
    """
    model input instructions tools tool_choice parallel_tool_calls temperature top_p max_output_tokens metadata
    store stream include reasoning text truncation previous_response_id user service_tier prompt_cache_key
    safety_identifier background max_tool_calls top_logprobs stream_options
    """  # noqa: E501
)

_AFTER_REASONING = ("reasoning", "function_call", "message")


def check(body: Json, *, context: int | None, name: str) -> None:
    """Refuse what the vendor refuses."""
    model = check_model(body)
    check_unknown(body, _FIELDS)
    check_cache_key(body)
    require(
        not model.reasoning or body.get("temperature") in (None, 1),
        "Unsupported parameter: 'temperature' is not supported with this model.",
        code="unsupported_parameter",
    )
    require(
        model.reasoning or "reasoning.encrypted_content" not in body.get("include", ()),
        "Encrypted content is not supported with this model.",
    )
    check_effort(model, "reasoning.effort", (body.get("reasoning") or {}).get("effort"))
    require(body.get("tools") != [], "Invalid 'tools': empty array.", code="empty_array")
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools", ())):
        require(
            tool.get("type") == "function",
            f"Invalid value: '{tool.get('type')}'.",
            code="invalid_value",
        )
        check_unknown(
            tool, {"type", "name", "description", "parameters", "strict"}, f"tools[{index}]."
        )
        require("strict" in tool, f"Missing required parameter: 'tools[{index}].strict'.")
        check_function(tool, f"tools[{index}]", names)
    items = body.get("input")
    require(items, "Missing required parameter: 'input'.", code="missing_required_parameter")
    if isinstance(items, list):
        for index, item in enumerate(items):
            _check_item(item, index, store=body.get("store", True))
        _check_pairs(items, name)
    require(
        context is None or tokens(items) <= context,
        (
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again."
        ),
        code="context_length_exceeded",
    )


def _check_item(item: Json, index: int, *, store: bool) -> None:
    kind = item.get("type", "message")
    for key, value in item.items():
        require(
            value is not None,
            f"Invalid type for 'input[{index}].{key}': got null instead.",
            code="invalid_type",
        )
    if kind == "message":
        require(
            item.get("role") in ("user", "assistant", "system", "developer"),
            f"Invalid value: '{item.get('role')}'.",
        )
        require(
            isinstance(item.get("content"), str | list),
            f"Missing required parameter: 'input[{index}].content'.",
        )
        part_types = (
            ("input_text", "input_image")
            if item.get("role") == "user"
            else ("output_text", "refusal")
        )
        for part in item["content"] if isinstance(item["content"], list) else ():
            require(
                part.get("type") in part_types,
                f"Invalid value: '{part.get('type')}'.",
                code="invalid_value",
            )
            if part["type"] == "input_image":
                check_image_url(part["image_url"])
    elif kind == "function_call":
        for key in ("call_id", "name", "arguments"):
            require(
                isinstance(item.get(key), str),
                f"Missing required parameter: 'input[{index}].{key}'.",
            )
    elif kind == "function_call_output":
        require(
            isinstance(item.get("output"), str | list), f"Invalid type for 'input[{index}].output'."
        )
    elif kind == "reasoning":
        require(
            store or item.get("encrypted_content"),
            (
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` "
                "is set to false."
            ),
            status=404,
        )
        content = item.get("encrypted_content")
        require(
            content is None or content == _seal(item.get("id")),
            "The encrypted content could not be verified.",
            code="invalid_encrypted_content",
        )
    else:
        raise Refusal(f"Invalid value: '{kind}'.", code="invalid_value")


def _check_pairs(items: list[Json], name: str) -> None:
    calls: set[str] = set()
    answered_ids: set[str] = set()
    reasoning: str | None = None
    for item in [*items, {"type": "end"}]:
        kind = item.get("type", "message")
        require(
            reasoning is None
            or (kind in _AFTER_REASONING and item.get("role", "assistant") == "assistant"),
            (
                f"Item '{reasoning}' of type 'reasoning' was provided without its required "
                "following item."
            ),
        )
        if kind == "function_call":
            needed_id = (
                item["call_id"].split("_")[2]
                if item["call_id"].startswith(f"call_{name}_r")
                else None
            )
            require(
                needed_id is None
                or f"rs_{needed_id}" in [input_item.get("id") for input_item in items],
                (
                    f"Item '{item.get('id')}' of type 'function_call' was provided without its "
                    "required 'reasoning' item."
                ),
            )
            calls.add(item["call_id"])
        elif kind == "function_call_output":
            call_id = item.get("call_id")
            require(
                call_id in calls,
                f"No tool call found for function call output with call_id {call_id}.",
            )
            answered_ids.add(str(call_id))
        reasoning = item.get("id", "rs_?") if kind == "reasoning" else None
    missing_ids = ", ".join(calls - answered_ids)
    require(not missing_ids, f"No tool output found for function call {missing_ids}.")


def _seal(item_id: object) -> str:
    return "sealed:" + digest(item_id)


def answer(turn: Json, body: Json, number: int, *, name: str) -> Json:
    """Say what the turn says, in this API's form."""
    output: list[Json] = []
    thinking = turn.get("thinking") if check_model(body).reasoning else None
    if thinking is not None:
        item: Json = {"id": f"rs_r{number}", "type": "reasoning", "summary": [], "status": None}
        if thinking:
            item["summary"] = [{"type": "summary_text", "text": thinking}]
        if "reasoning.encrypted_content" in body.get("include", ()):
            item["encrypted_content"] = _seal(item["id"])
        output.append(item)
    if "text" in turn or "refusal" in turn:
        part = {
            "type": "output_text",
            "text": turn.get("text", ""),
            "annotations": [],
            "logprobs": [],
        }
        if "refusal" in turn:
            part = {"type": "refusal", "refusal": turn["refusal"]}
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
        }
        output.append(message | {"content": [part]})
    for index, call in enumerate(turn.get("tool_calls", ())):
        arguments = call.get("arguments", {})
        output.append(
            {
                "id": f"fc_{number}_{index}",
                "type": "function_call",
                "call_id": call.get(
                    "id", f"call_{name}_{'r' if thinking is not None else 'n'}{number}_{index}"
                ),
                "name": call["name"],
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                "status": "completed",
            }
        )
    input_tokens, output_tokens = (
        tokens(body["input"]) + tokens(body.get("instructions") or ""),
        tokens(output),
    )
    finish = turn.get("finish")
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(str(finish))
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_795_000_000,
        "status": "failed" if finish == "failed" else "incomplete" if reason else "completed",
        "error": {"code": "server_error", "message": "The model failed."}
        if finish == "failed"
        else None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": body["model"],
        "output": output,
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": tokens(thinking or "")},
            "total_tokens": input_tokens + output_tokens,
        }
        | turn.get("usage", {}),
    }


def least_cached(body: Json) -> int | None:
    """Return from how many tokens on the vendor caches what requests begin with."""
    return 1024


def pieces(body: Json) -> list[object]:
    """Return a request in the order in which it is cached."""
    items = body["input"] if isinstance(body["input"], list) else [body["input"]]
    return [body.get("tools"), body.get("instructions"), *items]


def count_cached(usage: Json, read_tokens: int, written_tokens: int) -> None:
    """Say how much was read from the cache."""
    usage["input_tokens_details"]["cached_tokens"] = min(read_tokens, usage["input_tokens"])


def stream(answer: Json, body: Json, size: int) -> list[tuple[str, Any]]:
    """Return the same answer as the events of a stream, `size` characters of text in each."""
    first_answer = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": first_answer}]
    for index, item in enumerate(answer["output"]):
        where = {"output_index": index, "item_id": item["id"]}
        events.append(
            {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "content": []},
            }
        )
        for part in item.get("content") or ():
            kind = "output_text" if part["type"] == "output_text" else "refusal"
            events += [
                {"type": f"response.{kind}.delta", **where, "delta": piece}
                for piece in parts(_words(part), size)
            ]
        for part in item.get("summary") or ():
            kind = "response.reasoning_summary_text.delta"
            events += [
                {"type": kind, **where, "delta": piece} for piece in parts(part["text"], size)
            ]
        for piece in parts(item.get("arguments"), size):
            events.append(
                {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            )
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{answer['status']}", "response": answer})
    return [
        (event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)
    ]


def _words(part: Json) -> str:
    return str(part.get("text") or part.get("refusal") or "")


def stream_error(body: Json) -> tuple[str, Any]:
    """Return the event that the vendor breaks a stream off with."""
    return "error", {
        "type": "error",
        "code": "server_error",
        "message": "The model broke off.",
        "param": None,
    }


def error(refusal: Refusal, body: Any) -> Json:
    """Put a refusal into OpenAI's words; LM Studio and llama.cpp serve this API too, with
    theirs.
    """
    name = body.get("model") if isinstance(body, dict) else None
    if isinstance(name, str) and model_named(name).family == "lmstudio":
        return {"error": str(refusal)}
    kind = refusal.type or ("server_error" if refusal.status >= 500 else "invalid_request_error")
    return {"error": {"message": str(refusal), "type": kind, "param": None, "code": refusal.code}}
