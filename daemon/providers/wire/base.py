"""What the wire formats have in common."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from daemon.models import Chunk, FunctionCall, Image, Json, LLMMessage, LLMResponse, new_id
from daemon.providers.capabilities import Capabilities
from daemon.system.http_body import read_float

# Tokens; no call has more. A larger count of a vendor is none.
MAX_TOKENS = 50_000_000

# What the model reads as the result of a call in which the token limit cut its answer off.
CUT_OFF = (
    "the answer reached its limit of output tokens inside this call, so its arguments are "
    "incomplete; make the call again with shorter arguments"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One request to a model, in no vendor's format."""

    model: str
    vendor: str
    """Host and port of the API. The thinking of one vendor's model is never sent to another vendor.
    """
    messages: Sequence[LLMMessage]
    offers_tools: bool
    temperature: float | None
    max_tokens: int | None
    cache_key: str | None
    """Key for the vendor's prompt cache: requests with the same key probably begin alike."""
    capabilities: Capabilities
    effort: str | None = None
    """The level of reasoning effort; None: the vendor's default."""


class StreamAssembler(Protocol):
    """Assembles a streamed answer from its events."""

    @property
    def is_complete(self) -> bool:
        """Whether an event has marked the end of the answer."""

    def add_event(self, name: str, data: Json) -> Chunk | None:
        """Add one event; return its text or thinking, None if it has neither."""

    def assemble(self) -> Json | None:
        """Return the answer as it would be without streaming; None if its end has not arrived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WireFormat:
    """The JSON of one kind of API."""

    api: str
    path: str
    build_body: Callable[[ChatRequest], Json]
    """Return the body of a request, without its tools."""
    convert_tools: Callable[[Sequence[Json]], list[Json]]
    """Return the functions as the value of the body's `tools`."""
    parse_answer: Callable[[Json, ChatRequest], LLMResponse]
    """Parse an answer. Raises ProviderError if it is a failure, and KeyError, TypeError, ValueError
    or AttributeError if it has not the form of this API.
    """
    new_assembler: Callable[[], StreamAssembler]
    """Return an assembler for one streamed answer."""
    models_path: str
    """Path of the vendor's list of models."""
    stream_fields: Mapping[str, Any]
    """What to add to a body for its answer to be streamed."""
    max_tokens: int | None = None
    """The limit sent if none is configured, where the API demands one."""


def split_system(messages: Sequence[LLMMessage]) -> tuple[str, Sequence[LLMMessage]]:
    """Return (text of the system messages at the beginning, remaining messages).

    A later system message keeps its position and is sent as the user's: not all vendors allow one
    there, and moving it to the beginning would change what was sent before.
    """
    count = 0
    for message in messages:
        if message.role != "system":
            break
        count += 1
    return "\n\n".join([message.content for message in messages[:count]]), messages[count:]


def visible_images(message: LLMMessage, request: ChatRequest) -> tuple[Image, ...]:
    """Return the images of a message; none if the model cannot see images."""
    return message.images if request.capabilities.images else ()


def user_text(message: LLMMessage, request: ChatRequest) -> str:
    """Return the text of a user's message, with a note on images that the model cannot see."""
    return message.content if request.capabilities.images else text_without_images(message)


def text_without_images(message: LLMMessage) -> str:
    """Return the text of a message, with a note on its images, which are left out."""
    if not message.images:
        return message.content
    note = "[1 image was left out: this model sees none]"
    if len(message.images) > 1:
        note = f"[{len(message.images)} images were left out: this model sees none]"
    return f"{message.content}\n\n{note}".strip()


def find_vendor_blocks(message: LLMMessage, request: ChatRequest, api: str) -> list[Json] | None:
    """Return the blocks of a model's message as this vendor sent them; None if the message came
    from another vendor or API.
    """
    payload = message.provider_extras
    if not isinstance(payload, dict):  # nothing, or the payload of a provider of another package
        return None
    if payload.get("vendor") != request.vendor or payload.get("api") != api:
        return None
    blocks: list[Json] = payload["blocks"]
    return blocks


def pack_extras(request: ChatRequest, api: str, blocks: Iterable[Json]) -> Json:
    """Return the `provider_extras` of a message: the vendor's own blocks, and whose they are."""
    return {"vendor": request.vendor, "model": request.model, "api": api, "blocks": list(blocks)}


@dataclass(slots=True)
class CallIds:
    """The ids of calls in one request; those of another vendor are replaced if not every vendor
    accepts them.
    """

    replacement_ids: dict[str, str] = field(default_factory=dict)

    def id_for(self, call: FunctionCall) -> str:
        """Return an id for a call that another vendor's model made."""
        original = call.id or ""
        call_id = original
        # Mistral takes nothing but nine letters and digits, which all others take, too.
        if not re.fullmatch(r"[a-zA-Z0-9]{9}", original):
            digest = hashlib.blake2b(original.encode("utf-8", "replace"), digest_size=12)
            call_id = digest.hexdigest()[:9]
            self.replacement_ids[original] = call_id
        return call_id

    def result_id(self, message: LLMMessage) -> str:
        """Return the id of the call that a tool message answers."""
        call_id = message.tool_call_id or ""
        return self.replacement_ids.get(call_id, call_id)


def unused_id(vendor_id: object, taken_ids: set[str]) -> str:
    """Return the vendor's id of a call, or a new one if it has none or one of `taken_ids`, as with
    some local servers. Adds the id to `taken_ids`.
    """
    is_usable = isinstance(vendor_id, str) and vendor_id and vendor_id not in taken_ids
    call_id = str(vendor_id) if is_usable else f"call_{new_id()}"
    taken_ids.add(call_id)
    return call_id


def used_ids(request: ChatRequest) -> set[str]:
    """Return the ids of all calls in the conversation."""
    return {call.id for message in request.messages for call in message.tool_calls if call.id}


def read_arguments(raw: Any) -> tuple[Json, str | None]:
    """Return (arguments of a call, None), or ({}, problem) if they are no JSON object."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, None
    try:
        value = _decode(raw) if isinstance(raw, str) else raw
    except RecursionError:
        return {}, "the arguments are nested too deeply"
    except ValueError as error:
        return {}, f"the arguments are not JSON: {error}"
    if isinstance(value, dict):
        return value, None
    return {}, f"the arguments must be a JSON object, not {type(value).__name__}"


def _reject_constant(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python accepts though they are not JSON."""
    raise ValueError(f"{constant} is not JSON")


# Made once, as json.loads makes a decoder per call.
_decode = json.JSONDecoder(parse_constant=_reject_constant, parse_float=read_float).decode


def repair_text(text: Any) -> str:
    """Return a text that can be encoded: lone surrogates are replaced. Empty if it is no text."""
    if not isinstance(text, str):
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def read_name(value: Any) -> str:
    """Return the name of a function that a model calls. Raises TypeError if it is no text."""
    if not isinstance(value, str):
        raise TypeError(f"the name of a function is a {type(value).__name__}")
    return repair_text(value)


def to_count(value: Any) -> int:
    """Return a count of a vendor; 0 if it is missing, or no number of tokens that a call can have:
    such a count is replaced by an estimate (token_counts.py).
    """
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MAX_TOKENS else 0
