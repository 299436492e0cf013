"""Find texts that are nearly the same: the daily greeting of a routine must not fill a result."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

# Characters. Shorter texts ("Yes, both.") are alike by chance, and take little room in a result.
MIN_LENGTH = 60
# Share of common words among the words of both texts: with one word of twenty changed two texts are
# duplicates, with two changed they are not.
MIN_SIMILARITY = 0.9

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(rf"[^\W\d_]+|{_NUMBER.pattern}")
# The same for lower-case ASCII text, in a third of the time.
_ASCII_NUMBER = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")
_ASCII_WORD = re.compile(rf"[a-z]+|{_ASCII_NUMBER.pattern}")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class DuplicateFinder:
    """Collect texts, and find the collected text that another one nearly repeats."""

    def __init__(self) -> None:
        self._count = 0
        # positions of texts by the numbers in them
        self._positions_by_numbers: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        self._texts: dict[int, str] = {}
        self._words: dict[int, frozenset[str]] = {}
        """Words by position, made at the first comparison: most texts are never compared."""

    def find_duplicate(self, text: str) -> int | None:
        """Return the position of the collected text that this one repeats; a new text is added, and
        None returned.

        Texts with different numbers are different: a disk at 71 % is not one at 84 %.
        """
        if len(text) >= MIN_LENGTH:
            positions = self._positions_by_numbers[_numbers(text)]
            words = _words(text) if positions else frozenset()
            for position in positions:
                if words and _similarity(words, self._words_at(position)) >= MIN_SIMILARITY:
                    return position
            positions.append(self._count)
            self._texts[self._count] = text
        self._count += 1
        return None

    def _words_at(self, position: int) -> frozenset[str]:
        if position not in self._words:
            self._words[position] = _words(self._texts[position])
        return self._words[position]


@lru_cache(maxsize=64)  # runs of one routine mostly find the same texts
def _words(text: str) -> frozenset[str]:
    text = text.casefold()
    return frozenset(
        _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(_HAN.sub(r" \g<0> ", text))
    )


@lru_cache(maxsize=64)
def _numbers(text: str) -> frozenset[str]:
    return frozenset((_ASCII_NUMBER if text.isascii() else _NUMBER).findall(text))


def _similarity(first: frozenset[str], second: frozenset[str]) -> float:
    if min(len(first), len(second)) < MIN_SIMILARITY * max(len(first), len(second)):
        return 0.0  # the lengths alone rule a duplicate out, without a comparison of words
    common = len(first & second)
    return common / (len(first) + len(second) - common)
