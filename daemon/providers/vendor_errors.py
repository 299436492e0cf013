"""How vendors say no, in our words.

A code decides where there is one, the status where there is none, and the text only where a vendor
gives nothing else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from daemon.errors import (
    BadKey,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    NoQuota,
    Overloaded,
    ProviderError,
    Retryable,
    Transport,
    Unavailable,
)
from daemon.system.http_body import parse_json

# `error.code`, `error.details.error_code` or `error.type`, whichever is known first.
_CODES: Mapping[str, type[ProviderError]] = {
    "invalid_api_key": BadKey,
    "authentication_error": BadKey,
    "invalid_authentication_error": BadKey,  # Kimi
    "permission_error": BadKey,
    "permission_denied_error": BadKey,
    "insufficient_quota": NoQuota,
    "billing_error": NoQuota,
    "billing_hard_limit_reached": NoQuota,
    "billing_not_active": NoQuota,
    "exceeded_current_quota_error": NoQuota,  # Kimi
    "contract_spend_limit_reached": NoQuota,
    "enforced_spend_limit_reached": NoQuota,
    "linked_organization_billing_unavailable": NoQuota,
    "linked_organization_spend_limit_reached": NoQuota,
    "organization_on_hold": NoQuota,
    # GLM, which says 429 to it; so are the next: a day's, a month's and a week's limit, a plan's
    # end
    "1113": NoQuota,
    "1304": NoQuota,
    "1308": NoQuota,
    "1309": NoQuota,
    "1310": NoQuota,
    "context_length_exceeded": ContextOverflow,
    "exceed_context_size_error": ContextOverflow,  # llama.cpp
    "request_too_large": ContextOverflow,
    "1261": ContextOverflow,  # GLM
    "content_filter": ModelRefused,
    "content_policy_violation": ModelRefused,
    "invalid_prompt": ModelRefused,
    "bio_policy": ModelRefused,
    "misalignment_policy_violation": ModelRefused,
    "1301": ModelRefused,  # GLM
    "model_not_found": BadRequest,
    "1211": BadRequest,  # GLM
    "rate_limit_exceeded": Overloaded,
    "rate_limit_error": Overloaded,
    "ramp_limit_exceeded": Overloaded,
    "overloaded_error": Overloaded,
    "engine_overloaded_error": Overloaded,  # Kimi
    "server_error": Unavailable,
    "api_error": Unavailable,
    "timeout_error": Unavailable,
}
_STATUSES: Mapping[int, type[ProviderError]] = {
    401: BadKey,
    402: NoQuota,
    403: BadKey,
    408: Unavailable,
    409: Unavailable,
    413: ContextOverflow,
    425: Unavailable,
    429: Overloaded,
    503: Overloaded,
    529: Overloaded,
}
# Anthropic, vLLM and Ollama give this failure no code of its own.
_TOO_LONG = re.compile(
    (
        r"prompt is too long|maximum context length|exceeds? (the )?(available |model's "
        r")?context|context window"
    ),
    re.IGNORECASE,
)
_SAYINGS: Mapping[type[ProviderError], str] = {
    BadKey: "the key was refused",
    NoQuota: "the account has no balance left, or its spend limit is reached",
    Overloaded: "the vendor is busy",
    Transport: "no usable answer came",
    Unavailable: "the vendor has a fault of its own",
    BadRequest: "the vendor refused the request",
    ContextOverflow: "the conversation is longer than the model takes",
    ModelRefused: "the vendor's filter turned the request away",
}
_LONGEST = 300
# Characters of a body that are looked at to say in a few words what it is.
_BEGINNING = 10_000


def from_response(
    status: int, headers: Mapping[str, str], content: bytes, *, provider: str
) -> ProviderError:
    """Return the error that a response is, with one line for the person who reads it."""
    codes, message = _read(content)
    kind = next((_CODES[code] for code in codes if code in _CODES), None)
    if (
        kind is None or kind is Unavailable
    ):  # such codes say less than the status; Ollama puts one on every error
        kind = _STATUSES.get(status) or _by_status(status)
    if kind is BadRequest and _TOO_LONG.search(message):
        kind = ContextOverflow
    said = " ".join(message[:_BEGINNING].split())[:_LONGEST] or "without a word"
    text = f"{_SAYINGS[kind]} ({status}{''.join(f' {code}' for code in codes[:1])}): {said}"
    if kind is BadKey:
        text += f"; check the key of [providers.{provider}]"
    elif status == 404 or not {"model_not_found", "1211"}.isdisjoint(codes):
        text += f"; check `model` and `base_url` of [providers.{provider}]"
    request_id = headers.get("request-id") or headers.get("x-request-id")
    if issubclass(kind, Retryable):
        return kind(text, retry_after=retry_after(headers), request_id=request_id)
    return kind(text, request_id=request_id)


def _by_status(status: int) -> type[ProviderError]:
    if status >= 500 or status == 200:  # a 200 that holds an error
        return Unavailable
    return BadRequest if status >= 400 else Transport  # a redirect: some portal, not the vendor


def _read(content: bytes) -> tuple[list[str], str]:
    """Return the codes of an error body, most telling first, and its message; a page of HTML is
    known by its title.
    """
    try:
        data: Any = parse_json(content)
    except (ValueError, RecursionError):
        return [], describe(content)
    if isinstance(data, list) and data:  # Gemini
        data = data[0]
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):  # LM Studio: the text and nothing else
        return [], str(error)
    details = error.get("details")
    codes = [
        error.get("code"),
        details.get("error_code") if isinstance(details, dict) else None,
        error.get("type"),
    ]
    message = error.get("message") or error.get("detail") or json.dumps(error)
    # vLLM and llama.cpp repeat the status there
    return [str(code) for code in codes if code and not isinstance(code, int)], str(message)


def describe(content: bytes) -> str:
    """Say in a few words what stands in a body that should have been JSON."""
    text = content[:_BEGINNING].decode("utf-8", "replace")
    if not text.strip():
        return "nothing at all"
    if re.match(r"\s*<(!doctype|html|head|body)", text, re.IGNORECASE):
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text, re.IGNORECASE | re.DOTALL)
        return f"a web page titled “{' '.join(title[2].split())[:80]}”" if title else "a web page"
    return f"“{' '.join(text.split())[:80]}”"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that the vendor asks us to wait, however it says so."""
    if milliseconds := headers.get("retry-after-ms"):
        return _seconds(milliseconds, 1000)
    given = headers.get("retry-after", "")
    if (seconds := _seconds(given, 1)) is not None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(given)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _seconds(text: str, unit: int) -> float | None:
    try:
        value = float(text) / unit
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None
