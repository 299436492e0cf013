"""Read the character references of HTML (`&amp;`, `&#105;`) in texts from outside."""

from __future__ import annotations

import re

_LEADING_ZEROS = re.compile("&#0+(?=[0-9])")
# No character has a number of more than seven digits.
_NO_CHARACTER = re.compile("&#[0-9]{8,};?")


def decode_references(text: str) -> str:
    """Return a text with its references as the characters that they stand for, as browsers do;
    U+FFFD for a number that no character has.

    Python alone raises ValueError where such a number has thousands of digits.
    """
    from html import unescape  # loads 2,231 names, which an idle daemon does not need

    if "&#" in text:
        text = _NO_CHARACTER.sub("\ufffd", _LEADING_ZEROS.sub("&#", text))
    return unescape(text)
