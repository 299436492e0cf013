"""Texts that say the same: a routine's daily greeting must not fill an answer."""

from __future__ import annotations

import re

# Shorter texts are alike by chance ("Yes, both.") and cost nothing.
SHORTEST = 60
# Of all words in either, so many must be in both. A word changed in twenty keeps two texts alike, two do not.
SHARE = 0.9

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,:]\d+)*")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class Folder:
    """Remembers texts, and tells which one of them another is nearly the same as."""

    def __init__(self) -> None:
        self._seen: list[tuple[frozenset[str], frozenset[str]] | None] = []

    def place_of(self, text: str) -> int | None:
        """Return which of the texts so far this one repeats; None, and it counts among them, if it says something new.

        A number makes another text: a disk at 71 % is not one at 84 %.
        """
        found = _words(text) if len(text) >= SHORTEST else None
        if found:
            for place, other in enumerate(self._seen):
                if other and found[1] == other[1] and _share(found[0], other[0]) >= SHARE:
                    return place
        self._seen.append(found)
        return None


def _words(text: str) -> tuple[frozenset[str], frozenset[str]]:
    words = frozenset(_WORD.findall(_HAN.sub(r" \g<0> ", text.casefold())))
    return words, frozenset(word for word in words if word[0].isdecimal())


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    if min(len(one), len(other)) < SHARE * max(len(one), len(other)):
        return 0.0  # it cannot be enough, and this is soon told
    both = len(one & other)
    return both / (len(one) + len(other) - both)
