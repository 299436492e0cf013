"""Estimate the tokens of a call: before it is made, and after it where the vendor did not count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from daemon.models import Json, LLMMessage, LLMResponse, Usage
from daemon.token_estimate import estimate_tokens

# Estimates may be too low, so they are multiplied by this.
MARGIN = 1.25
_IMAGE_TOKENS = 1600  # the most that one image has
_MESSAGE_TOKENS = 8  # of the role and the like of a message, besides its text


def estimate_messages(
    messages: Sequence[LLMMessage], functions: Sequence[Json] | None = None
) -> int:
    """Return how many tokens messages and descriptions of functions have, rather too many."""
    tokens = sum(map(_estimate_message, messages))
    if functions:
        tokens += estimate_tokens(json.dumps(functions, ensure_ascii=False))
    return int(tokens * MARGIN)


def fill_usage(
    response: LLMResponse, messages: Sequence[LLMMessage], functions: Sequence[Json] | None
) -> LLMResponse:
    """Return the answer with estimates for what its vendor did not count: no call has an input of 0
    tokens, and no text or call an output of 0.

    Without this, an answer without `usage` would count for nothing under every cap.
    """
    usage, has_output = response.usage, bool(response.content or response.function_calls)
    if not usage.input:
        usage = Usage(
            input=max(1, estimate_messages(messages, functions)),
            output=usage.output,
            reasoning=usage.reasoning,
        )
    if not usage.output and has_output:
        answer = LLMMessage(
            role="assistant",
            content=response.content + response.reasoning,
            tool_calls=response.function_calls,
        )
        usage = replace(usage, output=max(1, estimate_messages([answer])))
    return response if usage is response.usage else replace(response, usage=usage)


def _estimate_message(message: LLMMessage) -> int:
    calls = sum(estimate_tokens(str(call.arguments)) for call in message.tool_calls)
    text = estimate_tokens(message.content) + calls
    # To its own vendor a message is sent as the blocks that came from there, reasoning included.
    extras = message.provider_extras
    blocks = estimate_tokens(json.dumps(extras, ensure_ascii=False, default=str)) if extras else 0
    return max(text, blocks) + _MESSAGE_TOKENS + _IMAGE_TOKENS * len(message.images)
