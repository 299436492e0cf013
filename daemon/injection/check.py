"""Check whether a tool's result tries to give orders to the agent (prompt injection).

The points of matching rules add up within a window of the text, the best rule of each sign once, so
that a long page is not blocked for words that are far apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias

from daemon.injection import disguises
from daemon.injection.frames import replace_frames
from daemon.injection.readings import Reading, find_readings
from daemon.injection.signs import BLOCK, REVIEW, WARN, RuleMatch, RuleSet, load_rules, match_rules

# Tools whose results are not examined: they answer in agentd's own words, with figures of this
# machine, or with texts that were examined before they were stored. The results of all others, also
# of users' functions and MCP servers, are texts from outside.
_UNEXAMINED_TOOLS = frozenset(
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
        "finish",
        "report_items",
    }
)

_CHINESE = re.compile(r"[\u4e00-\u9fff]")
# Characters within which the points of signs add up.
_WINDOW = 700
# Characters within which a match repeats an earlier one of the same sign.
_REPETITION_DISTANCE = 50
# Extra points for a disguised text: nobody disguises what is harmless.
_DISGUISE_POINTS = 4


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """What was found in a text, and what should become of it."""

    reason: str = ""
    """The signs that were found, for a person."""
    excerpt: str = ""
    """The words around the signs, as they were read."""
    level: ClassVar[str]


class Block(InjectionFinding):
    """A text that gives orders to an agent: the model must not see it."""

    level = "block"


class Review(InjectionFinding):
    """Suspicious: the model sees it, and nothing that it does afterwards is trusted."""

    level = "review"


class Warn(InjectionFinding):
    """Worth a line in the log."""

    level = "warn"


class Pass(InjectionFinding):
    """No finding."""

    level = "pass"


Detector: TypeAlias = Callable[[str, str], "InjectionFinding | str | None"]
"""A check of the user's own: takes the tool and its result, returns a finding, the name of a level,
or None for no finding.
"""
_LEVELS: tuple[type[InjectionFinding], ...] = (Pass, Warn, Review, Block)


def needs_injection_check(tool: str) -> bool:
    """Tell whether the results of a tool contain text from outside."""
    return tool not in _UNEXAMINED_TOOLS


def check_tool_result(tool: str, text: str, detector: Detector | None = None) -> InjectionFinding:
    """Return Block, Review, Warn or Pass for a result: the stricter of our finding and the
    detector's.
    """
    if not needs_injection_check(tool):
        return Pass()
    finding = examine(text)
    if detector is not None:
        finding = max(
            finding,
            _finding_from_detector(detector(tool, text)),
            key=lambda finding: _LEVELS.index(type(finding)),
        )
    return finding


def _finding_from_detector(answer: InjectionFinding | str | None) -> InjectionFinding:
    if isinstance(answer, InjectionFinding):
        return answer
    if answer is None:
        return Pass()
    kind = next((kind for kind in _LEVELS if answer == kind.level), None)
    if kind is None:  # a check that cannot be understood must not let everything through
        levels = ", ".join(kind.level for kind in _LEVELS)
        return Review(f"your own detector answered {answer!r}, which is none of: {levels}")
    return Pass() if kind is Pass else kind("your own detector says so")


def examine(text: str) -> InjectionFinding:
    """Return the finding for a text from outside, whatever tool brought it."""
    worst_finding: InjectionFinding = Pass()
    most_points = 0
    for shown_text in disguises.without_escape_sequences(text):
        for reading in find_readings(shown_text):
            points, finding = _score_reading(reading, beyond=most_points)
            if points > most_points:
                worst_finding, most_points = finding, points
            if most_points >= BLOCK:
                return worst_finding
    return worst_finding


def _score_reading(reading: Reading, *, beyond: int) -> tuple[int, InjectionFinding]:
    """Return the points of the worst window of a reading, and the finding that they amount to.

    `beyond` are the points of earlier readings: only a reading that exceeds them gets the extra
    points of a disguise.
    """
    text, matches = find_matches(reading)
    if not matches:
        return 0, Pass()
    matches = _drop_repetitions(sorted(matches))
    most_points, names, excerpt_start = 0, [""], 0
    for first, start in enumerate(matches):
        best: dict[str, int] = {}
        for match in matches[first:]:
            if match.offset - start.offset > _WINDOW:
                break
            best[match.sign] = max(best.get(match.sign, 0), match.points)
        points = sum(best.values())
        if points > most_points:
            most_points, excerpt_start = points, start.offset
            names = sorted(best, key=lambda name: -best[name])
    if reading.disguise and most_points >= max(WARN, beyond + 1):
        most_points += _DISGUISE_POINTS
    kind: type[InjectionFinding]
    if most_points >= BLOCK:
        kind = Block
    elif most_points >= REVIEW:
        kind = Review
    elif most_points >= WARN:
        kind = Warn
    else:
        return most_points, Pass()
    disguise = f" ({reading.disguise})" if reading.disguise else ""
    return most_points, kind(
        ", ".join(names) + disguise, text[max(0, excerpt_start - 20) : excerpt_start + 200].strip()
    )


def _drop_repetitions(matches: Sequence[RuleMatch]) -> list[RuleMatch]:
    """Drop a match that has the sign and points of one less than _REPETITION_DISTANCE
    characters before it.

    `matches` are in the order of their offsets. Without this, a text that repeats one phrase would
    take quadratic time to score.
    """
    distinct_matches: list[RuleMatch] = []
    last_offsets: dict[tuple[str, int], int] = {}
    for match in matches:
        if (
            match.offset - last_offsets.get((match.sign, match.points), -_REPETITION_DISTANCE)
            >= _REPETITION_DISTANCE
        ):
            distinct_matches.append(match)
            last_offsets[match.sign, match.points] = match.offset
    return distinct_matches


def find_matches(reading: Reading) -> tuple[str, list[RuleMatch]]:
    """Match the rules of all languages against a reading.

    Returns (normalized text, matches): the text is the reading with single blanks and no
    punctuation but that between clauses, as the rules of words see it. Returns ("", []) if no rule
    can match, which holds for most texts. Matches are in no order.
    """
    text = reading.text
    words = frozenset(disguises.split_words(text)) if reading.words is None else reading.words
    labelled_text = replace_frames(text, words)
    unquoted_text = disguises.drop_apostrophes(labelled_text)
    if labelled_text is not text or "'" in text:
        words = frozenset(disguises.split_words(unquoted_text))
    candidate_rules = _word_rules().find_candidates(words)
    if not candidate_rules and not _may_match_substring_rules(unquoted_text):
        return "", []
    normalized_text = disguises.extract_prose(labelled_text)
    matches = list(match_rules(candidate_rules, normalized_text, words))
    if _may_match_substring_rules(normalized_text):
        # the normalized text has lost the vowel signs of Thai and Hindi, so try with them too
        for candidate_text in (normalized_text, labelled_text):
            substring_matches = _match_substrings(_substring_rules(), candidate_text)
            if substring_matches:
                matches += substring_matches
                break
    if not normalized_text.isascii() and _CHINESE.search(disguises.drop_ascii(normalized_text)):
        simplified_text = labelled_text.translate(_simplification_table())
        matches += _match_substrings(_chinese_rules(), simplified_text)
    return normalized_text, matches


def _match_substrings(rules: RuleSet, text: str) -> list[RuleMatch]:
    """Match rules of languages whose anchors are parts of words, or stand without blanks."""
    anchors = rules.find_anchors(text)
    return list(match_rules(rules.find_candidates(anchors), text, anchors))


def rules_in(text: str) -> set[str]:
    """Return the ids of the rules that match a text as it stands, each disguise taken off."""
    return {match.rule for reading in find_readings(text) for match in find_matches(reading)[1]}


def _may_match_substring_rules(text: str) -> bool:
    """Tell whether a text may be in one of the languages of pieces.toml, of which only Turkish can
    be written in ASCII.
    """
    return not text.isascii() or "talimat" in text  # Turkish for "instruction"


@cache
def _word_rules() -> RuleSet:
    return RuleSet((*load_rules("en").rules, *load_rules("others").rules))


@cache
def _substring_rules() -> RuleSet:
    return RuleSet(load_rules("pieces").rules)


@cache
def _chinese_rules() -> RuleSet:
    return RuleSet(load_rules("zh").rules)


@cache
def _simplification_table() -> dict[int, int]:
    characters = load_rules("zh").characters
    return str.maketrans(characters["traditional"], characters["simplified"])
