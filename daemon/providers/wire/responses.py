"""Responses: OpenAI's own language, used without its memory.

Nothing is stored with the vendor (`store = false`): every request carries all items, and reasoning
comes and goes sealed (`reasoning.encrypted_content`), each piece directly before the call or text
that it led to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from daemon.errors import Transport, Unavailable
from daemon.models import Chunk, FunctionCall, Json, LLMMessage, LLMResponse, Usage
from daemon.providers.wire.base import (
    CUT_OFF,
    ChatRequest,
    Ids,
    WireFormat,
    extras,
    fresh_id,
    number,
    own_blocks,
    read_arguments,
    shown_images,
    sound,
    split_system,
    taken_ids,
    told,
)
from daemon.providers.wire.images import address

_API = "responses"


def _body(question: ChatRequest) -> Json:
    row = question.capabilities
    system, rest = split_system(question.messages)
    body: Json = {"model": question.model, "store": False, "input": _items(rest, question)}
    if system:
        body["instructions"] = system
    if row.reasoning:
        # a model that does not reason refuses to be asked for it: "Encrypted content is not
        # supported with this model"
        body["include"] = ["reasoning.encrypted_content"]
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if question.max_tokens is not None:
        body["max_output_tokens"] = question.max_tokens
    if question.cache_key:
        body["prompt_cache_key"] = question.cache_key
    return body | row.extra


def _items(messages: Sequence[LLMMessage], question: ChatRequest) -> list[Json]:
    written: list[Json] = []
    ids = Ids()
    for message in messages:
        if message.role == "assistant":
            own = own_blocks(message, question, _API)
            written += _rebuilt(message, ids) if own is None else own
        elif message.role == "tool":
            output = {
                "type": "function_call_output",
                "call_id": ids.of_result(message),
                "output": message.content,
            }
            written.append(output)
        else:
            written.append(
                {"type": "message", "role": "user", "content": _shown(message, question)}
            )
    return written


def _shown(message: LLMMessage, question: ChatRequest) -> str | list[Json]:
    if not message.images:
        return message.content
    images = shown_images(message, question)
    if not images:
        return told(message, question)
    parts: list[Json] = [
        {"type": "input_image", "detail": "auto", "image_url": address(image)} for image in images
    ]
    return [*parts, {"type": "input_text", "text": message.content}] if message.content else parts


def _rebuilt(message: LLMMessage, ids: Ids) -> list[Json]:
    """Write down what another vendor's model said; nothing at all if it said nothing."""
    written: list[Json] = []
    if message.content:
        written.append({"type": "message", "role": "assistant", "content": message.content})
    for call in message.tool_calls:
        item = {"type": "function_call", "call_id": ids.foreign(call), "name": call.name}
        written.append(item | {"arguments": json.dumps(call.arguments)})
    return written


def _tools(functions: Sequence[Json]) -> list[Json]:
    # `strict` is on unless it is turned off, and strict schemas may have no optional parameter
    return [{"type": "function", "strict": False, **function} for function in functions]


def _read(data: Json, question: ChatRequest) -> LLMResponse:
    if data.get("status") in ("failed", "cancelled"):
        raise Unavailable("the vendor gave the answer up")
    output = data["output"]
    if not output and data.get("status") != "incomplete":
        raise Transport("the answer holds no output")
    finish, text = _finish(data), _texts(output, "output_text", "text")
    if refusal := _texts(output, "refusal", "refusal"):
        text, finish = refusal, "refusal"
    refused = finish in ("refusal", "content_filter")
    calls = {} if refused else _calls(output, question)
    if finish == "length" and output and len(output) - 1 in calls:
        calls[len(output) - 1] = replace(calls[len(output) - 1], arguments={}, invalid=CUT_OFF)
    kept = (
        [] if refused else [(index, item) for index, item in enumerate(output) if not _lost(item)]
    )
    blocks = [_replayed(item, calls.get(index)) for index, item in kept]
    while blocks and blocks[-1].get("type") == "reasoning":
        # "provided without its required following item": what the token limit cut off, or a stall
        blocks.pop()
    return LLMResponse(
        content=sound(text),
        function_calls=tuple(calls.values()),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=_usage(data.get("usage") or {}),
        reasoning=sound(_reasoning(output)),
        provider_extras=extras(question, _API, blocks),
        model=data.get("model") or question.model,
        request_id=data.get("id"),
    )


