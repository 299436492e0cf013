"""Responses: OpenAI's current API, used without its storage.

Nothing is stored with the vendor (`store = false`): every request has all items, and reasoning is
received and sent back encrypted (`reasoning.encrypted_content`), directly before the call or text
that it led to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from daemon.errors import TransportError, Unavailable
from daemon.models import Chunk, FunctionCall, Json, LLMMessage, LLMResponse, Usage
from daemon.providers.wire.base import (
    CUT_OFF,
    CallIds,
    ChatRequest,
    WireFormat,
    find_vendor_blocks,
    pack_extras,
    read_arguments,
    read_name,
    repair_text,
    split_system,
    to_count,
    unused_id,
    used_ids,
    user_text,
    visible_images,
)
from daemon.providers.wire.images import to_data_url

_API = "responses"


def _build_body(request: ChatRequest) -> Json:
    capabilities = request.capabilities
    system, messages = split_system(request.messages)
    body: Json = {
        "model": request.model,
        "store": False,
        "input": _convert_messages(messages, request),
    }
    if system:
        body["instructions"] = system
    if capabilities.reasoning:
        # Other models refuse this: "Encrypted content is not supported with this model".
        body["include"] = ["reasoning.encrypted_content"]
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    return body | capabilities.extra


def _convert_messages(messages: Sequence[LLMMessage], request: ChatRequest) -> list[Json]:
    items: list[Json] = []
    ids = CallIds()
    for message in messages:
        if message.role == "assistant":
            vendor_items = find_vendor_blocks(message, request, _API)
            items += _convert_foreign(message, ids) if vendor_items is None else vendor_items
        elif message.role == "tool":
            output = {
                "type": "function_call_output",
                "call_id": ids.result_id(message),
                "output": message.content,
            }
            items.append(output)
        else:
            items.append(
                {"type": "message", "role": "user", "content": _user_content(message, request)}
            )
    return items


def _user_content(message: LLMMessage, request: ChatRequest) -> str | list[Json]:
    if not message.images:
        return message.content
    images = visible_images(message, request)
    if not images:
        return user_text(message, request)
    content: list[Json] = [
        {"type": "input_image", "detail": "auto", "image_url": to_data_url(image)}
        for image in images
    ]
    return (
        [*content, {"type": "input_text", "text": message.content}] if message.content else content
    )


def _convert_foreign(message: LLMMessage, ids: CallIds) -> list[Json]:
    """Convert the message of another vendor's model; to nothing if it is empty."""
    items: list[Json] = []
    if message.content:
        items.append({"type": "message", "role": "assistant", "content": message.content})
    for call in message.tool_calls:
        item = {"type": "function_call", "call_id": ids.id_for(call), "name": call.name}
        items.append(item | {"arguments": json.dumps(call.arguments)})
    return items


def _convert_tools(functions: Sequence[Json]) -> list[Json]:
    # `strict` is on by default here, and strict schemas must not have optional parameters.
    return [{"type": "function", "strict": False, **function} for function in functions]


def _parse_answer(data: Json, request: ChatRequest) -> LLMResponse:
    if data.get("status") in ("failed", "cancelled"):
        raise Unavailable("the vendor gave the answer up")
    output = data["output"]
    if not output and data.get("status") != "incomplete":
        raise TransportError("the answer holds no output")
    finish, text = _finish_reason(data), _join_texts(output, "output_text", "text")
    if refusal := _join_texts(output, "refusal", "refusal"):
        text, finish = refusal, "refusal"
    is_refused = finish in ("refusal", "content_filter")
    calls = {} if is_refused else _parse_calls(output, request)
    if finish == "length" and output and len(output) - 1 in calls:
        calls[len(output) - 1] = replace(calls[len(output) - 1], arguments={}, invalid=CUT_OFF)
    blocks: list[Json] = []
    if not is_refused:
        for index, item in enumerate(output):
            if not _refers_to_stored_data(item):
                blocks.append(_item_to_send_back(item, calls.get(index)))
    while blocks and blocks[-1].get("type") == "reasoning":
        # "provided without its required following item", as when the token limit cut the answer
        # off.
        blocks.pop()
    return LLMResponse(
        content=repair_text(text),
        function_calls=tuple(calls.values()),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=_parse_usage(data.get("usage") or {}),
        reasoning=repair_text(_join_reasoning(output)),
        provider_extras=pack_extras(request, _API, blocks),
        model=data.get("model") or request.model,
        request_id=data.get("id"),
    )


