"""Messages: Anthropic's language, which MiniMax and some others speak too.

Thinking comes in signed blocks that go back byte for byte, in order; newer models bind them to the
exact conversation before them. So a turn is replayed as the list of blocks that it was, and blocks
are told apart by type, never by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from daemon.errors import Transport
from daemon.models import Chunk, FunctionCall, Image, Json, LLMMessage, LLMResponse, Usage
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
from daemon.providers.wire.images import encoded

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
# The API demands a limit, and counts thinking towards it: a small one cuts answers off before they
# begin.
_MAX_TOKENS = 16_384


def _body(question: ChatRequest) -> Json:
    row = question.capabilities
    system, rest = split_system(question.messages)
    limit = question.max_tokens or _MAX_TOKENS
    body: Json = {
        "model": question.model,
        "max_tokens": limit,
        "messages": _messages(rest, question),
    }
    if system.strip():
        body["system"] = system
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if row.thinking:
        body["thinking"] = row.thinking
    if row.cache and question.offers_tools:
        # writing the cache costs a quarter more than not caching, so only what will be sent again
        # is worth it
        body["cache_control"] = {"type": "ephemeral"}
    return body | row.extra


def _messages(messages: Sequence[LLMMessage], question: ChatRequest) -> list[Json]:
    """Write the conversation down.

    All results of a turn go into one user message, before any text. Empty texts are left out, as
    the API refuses them.
    """
    written: list[Json] = []
    ids = Ids()
    for message in messages:
        if message.role == "assistant":
            own = own_blocks(message, question, _API)
            _add(written, "assistant", _rebuilt(message, ids) if own is None else own)
        elif message.role == "tool":
            _add(written, "user", [_result(message, ids)])
        else:
            blocks = _text(told(message, question))
            if message.images:
                blocks = [*(_picture(image) for image in shown_images(message, question)), *blocks]
            _add(written, "user", blocks)
    return written


def _add(written: list[Json], role: str, blocks: list[Json]) -> None:
    if not blocks:
        return
    if written and written[-1]["role"] == role:
        written[-1]["content"] = [*written[-1]["content"], *blocks]
    else:
        written.append({"role": role, "content": blocks})


def _picture(image: Image) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": encoded(image)}
    return {"type": "image", "source": source}


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _result(message: LLMMessage, ids: Ids) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": ids.of_result(message)}
    if message.content:
        block["content"] = message.content
    if not message.ok:
        block["is_error"] = True
    return block


def _rebuilt(message: LLMMessage, ids: Ids) -> list[Json]:
    """Write down what another vendor's model said; its reasoning means nothing here."""
    uses = [
        {"type": "tool_use", "id": ids.foreign(call), "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return [*_text(message.content), *uses]


def _tools(functions: Sequence[Json]) -> list[Json]:
    return [
        {
            "name": function["name"],
            "description": function.get("description", ""),
            "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
            **({"strict": True} if function.get("strict") else {}),
        }
        for function in functions
    ]


def _read(data: Json, question: ChatRequest) -> LLMResponse:
    content = data["content"]
    if not isinstance(content, list):
        raise Transport("the answer holds no list of blocks")
    finish = _FINISH.get(data.get("stop_reason") or "", "stop")
    refused = finish == "refusal"
    text = "\n\n".join(
        [block["text"] for block in content if block["type"] == "text" and block["text"].strip()]
    )
    if refused and not text:
        text = (data.get("stop_details") or {}).get("explanation") or ""
    calls = {} if refused or finish == "pause" else _calls(content, question)
    last = len(content) - 1
    if finish in ("length", "context") and last in calls:
        calls[last] = replace(calls[last], arguments={}, invalid=CUT_OFF)
    if finish == "tool_calls" and not calls:
        finish = "stop"
    return LLMResponse(
        content=sound(text),
        function_calls=tuple(calls.values()),
        finish_reason="tool_calls" if calls and finish == "stop" else finish,
        usage=_usage(data.get("usage") or {}),
        reasoning=sound(_reasoning(content)),
        provider_extras=extras(question, _API, [] if refused else _replayed(content, calls)),
        model=data.get("model") or question.model,
        request_id=data.get("id"),
    )


def _calls(content: Sequence[Json], question: ChatRequest) -> dict[int, FunctionCall]:
    """Return the calls by their place in the content."""
    uses = [(index, block) for index, block in enumerate(content) if block["type"] == "tool_use"]
    taken, calls = taken_ids(question) if uses else set(), {}
    for index, block in uses:
        arguments, problem = read_arguments(block.get("input"))
        call_id = fresh_id(block.get("id"), taken)
        calls[index] = FunctionCall(
            name=block["name"], arguments=arguments, id=call_id, invalid=problem
        )
    return calls


def _replayed(content: Sequence[Json], calls: dict[int, FunctionCall]) -> list[Json]:
    """Return the blocks as they will be sent back: the same objects, but for what the API sends and
    then refuses.
    """
    blocks = []
    for index, block in enumerate(content):
        call = calls.get(index)
        if call and (call.id != block.get("id") or not isinstance(block.get("input"), dict)):
            blocks.append({**block, "id": call.id, "input": call.arguments})
        elif block["type"] != "text" or block["text"].strip():
            blocks.append(block)
    while blocks and blocks[-1]["type"] in _THINKING:
        # "The final block in an assistant message cannot be `thinking`": what was cut off, or a
        # stall
        blocks.pop()
    return blocks


def _reasoning(content: Sequence[Json]) -> str:
    return "\n\n".join(
        [
            block["thinking"]
            for block in content
            if block["type"] == "thinking" and block["thinking"]
        ]
    )


def _usage(usage: dict[str, Any]) -> Usage:
    read, write = (
        number(usage.get("cache_read_input_tokens")),
        number(usage.get("cache_creation_input_tokens")),
    )
    return Usage(
        input=number(usage.get("input_tokens"))
        + read
        + write,  # `input_tokens` is the uncached part only
        cache_read=read,
        cache_write=write,
        output=number(usage.get("output_tokens")),
        reasoning=number((usage.get("output_tokens_details") or {}).get("thinking_tokens")),
    )


# What a delta adds to its block: the field of the delta, and that of the block.
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _MessagesAssembler:
    """A message without content, then its blocks one by one, each begun, added to and ended, then
    how it stopped.
    """

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        # what deltas add to a block, by its index and field, put together at the end: adding to one
        # text again and again copies it each time
        self._added: dict[tuple[int, str], list[str]] = {}
        self._inputs: dict[int, list[str]] = {}
        self.ended = False

    def add(self, name: str, data: Json) -> Chunk | None:
        match data.get("type"):
            case "message_start":
                self._message = dict(data["message"])
            case "content_block_start":
                self._blocks[data["index"]] = block = dict(data["content_block"])
                return _shown(block.get("text"), block.get("thinking"))
            case "content_block_delta":
                return self._add_delta(data["index"], data["delta"])
            case "message_delta":
                self._message |= {
                    key: value for key, value in data["delta"].items() if value is not None
                }
                self._message["usage"] = (self._message.get("usage") or {}) | (
                    data.get("usage") or {}
                )
            case "message_stop":
                self.ended = True
        return None

    def _add_delta(self, index: int, delta: Json) -> Chunk | None:
        kind, block = delta["type"], self._blocks[index]
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        elif kind == "citations_delta":
            if not block.get("citations"):
                block["citations"] = []
            block["citations"].append(delta["citation"])
        elif field := _DELTAS.get(kind):
            self._added.setdefault((index, field), []).append(delta[field])
        return _shown(delta.get("text"), delta.get("thinking"))

    def whole(self) -> Json | None:
        if not self.ended:
            return None
        for (index, field), texts in self._added.items():
            block = self._blocks[index]
            block[field] = (block.get(field) or "") + "".join(texts)
        for index, parts in self._inputs.items():
            words = "".join(parts)
            if words.strip():
                arguments, problem = read_arguments(words)
                self._blocks[index]["input"] = words if problem else arguments
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]}


def _shown(text: str | None, thought: str | None) -> Chunk | None:
    return Chunk(delta=text or "", thinking=thought or "") if text or thought else None


MESSAGES = WireFormat(
    api=_API,
    path="/v1/messages",
    body=_body,
    tools=_tools,
    read=_read,
    pieces=_MessagesAssembler,
    models="/v1/models?limit=1000",
    streaming={"stream": True},
    max_tokens=_MAX_TOKENS,
)
