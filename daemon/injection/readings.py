"""Read a text in every way in which a model might understand it: as it is, and without disguises.

A disguise is taken off only where there is a hint of it: an encoding, a cipher, a row of single
letters, digits for letters, blanks out of place, misspelt words. To look for the hints is cheap:
most are words that stand in a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import filterfalse

from daemon.injection import disguises
from daemon.injection.signs import load_rules


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a text."""

    text: str
    disguise: str = ""
    """The disguise that was taken off; empty for none."""
    words: Set[str] | None = None
    """The words of `text`, if they were found already."""


# What orders of injections are about, as one word each.
_NOUNS = (
    "instructions",
    "systemprompt",
    "directives",
    "guidelines",
    "guidance",
    "restrictions",
    "programming",
)
# Signs that stand for letters within words.
_SIGNS = frozenset("@$!|+")
_INNER_SIGN = re.compile(r"![a-z0-9]")


@cache
def _load_words(name: str) -> frozenset[str]:
    """Return a list of words of rules/en.toml."""
    return load_rules("en").words[name]


def find_readings(text: str) -> Iterator[Reading]:
    """Yield the text as it is, then with one disguise after another taken off."""
    if hidden_text := disguises.read_tag_characters(text):
        # Whoever hides a text means it as an order. So it is read as one: after the label that
        # frames.py puts in the place of chat markup, and after "you must".
        yield Reading(f"zqchat you must {disguises.fold(hidden_text)}", "hidden in Unicode tags")
    unescaped_text = disguises.unescape(text)
    folded_text = disguises.fold(unescaped_text)
    latin_text = disguises.replace_lookalikes(folded_text)
    word_list = disguises.split_words(latin_text)
    words = frozenset(word_list)
    yield Reading(folded_text, words=words if latin_text is folded_text else None)
    # `is not` first: it is fast, and for most texts it decides
    if latin_text is not folded_text and latin_text != folded_text:
        yield Reading(latin_text, "in look-alike letters", words)
    for decoded_text in disguises.decode_runs(unescaped_text, words):
        yield Reading(disguises.fold(disguises.unescape(decoded_text)), "encoded")
    printable_text = disguises.decode_quoted_printable(text)
    if printable_text is not text:
        yield Reading(disguises.fold(disguises.unescape(printable_text)))
    yield from _take_off_disguises(latin_text, word_list, words)


def _take_off_disguises(text: str, word_list: Sequence[str], words: Set[str]) -> Iterator[Reading]:
    """Yield the text with each disguise taken off that there is a hint of. `word_list` has the
    words of the text in order, `words` each of them once.
    """
    if cipher_words := _load_ciphers().keys() & words:
        yield from _decipher(text, cipher_words)
    letter_count = sum(len(word) == 1 for word in words)
    if letter_count >= 5 and disguises.has_row_of_letters(word_list):
        yield Reading(" ".join(disguises.join_letter_rows(text)), "letter by letter")
    yield from _read_digits_as_letters(text, words)
    if misspelt_words := _load_misspellings().keys() & words:
        meanings = {word: _load_misspellings()[word] for word in misspelt_words}
        yield Reading(_replace_words(text, meanings), "misspelt")
    stopless_text = disguises.join_stopped_words(text)
    if len(_load_words("VOCABULARY").intersection(disguises.split_words(stopless_text))) >= 2:
        yield Reading(stopless_text)
    untagged_text = disguises.strip_tags(text)
    if untagged_text is not text:
        known_words = _load_words("VOCABULARY").intersection(disguises.split_words(untagged_text))
        if len(known_words) >= 2:
            yield Reading(untagged_text)
    if joined_words := _join_split_words("".join(word_list), words):
        yield Reading(joined_words, "with blanks out of place")


def _join_split_words(letters: str, words: Set[str]) -> str:
    """Return the words of our rules around one of _NOUNS that the text has only when its blanks are
    left out; empty if it has none. `letters` is the text without blanks, `words` are its words.
    """
    for noun in _NOUNS:
        position = -1 if noun in words else letters.find(noun)
        if position >= 0:
            surroundings = letters[max(0, position - 90) : position + 40]
            return " ".join(_load_word_pattern().findall(surroundings))
    return ""