def _finish_reason(data: Json) -> str:
    if data.get("status") != "incomplete":
        return "stop"
    reason = (data.get("incomplete_details") or {}).get("reason")
    return "content_filter" if reason == "content_filter" else "length"


def _join_texts(output: Sequence[Json], kind: str, key: str) -> str:
    texts = [
        part[key]
        for item in output
        if item.get("type") == "message"
        for part in item["content"]
        if part.get("type") == kind and part.get(key)
    ]
    return "\n\n".join(texts)


def _join_reasoning(output: Sequence[Json]) -> str:
    items = [item for item in output if item.get("type") == "reasoning"]
    return "\n\n".join(
        [part["text"] for item in items for part in (item.get("summary") or ()) if part.get("text")]
    )


def _parse_calls(output: Sequence[Json], request: ChatRequest) -> dict[int, FunctionCall]:
    """Return the calls by the index of their item."""
    items = [
        (index, item) for index, item in enumerate(output) if item.get("type") == "function_call"
    ]
    taken_ids, calls = used_ids(request) if items else set(), {}
    for index, item in items:
        arguments, problem = read_arguments(item.get("arguments"))
        call_id = unused_id(item.get("call_id"), taken_ids)
        calls[index] = FunctionCall(
            name=read_name(item["name"]), arguments=arguments, id=call_id, invalid=problem
        )
    return calls


def _refers_to_stored_data(item: Json) -> bool:
    """Tell whether an item cannot be sent back: reasoning that is not encrypted refers to data that
    the vendor has stored, and we have it store nothing.
    """
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _item_to_send_back(item: Json, call: FunctionCall | None) -> Json:
    """Return an item as it will be sent back: without nulls, which the API sends but refuses."""
    sent_back = {key: value for key, value in item.items() if value is not None}
    if call:
        sent_back["call_id"] = call.id
        arguments = item.get("arguments")
        if call.invalid or not isinstance(arguments, str) or not arguments.strip():
            sent_back |= {"arguments": json.dumps(call.arguments), "status": "completed"}
    return sent_back


def _parse_usage(usage: Json) -> Usage:
    input_details = usage.get("input_tokens_details") or {}
    output_details = usage.get("output_tokens_details") or {}
    return Usage(
        input=to_count(usage.get("input_tokens")),
        cache_read=to_count(input_details.get("cached_tokens")),
        cache_write=to_count(input_details.get("cache_write_tokens")),
        output=to_count(usage.get("output_tokens")),
        reasoning=to_count(output_details.get("reasoning_tokens")),
    )


# Events with the whole response; each of them is the end of the stream.
_FINAL_EVENTS = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
)
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_THINKING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class _ResponsesAssembler:
    """Yields the text of deltas; keeps finished items and the whole response of the last event."""

    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._response: Json | None = None

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def add_event(self, name: str, data: Json) -> Chunk | None:
        kind = data.get("type") or name
        if kind in _TEXT_EVENTS:
            return Chunk(delta=data["delta"])
        if kind in _THINKING_EVENTS:
            return Chunk(thinking=data["delta"])
        if kind == "response.output_item.done":
            self._items[data["output_index"]] = data["item"]
        elif kind in _FINAL_EVENTS:
            self._response = data["response"]
        return None

    def assemble(self) -> Json | None:
        if self._response is None:
            return None
        if self._response.get("output") or not self._items:
            return self._response
        # Some compatible servers leave the items out of the last event.
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}


RESPONSES = WireFormat(
    api=_API,
    path="/responses",
    build_body=_build_body,
    convert_tools=_convert_tools,
    parse_answer=_parse_answer,
    new_assembler=_ResponsesAssembler,
    models_path="/models",
    stream_fields={"stream": True},
)
