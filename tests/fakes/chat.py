"""Chat Completions, as OpenAI, the vendors compatible with it and the local servers speak it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.rules import (
    Json,
    Model,
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
    messages model frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata n
    parallel_tool_calls presence_penalty prompt_cache_key reasoning_effort response_format safety_identifier seed
    service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
    """  # noqa: E501
)
_MESSAGE_FIELDS = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}
# What each hosted vendor knows beyond OpenAI's fields: in the request, in a message.
_EXTRA: dict[str, tuple[set[str], set[str]]] = {
    "deepseek": ({"thinking"}, {"reasoning_content"}),
    "glm": ({"thinking", "do_sample"}, {"reasoning_content"}),
    "kimi": ({"thinking"}, {"reasoning_content"}),
    "qwen": ({"enable_thinking", "thinking_budget"}, {"reasoning_content"}),
}
# Vendors that refuse a tool loop whose reasoning does not come back, and what they say then.
_REASONING = {
    "deepseek": "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "glm": (
        "reasoning_content is missing: thinking must be preserved and returned with tool results."
    ),
    "kimi": (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at "
        "index {index}"
    ),
}


def check(body: Json, *, context: int | None, name: str) -> None:
    """Refuse what the vendor of that model refuses."""
    model = check_model(body)
    fields, message_fields = _EXTRA.get(model.family, (set(), set()))
    if model.is_hosted:
        check_unknown(body, _FIELDS | fields)
    check_cache_key(body)
    _check_stream(body)
    _check_tools(body)
    _check_effort(body, model)
    _check_sampling(body, model)
    messages = body.get("messages")
    require(
        isinstance(messages, list) and messages,
        "Invalid 'messages': empty array.",
        code="empty_array",
    )
    assert isinstance(messages, list)
    for index, message in enumerate(messages):
        if model.is_hosted:
            check_unknown(message, _MESSAGE_FIELDS | message_fields, f"messages[{index}].")
        _check_message(message, index)
    _check_pairs(messages, model)
    thinking = body.get("thinking", {}).get("type") != "disabled"
    if model.family in _REASONING and thinking:
        _check_reasoning(messages, model, name)
    _check_context(body, model, context)


def _check_stream(body: Json) -> None:
    require(
        "stream_options" not in body or body.get("stream"),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        code="invalid_value",
    )


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        for key in ("tool_choice", "parallel_tool_calls"):
            require(
                key not in body,
                f"'{key}' is only allowed when 'tools' are specified.",
                code="invalid_value",
            )
        return
    require(
        isinstance(tools, list) and 1 <= len(tools) <= 128,
        "Invalid 'tools': empty array. Expected an array with minimum length 1.",
        code="empty_array",
    )
    names: set[str] = set()
    for index, tool in enumerate(tools):
        require(
            tool.get("type") == "function", f"Missing required parameter: 'tools[{index}].type'."
        )
        check_function(tool.get("function"), f"tools[{index}].function", names)


def _check_effort(body: Json, model: Model) -> None:
    """From gpt-5.4 on tools and reasoning_effort go together in Responses only."""
    check_effort(model, "reasoning_effort", body.get("reasoning_effort"))
    since = re.match(r"gpt-(5\.([4-9])|[6-9])", body["model"].lower())
    require(
        not (since and body.get("tools") and body.get("reasoning_effort", "none") != "none"),
        f"Function tools with reasoning_effort are not supported for {body['model']} in "
        "/v1/chat/completions. To use "
        "function tools, use /v1/responses or set reasoning_effort to 'none'.",
    )


def _check_sampling(body: Json, model: Model) -> None:
    temperature = body.get("temperature")
    if model.reasoning:
        require(
            temperature in (None, 1),
            f"Unsupported value: 'temperature' does not support {temperature} with this model. Only "  # noqa: E501
            "the default (1) "
            "value is supported.",
            code="unsupported_value",
        )
        require(
            "max_tokens" not in body,
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens'."
            ),
            code="unsupported_parameter",
        )
    require(
        temperature is None or (isinstance(temperature, int | float) and 0 <= temperature <= 2),
        f"Invalid 'temperature': expected a value between 0 and 2, but got {temperature}.",
        code="decimal_above_max_value",
    )