@cache
def _load_word_pattern() -> re.Pattern[str]:
    """Return a pattern that finds the words of our rules in letters without blanks: of words that
    begin alike, the longest.
    """
    names = (
        "INSTRUCTION_NOUNS",
        "RULE_NOUNS",
        "EARLIER",
        "OWNERS",
        "FILLERS",
        "IGNORING",
        "UNDOING",
        "VOCABULARY",
        "SMALL",
    )
    words = {word for name in names for word in _load_words(name) if len(word) > 1}
    return re.compile("|".join(sorted(words, key=len, reverse=True)))


def _replace_words(text: str, meanings: Mapping[str, str]) -> str:
    """Return a text with each word of `meanings` replaced by its meaning. The longest come first,
    as one word may be a part of another.
    """
    for word in sorted(meanings, key=len, reverse=True):
        text = text.replace(word, meanings[word])
    return text


def _decipher(text: str, cipher_words: Set[str]) -> Iterator[Reading]:
    """Yield the text in each cipher of which it holds at least two words of our rules."""
    ciphers = _load_ciphers()
    word_counts: dict[str, int] = {}
    for word in cipher_words:
        word_counts[ciphers[word]] = word_counts.get(ciphers[word], 0) + 1
    for cipher in [cipher for cipher, count in word_counts.items() if count >= 2]:
        if cipher == "reversed":
            yield Reading(text[::-1], "backwards")
            yield Reading(" ".join(word[::-1] for word in disguises.split_words(text)), "backwards")
        elif cipher == "atbash":
            yield Reading(disguises.decode_atbash(text), "in a cipher")
        else:
            yield Reading(disguises.rotate(text, int(cipher)), "in a cipher")


@cache
def _load_ciphers() -> Mapping[str, str]:
    """Return the words of our rules in every simple cipher, each with its cipher: `atbash`,
    `reversed`, or the number by which `rotate` decodes it.
    """
    words = [word for word in _load_words("VOCABULARY") if len(word) >= 6]
    rotated_words = {
        disguises.rotate(word, shift): str(26 - shift) for word in words for shift in range(1, 26)
    }
    return (
        rotated_words
        | {disguises.decode_atbash(word): "atbash" for word in words}
        | {word[::-1]: "reversed" for word in words}
    )


def _read_digits_as_letters(text: str, words: Set[str]) -> Iterator[Reading]:
    """Yield the text with the digits and signs in words read as letters (1gn0re). Some may be meant
    in two ways: each is tried, and yielded if it gives a word of our rules.
    """
    odd_words = {word for word in filterfalse(str.isalpha, words) if not word.isdecimal()}
    if "@" in text or "$" in text or ("!" in text and _INNER_SIGN.search(text)):
        odd_words |= {
            chunk.strip(".,:;?\"'()").rstrip("!")
            for chunk in text.split()
            if not _SIGNS.isdisjoint(chunk)
        }
    if _load_words("VOCABULARY").isdisjoint(disguises.read_leet_words(odd_words)):
        return
    meanings_by_word = {word: disguises.read_leet_word(word) for word in odd_words}
    for choice in range(2):
        meanings = {
            word: both_meanings[choice]
            for word, both_meanings in meanings_by_word.items()
            if both_meanings
        }
        if not _load_words("VOCABULARY").isdisjoint(meanings.values()):
            yield Reading(_replace_words(text, meanings), "in digits for letters")


@cache
def _load_misspellings() -> Mapping[str, str]:
    """Return every spelling of a word of our rules that has one mistake, with the word itself."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    misspellings: dict[str, str] = {}
    for word in sorted(_load_words("OFTEN_MISSPELT")):
        halves = [(word[:at], word[at:]) for at in range(1, len(word) + 1)]
        variants: set[str] = set()
        for head, tail in halves:
            variants |= {head + letter + tail for letter in letters}  # one letter too many
            if tail:
                variants.add(head + tail[1:])  # one left out
                variants |= {head + letter + tail[1:] for letter in letters}  # a wrong one
            if len(tail) > 1:
                variants.add(head + tail[1] + tail[0] + tail[2:])  # two exchanged
        misspellings |= dict.fromkeys(
            variants - _load_words("INFLECTED") - _load_words("VOCABULARY"), word
        )
    return misspellings
