"""Chat Completions: OpenAI's older language, which nearly everybody else speaks too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from daemon.errors import Overloaded, Transport, Unavailable
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

_API = "chat"
# Everything not named here means the same as "stop".
_FINISH = {
    "length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # GLM
    "model_context_window_exceeded": "context",
}
# Ends that are the server's failure, though it says 200.
_FAILURES = {
    "insufficient_system_resource": Overloaded,  # DeepSeek
    "network_error": Unavailable,  # GLM
}
# What a server calls the model's reasoning: most of them; vLLM since 0.12, Ollama and OpenRouter.
_REASONING = ("reasoning_content", "reasoning")
# Kept on a call that goes back to its vendor. Gemini signs its calls in `extra_content` and wants
# that back.
_KEPT = ("extra_content",)


def _body(question: ChatRequest) -> Json:
    row = question.capabilities
    body: Json = {"model": question.model, "messages": _messages(question)}
    if question.temperature is not None:
        body["temperature"] = question.temperature
    if question.max_tokens is not None:
        body[row.max_tokens_field] = question.max_tokens
    if (
        question.cache_key and question.vendor == "api.openai.com"
    ):  # elsewhere an unknown field may be refused
        body["prompt_cache_key"] = question.cache_key
    if row.thinking:
        body["thinking"] = row.thinking
    return body | row.extra


def _messages(question: ChatRequest) -> list[Json]:
    system, rest = split_system(question.messages)
    written: list[Json] = [{"role": "system", "content": system}] if system else []
    ids = Ids()
    for message in rest:
        if message.role == "assistant":
            own = own_blocks(message, question, _API)
            written += _rebuilt(message, question, ids) if own is None else own
        elif message.role == "tool":
            written.append(
                {"role": "tool", "tool_call_id": ids.of_result(message), "content": message.content}
            )
        else:
            written.append({"role": "user", "content": _shown(message, question)})
    return written


def _shown(message: LLMMessage, question: ChatRequest) -> str | list[Json]:
    if not message.images:
        return message.content
    images = shown_images(message, question)
    if not images:
        return told(message, question)
    parts: list[Json] = [
        {"type": "image_url", "image_url": {"url": address(image)}} for image in images
    ]
    return [*parts, {"type": "text", "text": message.content}] if message.content else parts


def _rebuilt(message: LLMMessage, question: ChatRequest, ids: Ids) -> list[Json]:
    """Write down what another vendor's model said; nothing at all if it said nothing."""
    if not message.tool_calls:
        return [{"role": "assistant", "content": message.content}] if message.content else []
    calls = [
        _call(ids.foreign(call), call.name, json.dumps(call.arguments))
        for call in message.tool_calls
    ]
    written: Json = {"role": "assistant", "content": message.content, "tool_calls": calls}
    if question.capabilities.echo == "required":
        written["reasoning_content"] = ""
    return [written]


