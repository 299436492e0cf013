"""Messages: Anthropic's API, which MiniMax and some others have as well.

Thinking comes in signed blocks that must be sent back byte for byte and in order; newer models bind
them to the exact conversation before them. So a turn is sent back as the list of blocks that was
received, and blocks are distinguished by type, never by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from daemon.errors import TransportError
from daemon.models import Chunk, FunctionCall, Image, Json, LLMMessage, LLMResponse, Usage
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
from daemon.providers.wire.images import to_base64

_API = "messages"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context",
}
_THINKING = ("thinking", "redacted_thinking")
# The API demands a limit and counts thinking towards it, so a small one may leave no room for text.
_DEFAULT_MAX_TOKENS = 16_384


def _build_body(request: ChatRequest) -> Json:
    capabilities = request.capabilities
    system, messages = split_system(request.messages)
    limit = request.max_tokens or _DEFAULT_MAX_TOKENS
    body: Json = {
        "model": request.model,
        "max_tokens": limit,
        "messages": _convert_messages(messages, request),
    }
    if system.strip():
        body["system"] = system
    if request.effort is not None:
        body["output_config"] = {"effort": request.effort}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if capabilities.thinking:
        body["thinking"] = capabilities.thinking
    if capabilities.cache and request.offers_tools:
        # Input that is written to the cache costs a quarter more, which pays only if it is sent
        # again, as in a tool loop.
        body["cache_control"] = {"type": "ephemeral"}
    return body | capabilities.extra


def _convert_messages(messages: Sequence[LLMMessage], request: ChatRequest) -> list[Json]:
    """Convert the conversation.

    All tool results of a turn go into one user message, before any text, and empty texts are left
    out: the API refuses anything else.
    """
    wire_messages: list[Json] = []
    ids = CallIds()
    for message in messages:
        if message.role == "assistant":
            vendor_blocks = find_vendor_blocks(message, request, _API)
            if vendor_blocks is None:
                vendor_blocks = _convert_foreign(message, ids)
            _append_blocks(wire_messages, "assistant", vendor_blocks)
        elif message.role == "tool":
            _append_blocks(wire_messages, "user", [_result_block(message, ids)])
        else:
            blocks = _text_blocks(user_text(message, request))
            if message.images:
                blocks = [
                    *(_image_block(image) for image in visible_images(message, request)),
                    *blocks,
                ]
            _append_blocks(wire_messages, "user", blocks)
    return wire_messages


def _append_blocks(wire_messages: list[Json], role: str, blocks: list[Json]) -> None:
    if not blocks:
        return
    if wire_messages and wire_messages[-1]["role"] == role:
        wire_messages[-1]["content"] = [*wire_messages[-1]["content"], *blocks]
    else:
        wire_messages.append({"role": role, "content": blocks})


def _image_block(image: Image) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": to_base64(image)}
    return {"type": "image", "source": source}


def _text_blocks(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _result_block(message: LLMMessage, ids: CallIds) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": ids.result_id(message)}
    if message.content:
        block["content"] = message.content
    if not message.ok:
        block["is_error"] = True
    return block


def _convert_foreign(message: LLMMessage, ids: CallIds) -> list[Json]:
    """Convert the message of another vendor's model, without its reasoning."""
    uses = [
        {"type": "tool_use", "id": ids.id_for(call), "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return [*_text_blocks(message.content), *uses]


def _convert_tools(functions: Sequence[Json]) -> list[Json]:
    return [
        {
            "name": function["name"],
            "description": function.get("description", ""),
            "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
            **({"strict": True} if function.get("strict") else {}),
        }
        for function in functions
    ]


def _parse_answer(data: Json, request: ChatRequest) -> LLMResponse:
    content = data["content"]
    if not isinstance(content, list):
        raise TransportError("the answer holds no list of blocks")
    finish = _FINISH.get(data.get("stop_reason") or "", "stop")
    is_refused = finish == "refusal"
    text = "\n\n".join(
        [block["text"] for block in content if block["type"] == "text" and block["text"].strip()]
    )
    if is_refused and not text:
        text = (data.get("stop_details") or {}).get("explanation") or ""
    calls = {} if is_refused or finish == "pause" else _parse_calls(content, request)
    last_index = len(content) - 1
    if finish in ("length", "context") and last_index in calls:
        calls[last_index] = replace(calls[last_index], arguments={}, invalid=CUT_OFF)
    if finish == "tool_calls" and not calls:
        finish = "stop"
    return LLMResponse(
        content=repair_text(text),
        function_calls=tuple(calls.values()),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=_parse_usage(data.get("usage") or {}),
        reasoning=repair_text(_join_thinking(content)),
        provider_extras=pack_extras(
            request, _API, [] if is_refused else _blocks_to_send_back(content, calls)
        ),
        model=data.get("model") or request.model,
        request_id=data.get("id"),
    )


def _parse_calls(content: Sequence[Json], request: ChatRequest) -> dict[int, FunctionCall]:
    """Return the calls by the index of their block."""
    uses = [(index, block) for index, block in enumerate(content) if block["type"] == "tool_use"]
    taken_ids, calls = used_ids(request) if uses else set(), {}
    for index, block in uses:
        arguments, problem = read_arguments(block.get("input"))
        call_id = unused_id(block.get("id"), taken_ids)
        calls[index] = FunctionCall(
            name=read_name(block["name"]), arguments=arguments, id=call_id, invalid=problem
        )
    return calls


def _blocks_to_send_back(content: Sequence[Json], calls: dict[int, FunctionCall]) -> list[Json]:
    """Return the blocks as they will be sent back: unchanged, except for what the API sends but
    does not accept.
    """
    blocks = []
    for index, block in enumerate(content):
        call = calls.get(index)
        if call and (call.id != block.get("id") or not isinstance(block.get("input"), dict)):
            blocks.append({**block, "id": call.id, "input": call.arguments})
        elif block["type"] != "text" or block["text"].strip():
            blocks.append(block)
    while blocks and blocks[-1]["type"] in _THINKING:
        # "The final block in an assistant message cannot be `thinking`", as when the token limit
        # cut the answer off.
        blocks.pop()
    return blocks


def _join_thinking(content: Sequence[Json]) -> str:
    return "\n\n".join(
        [
            block["thinking"]
            for block in content
            if block["type"] == "thinking" and block["thinking"]
        ]
    )


def _parse_usage(usage: dict[str, Any]) -> Usage:
    cache_read = to_count(usage.get("cache_read_input_tokens"))
    cache_write = to_count(usage.get("cache_creation_input_tokens"))
    uncached_tokens = to_count(usage.get("input_tokens"))
    return Usage(
        input=uncached_tokens + cache_read + cache_write,
        cache_read=cache_read,
        cache_write=cache_write,
        output=to_count(usage.get("output_tokens")),
        reasoning=to_count((usage.get("output_tokens_details") or {}).get("thinking_tokens")),
    )


# By type of a delta: the field of the delta, which is also the field of the block that it extends.
_DELTA_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _MessagesAssembler:
    """Assembles `message_start`, for each block its start and deltas, `message_delta` with the stop
    reason, and `message_stop`.
    """

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        # Texts of deltas by (index of the block, field), joined at the end: appending to a string
        # copies it each time.
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._inputs: dict[int, list[str]] = {}
        """Parts of the JSON of each call's arguments, by index of the block."""
        self.is_complete = False

    def add_event(self, name: str, data: Json) -> Chunk | None:
        match data.get("type"):
            case "message_start":
                self._message = dict(data["message"])
            case "content_block_start":
                self._blocks[data["index"]] = block = dict(data["content_block"])
                return _chunk(block.get("text"), block.get("thinking"))
            case "content_block_delta":
                return self._add_delta(data["index"], data["delta"])
            case "message_delta":
                self._message |= {
                    key: value for key, value in data["delta"].items() if value is not None
                }
                counts = {
                    key: value
                    for key, value in (data.get("usage") or {}).items()
                    if value is not None
                }
                self._message["usage"] = (self._message.get("usage") or {}) | counts
            case "message_stop":
                self.is_complete = True
        return None

    def _add_delta(self, index: int, delta: Json) -> Chunk | None:
        kind, block = delta["type"], self._blocks[index]
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        elif kind == "citations_delta":
            if not block.get("citations"):
                block["citations"] = []
            block["citations"].append(delta["citation"])
        elif field := _DELTA_FIELDS.get(kind):
            self._texts.setdefault((index, field), []).append(delta[field])
        return _chunk(delta.get("text"), delta.get("thinking"))

    def assemble(self) -> Json | None:
        if not self.is_complete:
            return None
        for (index, field), texts in self._texts.items():
            block = self._blocks[index]
            block[field] = (block.get(field) or "") + "".join(texts)
        for index, parts in self._inputs.items():
            text = "".join(parts)
            if text.strip():
                arguments, problem = read_arguments(text)
                self._blocks[index]["input"] = text if problem else arguments
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]}


def _chunk(text: str | None, thinking: str | None) -> Chunk | None:
    return Chunk(delta=text or "", thinking=thinking or "") if text or thinking else None


MESSAGES = WireFormat(
    api=_API,
    path="/v1/messages",
    build_body=_build_body,
    convert_tools=_convert_tools,
    parse_answer=_parse_answer,
    new_assembler=_MessagesAssembler,
    models_path="/v1/models?limit=1000",
    stream_fields={"stream": True},
    max_tokens=_DEFAULT_MAX_TOKENS,
)
