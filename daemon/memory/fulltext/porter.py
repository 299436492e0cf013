"""Strip the endings of English words by Porter's rules
(https://tartarus.org/martin/PorterStemmer/def.txt).

The rules apply as in FTS5, so that both indexes hold the same words: to words of 3 to 63 bytes,
with `y` a vowel behind a consonant. A test compares this module with FTS5.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+")
# Characters of a word: PostgreSQL's limit is 2,046 bytes.
_MAX_WORD_LENGTH = 500

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log"),  # noqa: E501
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"),  # noqa: E501
    ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),  # noqa: E501
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),  # noqa: E501
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",  # noqa: E501
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not 3 <= len(word.encode()) < 64:
        return word
    word = _strip_plural(word)
    word = _strip_past_tense(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = f"{word[:-1]}i"
    for endings in (_STEP_2, _STEP_3):
        for ending, replacement in endings:
            if word.endswith(ending):
                if _measure(word[: -len(ending)]) > 0:
                    word = word[: -len(ending)] + replacement
                break
    word = _strip_suffix(word)
    if word.endswith("e"):
        base = word[:-1]
        if _measure(base) > 1 or (_measure(base) == 1 and not _ends_cvc(base)):
            word = base
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def stems_of(text: str) -> Iterator[str]:
    """Yield the words of an indexed text as FTS5's `porter unicode61 remove_diacritics 2` would."""
    text = text.lower()
    if not text.isascii():
        decomposed_text = unicodedata.normalize("NFD", text)
        text = unicodedata.normalize(
            "NFC",
            "".join(
                character for character in decomposed_text if not unicodedata.combining(character)
            ),
        )
    for word in _WORD.findall(text):
        yield stem(word)[:_MAX_WORD_LENGTH]


def _strip_plural(word: str) -> str:
    if (word.endswith("sses") and len(word) > 4) or (word.endswith("ies") and len(word) > 3):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _strip_past_tense(word: str) -> str:
    if word.endswith("eed") and len(word) > 3:
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        base = word[: -len(ending)]
        if word.endswith(ending) and _has_vowel(base):
            if base.endswith(("at", "bl", "iz")):
                return f"{base}e"
            if (
                len(base) > 1
                and base[-1] == base[-2]
                and not _is_vowel(base, -1)
                and base[-1] not in "lsz"
            ):
                return base[:-1]
            return f"{base}e" if _measure(base) == 1 and _ends_cvc(base) else base
    return word


def _strip_suffix(word: str) -> str:
    for ending in sorted(
        (suffix for suffix in _STEP_4 if word.endswith(suffix)), key=len, reverse=True
    ):
        base = word[: -len(ending)]
        if ending == "ion" and not base.endswith(("s", "t")):
            return word
        return base if _measure(base) > 1 else word
    return word


def _is_vowel(word: str, position: int) -> bool:
    position %= len(word)
    letter = word[position]
    return letter in "aeiou" or (
        letter == "y" and position > 0 and not _is_vowel(word, position - 1)
    )


def _has_vowel(word: str) -> bool:
    return any(_is_vowel(word, position) for position in range(len(word)))


def _measure(word: str) -> int:
    """Return how often a vowel is followed by a consonant."""
    kinds = [_is_vowel(word, position) for position in range(len(word))]
    return sum(is_vowel and not is_next_vowel for is_vowel, is_next_vowel in pairwise(kinds))


def _ends_cvc(word: str) -> bool:
    return (
        len(word) > 2
        and not _is_vowel(word, -1)
        and _is_vowel(word, -2)
        and not _is_vowel(word, -3)
        and word[-1] not in "wxy"
    )