def _call(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _tools(functions: Sequence[Json]) -> list[Json]:
    return [{"type": "function", "function": function} for function in functions]


def _read(data: Json, question: ChatRequest) -> LLMResponse:
    if not data.get("choices"):
        raise Transport("the answer holds no choices")
    choice = data["choices"][0]
    message, reason = choice["message"], choice.get("finish_reason")
    if failure := _FAILURES.get(reason):
        raise failure(f"the server broke the answer off ({reason})")
    text, thought = _split_thought(_text(message.get("content")))
    name, reasoning = "", thought
    for each in _REASONING:
        if given := message.get(each):
            name, reasoning = each, given
            break
    finish = _FINISH.get(reason, "stop")
    if refusal := message.get("refusal"):
        text, finish = refusal, "refusal"
    refused = finish in ("refusal", "content_filter")
    asked = message.get("tool_calls")
    calls = _calls(asked, question) if asked and not refused else ()
    if calls and finish in ("length", "context"):
        calls = (*calls[:-1], replace(calls[-1], arguments={}, invalid=CUT_OFF))
    block: Json = {"role": "assistant", "content": message.get("content")}
    if calls:
        finish = "tool_calls" if finish == "stop" else finish
        block["tool_calls"] = [
            _replayed(call, given) for call, given in zip(calls, asked, strict=True)
        ]
        if question.capabilities.echo == "required" or (
            question.capabilities.echo == "received" and name
        ):
            block[name or "reasoning_content"] = message[name] if name else ""
    said_something = not refused and (text or calls)
    return LLMResponse(
        content=sound(text),
        function_calls=calls,
        finish_reason=finish,
        usage=_usage(data.get("usage") or {}),
        reasoning=sound(reasoning),
        provider_extras=extras(question, _API, [block] if said_something else []),
        model=data.get("model") or question.model,
        request_id=data.get("id"),
    )


def _text(content: Any) -> str:
    """Return the text of a content; Mistral sends a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content or ""


def _split_thought(text: str) -> tuple[str, str]:
    """Take a leading `<think>…</think>` off a text: servers without a reasoning parser leave it
    there.
    """
    if not text.lstrip().startswith("<think>"):
        return text, ""
    thought, _, rest = text.lstrip().removeprefix("<think>").partition("</think>")
    return rest.lstrip(), thought.strip()


def _calls(given: Sequence[Json], question: ChatRequest) -> tuple[FunctionCall, ...]:
    taken = taken_ids(question)
    calls = []
    for call in given:
        arguments, problem = read_arguments(call["function"].get("arguments"))
        call_id = fresh_id(call.get("id"), taken)
        calls.append(
            FunctionCall(
                name=call["function"]["name"], arguments=arguments, id=call_id, invalid=problem
            )
        )
    return tuple(calls)


def _replayed(call: FunctionCall, given: Json) -> Json:
    """Return a call as it will be sent back: word for word, unless its words would poison every
    later request.
    """
    words = given["function"].get("arguments")
    if call.invalid or not isinstance(words, str) or not words.strip():
        words = json.dumps(call.arguments)
    return _call(call.id or "", call.name, words) | {
        key: given[key] for key in _KEPT if key in given
    }


def _usage(usage: Json) -> Usage:
    sent, made = (
        usage.get("prompt_tokens_details") or {},
        usage.get("completion_tokens_details") or {},
    )
    # DeepSeek and Kimi name the cached part in their own ways
    read = (
        sent.get("cached_tokens")
        or usage.get("prompt_cache_hit_tokens")
        or usage.get("cached_tokens")
    )
    return Usage(
        input=number(usage.get("prompt_tokens")),
        cache_read=number(read),
        cache_write=number(sent.get("cache_write_tokens")),
        output=number(usage.get("completion_tokens")),
        reasoning=number(made.get("reasoning_tokens")),
    )


class _ChatAssembler:
    """`choices[0].delta`, many times over; calls come in parts told apart by their index, or else
    by their id.
    """

    def __init__(self) -> None:
        self._top: Json = {}
        # texts as they came, put together at the end: adding to one text again and again copies it
        # each time
        self._texts: dict[str, list[str]] = {}
        self._calls: list[Json] = []
        self._arguments: list[list[str]] = []
        """Of each call."""
        self._by_index: dict[Any, int] = {}
        """The place of a call among the calls."""
        self._finish: str | None = None
        self._chosen = False

    ended = False  # no event says so: the usage comes after the last choice

    def add(self, name: str, data: Json) -> Chunk | None:
        self._top |= {
            key: value for key, value in data.items() if key != "choices" and value is not None
        }
        if not data.get("choices"):
            return None
        self._chosen = True
        choice = data["choices"][0]
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta") or choice.get("message") or {}
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        said = {key: _text(delta.get(key)) for key in ("content", "refusal", *_REASONING)}
        for key, text in said.items():
            if text:
                self._texts.setdefault(key, []).append(text)
        thought = next((said[key] for key in _REASONING if said[key]), "")
        text = said["content"] or said["refusal"]
        return Chunk(delta=text, thinking=thought) if text or thought else None

    def _add_call(self, part: Json) -> None:
        function, index, call_id = part.get("function") or {}, part.get("index"), part.get("id")
        last = len(self._calls) - 1 if self._calls else None
        place = self._by_index.get(index) if index is not None else last
        # some servers number every call 0, or none at all; a name and another id then begin a new
        # one
        begun = self._calls[place]["id"] if place is not None else None
        if place is None or (call_id and begun and call_id != begun and function.get("name")):
            place = len(self._calls)
            self._calls.append(
                {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            )
            self._arguments.append([])
        self._by_index[index] = place
        call = self._calls[place]
        call |= {key: part[key] for key in ("id", *_KEPT) if part.get(key)}
        if name := function.get("name"):
            call["function"]["name"] = name
        given = function.get("arguments")
        if isinstance(given, str):
            self._arguments[place].append(given)
        elif given is not None:
            call["function"]["arguments"] = given

    def whole(self) -> Json | None:
        if self._finish is None:
            # a server that ends a stream without an end and without a choice has answered nothing
            return {**self._top, "choices": []} if not self._chosen else None
        message: Json = {"role": "assistant", "content": None}
        message |= {key: "".join(texts) for key, texts in self._texts.items()}
        for call, arguments in zip(self._calls, self._arguments, strict=True):
            if arguments:
                call["function"]["arguments"] = "".join(arguments)
        if self._calls:
            message["tool_calls"] = self._calls
        return {
            **self._top,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish}],
        }


CHAT = WireFormat(
    api=_API,
    path="/chat/completions",
    body=_body,
    tools=_tools,
    read=_read,
    pieces=_ChatAssembler,
    models="/models",
    streaming={"stream": True, "stream_options": {"include_usage": True}},
)
