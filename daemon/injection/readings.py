"""Read a text in every way in which a model might understand it: as it is, and without disguises.

As it stands first; then, only where there is a hint of it, with its disguises taken off: encoded,
in a cipher, letter by letter, in digits, glued together, misspelt. A hint is cheap: most are a look
into a table of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import filterfalse

from daemon.injection import plain
from daemon.injection.signs import load_rules


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a text."""

    text: str
    how: str = ""
    """The disguise that was taken off; empty for none."""
    words: Set[str] | None = None
    """Its words, if they were found already."""


@cache
def _words(name: str) -> frozenset[str]:
    return load_rules("en").words[name]


def readings(text: str) -> Iterator[Reading]:
    """Yield the text as it is, then with one disguise after another taken off."""
    if hidden := plain.smuggled(text):
        yield Reading(f"zqchat you must {plain.folded(hidden)}", "hidden in Unicode tags")
    escaped = plain.unescaped(text)
    folded = plain.folded(escaped)
    latin = plain.unmixed(folded)
    pieces = plain.words_of(latin)
    present = frozenset(pieces)
    yield Reading(folded, words=present if latin is folded else None)
    if latin is not folded and latin != folded:
        yield Reading(latin, "in look-alike letters", present)
    for text in plain.decoded(escaped, present):
        yield Reading(plain.folded(plain.unescaped(text)), "encoded")
    yield from _rewritten(latin, pieces, present)


def _rewritten(text: str, pieces: Sequence[str], present: Set[str]) -> Iterator[Reading]:
    if coded := _ciphered().keys() & present:
        yield from _from_cipher(text, coded)
    if list(map(len, present)).count(1) >= 5 and plain.has_row_of_letters(pieces):
        yield Reading(" ".join(plain.rows_of_letters(text)), "letter by letter")
    yield from _in_digits(text, present)
    if misspelt := _misspellings().keys() & present:
        yield Reading(
            _exchanged(text, {word: _misspellings()[word] for word in misspelt}), "misspelt"
        )
    if (bare := plain.untagged(text)) is not text and len(
        _words("VOCABULARY").intersection(plain.words_of(bare))
    ) >= 2:
        yield Reading(bare)
    if rejoined := _join_split_words("".join(pieces), present):
        yield Reading(rejoined, "with blanks out of place")


def _join_split_words(spelt: str, present: Set[str]) -> str:
    """Return our words as they stand around the first of them that is there only when all blanks
    are left out.
    """
    for noun in _NOUNS:
        at = -1 if noun in present else spelt.find(noun)
        if at >= 0:
            return " ".join(_known_words().findall(spelt[max(0, at - 90) : at + 40]))
    return ""


_NOUNS = (
    "instructions",
    "systemprompt",
    "directives",
    "guidelines",
    "guidance",
    "restrictions",
    "programming",
)


@cache
def _known_words() -> re.Pattern[str]:
    names = (
        "OURS",
        "LESS",
        "BEFORE",
        "YOURS",
        "FILLERS",
        "IGNORING",
        "UNDOING",
        "VOCABULARY",
        "SMALL",
    )
    words = {word for name in names for word in _words(name) if len(word) > 1}
    return re.compile("|".join(sorted(words, key=len, reverse=True)))


def _exchanged(text: str, meanings: Mapping[str, str]) -> str:
    """Return a text with words replaced by those that were meant; the longest first, as one may
    stand in another.
    """
    for word in sorted(meanings, key=len, reverse=True):
        text = text.replace(word, meanings[word])
    return text


def _from_cipher(text: str, coded: Set[str]) -> Iterator[Reading]:
    ciphers = _ciphered()
    word_counts: dict[str, int] = {}
    for word in coded:
        word_counts[ciphers[word]] = word_counts.get(ciphers[word], 0) + 1
    for cipher in [cipher for cipher, count in word_counts.items() if count >= 2]:
        if cipher == "reversed":
            yield Reading(text[::-1], "backwards")
            yield Reading(" ".join(word[::-1] for word in plain.words_of(text)), "backwards")
        else:
            yield Reading(
                plain.mirrored(text) if cipher == "mirrored" else plain.rotated(text, int(cipher)),
                "in a cipher",
            )


@cache
def _ciphered() -> Mapping[str, str]:
    """Return the words of our rules in every simple cipher, each with the function that decodes
    it.
    """
    words = [word for word in _words("VOCABULARY") if len(word) >= 6]
    rotated = {plain.rotated(word, by): str(26 - by) for word in words for by in range(1, 26)}
    return (
        rotated
        | {plain.mirrored(word): "mirrored" for word in words}
        | {word[::-1]: "reversed" for word in words}
    )


def _in_digits(text: str, present: Set[str]) -> Iterator[Reading]:
    odd = {word for word in filterfalse(str.isalpha, present) if not word.isdecimal()}
    if "@" in text or "$" in text or ("!" in text and _INNER.search(text)):
        odd |= {
            piece.strip(".,:;?\"'()").rstrip("!")
            for piece in text.split()
            if not _SIGNS.isdisjoint(piece)
        }
    if _words("VOCABULARY").isdisjoint(plain.unleeted_at_once(odd)):
        return
    read = {word: plain.unleeted(word) for word in odd}
    for at in range(2):
        meanings = {word: either[at] for word, either in read.items() if either}
        if not _words("VOCABULARY").isdisjoint(meanings.values()):
            yield Reading(_exchanged(text, meanings), "in digits for letters")


_SIGNS = frozenset("@$!|+")
_INNER = re.compile(r"![a-z0-9]")


@cache
def _misspellings() -> Mapping[str, str]:
    """Return the words of our rules with one misspelling each, and the word that was meant."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    misspellings: dict[str, str] = {}
    for word in sorted(_words("OFTEN_MISSPELT")):
        cuts = [(word[:at], word[at:]) for at in range(1, len(word) + 1)]
        slips = {a + b[1:] for a, b in cuts if b} | {
            a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1
        }
        slips |= {a + letter + b[1:] for a, b in cuts if b for letter in letters}
        slips |= {a + letter + b for a, b in cuts for letter in letters}
        misspellings |= dict.fromkeys(slips - _words("INFLECTED") - _words("VOCABULARY"), word)
    return misspellings
