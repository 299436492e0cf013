"""Map the errors of vendors to the classes of daemon/errors.py.

The error code decides if there is one, else the HTTP status; the text only where a vendor gives
nothing else.
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
    TransportError,
    Unavailable,
)
from daemon.system.http_body import parse_json

# By `error.code`, `error.details.error_code` or `error.type`: the first of them that is a key here.
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
    # GLM, with status 429: no balance; then the limit of a day, a month and a week, an expired plan
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
    "image_content_policy_violation": ModelRefused,
    # OpenAI, of a picture that it does not take, in an answer with status 200
    **dict.fromkeys(
        (
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_mode",
            "image_too_large",
            "image_too_small",
            "image_parse_error",
            "image_file_too_large",
            "unsupported_image_media_type",
            "empty_image_file",
        ),
        BadRequest,
    ),
    "data_residency_mismatch": BadRequest,
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
# Anthropic, vLLM and Ollama have no code for a conversation that is too long.
_TOO_LONG = re.compile(
    r"prompt is too long|maximum context length|exceeds? (the )?(available |model's )?context"
    r"|context window",
    re.IGNORECASE,
)
_COUNTRY = re.compile(r"countr(y|ies)|\bregion|territor(y|ies)", re.IGNORECASE)
_EXPLANATIONS: Mapping[type[ProviderError], str] = {
    BadKey: "the key was refused",
    NoQuota: "the account has no balance left, or its spend limit is reached",
    Overloaded: "the vendor is busy",
    TransportError: "no usable answer came",
    Unavailable: "the vendor has a fault of its own",
    BadRequest: "the vendor refused the request",
    ContextOverflow: "the conversation is longer than the model takes",
    ModelRefused: "the vendor's filter turned the request away",
}
_MAX_MESSAGE = 300  # characters of a vendor's message in our text
_MAX_CODE = 80  # characters of a code of a vendor
_MAX_SEARCHED = 10_000  # characters of a body that are searched for a message or title


def from_response(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    *,
    provider: str,
    has_key: bool = True,
    address_hint: str = "",
) -> ProviderError:
    """Return the error that a vendor's response stands for; its text is one line for a person.

    `has_key` tells whether the provider has a key to send. `address_hint` says how to correct the
    base URL, if that looks wrong and nothing was found.
    """
    codes, message = _parse_body(content)
    kind = next((_CODES[code] for code in codes if code in _CODES), None)
    # Codes of the kind Unavailable are less exact than the status; Ollama sends one with every
    # error.
    if kind is None or kind is Unavailable:
        kind = _STATUSES.get(status) or _kind_of_status(status)
    if kind is BadRequest and _TOO_LONG.search(message):
        kind = ContextOverflow
    detail = " ".join(message[:_MAX_SEARCHED].split())[:_MAX_MESSAGE] or "without a word"
    explanation, advice = _EXPLANATIONS[kind], ""
    if kind is BadKey and status == 403 and _COUNTRY.search(" ".join([*codes, message])):
        explanation = "the vendor does not serve the country or region of this machine"
    elif kind is BadKey and not has_key:
        explanation = "no key was sent, and the vendor asks for one"
        advice = f"; set api_key_file or api_key_env in [providers.{provider}]"
    elif kind is BadKey:
        advice = f"; check the key of [providers.{provider}]"
    text = f"{explanation} ({status}{''.join(f' {code}' for code in codes[:1])}): {detail}{advice}"
    if status == 404 and address_hint and "model_not_found" not in codes:
        text += f"; {address_hint}"
    elif status == 404 or not {"model_not_found", "1211"}.isdisjoint(codes):
        text += (
            f"; check `model` and `base_url` of [providers.{provider}]: agentctl doctor names the "
            "models that there are"
        )
    request_id = headers.get("request-id") or headers.get("x-request-id")
    if issubclass(kind, Retryable):
        return kind(text, retry_after=retry_after(headers), request_id=request_id)
    return kind(text, request_id=request_id)


def _kind_of_status(status: int) -> type[ProviderError]:
    if status >= 500 or status == 200:  # a 200 that holds an error
        return Unavailable
    # a redirect is of some portal, not of the vendor
    return BadRequest if status >= 400 else TransportError


def _parse_body(content: bytes) -> tuple[list[str], str]:
    """Return (codes, message) of an error body; the most specific code first. The message of an
    HTML page is its title.
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
    # vLLM and llama.cpp repeat the status, an int, as the code.
    code_texts = [
        " ".join(str(code).split())[:_MAX_CODE]
        for code in codes
        if code and not isinstance(code, int)
    ]
    return code_texts, str(message)


def describe(content: bytes) -> str:
    """Describe in a few words the content of a body that should have been JSON."""
    text = content[:_MAX_SEARCHED].decode("utf-8", "replace")
    if not text.strip():
        return "nothing at all"
    if re.match(r"\s*<(!doctype|html|head|body)", text, re.IGNORECASE):
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text, re.IGNORECASE | re.DOTALL)
        return f"a web page titled “{' '.join(title[2].split())[:80]}”" if title else "a web page"
    return f"“{' '.join(text.split())[:80]}”"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the pause in seconds that the vendor asks for: `retry-after-ms`, or `retry-after` in
    seconds or as a date. None without such a header.
    """
    if milliseconds := headers.get("retry-after-ms"):
        return _seconds(milliseconds, 1000)
    value = headers.get("retry-after", "")
    if (seconds := _seconds(value, 1)) is not None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
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
