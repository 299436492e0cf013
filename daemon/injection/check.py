"""Say whether a tool's result tries to give orders.

Signs add up within a window, each kind once, so that a long page is not condemned for what stands
far apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias

from daemon.injection import plain
from daemon.injection.marks import marked
from daemon.injection.readings import Reading, readings
from daemon.injection.signs import BLOCK, REVIEW, WARN, Family, RuleMatch, hits, load_rules

# What the tools that ship with us say themselves. All else, those of users and servers too, brings
# in what is outside.
_OURS = frozenset(
    {
        "memory_store",
        "memory_recall",
        "memory_forget",
        "memory_expand",
        "skill",
        "self_info",
        "config",
        "routine",
        "sysinfo",
        "file_list",
        "finish",
        "report_items",
    }
)


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """What was found in a text, and what should become of it."""

    reason: str = ""
    """Which signs, for a person."""
    excerpt: str = ""
    """The words around them, as they were read."""
    level: ClassVar[str]


class Block(InjectionFinding):
    """Orders to an agent: the model must not see it."""

    level = "block"


class Review(InjectionFinding):
    """Suspicious: the model sees it, and nothing that it does afterwards is trusted."""

    level = "review"


class Warn(InjectionFinding):
    """Worth a line in the log."""

    level = "warn"


class Pass(InjectionFinding):
    """Nothing."""

    level = "pass"


Detector: TypeAlias = Callable[[str, str], "InjectionFinding | str | None"]
"""One of the user's own: given the tool and its result, the level it would give, or its name."""
_LEVELS: tuple[type[InjectionFinding], ...] = (Pass, Warn, Review, Block)


def needs_injection_check(tool: str) -> bool:
    """Tell whether a tool's results come from outside; those of our own memory and clock do not."""
    return tool not in _OURS


def check_tool_result(tool: str, text: str, detector: Detector | None = None) -> InjectionFinding:
    """Return Block, Review, Warn or Pass for one result; the stricter of our own opinion and the
    detector's.
    """
    if not needs_injection_check(tool):
        return Pass()
    found = examine(text)
    if detector is not None:
        found = max(
            found, _opinion(detector(tool, text)), key=lambda each: _LEVELS.index(type(each))
        )
    return found


def _opinion(said: InjectionFinding | str | None) -> InjectionFinding:
    if isinstance(said, InjectionFinding):
        return said
    kind = next((kind for kind in _LEVELS if said == kind.level), Pass)
    return Pass() if kind is Pass else kind("your own detector says so")


def examine(text: str) -> InjectionFinding:
    """Return what a text from outside deserves, whatever tool brought it."""
    best: InjectionFinding = Pass()
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


def _judged(reading: Reading, *, beyond: int) -> tuple[int, InjectionFinding]:
    """Return the points of the worst window of a reading, and what they mean; `beyond` were found
    without it.
    """
    prose, found = hits_in(reading)
    if not found:
        return 0, Pass()
    found = _thinned(sorted(found))
    worst, names, at = 0, [""], 0
    for first, start in enumerate(found):
        best: dict[str, int] = {}
        for hit in found[first:]:
            if hit.place - start.place > _WINDOW:
                break
            best[hit.sign] = max(best.get(hit.sign, 0), hit.points)
        if sum(best.values()) > worst:
            worst, names, at = (
                sum(best.values()),
                sorted(best, key=lambda name: -best[name]),
                start.place,
            )
    if reading.how and worst >= max(WARN, beyond + 1):
        worst += _DISGUISED
    kind = (
        Block if worst >= BLOCK else Review if worst >= REVIEW else Warn if worst >= WARN else Pass
    )
    if kind is Pass:
        return worst, Pass()
    how = f" ({reading.how})" if reading.how else ""
    return worst, kind(", ".join(names) + how, prose[max(0, at - 20) : at + 200].strip())


def _thinned(found: Sequence[RuleMatch]) -> list[RuleMatch]:
    """Leave out what says the same a few words on; a text of nothing else would take long to
    judge.
    """
    thinned: list[RuleMatch] = []
    last: dict[tuple[str, int], int] = {}
    for hit in found:
        if hit.place - last.get((hit.sign, hit.points), -_NEAR) >= _NEAR:
            thinned.append(hit)
            last[hit.sign, hit.points] = hit.place
    return thinned


def hits_in(reading: Reading) -> tuple[str, list[RuleMatch]]:
    """Return a reading as prose, if any sign could stand in it, and where rules match."""
    text = reading.text
    words = frozenset(plain.words_of(text)) if reading.words is None else reading.words
    framed = marked(text, words)
    bare = plain.unquoted(framed)
    if framed is not text or "'" in text:
        words = frozenset(plain.words_of(bare))
    possible = _by_words().possible(words)
    if not possible and not _may_hold_pieces(bare):
        return "", []  # as of most texts
    prose = plain.prose_of(framed)
    found = list(hits(possible, prose, words))
    if _may_hold_pieces(prose):
        for view in (prose, framed):  # prose has no vowel signs of Thai and Hindi
            pieces = _by_pieces().pieces_in(view)
            if in_pieces := list(hits(_by_pieces().possible(pieces), view, pieces)):
                found += in_pieces
                break
    if not prose.isascii() and _CHINESE.search(plain.foreign(prose)):
        simplified = framed.translate(_simplified())
        pieces = _chinese().pieces_in(simplified)
        found += hits(_chinese().possible(pieces), simplified, pieces)
    return prose, found


def rules_in(text: str) -> set[str]:
    """Return the ids of the rules that match a text as it stands, each disguise taken off."""
    return {hit.rule for reading in readings(text) for hit in hits_in(reading)[1]}


_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def _may_hold_pieces(text: str) -> bool:
    """Tell whether a text may be in one of the languages of pieces.toml: only Turkish is written in
    ASCII.
    """
    return not text.isascii() or "talimat" in text


@cache
def _by_words() -> Family:
    return Family((*load_rules("en").rules, *load_rules("others").rules))


@cache
def _by_pieces() -> Family:
    return Family(load_rules("pieces").rules)


@cache
def _chinese() -> Family:
    return Family(load_rules("zh").rules)


@cache
def _simplified() -> dict[int, int]:
    characters = load_rules("zh").characters
    return str.maketrans(characters["traditional"], characters["simplified"])
