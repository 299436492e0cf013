"""Find signs of orders to an agent by the rules in rules/*.toml.

A match with ten points is an order by itself, one with three is worth a line in a log. A rule is
tried only around its anchors, the rarest words in it: most texts have none of them, and no pattern
ever searches a whole page. A pattern is compiled when it is tried for the first time.

A file of rules holds:

    [words]     lists of words; <NAME> puts one into another list, or as alternatives into a
                pattern, where _ is a blank
    [parts]     pieces of patterns; <NAME> puts one into a pattern
    [[rule]]    one way to give orders:
      id        its name in this file
      like      the id of an earlier rule, whose fields and features hold unless they are given
      sign      what it is a sign of; in a window of text the best rule of each sign counts
      anchors   one of these words must occur; the pattern is tried around each, from `back` to
                `ahead` characters
      besides   one of these words must occur as well, anywhere in the text
      pattern   a regular expression; line breaks and what follows them are left out, ~ is a blank
      points    how much a match is worth, or `weights`: rows of points and conditions ("feature"
                or "not feature"), of which the first counts whose conditions hold; none: 0.
                `at_most` lowers that in the same way
      features  each a search, or a list of which one is enough: in the match itself, in one `group`
                of it, in so many characters `before`, `after` or `around` it, or in the `clause`
                before it. A file with the words NEGATING, PERMITTING, TELLING and ORDERING has the
                features "negated", "report" and "order", too
      words     and `parts`: as above, for this rule only
      hit       a text that it finds, and `miss`: one that it does not
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

# The points from which a window of text is blocked, is suspicious, or is worth a line in the log.
BLOCK, REVIEW, WARN = 10, 6, 3

_REFERENCE = re.compile(r"<([A-Z_]+)>")


@dataclass(frozen=True)
class Vocabulary:
    """The lists of words and the pieces of patterns of one file."""

    words: Mapping[str, str]
    parts: Mapping[str, str]

    def expand_words(self, text: str) -> list[str]:
        """Return the words of a text, with each <NAME> put in."""
        return _REFERENCE.sub(
            lambda match: " ".join(self.expand_words(self.words[match[1]])), text
        ).split()

    def fill_pattern(self, pattern: str) -> str:
        """Return a pattern with each <NAME> put in: alternatives, or a piece."""
        return _REFERENCE.sub(lambda match: self._fill_name(match[1]), pattern)

    def _fill_name(self, name: str) -> str:
        if name in self.words:
            return f"(?:{'|'.join(self.expand_words(self.words[name]))})".replace("_", " ")
        return self.fill_pattern(join_lines(self.parts[name]))


def join_lines(pattern: str) -> str:
    """Return a pattern that is written over several lines as one; `~` stands for a blank."""
    return re.sub(r"\n\s*", "", pattern.strip("\n")).replace("~", " ")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A pattern that has to occur in a match of a rule, or near it.

    One of the fields from `group` to `clause` says where; without any, in the match itself.
    """

    search: str
    """The regular expression of the pattern."""
    group: str = ""
    """The group of the match that is searched."""
    before: int | None = None
    """How many characters before the match are searched."""
    after: int | None = None
    """How many characters behind the match are searched."""
    around: Sequence[int] = ()
    """How many characters before and behind the match are searched, and the match with them."""
    clause: bool = False
    """Whether the last words of the sentence before the match are searched."""
    without: str = ""
    """A word that is left out of the searched text."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.search)

    def holds(self, match: re.Match[str]) -> bool:
        """Tell whether the pattern occurs where the condition asks for it."""
        text, begin, end = match.string, match.start(), match.end()
        if self.group:
            text = match[self.group] or ""
        elif self.before is not None:
            text = text[max(0, begin - self.before) : begin]
        elif self.after is not None:
            text = text[end : end + self.after]
        elif self.around:
            text = text[max(0, begin - self.around[0]) : end + self.around[1]]
        elif self.clause:
            text = " ".join(clause_before(match))
        else:
            text = match[0]
        return (
            self._pattern.search(text.replace(self.without, "") if self.without else text)
            is not None
        )


def clause_before(match: re.Match[str], reach: int = 60) -> list[str]:
    """Return the last words before a match, at most seven, back to the beginning of their sentence.
    `reach` is the number of characters that are looked at.
    """
    text = match.string[max(0, match.start() - reach) : match.start()]
    words: list[str] = []
    for word in re.findall(r"[^\W_]+[.!?:;]?", text)[-7:]:
        if word[-1] in ".!?:;":
            words = []
        else:
            words.append(word)
    return words


@dataclass(frozen=True, kw_only=True)
class ContextWords:
    """The words before an order by which it is told from a report about an order."""

    order_words: Set[str]
    """Words that stand before an order, such as `please`: with one, it is no report."""
    report_words: Set[str]
    """Words that stand before the verb of a report, such as `can` or `we`."""
    permission_words: Set[str]
    """A verb behind one of these words, or behind a noun of orders, belongs to a report."""
    negation_words: Set[str]
    """Words that turn an order into its opposite."""

    def classify(self, match: re.Match[str]) -> str:
        """Return `order`, `report` (somebody tells of an order) or `negated`, by the words before
        the match.
        """
        words = clause_before(match)
        if words and words[-1] in self.negation_words:
            return "negated"
        if words and words[-1] in self.permission_words:
            return "report"
        if not self.report_words.isdisjoint(words[-3:]) and self.order_words.isdisjoint(words):
            return "report"
        return "order"


@dataclass(frozen=True, kw_only=True)
class InjectionRule:
    """One way to give orders, a `[[rule]]` of a file of rules. The docstring of this module says
    what the fields mean.
    """

    id: str
    sign: str
    anchors: frozenset[str]
    source: str
    """The regular expression of the rule, for folded text."""
    hit: str
    miss: str
    besides: frozenset[str] = frozenset()
    back: int = 90
    ahead: int = 160
    weights: Sequence[Sequence[Any]] = ()
    at_most: Sequence[Sequence[Any]] = ()
    features: Mapping[str, Sequence[Condition]] = field(default_factory=dict)
    context_words: ContextWords | None = None
    """None in a file without such lists of words."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)

    def points_of(self, match: re.Match[str]) -> int:
        """Return the points of a match: those of the first row of `weights` whose conditions hold
        (0 if none do), but no more than those of the first such row of `at_most`.
        """
        points = self._find_points(self.weights, match, default=0)
        return min(points, self._find_points(self.at_most, match, default=points))

    def _find_points(
        self, rows: Sequence[Sequence[Any]], match: re.Match[str], default: int
    ) -> int:
        for points, *conditions in rows:
            if all(self._holds(condition, match) for condition in conditions):
                return int(points)
        return default

    def _holds(self, condition: str, match: re.Match[str]) -> bool:
        feature = condition.removeprefix("not ")
        if feature in self.features:
            holds = any(alternative.holds(match) for alternative in self.features[feature])
        else:
            assert self.context_words is not None  # noqa: S101  a test reads every condition
            holds = self.context_words.classify(match) == feature
        return holds == (feature == condition)


