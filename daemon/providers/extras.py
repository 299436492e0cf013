"""Secrets in what a vendor said: taken out where that leaves the vendor's own marks intact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Blocks that their vendor signed or sealed: altered by one character they are refused, and the
# conversation with them.
_SIGNED = frozenset({"thinking", "redacted_thinking", "reasoning"})


def cleaned(extras: Any, redact: Callable[[str], str]) -> Any:
    """Return a payload without secrets, or None if one stands where nothing may be altered.

    Of a provider that is not ours the payload may have any form.

    To be done before the payload is first sent back: what comes after it is bound to what was sent.
    """
    if not isinstance(extras, dict) or "blocks" not in extras:
        return _cleaned(extras, redact)
    blocks = []
    for block in extras["blocks"]:
        clean = _cleaned(block, redact)
        if clean != block and isinstance(block, dict) and block.get("type") in _SIGNED:
            return None
        blocks.append(clean)
    return {**extras, "blocks": blocks}


def _cleaned(value: Any, redact: Callable[[str], str]) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: _cleaned(item, redact) for key, item in value.items()}
        case list():
            return [_cleaned(item, redact) for item in value]
    return value
