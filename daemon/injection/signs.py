"""A sign is one way to give orders to an agent: how it is worded, and how many points it is worth.

Ten points are an order by themselves, three are worth a line in a log. A sign is looked for only around its anchors,
the rarest words in it: most texts hold none of them and are done at once, and no pattern ever runs over a whole page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set

from daemon.values import dataclass

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

    def places(self, text: str, words: Set[str]) -> Iterator[re.Match[str]]:
        """Yield where it stands in a text that holds these words."""
        present = self.anchors & words
        if present and (not self.besides or not self.besides.isdisjoint(words)):
            for begin, end in around(text, present, self.back, self.ahead):
                yield from self.pattern.finditer(text, begin, end)

    def worth(self, match: re.Match[str]) -> int:
        return self.points if self.weigh is None else self.weigh(match)


def around(text: str, words: Set[str], back: int, ahead: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches around the places where any of the words stands, none twice."""
    places: list[int] = []
    for word in words:
        at = text.find(word)
        while at >= 0:
            places.append(at)
            at = text.find(word, at + len(word))
    begin = end = -1
    for place in sorted(places):
        if place - back > end:
            if end >= 0:
                yield begin, end
            begin = max(0, place - back)
        end = place + ahead
    if end >= 0:
        yield begin, end


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