def _check_message(message: Json, index: int) -> None:
    role, content = message.get("role"), message.get("content")
    require(
        role in ("system", "developer", "user", "assistant", "tool"),
        f"Invalid value: '{role}'.",
        code="invalid_value",
    )
    if content is None:
        require(
            role == "assistant" and message.get("tool_calls"),
            f"Invalid value for 'content': expected a string, got null. (messages[{index}])",
            code="invalid_type",
        )
    else:
        require(
            isinstance(content, str) or content,
            f"Invalid 'messages[{index}].content': empty array.",
        )
        for part in content if isinstance(content, list) else ():
            require(
                part.get("type") == "text" or (role == "user" and part.get("type") == "image_url"),
                f"Invalid value: '{part.get('type')}'. (messages[{index}].content)",
                code="invalid_value",
            )
            if part["type"] == "image_url":
                check_image_url(part["image_url"]["url"])
    calls = message.get("tool_calls")
    require(
        calls is None or calls,
        f"Invalid 'messages[{index}].tool_calls': empty array.",
        code="empty_array",
    )
    for call in calls or ():
        function = call.get("function", {})
        require(
            call.get("type") == "function"
            and isinstance(call.get("id"), str)
            and isinstance(function.get("name"), str),
            f"Missing required parameter in 'messages[{index}].tool_calls'.",
            code="missing_required_parameter",
        )
        require(
            isinstance(function.get("arguments"), str),
            (
                f"Invalid type for 'messages[{index}].tool_calls[0].function.arguments': expected a "  # noqa: E501
                "string."
            ),
            code="invalid_type",
        )


def _check_pairs(messages: list[Json], model: Model) -> None:
    open_calls: list[str] = []
    for index, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            require(
                message.get("tool_call_id") in open_calls,
                (
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceeding 'tool_calls'."
                ),
            )
            open_calls.remove(message["tool_call_id"])
            continue
        require(
            not open_calls,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each of them. The following tool_call_ids did not have response messages: "
            f"{', '.join(open_calls)} (before {index})",
        )
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        require(len(set(open_calls)) == len(open_calls), "Duplicate tool_call ids.")
        for call in message.get("tool_calls") or ():
            _check_arguments(call["function"]["arguments"], model)


def _check_arguments(text: str, model: Model) -> None:
    """Local servers parse what they are sent; the hosted ones do not look."""
    try:
        json.loads(text)
    except ValueError:
        if model.family == "llamacpp":
            raise Refusal(
                f"Failed to parse tool call arguments as JSON: {text}", status=500
            ) from None
        if model.family == "vllm":
            raise Refusal("tool call arguments are not valid JSON") from None


def _check_reasoning(messages: list[Json], model: Model, name: str) -> None:
    for index, message in enumerate(messages):
        if not message.get("tool_calls"):
            continue
        reasoning = message.get("reasoning_content")
        if model.family == "glm":  # which does not mind that nothing is not sent
            reasoning = reasoning or ""
        # ids that this fake gave out carry a mark of the reasoning that came with them
        marks = [
            call["id"].split("_")[2]
            for call in message["tool_calls"]
            if call["id"].startswith(f"call_{name}_r")
        ]
        intact = all(mark == _mark(reasoning) for mark in marks)
        require(reasoning is not None and intact, _REASONING[model.family].format(index=index))


def _mark(reasoning: object) -> str:
    return "r" + digest(reasoning)[:7]


def _check_context(body: Json, model: Model, context: int | None) -> None:
    used_tokens = tokens(body.get("messages"))
    # Ollama cuts the prompt and says nothing
    if context is None or used_tokens <= context or model.family == "ollama":
        return
    text = (
        f"This model's maximum context length is {context} tokens. However, your messages resulted "
        f"in {used_tokens} tokens."
    )
    if model.family == "llamacpp":
        text = (
            f"request ({used_tokens} tokens) exceeds the available context size ({context} "
            "tokens), try increasing it"
        )
        raise Refusal(text, type_="exceed_context_size_error")
    raise Refusal(text, code="context_length_exceeded" if model.is_hosted else None)


