"""What the languages have in common."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from daemon.models import Chunk, FunctionCall, Image, Json, LLMMessage, LLMResponse, new_id
from daemon.providers.capabilities import Capabilities

# The call that an answer's token limit cut through; this is what the model reads in place of a
# result.
CUT_OFF = (
    "the answer reached its limit of output tokens inside this call, so its arguments are "
    "incomplete; "
    "make the call again with shorter arguments"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One request to a model, before it is put into a language."""

    model: str
    vendor: str
    """Who answers: the host. What one vendor's model thought is never shown to another vendor."""
    messages: Sequence[LLMMessage]
    offers_tools: bool
    temperature: float | None
    max_tokens: int | None
    cache_key: str | None
    """Requests that share it probably share their beginning."""
    capabilities: Capabilities


class StreamAssembler(Protocol):
    """An answer that comes in pieces, put together again."""

    @property
    def ended(self) -> bool:
        """Whether an event has said that this is all."""

    def add(self, name: str, data: Json) -> Chunk | None:
        """Take one event in; return what of it can be shown, if anything."""

    def whole(self) -> Json | None:
        """Return the answer as it would have come in one piece, or None while its end has not
        come.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class WireFormat:
    """One language."""

    api: str
    path: str
    body: Callable[[ChatRequest], Json]
    """The request without its tools."""
    tools: Callable[[Sequence[Json]], list[Json]]
    """The functions on offer; put into the request's `tools` as they are."""
    read: Callable[[Json, ChatRequest], LLMResponse]
    """Read an answer; raises ProviderError if it is a failure, and KeyError, TypeError, ValueError
    or AttributeError if it is not of the agreed form.
    """
    pieces: Callable[[], StreamAssembler]
    """Begin to put a streamed answer together."""
    models: str
    """Where the vendor lists its models."""
    streaming: Mapping[str, Any]
    """What to add to a request for its answer to be streamed."""
    max_tokens: int | None = None
    """How long an answer may be where nobody says, if the language wants that to be said."""


def split_system(messages: Sequence[LLMMessage]) -> tuple[str, Sequence[LLMMessage]]:
    """Take the system messages off the front.

    A later one stays where it stands and is sent as the user's: vendors disagree about whether a
    system message may come there, and moving it to the front would change a prefix that has already
    been sent.
    """
    count = 0
    for message in messages:
        if message.role != "system":
            break
        count += 1
    return "\n\n".join([message.content for message in messages[:count]]), messages[count:]


def shown_images(message: LLMMessage, question: ChatRequest) -> tuple[Image, ...]:
    """Return the pictures of a message that the model can see."""
    return message.images if question.capabilities.images else ()


def told(message: LLMMessage, question: ChatRequest) -> str:
    """Return the text of a user's message, with a word on pictures that the model cannot see."""
    if not message.images or question.capabilities.images:
        return message.content
    unseen = "[1 image was left out: this model sees none]"
    if len(message.images) > 1:
        unseen = f"[{len(message.images)} images were left out: this model sees none]"
    return f"{message.content}\n\n{unseen}".strip()


def own_blocks(message: LLMMessage, question: ChatRequest, api: str) -> list[Json] | None:
    """Return what this vendor itself sent for that message, or None if somebody else did."""
    extras = message.provider_extras
    if not isinstance(extras, dict):  # nothing, or the payload of a provider that is not ours
        return None
    if extras.get("vendor") != question.vendor or extras.get("api") != api:
        return None
    blocks: list[Json] = extras["blocks"]
    return blocks


def extras(question: ChatRequest, api: str, blocks: Iterable[Json]) -> Json:
    """Pack a vendor's own payload for the conversation to carry."""
    return {"vendor": question.vendor, "model": question.model, "api": api, "blocks": list(blocks)}


@dataclass(slots=True)
class Ids:
    """Calls under ids that the vendor takes: one vendor's ids may be too long or too odd for the
    next.
    """

    changed: dict[str, str] = field(default_factory=dict)

    def foreign(self, call: FunctionCall) -> str:
        """Return an id for a call that another vendor's model made."""
        given = call.id or ""
        safe = given
        # 40 characters is the strictest limit (OpenAI's), this alphabet the strictest pattern
        # (Anthropic's)
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", given):
            safe = (
                "call_"
                + hashlib.blake2b(given.encode("utf-8", "replace"), digest_size=12).hexdigest()
            )
            self.changed[given] = safe
        return safe

    def of_result(self, message: LLMMessage) -> str:
        """Return the id of the call that a tool message answers."""
        given = message.tool_call_id or ""
        return self.changed.get(given, given)


def fresh_id(given: object, taken: set[str]) -> str:
    """Return the vendor's id for a call, or a new one if it sent none or repeats itself, as some
    local servers do.
    """
    call_id = (
        given if isinstance(given, str) and given and given not in taken else f"call_{new_id()}"
    )
    taken.add(call_id)
    return call_id


def taken_ids(question: ChatRequest) -> set[str]:
    """Return the ids of all calls so far."""
    return {call.id for message in question.messages for call in message.tool_calls if call.id}


def read_arguments(given: Any) -> tuple[Json, str | None]:
    """Return a call's arguments, or an empty table and why they could not be read."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, None
    try:
        value = _decode(given) if isinstance(given, str) else given
    except RecursionError:
        return {}, "the arguments are nested too deeply"
    except ValueError as error:
        return {}, f"the arguments are not JSON: {error}"
    if isinstance(value, dict):
        return value, None
    return {}, f"the arguments must be a JSON object, not {type(value).__name__}"


def _refuse(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads as JSON and nobody else does."""
    message = f"{word} is not JSON"
    raise ValueError(message)


# Made once: json.loads makes one per call.
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def sound(text: Any) -> str:
    """Return a text that can be written down: half a character (a lone surrogate) cannot."""
    if not isinstance(text, str):
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def number(given: Any) -> int:
    """Return a count; what a vendor leaves out, or sends as null, is none."""
    return given if isinstance(given, int) else 0
