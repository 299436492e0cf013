"""Error bodies, codes and retry delays of vendors become our error classes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.errors import (
    BadKey,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    NoQuota,
    Overloaded,
    ProviderError,
    Unavailable,
)
from daemon.providers.vendor_errors import describe, from_response, retry_after

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected_text"),
    [
        (400, {"error": {"message": "m", "code": "context_length_exceeded"}}, ContextOverflow, "m"),
        (
            400,
            {"error": {"message": "m", "type": "exceed_context_size_error", "code": 400}},
            ContextOverflow,
            "m",
        ),
        (
            400,
            {"error": {"message": "maximum context length is 8 tokens", "code": 400}},
            ContextOverflow,
            "8 tokens",
        ),
        (400, {"error": {"message": "m", "code": "1261"}}, ContextOverflow, "m"),
        (400, {"error": {"message": "m", "code": "1301"}}, ModelRefused, "m"),
        (400, {"error": {"message": "m", "code": "invalid_prompt"}}, ModelRefused, "m"),
        (400, {"error": {"message": "m", "code": "1211"}}, BadRequest, "check `model`"),
        (200, {"error": {"message": "m", "code": "image_too_small"}}, BadRequest, "m"),
        (200, {"error": {"message": "m", "code": "server_error"}}, Unavailable, "m"),
        (403, {"error": {"message": "m", "code": "model_not_found"}}, BadRequest, "check `model`"),
        (429, {"error": {"message": "m", "code": "1113"}}, NoQuota, "m"),
        (429, {"error": {"message": "m", "code": "1302"}}, Overloaded, "m"),
        (429, {"error": {"message": "m", "type": "exceeded_current_quota_error"}}, NoQuota, "m"),
        (429, {"error": {"message": "m", "type": "engine_overloaded_error"}}, Overloaded, "m"),
        (
            401,
            {"error": {"message": "m", "type": "invalid_request_error", "code": None}},
            BadKey,
            "m",
        ),
        (
            404,
            {"error": {"message": "m", "type": "api_error"}},
            BadRequest,
            "check `model`",
        ),  # Ollama
        (503, {"error": {"message": "m", "code": "server_error"}}, Overloaded, "m"),
        (500, {"type": "error", "error": {"type": "api_error", "message": "m"}}, Unavailable, "m"),
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "x",
                    "message": "m",
                    "details": {"error_code": "organization_on_hold"},
                },
            },
            NoQuota,
            "m",
        ),
        (400, {"error": "just a text"}, BadRequest, "just a text"),  # LM Studio
        (
            422,
            {"detail": [{"loc": ["body"], "msg": "field required"}]},
            BadRequest,
            "field required",
        ),  # FastAPI
        (
            400,
            [{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}],
            BadRequest,
            "m",
        ),  # Gemini
        (400, {"message": "m"}, BadRequest, "m"),
        (400, {}, BadRequest, "{}"),
        (400, "text", BadRequest, "text"),
        (400, None, BadRequest, "None"),
        (409, {"error": {"message": "m"}}, Unavailable, "m"),
        (599, {}, Unavailable, "599"),
    ],
)
def test_refusal_of_each_vendor_is_classified(
    status: int, body: Any, kind: type[ProviderError], expected_text: str
) -> None:
    error = from_response(status, {}, json.dumps(body).encode(), provider="mine")
    assert type(error) is kind
    assert expected_text in str(error)
    assert f"({status}" in str(error)


@pytest.mark.parametrize("code", [None, "no\n" * 900, {"no": ["no"] * 900}])
def test_long_vendor_error_is_cut_to_one_line(code: Any) -> None:
    body = {"message": "no\n" * 900, "code": code}
    error = from_response(400, {}, json.dumps({"error": body}).encode(), provider="mine")
    assert "\n" not in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Fri, 20 Nov 2026 09:01:30 GMT"}, 90.0),
        ({"retry-after": "Fri, 20 Nov 2026 08:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Fri, 20 Nov 99999999999999999999 09:01:30 GMT"}, None),
        ({"retry-after": "Fri, 20 Nov 2026 09:01:30 +9999999999999999999999"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_any_format(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "nothing at all"),
        (b"  \n", "nothing at all"),
        (b"<html><head><title>Log  in</title></head>", "a web page titled “Log in”"),
        (b"\n<!DOCTYPE HTML><body><h1 class=x>504</h1>", "a web page titled “504”"),
        (b"<html></html>", "a web page"),
        (b"upstream\nerror", "“upstream error”"),
        (b"\xff\xfe", "“\ufffd\ufffd”"),
    ],
)
def test_a_body_that_is_no_json_is_described(content: bytes, words: str) -> None:
    assert describe(content) == words
