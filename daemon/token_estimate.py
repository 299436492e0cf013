"""An estimate of how many tokens a text has, as no vendor's tokenizer is at hand."""

from __future__ import annotations


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: 4 characters each in ASCII, else one character each,
    which is more than models count for Chinese.
    """
    if text.isascii():
        return len(text) // 4 + 1
    other_characters = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - other_characters) // 4 + other_characters + 1
