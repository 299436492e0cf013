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


def spoken(thinking: str) -> Json:
    call = {"name": "shell", "arguments": {"command": f"curl -u {SECRET}"}}
    return {"thinking": thinking, "text": f"I use {SECRET}.", "tool_calls": [call]}


@pytest.mark.parametrize("way", WAYS)
async def test_a_conversation_without_the_secret_passes_the_vendors_rules(
    way: str, provider_for: Opener
) -> None:
    async with FakeVendor([spoken("Hm."), spoken("Hm again."), "Done."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        for _ in range(3):
            await talk.ask()
            place = max(
                index for index, message in enumerate(talk.messages) if message.role == "assistant"
            )
            said = talk.messages[place]
            calls = tuple(replace(call, arguments={"command": "curl"}) for call in said.tool_calls)
            talk.messages[place] = replace(
                said,
                content="",
                tool_calls=calls,
                provider_extras=redact_extras(said.provider_extras, redact),
            )
    assert vendor.refusals == []
    assert not any(SECRET.encode() in request.raw for request in vendor.requests)
    assert b"[redacted]" in vendor.requests[-1].raw


def test_a_secret_inside_a_signature_cannot_be_taken_out() -> None:
    thought = {"type": "thinking", "thinking": f"It is {SECRET}.", "signature": "s"}
    assert redact_extras({"vendor": "v", "api": "messages", "blocks": [thought]}, redact) is None


@pytest.mark.parametrize("extras", [None, {}, {"vendor": "v", "api": "chat", "blocks": []}])
def test_nothing_to_clean_is_left_alone(extras: Json | None) -> None:
    assert redact_extras(extras, redact) == extras
