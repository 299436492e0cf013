"""Say whether a tool's result tries to give orders.

Signs add up within a window, each kind once, so that a long page is not condemned for what stands far apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from daemon.injection import chinese, others, plain
from daemon.injection.english import ENGLISH
from daemon.injection.marks import marked
from daemon.injection.readings import Reading, readings
from daemon.injection.signs import BLOCK, REVIEW, WARN, Family, found, words

# What the tools that ship with us say themselves. All else, those of users and servers too, brings in what is outside.
_OURS = words("""
    memory_store memory_recall memory_forget memory_expand skill self_info config routine sysinfo file_list finish
    report_items
    """)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in a text, and what should become of it."""

    reason: str = ""
    """Which signs, for a person."""
    excerpt: str = ""
    """The words around them, as they were read."""
    level: ClassVar[str]


class Block(Finding):
    """Orders to an agent: the model must not see it."""

    level = "block"


class Review(Finding):
    """Suspicious: the model sees it, and nothing that it does afterwards is trusted."""

    level = "review"


class Warn(Finding):
    """Worth a line in the log."""

    level = "warn"


class Pass(Finding):
    """Nothing."""

    level = "pass"


Detector: TypeAlias = Callable[[str, str], "Finding | str | None"]
"""One of the user's own: given the tool and its result, the level it would give, or its name."""
_LEVELS: tuple[type[Finding], ...] = (Pass, Warn, Review, Block)


def needs_injection_check(tool: str) -> bool:
    """Tell whether a tool's results come from outside; those of our own memory and clock do not."""
    return tool not in _OURS


def check_tool_result(tool: str, text: str, detector: Detector | None = None) -> Finding:
    """Return Block, Review, Warn or Pass for one result; the stricter of our own opinion and the detector's."""
    if not needs_injection_check(tool):
        return Pass()
    found = examine(text)
    if detector is not None:
        found = max(found, _opinion(detector(tool, text)), key=lambda each: _LEVELS.index(type(each)))
    return found


def _opinion(said: Finding | str | None) -> Finding:
    if isinstance(said, Finding):
        return said
    kind = next((kind for kind in _LEVELS if said == kind.level), Pass)
    return Pass() if kind is Pass else kind("your own detector says so")


def examine(text: str) -> Finding:
    """Return what a text from outside deserves, whatever tool brought it."""
    best: Finding = Pass()
    most = 0
    for reading in readings(text):
        points, finding = _judged(reading, beyond=most)
        if points > most:
            best, most = finding, points
        if most >= BLOCK:
            break
    return best


_WINDOW = 700  # characters within which signs belong together
_NEAR = 50
_DISGUISED = 4  # points: nobody disguises what is harmless


def _judged(reading: Reading, *, beyond: int) -> tuple[int, Finding]:
    """Return the points of the worst window of a reading, and what they mean; `beyond` were found without it."""
    prose, hits = _hits(reading)
    if not hits:
        return 0, Pass()
    hits = _thinned(sorted(hits))
    worst, names, at = 0, [""], 0
    for first, (begin, _, _) in enumerate(hits):
        best: dict[str, int] = {}
        for place, name, points in hits[first:]:
            if place - begin > _WINDOW:
                break
            best[name] = max(best.get(name, 0), points)
        if sum(best.values()) > worst:
            worst, names, at = sum(best.values()), sorted(best, key=lambda name: -best[name]), begin
    if reading.how and worst >= max(WARN, beyond + 1):
        worst += _DISGUISED
    kind = Block if worst >= BLOCK else Review if worst >= REVIEW else Warn if worst >= WARN else Pass
    if kind is Pass:
        return worst, Pass()
    how = f" ({reading.how})" if reading.how else ""
    return worst, kind(", ".join(names) + how, prose[max(0, at - 20) : at + 200].strip())


def _thinned(hits: list[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
    """Leave out what says the same a few words on; a text of nothing else would take long to judge."""
    kept: list[tuple[int, str, int]] = []
    last: dict[tuple[str, int], int] = {}
    for place, name, points in hits:
        if place - last.get((name, points), -_NEAR) >= _NEAR:
            kept.append((place, name, points))
            last[name, points] = place
    return kept


def _hits(reading: Reading) -> tuple[str, list[tuple[int, str, int]]]:
    """Return a reading as prose, if any sign could stand in it, and where signs do: place, name, points."""
    text = reading.text
    words = frozenset(plain.words_of(text)) if reading.words is None else reading.words
    framed = marked(text, words)
    bare = plain.unquoted(framed)
    if framed is not text or "'" in text:
        words = frozenset(plain.words_of(bare))
    latin = _LATIN.possible(words)
    if not latin and not others.may_stand_in(bare):
        return "", []  # as of most texts
    prose = plain.prose_of(framed)
    hits = list(found(latin, prose, words))
    if others.may_stand_in(prose):
        pieces = others.pieces(prose)
        hits += found(others.VERB_LAST.possible(pieces), prose, pieces)
    if not prose.isascii() and _CHINESE.search(plain.foreign(prose)):
        simplified = chinese.simplified(framed)
        pieces = chinese.pieces(simplified)
        hits += found(chinese.CHINESE.possible(pieces), simplified, pieces)
    return prose, hits


_LATIN = Family((*ENGLISH, *others.VERB_FIRST))
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
