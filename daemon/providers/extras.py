"""Redact secrets in `provider_extras`, without invalidating blocks that the vendor has signed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daemon.telemetry.redaction import redact_json

# Blocks that their vendor signed or encrypted. With one character changed, the vendor refuses the
# whole conversation.
_SIGNED = frozenset({"thinking", "redacted_thinking", "reasoning"})


def redact_extras(extras: Any, redact: Callable[[str], str]) -> Any:
    """Return a payload without secrets, or None if a signed block contains one.

    The payload of a provider that is not of this package may have any form. Call this before the
    payload is first sent back: later signed blocks are bound to everything sent before them.
    """
    if not isinstance(extras, dict) or not isinstance(extras.get("blocks"), list):
        return redact_json(extras, redact)
    blocks = []
    for block in extras["blocks"]:
        redacted_block = redact_json(block, redact)
        if redacted_block != block and isinstance(block, dict) and block.get("type") in _SIGNED:
            return None
        blocks.append(redacted_block)
    return {**extras, "blocks": blocks}
