"""Chat Completions: OpenAI's older API, which nearly all other vendors and servers have as well."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from daemon.errors import Overloaded, TransportError, Unavailable
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

_API = "chat"
# Our `finish_reason` by the vendor's. Every other one is "stop".
_FINISH = {
    "length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # GLM
    "model_context_window_exceeded": "context",
    "model_length": "context",  # Mistral
}
# Gemini names the reason behind it, as in "content_filter: PROHIBITED_CONTENT".
_CONTENT_FILTER = "content_filter:"
# Values of `finish_reason` that report a failure, though the status is 200.
_FAILED_FINISHES = {
    "insufficient_system_resource": Overloaded,  # DeepSeek
    "network_error": Unavailable,  # GLM
    "error": Unavailable,  # OpenRouter and Mistral: the answer broke off after its beginning
    "abort": Unavailable,  # vLLM and SGLang
}
_MAX_DETAIL = 300  # characters of what a server says of a failure
# Keys of the model's reasoning. The second is that of vLLM since 0.12, Ollama and OpenRouter.
_REASONING_KEYS = ("reasoning_content", "reasoning")
_THINKING_END = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)
# Keys of a call that are sent back to its vendor. Gemini signs its calls in `extra_content`.
_SENT_BACK_KEYS = ("extra_content",)


def _build_body(request: ChatRequest) -> Json:
    capabilities = request.capabilities
    body: Json = {"model": request.model, "messages": _convert_messages(request)}
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body[capabilities.max_tokens_field] = request.max_tokens
    if request.cache_key and request.vendor == "api.openai.com":  # others may refuse the field
        body["prompt_cache_key"] = request.cache_key
    if capabilities.thinking:
        body["thinking"] = capabilities.thinking
    return body | capabilities.extra


def _convert_messages(request: ChatRequest) -> list[Json]:
    system, messages = split_system(request.messages)
    wire_messages: list[Json] = [{"role": "system", "content": system}] if system else []
    ids = CallIds()
    for message in messages:
        if message.role == "assistant":
            blocks = find_vendor_blocks(message, request, _API)
            wire_messages += _convert_foreign(message, request, ids) if blocks is None else blocks
        elif message.role == "tool":
            wire_messages.append(
                {"role": "tool", "tool_call_id": ids.result_id(message), "content": message.content}
            )
        else:
            wire_messages.append({"role": "user", "content": _user_content(message, request)})
    return wire_messages


def _user_content(message: LLMMessage, request: ChatRequest) -> str | list[Json]:
    if not message.images:
        return message.content
    images = visible_images(message, request)
    if not images:
        return user_text(message, request)
    content: list[Json] = [
        {"type": "image_url", "image_url": {"url": to_data_url(image)}} for image in images
    ]
    return [*content, {"type": "text", "text": message.content}] if message.content else content


def _convert_foreign(message: LLMMessage, request: ChatRequest, ids: CallIds) -> list[Json]:
    """Convert the message of another vendor's model; to nothing if it is empty."""
    if not message.tool_calls:
        return [{"role": "assistant", "content": message.content}] if message.content else []
    calls = [
        _call(ids.id_for(call), call.name, json.dumps(call.arguments))
        for call in message.tool_calls
    ]
    wire_message: Json = {"role": "assistant", "content": message.content, "tool_calls": calls}
    if request.capabilities.echo == "required":
        wire_message["reasoning_content"] = ""
    return [wire_message]


