"""Find texts that are nearly the same, so that the daily greeting of a routine does not fill the
hits of a search.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

# Characters. Shorter texts ("Yes, both.") are alike by chance, and take little room in a result.
MIN_LENGTH = 60
# Words that both texts have, as a share of the words that either has (the Jaccard index): with one
# word of twenty changed two texts are duplicates, with two changed they are not.
MIN_SIMILARITY = 0.9

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(rf"[^\W\d_]+|{_NUMBER.pattern}")
# The same for lower-case ASCII text, in a third of the time.
_ASCII_NUMBER = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")
_ASCII_WORD = re.compile(rf"[a-z]+|{_ASCII_NUMBER.pattern}")
# Chinese characters, kana and Hangul: no blanks stand between words, so each counts as a word.
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class DuplicateFinder:
    """Collect distinct texts, and find the one that another text nearly repeats."""

    def __init__(self) -> None:
        self._count = 0
        self._positions_by_numbers: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        """Positions of texts by the numbers that stand in them."""
        self._texts: dict[int, str] = {}
        """By position; without those shorter than MIN_LENGTH."""
        self._words: dict[int, frozenset[str]] = {}
        """Words by position, made at the first comparison: most texts are never compared."""

    def find_or_add(self, text: str) -> int | None:
        """Return the position, from 0, of the collected text that this one nearly repeats. If there
        is none, add the text and return None.

        Texts with different numbers are different: a disk at 71 % is not one at 84 %.
        """
        if len(text) >= MIN_LENGTH:
            positions = self._positions_by_numbers[_find_numbers(text)]
            words = _find_words(text) if positions else frozenset()
            for position in positions:
                if words and _similarity(words, self._words_at(position)) >= MIN_SIMILARITY:
                    return position
            positions.append(self._count)
            self._texts[self._count] = text
        self._count += 1
        return None

    def _words_at(self, position: int) -> frozenset[str]:
        if position not in self._words:
            self._words[position] = _find_words(self._texts[position])
        return self._words[position]


@lru_cache(maxsize=64)  # runs of one routine mostly find the same texts
def _find_words(text: str) -> frozenset[str]:
    text = text.casefold()
    return frozenset(
        _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(_CJK.sub(r" \g<0> ", text))
    )


@lru_cache(maxsize=64)
def _find_numbers(text: str) -> frozenset[str]:
    return frozenset((_ASCII_NUMBER if text.isascii() else _NUMBER).findall(text))


def _similarity(first: frozenset[str], second: frozenset[str]) -> float:
    if min(len(first), len(second)) < MIN_SIMILARITY * max(len(first), len(second)):
        return 0.0  # the lengths alone rule a duplicate out, without a comparison of words
    common = len(first & second)
    return common / (len(first) + len(second) - common)
