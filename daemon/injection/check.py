"""Check whether a tool's result tries to give orders to the agent (prompt injection).

Rules match signs of such orders, and each rule has points. The points add up within a window of the
text, for each sign those of its best rule: so a long page is not blocked for words that are far
apart, nor for one sign that is repeated.
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
# Characters of an excerpt before and after the beginning of the worst window.
_EXCERPT_BEFORE, _EXCERPT_AFTER = 20, 200


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """What was found in a text, and what should become of it."""

    reason: str = ""
    """The signs that were found, for a person."""
    excerpt: str = ""
    """The words around the signs, without the disguise."""
    level: ClassVar[str]


class Block(InjectionFinding):
    """A text that gives orders to an agent: the model must not see it."""

    level = "block"


class Review(InjectionFinding):
    """A suspicious text: the model sees it, and its run has the taint `high` from then on."""

    level = "review"


class Warn(InjectionFinding):
    """A text that is worth a line in the log, and nothing else."""

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
    """Return Block, Review, Warn or Pass for the result `text` of a tool: the stricter of the
    finding of our rules and that of the user's `detector`.
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
        # A finding of a class of the detector's own counts as ours that it is, one of none as one
        # to be reviewed.
        own_kind = next((kind for kind in _LEVELS if isinstance(answer, kind)), Review)
        return own_kind(answer.reason, answer.excerpt)
    if answer is None:
        return Pass()
    kind = next((kind for kind in _LEVELS if answer == kind.level), None)
    if kind is None:  # a check that cannot be understood must not let everything through
        levels = ", ".join(kind.level for kind in _LEVELS)
        return Review(f"your own detector answered {answer!r}, which is none of: {levels}")
    return Pass() if kind is Pass else kind("your own detector says so")


def examine(text: str) -> InjectionFinding:
    """Return the worst finding of all readings of a text from outside, whatever tool brought it.
    The readings after one that is blocked are not looked at.
    """
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

    `beyond` is the most points of an earlier reading: only a reading that exceeds them gets the
    extra points of a disguise.
    """
    matches = find_matches(reading)
    if not matches:
        return 0, Pass()
    matches = _drop_repetitions(sorted(matches))
    most_points, worst_signs, worst_match = 0, list[str](), matches[0]
    for index, first_match in enumerate(matches):
        points_by_sign: dict[str, int] = {}
        for match in matches[index:]:
            if match.offset - first_match.offset > _WINDOW:
                break
            points_by_sign[match.sign] = max(points_by_sign.get(match.sign, 0), match.points)
        points = sum(points_by_sign.values())
        if points > most_points:
            most_points, worst_match = points, first_match
            worst_signs = sorted(points_by_sign, key=points_by_sign.__getitem__, reverse=True)
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
    start, end = worst_match.offset - _EXCERPT_BEFORE, worst_match.offset + _EXCERPT_AFTER
    excerpt = worst_match.text[max(0, start) : end]
    return most_points, kind(", ".join(worst_signs) + disguise, excerpt.strip())


def _drop_repetitions(matches: Sequence[RuleMatch]) -> list[RuleMatch]:
    """Return the matches without those that repeat one less than _REPETITION_DISTANCE characters
    before them, with the same sign and points.

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


def find_matches(reading: Reading) -> list[RuleMatch]:
    """Return the matches of the rules of all languages in a reading, in no order.

    Rules of words are matched against the normalized text: the reading with single blanks, and with
    no punctuation but that between clauses. Rules of Chinese, and those of parts of words where
    nothing else matches, see the punctuation, so that their offsets are larger.
    """
    text = reading.text
    words = frozenset(disguises.split_words(text)) if reading.words is None else reading.words
    labelled_text = replace_frames(text, words)
    unquoted_text = disguises.drop_apostrophes(labelled_text)
    if labelled_text is not text or "'" in text:  # its words have changed
        words = frozenset(disguises.split_words(unquoted_text))
    candidate_rules = _load_word_rules().find_candidates(words)
    if not candidate_rules and not _may_match_substring_rules(unquoted_text):
        return []
    normalized_text = disguises.extract_prose(labelled_text)
    matches = list(match_rules(candidate_rules, normalized_text, words))
    if _may_match_substring_rules(normalized_text):
        # the normalized text lacks the vowel signs of Thai and Hindi, the other text has them
        for candidate_text in (normalized_text, labelled_text):
            substring_matches = _match_substrings(_load_substring_rules(), candidate_text)
            if substring_matches:
                matches += substring_matches
                break
    if not normalized_text.isascii() and _CHINESE.search(disguises.drop_ascii(normalized_text)):
        simplified_text = labelled_text.translate(_load_simplification_table())
        matches += _match_substrings(_load_chinese_rules(), simplified_text)
    return matches


def _match_substrings(rules: RuleSet, text: str) -> list[RuleMatch]:
    """Match rules of languages in which an anchor is a part of a word, or words have no blanks
    between them.
    """
    anchors = rules.find_anchors(text)
    return list(match_rules(rules.find_candidates(anchors), text, anchors))


def find_rules(text: str) -> set[str]:
    """Return the ids of all rules that match a reading of a text, in any window."""
    return {match.rule for reading in find_readings(text) for match in find_matches(reading)}


def _may_match_substring_rules(text: str) -> bool:
    """Tell whether a text may be in one of the languages of substrings.toml, of which only Turkish
    can be written in ASCII.
    """
    return not text.isascii() or "talimat" in text  # Turkish for "instruction"


@cache
def _load_word_rules() -> RuleSet:
    return RuleSet((*load_rules("en").rules, *load_rules("others").rules))


@cache
def _load_substring_rules() -> RuleSet:
    return RuleSet(load_rules("substrings").rules)


@cache
def _load_chinese_rules() -> RuleSet:
    return RuleSet(load_rules("zh").rules)


@cache
def _load_simplification_table() -> dict[int, int]:
    """Return the table for `str.translate` from traditional to simplified characters."""
    characters = load_rules("zh").characters
    return str.maketrans(characters["traditional"], characters["simplified"])