def answer(turn: Json, body: Json, number: int, *, name: str) -> Json:
    """Say what the turn says, in this API's form."""
    family = check_model(body).family
    # OpenAI keeps it to itself here
    reasoning = turn.get("thinking") if family != "openai" else None
    message: Json = {"role": "assistant", "content": turn.get("text")}
    if family == "openai":
        message |= {"refusal": turn.get("refusal"), "annotations": []}
    if reasoning is not None:
        message["reasoning" if family in ("vllm", "ollama") else "reasoning_content"] = reasoning
    mark = _mark(reasoning) if reasoning is not None else "n"
    calls = [
        {
            "id": call.get("id", f"call_{name}_{mark}_{number}_{index}"),
            "type": "function",
            "function": {"name": call["name"], "arguments": _text(call.get("arguments", {}))},
        }
        for index, call in enumerate(turn.get("tool_calls", ()))
    ]
    if calls:
        message["tool_calls"] = calls
    prompt, completion = tokens(body["messages"]), tokens(message) + 1
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_795_000_000,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": turn.get("finish", "tool_calls" if calls else "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        | turn.get("usage", {}),
    }


def least_cached(body: Json) -> int | None:
    """Return from how many tokens on the vendor caches what requests begin with; None if it says
    nothing of it.
    """
    return {"openai": 1024, "deepseek": 64, "kimi": 256}.get(check_model(body).family)


def pieces(body: Json) -> list[object]:
    """Return a request in the order in which it is cached."""
    return [body.get("tools"), *body["messages"]]


def count_cached(usage: Json, read_tokens: int, written_tokens: int) -> None:
    """Say how much was read from the cache: OpenAI's way and DeepSeek's."""
    usage |= {"prompt_tokens_details": {"cached_tokens": min(read_tokens, usage["prompt_tokens"])}}


def stream(answer: Json, body: Json, size: int) -> list[tuple[str, Any]]:
    """Return the same answer as the events of a stream, `size` characters of text in each."""
    top = {key: answer[key] for key in ("id", "created", "model")} | {
        "object": "chat.completion.chunk"
    }

    def event(delta: Json, finish: str | None = None) -> tuple[str, Any]:
        return "", {
            **top,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            "usage": None,
        }

    events = []
    for choice in answer["choices"]:
        message = choice["message"]
        events.append(event({"role": "assistant", "content": ""}))
        for key in ("reasoning", "reasoning_content", "content", "refusal"):
            events += [event({key: part}) for part in parts(message.get(key), size)]
        for index, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            first_piece = {**call, "function": {"name": function["name"], "arguments": ""}}
            events.append(event({"tool_calls": [{"index": index, **first_piece}]}))
            for part in parts(function["arguments"], size):
                events.append(
                    event({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
                )
        events.append(event({}, choice["finish_reason"]))
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(("", {**top, "choices": [], "usage": answer["usage"]}))
    return [*events, ("", "[DONE]")]


def stream_error(body: Json) -> tuple[str, Any]:
    """Return the event that a server breaks a stream off with."""
    return "", error(
        Refusal("The server had an error while processing your request", status=500), body
    )


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def error(refusal: Refusal, body: Any) -> Any:
    """Put a refusal into the words of the server that the model runs on."""
    name = body.get("model") if isinstance(body, dict) else None
    family = model_named(name).family if isinstance(name, str) else "openai"
    text = str(refusal)
    if family == "lmstudio":
        return {"error": text}
    if family == "vllm":
        return {
            "error": {
                "message": text,
                "type": "BadRequestError",
                "param": None,
                "code": refusal.status,
            }
        }
    kind = refusal.type or ("server_error" if refusal.status >= 500 else "invalid_request_error")
    if family == "llamacpp":
        return {"error": {"code": refusal.status, "message": text, "type": kind}}
    return {"error": {"message": text, "type": kind, "param": None, "code": refusal.code}}
