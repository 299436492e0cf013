"""Texts that say the same: a routine's daily greeting must not fill an answer."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

# Shorter texts are alike by chance ("Yes, both.") and cost nothing.
MIN_LENGTH = 60
# Of all words in either, so many must be in both. A word changed in twenty keeps two texts alike,
# two do not.
MIN_SIMILARITY = 0.9

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(rf"[^\W\d_]+|{_NUMBER.pattern}")
# The same for text in ASCII and small letters, in which they are found in a third of the time.
_ASCII_NUMBER = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")
_ASCII_WORD = re.compile(rf"[a-z]+|{_ASCII_NUMBER.pattern}")
_HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class DuplicateFinder:
    """Remembers texts, and tells which one of them another is nearly the same as."""

    def __init__(self) -> None:
        self._count = 0
        # by their numbers: their places
        self._positions_by_numbers: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        self._texts: dict[int, str] = {}
        self._words: dict[int, frozenset[str]] = {}
        """Of those that another one was held against: most have numbers of their own."""

    def find_duplicate(self, text: str) -> int | None:
        """Return which of the texts so far this one repeats; None, and it counts among them, if it
        says something new.

        A number makes another text: a disk at 71 % is not one at 84 %.
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


@lru_cache(maxsize=64)  # a routine that asks the same each time mostly finds the same
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
        return 0.0  # it cannot be enough, and this is soon told
    common = len(first & second)
    return common / (len(first) + len(second) - common)