@dataclass(frozen=True)
class RuleFile:
    """One file of rules."""

    words: Mapping[str, frozenset[str]]
    rules: tuple[InjectionRule, ...]
    characters: Mapping[str, str]


@cache
def load_rules(name: str) -> RuleFile:
    """Return the rules of rules/NAME.toml, in the order of the file."""
    data = read_rules(name)
    words, parts = data.get("words", {}), data.get("parts", {})
    vocabulary = Vocabulary(words, parts)
    lists = {name: frozenset(vocabulary.expand_words(text)) for name, text in words.items()}
    context_words = None
    if "NEGATING" in lists:
        context_words = ContextWords(
            order_words=lists["ORDERING"],
            report_words=lists["TELLING"],
            permission_words=lists["PERMITTING"] | lists["INSTRUCTION_NOUNS"],
            negation_words=lists["NEGATING"],
        )
    rows: dict[str, dict[str, Any]] = {}
    rules: list[InjectionRule] = []
    for row in data["rule"]:
        base = rows[row["like"]] if "like" in row else {}
        fields = rows[row["id"]] = {
            **base,
            **row,
            "features": {**base.get("features", {}), **row.get("features", {})},
        }
        rule_vocabulary = Vocabulary(
            {**words, **fields.get("words", {})}, {**parts, **fields.get("parts", {})}
        )
        rules.append(_make_rule(fields, rule_vocabulary, context_words))
    return RuleFile(lists, tuple(rules), data.get("characters", {}))


