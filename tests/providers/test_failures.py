"""What becomes of a call when the vendor, or the way to it, fails: one clear line, and what happens
next.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import Any

import pytest

from daemon.errors import (
    BadKey,
    BadRequest,
    ContextOverflow,
    Fatal,
    ModelRefused,
    NoQuota,
    NothingListens,
    Overloaded,
    ProviderError,
    Retryable,
    TransportError,
    Unavailable,
)
from daemon.models import Json
from daemon.providers import create_provider
from daemon.providers.vendor_errors import from_response
from tests.fakes.vendor import FakeVendor
from tests.properties import combinations_of
from tests.providers.calls import KEY, LANGUAGES, TRANSPORTS, Opener, Talk, user

PORTAL = "<!DOCTYPE html><html><head><title>Hotel\n Wi-Fi: please log in</title></head></html>"

FAILURES: dict[str, tuple[Json, type[ProviderError], str]] = {
    "key refused": ({"error": 401, "message": "no"}, BadKey, "check the key of [providers."),
    "no rights": ({"error": 403, "message": "no"}, BadKey, "check the key of [providers."),
    "no balance": ({"error": 402, "message": "top up"}, NoQuota, "top up"),
    "quota gone": (
        {"error": 429, "code": "insufficient_quota", "message": "billing"},
        NoQuota,
        "spend limit",
    ),
    "spend limit": (
        {"error": 400, "code": "enforced_spend_limit_reached", "message": "x"},
        NoQuota,
        "spend limit",
    ),
    "rate limit": ({"error": 429, "message": "slow down"}, Overloaded, "slow down"),
    "overloaded": ({"error": 529, "message": "Overloaded"}, Overloaded, "the vendor is busy (529"),
    "unavailable": ({"error": 503, "message": "later"}, Overloaded, "later"),
    "server error": ({"error": 500, "message": "oops"}, Unavailable, "oops"),
    "gateway timeout": ({"error": 504, "message": "slow"}, Unavailable, "slow"),
    "bad request": ({"error": 400, "message": "messages: no"}, BadRequest, "messages: no"),
    "no such address": (
        {"error": 404, "message": "nothing here"},
        BadRequest,
        "check `model` and `base_url`",
    ),
    "too large": (
        {"error": 413, "message": "32 MB"},
        ContextOverflow,
        "longer than the model takes",
    ),
    "overflow by text": (
        {"error": 400, "message": "prompt is too long: 9 > 8"},
        ContextOverflow,
        "9 > 8",
    ),
    "policy": (
        {"error": 400, "code": "content_policy_violation", "message": "no"},
        ModelRefused,
        "filter",
    ),
    "portal": ({"raw": PORTAL}, TransportError, "a web page titled “Hotel Wi-Fi: please log in”"),
    "proxy's error page": (
        {"raw": "<html><h1>502 Bad Gateway</h1></html>", "status": 502},
        Unavailable,
        "502 Bad Gateway",
    ),
    "redirect": ({"raw": "", "status": 302}, TransportError, "(302)"),
    "not json": (
        {"raw": "upstream connect error", "content_type": "text/plain"},
        TransportError,
        "“upstream connect error”",
    ),
    "nothing": ({"raw": "", "content_type": "application/json"}, TransportError, "nothing at all"),
    "a list": ({"raw": "[1]", "content_type": "application/json"}, TransportError, "“[1]”"),
    "another form": (
        {"raw": '{"choices": [{"hello": 1}]}'},
        TransportError,
        "not of the agreed form",
    ),
    "deep": (
        {"raw": "[" * 100_000, "content_type": "application/json"},
        TransportError,
        "not of the agreed form",
    ),
    "error in a 200": (
        {"raw": '{"error": {"code": 429, "message": "later"}}'},
        Overloaded,
        "later",
    ),
    "text error in a 200": ({"raw": '{"error": "model crashed"}'}, Unavailable, "model crashed"),
    "cut off": ({"text": "hello", "truncate": 40}, TransportError, "broke off"),
    "reset": ({"reset": True}, TransportError, "broke off"),
    "hang": ({"hang": True}, TransportError, "no answer within 3 s"),
}


@combinations_of(failure=FAILURES, way=TRANSPORTS)
async def test_each_vendor_failure_has_its_class_and_one_line(
    way: str, failure: str, provider_for: Opener
) -> None:
    turn, kind, saying = FAILURES[failure]
    async with FakeVendor([turn, "well again"]) as vendor:
        provider = provider_for(way, vendor, name="mine", timeout=3 if failure == "hang" else 60)
        with pytest.raises(kind) as error:
            await provider.chat([user("hi")])
        again = await provider.chat([user("hi")])
    text = str(error.value)
    assert type(error.value) is kind
    assert text.startswith(f"mine ({provider.model_name}): ")
    assert saying in text
    assert "\n" not in text
    assert len(text) < 500
    assert again.content == "well again"  # and the provider is none the worse for it


@pytest.mark.parametrize("turn", [{"error": 404, "message": "no such page"}, {"raw": PORTAL}])
async def test_a_base_url_without_its_v1_is_named(turn: Json, provider_for: Opener) -> None:
    async with FakeVendor([turn, turn, turn]) as vendor:
        hint = f'try base_url = "{vendor.url}/v1"'
        with pytest.raises(ProviderError, match=re.escape(hint)):
            await provider_for("deepseek", vendor, base_url=f"{vendor.url}/").chat([user("hi")])
        with pytest.raises(ProviderError) as path_error:
            await provider_for("deepseek", vendor).chat([user("hi")])
        # the paths of this API begin with /v1 themselves
        with pytest.raises(ProviderError) as claude_error:
            await provider_for("claude opus", vendor).chat([user("hi")])
    assert "try base_url" not in f"{path_error.value} {claude_error.value}"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "no key was sent, and the vendor asks for one (401 invalid_api_key)"),
        ("of-another", "the key was refused (401 invalid_api_key)"),
    ],
)
async def test_a_401_says_whether_a_key_was_sent(key: str | None, text: str) -> None:
    turn = {"error": 401, "message": "no", "code": "invalid_api_key"}
    async with FakeVendor([turn]) as vendor:
        provider = create_provider(
            "open_source", name="mine", model="local", base_url=f"{vendor.url}/v1", api_key=key
        )
        with pytest.raises(BadKey, match=re.escape(text)):
            await provider.chat([user("hi")])
        await provider.close()


@pytest.mark.parametrize("way", ["openai chat", "claude opus"])
@pytest.mark.parametrize("failure", sorted(FAILURES.keys() - {"hang"}))
async def test_the_first_and_later_vendor_failures_read_the_same(
    way: str, failure: str, provider_for: Opener
) -> None:
    turn, kind, _ = FAILURES[failure]
    async with FakeVendor([turn, "well", turn, "well again"]) as vendor:
        provider = provider_for(way, vendor, name="mine")
        with pytest.raises(kind) as first:
            await provider.chat([user("hi")])
        assert (await provider.chat([user("hi")])).content == "well"
        with pytest.raises(kind) as later:
            await provider.chat([user("hi")])
        assert (await provider.chat([user("hi")])).content == "well again"
    assert (type(later.value), str(later.value)) == (type(first.value), str(first.value))
    assert later.value.unsure == first.value.unsure


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize("status", [301, 307])
async def test_a_redirect_is_not_followed_with_the_api_key(
    way: str, status: int, provider_for: Opener
) -> None:
    async with FakeVendor(["stolen"]) as elsewhere:
        away = {
            "raw": "",
            "status": status,
            "headers": {"location": f"{elsewhere.url}/v1/chat/completions"},
        }
        async with FakeVendor([away]) as vendor:
            with pytest.raises(TransportError, match=f"({status})"):
                await provider_for(way, vendor).chat([user("hi")])
    assert elsewhere.requests == []


@pytest.mark.parametrize("way", LANGUAGES)
async def test_retry_after_of_a_vendor_is_read(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"error": 429, "retry_after": 7}, {"error": 500}]) as vendor:
        provider = provider_for(way, vendor)
        with pytest.raises(Overloaded) as busy:
            await provider.chat([user("hi")])
        with pytest.raises(Unavailable) as broken_error:
            await provider.chat([user("hi")])
    assert busy.value.retry_after == 7
    assert broken_error.value.retry_after is None
    assert (busy.value.request_id, broken_error.value.request_id) == ("req_1", "req_2")
    assert len(vendor.requests) == 2  # the SDKs' own retries are off


@pytest.mark.parametrize("way", ["openai responses", "openai chat", "deepseek"])
async def test_an_answer_without_choices_is_a_transport_error(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([{"empty": True}]) as vendor:
        with pytest.raises(TransportError, match=r"holds no (choices|output)"):
            await provider_for(way, vendor).chat([user("hi")])


async def test_claude_turn_without_text_is_accepted(provider_for: Opener) -> None:
    async with FakeVendor([{"empty": True}, "Here."]) as vendor:
        talk = Talk(provider_for("claude opus", vendor))
        assert (await talk.ask()).content == ""
        talk.messages.append(user("Well?"))
        assert (await talk.ask()).content == "Here."
    assert vendor.refusals == []


@pytest.mark.parametrize("way", LANGUAGES)
async def test_a_refused_api_key_is_not_repeated_in_the_error(
    way: str, provider_for: Opener
) -> None:
    error_reply = {"error": 401, "message": f"Incorrect API key provided: {KEY}. Find yours at …"}
    async with FakeVendor([error_reply]) as vendor:
        with pytest.raises(BadKey) as error:
            await provider_for(way, vendor).chat([user("hi")])
        with pytest.raises(BadKey):
            await provider_for(way, vendor, api_key="wrong").chat([user("hi")])
    assert KEY not in str(error.value)
    assert KEY not in repr(error.value)
    assert "[redacted]" in str(error.value)


@pytest.mark.parametrize("way", TRANSPORTS)
@pytest.mark.parametrize(
    "key", ["sk-with a space", "sk-with-a-line\n", "sk-кириллица", "“sk-quoted”"]
)
async def test_an_invalid_api_key_is_not_sent(way: str, key: str, provider_for: Opener) -> None:
    async with FakeVendor([]) as vendor:
        with pytest.raises(BadKey, match="holds a character that no key has") as error:
            await provider_for(way, vendor, api_key=key).chat([user("hi")])
    assert vendor.requests == []
    assert key not in str(error.value)


@pytest.mark.parametrize(
    ("way", "settings"),
    [("openai responses", {}), ("claude opus", {}), ("minimax", {"region": "intl"})],
)
async def test_without_an_api_key_no_request_is_sent(
    way: str, settings: Json, provider_for: Opener
) -> None:
    provider = provider_for(way, "", api_key=None, base_url=None, name="mine", **settings)
    with pytest.raises(
        BadKey, match=r"no key; set api_key_file or api_key_env in \[providers.mine\]"
    ):
        await provider.chat([user("hi")])


@pytest.mark.parametrize("way", ["openai chat", "vllm"])
async def test_a_local_server_needs_no_key(way: str, provider_for: Opener) -> None:
    async with FakeVendor(["hello"]) as vendor:
        answer = await provider_for(way, vendor, api_key=None, model="local").chat([user("hi")])
    assert answer.content == "hello"


@pytest.mark.parametrize("way", LANGUAGES)
async def test_an_unknown_model_error_names_the_settings_to_check(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([]) as vendor:
        with pytest.raises(BadRequest, match="check `model` and `base_url` of"):
            await provider_for(way, vendor, model="no-such-model").chat([user("hi")])


@pytest.mark.parametrize(
    "way",
    [
        "openai responses",
        "openai chat",
        "claude opus",
        "minimax",
        "deepseek",
        "vllm",
        "llamacpp",
        "lmstudio",
    ],
)
async def test_a_too_long_conversation_is_a_context_overflow(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([], context=100) as vendor:
        with pytest.raises(ContextOverflow):
            await provider_for(way, vendor).chat([user("word " * 200)])


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_an_unreachable_vendor_is_named(way: str, provider_for: Opener) -> None:
    with socket.socket() as busy_socket:
        # bound and not listening: refused, and nobody else gets the port
        busy_socket.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{busy_socket.getsockname()[1]}"
        with pytest.raises(NothingListens, match=f"no connection to {address}") as error:
            await provider_for(way, f"http://{address}").chat([user("hi")])
        assert str(error.value).endswith(
            f"no connection to {address}: nothing listens there (Connection refused); "
            "is the model server started?"
        )


@pytest.mark.parametrize("finish", ["refusal", "content_filter"])
@pytest.mark.parametrize("way", ["openai responses", "openai chat", "claude opus", "minimax"])
async def test_a_refusal_of_the_model_is_returned_and_not_sent_back(
    way: str, finish: str, provider_for: Opener
) -> None:
    refusal: Json = {"finish": finish, "thinking": "Hm.", "refusal": "I cannot help with that."}
    refusal["tool_calls"] = [{"name": "shell", "arguments": {"command": "x"}}]
    if finish == "content_filter":
        del refusal["refusal"]
        refusal["finish"] = "refusal" if way in ("claude opus", "minimax") else "content_filter"
    async with FakeVendor([refusal, "Fine."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        answer = await talk.ask()
        talk.messages.append(user("Then something else."))
        await talk.ask()
    assert answer.finish_reason in ("refusal", "content_filter")
    assert answer.function_calls == ()
    if finish == "refusal":
        assert answer.content == "I cannot help with that."
    assert vendor.refusals == []


@pytest.mark.parametrize(
    ("way", "finish", "kind"),
    [
        ("deepseek", "insufficient_system_resource", Overloaded),
        ("glm", "network_error", Unavailable),
        ("openai responses", "failed", Unavailable),
    ],
)
async def test_truncated_answer_with_status_200_is_a_retryable_error(
    way: str, finish: str, kind: type[Retryable], provider_for: Opener
) -> None:
    async with FakeVendor([{"text": "All is", "finish": finish}]) as vendor:
        with pytest.raises(kind) as error:
            await provider_for(way, vendor).chat([user("hi")])
    assert error.value.request_id == "req_1"


@pytest.mark.parametrize(
    ("turn", "finish"),
    [
        ({"text": "…", "finish": "pause_turn"}, "pause"),
        ({"text": "…", "finish": "model_context_window_exceeded"}, "context"),
        ({"text": "…", "finish": "stop_sequence"}, "stop"),
        ({"text": "…", "finish": "a new reason"}, "stop"),
    ],
)
async def test_stop_reasons_of_claude_map_to_our_names(
    turn: Json, finish: str, provider_for: Opener
) -> None:
    async with FakeVendor([turn]) as vendor:
        assert (await Talk(provider_for("claude opus", vendor)).ask()).finish_reason == finish


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_cancelled_call_leaves_no_connection(way: str, provider_for: Opener) -> None:
    async with FakeVendor([{"text": "late", "latency": 30}, "next"]) as vendor:
        provider = provider_for(way, vendor)
        await provider.load()
        task = asyncio.create_task(provider.chat([user("hi")]))
        while not vendor.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while vendor.connections:
            await asyncio.sleep(0)
        assert (await provider.chat([user("hi")])).content == "next"


async def test_an_unsupported_proxy_is_explained(
    provider_for: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`all_proxy=socks5://…` is common on desktops, and httpx needs a package of its own for it."""
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    monkeypatch.setenv("no_proxy", "")
    for way in ("openai chat", "vllm"):
        with pytest.raises(Fatal, match="socks"):
            await provider_for(way, "http://vendor.example").chat([user("hi")])


def refusal(status: int, message: str, **more: Any) -> str:
    """Return what a person reads of an answer with an error."""
    content = json.dumps({"error": {"message": message, "code": more.pop("code", None)}}).encode()
    return str(from_response(status, {}, content, provider="gpt", **more))


def test_a_refused_country_is_no_fault_of_the_key() -> None:
    text = refusal(403, "Country, region, or territory not supported", code="request_forbidden")
    assert text == (
        "the vendor does not serve the country or region of this machine (403 request_forbidden): "
        "Country, region, or territory not supported"
    )
    assert refusal(403, "no").endswith("; check the key of [providers.gpt]")


def test_an_unknown_model_names_the_command_that_lists_models() -> None:
    text = refusal(404, "The model x does not exist", code="model_not_found")
    assert text.endswith("agentctl doctor names the models that there are")