def _call(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _convert_tools(functions: Sequence[Json]) -> list[Json]:
    return [{"type": "function", "function": function} for function in functions]


def _parse_answer(data: Json, request: ChatRequest) -> LLMResponse:
    if not data.get("choices"):
        raise TransportError("the answer holds no choices")
    choice = data["choices"][0]
    finish_reason = choice.get("finish_reason")
    if failure := _FAILED_FINISHES.get(finish_reason):
        raise failure(f"the server broke the answer off ({_failure_detail(data, choice)})")
    if isinstance(finish_reason, str) and finish_reason.startswith(_CONTENT_FILTER):
        finish_reason = "content_filter"
        choice = {"message": {}, **choice}  # Gemini leaves the message out
    message = choice["message"]
    reasoning_key = next((key for key in _REASONING_KEYS if message.get(key)), "")
    text, reasoning = _split_thinking(
        _text(message.get("content")), has_reasoning=bool(reasoning_key)
    )
    if reasoning_key:
        reasoning = message[reasoning_key]
    finish = _FINISH.get(finish_reason, "stop")
    if refusal := message.get("refusal"):
        text, finish = refusal, "refusal"
    is_refused = finish in ("refusal", "content_filter")
    raw_calls = message.get("tool_calls")
    calls = _parse_calls(raw_calls, request) if raw_calls and not is_refused else ()
    if calls and finish in ("length", "context"):
        calls = (*calls[:-1], replace(calls[-1], arguments={}, invalid=CUT_OFF))
    block: Json = {"role": "assistant", "content": message.get("content")}
    if calls:
        finish = "tool_calls" if finish == "stop" else finish
        block["tool_calls"] = [
            _call_to_send_back(call, value) for call, value in zip(calls, raw_calls, strict=True)
        ]
        if request.capabilities.echo == "required" or (
            request.capabilities.echo == "received" and reasoning_key
        ):
            block[reasoning_key or "reasoning_content"] = (
                message[reasoning_key] if reasoning_key else ""
            )
    can_be_sent_back = not is_refused and (text or calls)
    return LLMResponse(
        content=repair_text(text),
        function_calls=calls,
        finish_reason=finish,
        usage=_parse_usage(data.get("usage") or {}),
        reasoning=repair_text(reasoning),
        provider_extras=pack_extras(request, _API, [block] if can_be_sent_back else []),
        model=data.get("model") or request.model,
        request_id=data.get("id"),
    )


def _failure_detail(data: Json, choice: Json) -> str:
    """Return why a server broke an answer off, in its own words if it says more than a finish
    reason.
    """
    error = choice.get("error") or data.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return " ".join(str(message or choice["finish_reason"]).split())[:_MAX_DETAIL]


def _text(content: Any) -> str:
    """Return the text of a `content`, which Mistral sends as a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content or ""


def _split_thinking(text: str, *, has_reasoning: bool) -> tuple[str, str]:
    """Return (text, thinking) of a text that may begin with `<think>…</think>`, as servers without
    a reasoning parser send it. Of models whose prompt ends with `<think>`, such as DeepSeek R1 and
    the thinking ones of Qwen, the text has the end of it only, on a line of its own.

    Where the server has sent the reasoning apart, such a line belongs to the answer: somebody asked
    about these marks.
    """
    if text.lstrip().startswith("<think>"):
        thinking, _, answer = text.lstrip().removeprefix("<think>").partition("</think>")
        return answer.lstrip(), thinking.strip()
    end = None if has_reasoning else _THINKING_END.search(text)
    if end is None or "<think>" in text[: end.start()]:
        return text, ""
    return text[end.end() :].lstrip(), text[: end.start()].strip()


def _parse_calls(raw_calls: Sequence[Json], request: ChatRequest) -> tuple[FunctionCall, ...]:
    taken_ids = used_ids(request)
    calls = []
    for call in raw_calls:
        arguments, problem = read_arguments(call["function"].get("arguments"))
        call_id = unused_id(call.get("id"), taken_ids)
        calls.append(
            FunctionCall(
                name=read_name(call["function"]["name"]),
                arguments=arguments,
                id=call_id,
                invalid=problem,
            )
        )
    return tuple(calls)


def _call_to_send_back(call: FunctionCall, raw_call: Json) -> Json:
    """Return a call as it will be sent back: with its arguments verbatim, unless they are no JSON.

    llama.cpp answers 500 to every later request with such arguments (ggml-org/llama.cpp#22072).
    """
    arguments = raw_call["function"].get("arguments")
    if call.invalid or not isinstance(arguments, str) or not arguments.strip():
        arguments = json.dumps(call.arguments)
    return _call(call.id or "", call.name, arguments) | {
        key: raw_call[key] for key in _SENT_BACK_KEYS if key in raw_call
    }


def _count_output(usage: Json, reasoning: int) -> int:
    """Return the tokens of an answer with those of its reasoning, which xAI leaves out of
    `completion_tokens` and counts in the total.
    """
    output = to_count(usage.get("completion_tokens"))
    total = to_count(usage.get("prompt_tokens")) + output + reasoning
    return output + reasoning if usage.get("total_tokens") == total else output


def _parse_usage(usage: Json) -> Usage:
    prompt_details = usage.get("prompt_tokens_details") or {}
    completion_details = usage.get("completion_tokens_details") or {}
    reasoning = to_count(completion_details.get("reasoning_tokens"))
    # OpenAI; DeepSeek; Kimi.
    cached_tokens = (
        prompt_details.get("cached_tokens")
        or usage.get("prompt_cache_hit_tokens")
        or usage.get("cached_tokens")
    )
    return Usage(
        input=to_count(usage.get("prompt_tokens")),
        cache_read=to_count(cached_tokens),
        cache_write=to_count(prompt_details.get("cache_write_tokens")),
        output=_count_output(usage, reasoning),
        reasoning=reasoning,
    )


class _ChatAssembler:
    """Assembles `choices[0].delta` of many events. The parts of a call have the same index, or else
    the same id.
    """

    def __init__(self) -> None:
        self._envelope: Json = {}
        # Parts of texts, joined at the end: appending to a string copies it each time.
        self._texts: dict[str, list[str]] = {}
        self._calls: list[Json] = []
        self._arguments: list[list[str]] = []
        """Parts of the arguments, for each of the calls."""
        self._by_index: dict[Any, int] = {}
        """Position in `_calls` by the index that the server sends."""
        self._finish_reason: str | None = None
        self._has_choice = False

    is_complete = False  # no event marks the end: the usage comes after the last choice

    def add_event(self, name: str, data: Json) -> Chunk | None:
        self._envelope |= {
            key: value for key, value in data.items() if key != "choices" and value is not None
        }
        if not data.get("choices"):
            return None
        self._has_choice = True
        choice = data["choices"][0]
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta") or choice.get("message") or {}
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        texts = {key: _text(delta.get(key)) for key in ("content", "refusal", *_REASONING_KEYS)}
        for key, text in texts.items():
            if text:
                self._texts.setdefault(key, []).append(text)
        thinking = next((texts[key] for key in _REASONING_KEYS if texts[key]), "")
        text = texts["content"] or texts["refusal"]
        return Chunk(delta=text, thinking=thinking) if text or thinking else None

    def _add_call(self, delta: Json) -> None:
        function, index, call_id = delta.get("function") or {}, delta.get("index"), delta.get("id")
        last_position = len(self._calls) - 1 if self._calls else None
        position = self._by_index.get(index) if index is not None else last_position
        # Some servers send index 0 for every call, or none; a name with another id begins a new
        # call then.
        current_id = self._calls[position]["id"] if position is not None else None
        if position is None or (
            call_id and current_id and call_id != current_id and function.get("name")
        ):
            position = len(self._calls)
            self._calls.append(
                {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
            )
            self._arguments.append([])
        self._by_index[index] = position
        call = self._calls[position]
        call |= {key: delta[key] for key in ("id", *_SENT_BACK_KEYS) if delta.get(key)}
        if name := function.get("name"):
            call["function"]["name"] = name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._arguments[position].append(arguments)
        elif arguments is not None:
            call["function"]["arguments"] = arguments

    def assemble(self) -> Json | None:
        if self._finish_reason is None:
            # A stream without any choice is an empty answer, not one that was cut off.
            return {**self._envelope, "choices": []} if not self._has_choice else None
        message: Json = {"role": "assistant", "content": None}
        message |= {key: "".join(texts) for key, texts in self._texts.items()}
        for call, arguments in zip(self._calls, self._arguments, strict=True):
            if arguments:
                call["function"]["arguments"] = "".join(arguments)
        if self._calls:
            message["tool_calls"] = self._calls
        return {
            **self._envelope,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}],
        }


CHAT = WireFormat(
    api=_API,
    path="/chat/completions",
    build_body=_build_body,
    convert_tools=_convert_tools,
    parse_answer=_parse_answer,
    new_assembler=_ChatAssembler,
    models_path="/models",
    stream_fields={"stream": True, "stream_options": {"include_usage": True}},
)