def read_rules(name: str) -> dict[str, Any]:
    """Return the tables of rules/NAME.toml."""
    with Path(__file__).with_name("rules").joinpath(f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


def _make_rule(
    row: Mapping[str, Any], vocabulary: Vocabulary, context_words: ContextWords | None
) -> InjectionRule:
    fields = {
        name: value
        for name, value in row.items()
        if name not in ("like", "words", "parts", "pattern", "points")
    }
    fields["anchors"] = frozenset(vocabulary.expand_words(row["anchors"]))
    fields["besides"] = frozenset(vocabulary.expand_words(row.get("besides", "")))
    if "points" in row:
        fields["weights"] = [[row["points"]]]
    features: dict[str, list[Condition]] = {}
    for name, value in row["features"].items():
        alternatives = value if isinstance(value, list) else [value]
        features[name] = [
            Condition(**{**alternative, "search": vocabulary.fill_pattern(alternative["search"])})
            for alternative in alternatives
        ]
    return InjectionRule(
        **{
            **fields,
            "features": features,
            "context_words": context_words,
            "source": vocabulary.fill_pattern(join_lines(row["pattern"])),
        }
    )


class RuleMatch(NamedTuple):
    """A match of a rule: its offset in `text`, the sign, the points and the rule's id."""

    offset: int
    sign: str
    points: int
    rule: str
    text: str
    """What was matched: the form of a reading that the rule is written for."""


class RuleSet:
    """Rules that are matched together; the words of a text exclude most of them beforehand."""

    def __init__(self, rules: Sequence[InjectionRule]) -> None:
        self._rules = rules
        self._by_anchor: dict[str, list[int]] = {}
        for index, rule in enumerate(rules):
            for anchor in rule.anchors:
                self._by_anchor.setdefault(anchor, []).append(index)
        self._anchors = frozenset(self._by_anchor)
        self._all_anchors = frozenset(
            anchor for rule in rules for anchor in rule.anchors | rule.besides
        )

    def find_candidates(self, words: Set[str]) -> list[InjectionRule]:
        """Return the rules that may match a text with these words."""
        if not (anchors := self._anchors & words):
            return []
        indexes = sorted({index for anchor in anchors for index in self._by_anchor[anchor]})
        rules = [self._rules[index] for index in indexes]
        return [rule for rule in rules if not rule.besides or not rule.besides.isdisjoint(words)]

    def find_anchors(self, text: str) -> frozenset[str]:
        """Return the anchors that occur in a text whose words are not separated by blanks."""
        characters = frozenset(text)
        return frozenset(
            anchor
            for anchor in self._all_anchors
            if anchor[0] in characters and anchor[-1] in characters and anchor in text
        )


def match_rules(rules: Iterable[InjectionRule], text: str, words: Set[str]) -> Iterator[RuleMatch]:
    """Yield the matches of rules that have points, in a text whose words are `words`; rule by
    rule.
    """
    word_offsets = WordOffsets(text)
    for rule in rules:
        for begin, end in word_offsets.around(rule.anchors & words, rule.back, rule.ahead):
            for match in rule.pattern.finditer(text, begin, end):
                if points := rule.points_of(match):
                    yield RuleMatch(match.start(), rule.sign, points, rule.id, text)


class WordOffsets:
    """The offsets of words in a text; each word is searched for once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._offsets: dict[str, list[int]] = {}

    def around(self, words: Set[str], back: int, ahead: int) -> Iterator[tuple[int, int]]:
        """Yield (begin, end) of the parts of the text that reach from `back` characters before an
        offset of one of the words to `ahead` characters behind it, in order. Parts that overlap
        are merged.
        """
        begin = end = -1
        for offset in sorted([offset for word in words for offset in self._find_offsets(word)]):
            if offset - back > end:
                if end >= 0:
                    yield begin, end
                begin = max(0, offset - back)
            end = offset + ahead
        if end >= 0:
            yield begin, end

    def _find_offsets(self, word: str) -> list[int]:
        offsets = self._offsets.get(word)
        if offsets is None:
            offsets = self._offsets[word] = []
            offset = self._text.find(word)
            while offset >= 0:
                offsets.append(offset)
                offset = self._text.find(word, offset + len(word))
        return offsets
