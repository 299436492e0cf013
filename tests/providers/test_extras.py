"""A model that repeats a secret: it leaves the record, and the conversation goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.models import Json
from daemon.providers.extras import redact_extras
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import WAYS, Opener, Talk

SECRET = "hunter2-hunter2"


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def spoken_reply(thinking: str) -> Json:
    call = {"name": "shell", "arguments": {"command": f"curl -u {SECRET}"}}
    return {"thinking": thinking, "text": f"I use {SECRET}.", "tool_calls": [call]}


@pytest.mark.parametrize("way", WAYS)
async def test_a_redacted_conversation_is_accepted_by_the_vendor(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([spoken_reply("Hm."), spoken_reply("Hm again."), "Done."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        for _ in range(3):
            await talk.ask()
            index = max(
                index for index, message in enumerate(talk.messages) if message.role == "assistant"
            )
            chat_message = talk.messages[index]
            calls = tuple(
                replace(call, arguments={"command": "curl"}) for call in chat_message.tool_calls
            )
            talk.messages[index] = replace(
                chat_message,
                content="",
                tool_calls=calls,
                provider_extras=redact_extras(chat_message.provider_extras, redact),
            )
    assert vendor.refusals == []
    assert not any(SECRET.encode() in request.raw for request in vendor.requests)
    assert b"[redacted]" in vendor.requests[-1].raw


def test_provider_extras_with_a_signed_secret_are_dropped() -> None:
    thinking_block = {"type": "thinking", "thinking": f"It is {SECRET}.", "signature": "s"}
    assert (
        redact_extras({"vendor": "v", "api": "messages", "blocks": [thinking_block]}, redact)
        is None
    )


@pytest.mark.parametrize(
    "extras",
    [
        None,
        {},
        {"vendor": "v", "api": "chat", "blocks": []},
        {"blocks": None},
        {"blocks": {"a": 1}},
        {"blocks": "a"},
    ],
)
def test_provider_extras_without_secrets_are_kept(extras: Json | None) -> None:
    assert redact_extras(extras, redact) == extras


def test_provider_extras_of_another_form_are_redacted() -> None:
    assert redact_extras({"blocks": {"a": SECRET}}, redact) == {"blocks": {"a": "[redacted]"}}