def _finish(data: Json) -> str:
    if data.get("status") != "incomplete":
        return "stop"
    reason = (data.get("incomplete_details") or {}).get("reason")
    return "content_filter" if reason == "content_filter" else "length"


def _texts(output: Sequence[Json], kind: str, key: str) -> str:
    said = [
        part[key]
        for item in output
        if item.get("type") == "message"
        for part in item["content"]
        if part.get("type") == kind and part.get(key)
    ]
    return "\n\n".join(said)


def _reasoning(output: Sequence[Json]) -> str:
    items = [item for item in output if item.get("type") == "reasoning"]
    return "\n\n".join(
        [part["text"] for item in items for part in (item.get("summary") or ()) if part.get("text")]
    )


def _calls(output: Sequence[Json], question: ChatRequest) -> dict[int, FunctionCall]:
    """Return the calls by their place in the output."""
    asked = [
        (index, item) for index, item in enumerate(output) if item.get("type") == "function_call"
    ]
    taken, calls = taken_ids(question) if asked else set(), {}
    for index, item in asked:
        arguments, problem = read_arguments(item.get("arguments"))
        call_id = fresh_id(item.get("call_id"), taken)
        calls[index] = FunctionCall(
            name=item["name"], arguments=arguments, id=call_id, invalid=problem
        )
    return calls


def _lost(item: Json) -> bool:
    """Tell whether an item cannot be sent back: reasoning that came unsealed stays with the vendor,
    who forgets it.
    """
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _replayed(item: Json, call: FunctionCall | None) -> Json:
    """Return an item as it will be sent back: as it came, but for nulls, which are refused where
    they came from.
    """
    kept = {key: value for key, value in item.items() if value is not None}
    if call:
        kept["call_id"] = call.id
        words = item.get("arguments")
        if call.invalid or not isinstance(words, str) or not words.strip():
            kept |= {"arguments": json.dumps(call.arguments), "status": "completed"}
    return kept


def _usage(usage: Json) -> Usage:
    sent, made = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return Usage(
        input=number(usage.get("input_tokens")),
        cache_read=number(sent.get("cached_tokens")),
        cache_write=number(sent.get("cache_write_tokens")),
        output=number(usage.get("output_tokens")),
        reasoning=number(made.get("reasoning_tokens")),
    )


# Events that carry the whole answer; the last one of these is the end.
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class _ResponsesAssembler:
    """Deltas to show, finished items, and at the end the whole response once more."""

    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._response: Json | None = None

    @property
    def ended(self) -> bool:
        return self._response is not None

    def add(self, name: str, data: Json) -> Chunk | None:
        kind = data.get("type") or name
        if kind in _TEXT:
            return Chunk(delta=data["delta"])
        if kind in _THOUGHT:
            return Chunk(thinking=data["delta"])
        if kind == "response.output_item.done":
            self._items[data["output_index"]] = data["item"]
        elif kind in _ENDS:
            self._response = data["response"]
        return None

    def whole(self) -> Json | None:
        if self._response is None:
            return None
        if self._response.get("output") or not self._items:
            return self._response
        # some compatible servers leave the items out of the last event
        return {**self._response, "output": [self._items[place] for place in sorted(self._items)]}


RESPONSES = WireFormat(
    api=_API,
    path="/responses",
    body=_body,
    tools=_tools,
    read=_read,
    pieces=_ResponsesAssembler,
    models="/models",
    streaming={"stream": True},
)
