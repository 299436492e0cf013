"""What calls are estimated to have in tokens."""

from __future__ import annotations

from daemon.models import FunctionCall, Json, LLMMessage
from daemon.providers.token_counts import estimate_messages


def answer(content: str = "", extras: Json | None = None, calls: tuple[FunctionCall, ...] = ()):
    return LLMMessage(role="assistant", content=content, provider_extras=extras, tool_calls=calls)


def test_thinking_that_is_sent_back_counts() -> None:
    blocks = [{"type": "thinking", "thinking": "perhaps " * 20_000, "signature": "s"}]
    assert estimate_messages([answer("Yes.", {"blocks": blocks})]) > 20_000


def test_text_that_is_sent_back_in_a_block_counts_once() -> None:
    text = "well " * 1000
    plain = estimate_messages([answer(text)])
    with_block = estimate_messages([answer(text, {"blocks": [{"type": "text", "text": text}]})])
    assert plain <= with_block < 1.1 * plain
