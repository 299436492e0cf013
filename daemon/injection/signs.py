"""A sign is one way to give orders to an agent: how it is worded, and how many points it is worth.

Ten points are an order by themselves, three are worth a line in a log. A sign is looked for only around its anchors,
the rarest words in it: most texts hold none of them and are done at once, and no pattern ever runs over a whole page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

BLOCK, REVIEW, WARN = 10, 6, 3


@dataclass(frozen=True, slots=True)
class Sign:
    """One way to give orders."""

    name: str
    points: int
    pattern: re.Pattern[str]
    anchors: frozenset[str]
    """One of these words must occur; the pattern is tried around each."""
    besides: frozenset[str] = frozenset()
    """One of these must occur anywhere, too."""
    weigh: Callable[[re.Match[str]], int] | None = None
    """Says how many points this place is worth, where that depends."""
    back: int = 90
    ahead: int = 160

    def worth(self, match: re.Match[str]) -> int:
        return self.points if self.weigh is None else self.weigh(match)


class Family:
    """Signs that are looked for together: by the words of a text it is known which of them cannot stand in it."""

    def __init__(self, signs: Sequence[Sign]) -> None:
        self._signs = signs
        self._by_anchor: dict[str, list[int]] = {}
        for place, sign in enumerate(signs):
            for anchor in sign.anchors:
                self._by_anchor.setdefault(anchor, []).append(place)
        self._anchors = frozenset(self._by_anchor)

    def possible(self, words: Set[str]) -> list[Sign]:
        """Return the signs that may stand in a text that holds these words."""
        if not (held := self._anchors & words):
            return []
        places = sorted({place for anchor in held for place in self._by_anchor[anchor]})
        signs = [self._signs[place] for place in places]
        return [sign for sign in signs if not sign.besides or not sign.besides.isdisjoint(words)]


def found(signs: Iterable[Sign], text: str, words: Set[str]) -> Iterator[tuple[int, str, int]]:
    """Yield where signs stand in a text that holds these words: place, name, points."""
    places = Places(text)
    for sign in signs:
        for begin, end in places.around(sign.anchors & words, sign.back, sign.ahead):
            for match in sign.pattern.finditer(text, begin, end):
                if points := sign.worth(match):
                    yield match.start(), sign.name, points


class Places:
    """Where words stand in one text, each looked for once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, list[int]] = {}

    def around(self, words: Set[str], back: int, ahead: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches around the places where any of the words stands, none twice."""
        begin = end = -1
        for place in sorted([place for word in words for place in self._of(word)]):
            if place - back > end:
                if end >= 0:
                    yield begin, end
                begin = max(0, place - back)
            end = place + ahead
        if end >= 0:
            yield begin, end

    def _of(self, word: str) -> list[int]:
        if (places := self._places.get(word)) is None:
            places = self._places[word] = []
            at = self._text.find(word)
            while at >= 0:
                places.append(at)
                at = self._text.find(word, at + len(word))
        return places


def one(text: str) -> str:
    """Return a group of alternatives, one per blank; `_` stands for a blank within one."""
    return f"(?:{'|'.join(text.split())})".replace("_", " ")


def joined(text: str) -> str:
    """Return a pattern written over several lines as one; `~` stands for a blank."""
    return re.sub(r"\n\s*", "", text.strip()).replace("~", " ")


def phrase(text: str, **parts: str) -> re.Pattern[str]:
    """Return a pattern that is written over several lines, with each <PART> put in."""
    return re.compile(re.sub(r"<([A-Z]+)>", lambda match: parts[match[1]], joined(text)))


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def clause_before(match: re.Match[str], reach: int = 60) -> list[str]:
    """Return the last words before a match, back to the beginning of their sentence."""
    here: list[str] = []
    for word in re.findall(r"[^\W_]+[.!?:;]?", match.string[max(0, match.start() - reach) : match.start()])[-7:]:
        here = [] if word[-1] in ".!?:;" else [*here, word]
    return here
