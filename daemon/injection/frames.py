"""Find forged frames: pieces of a text that imitate what a chat puts around texts, such as tokens
of a chat template (`<|im_start|>system`), notices of the system, and ends of tool results.

The kinds of frames are listed in rules/frames.toml. Each frame is replaced by a word, such as
`zqchat`, that survives the loss of punctuation, so that rules can be written about it.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache, cached_property

from daemon.injection.signs import Vocabulary, WordOffsets, join_lines, read_rules


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One kind of frame, as a row of rules/frames.toml has it."""

    id: str
    word: str
    """The word that takes the place of a frame."""
    source: str
    """The regular expression of a frame, for folded text."""
    anchors: frozenset[str]
    """Words of which every frame holds one: without them the pattern is not tried."""
    hit: str
    """An example, for the tests: it holds a frame."""
    miss: str
    """An example with an anchor and without a frame."""
    needs: str = ""
    """A piece of text that every frame holds; empty if there is none."""
    back: int = 16
    """How many characters before an anchor a frame may begin."""
    ahead: int = 80
    """How many characters behind an anchor a frame may end."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)

    def find_spans(self, text: str, offsets: WordOffsets, words: Set[str]) -> list[tuple[int, int]]:
        """Return the (begin, end) of each frame of this kind in a text whose words are `words`, in
        order.
        """
        if self.needs not in text:
            return []
        spans = {
            match.span()
            for begin, end in offsets.around(self.anchors & words, self.back, self.ahead)
            for match in self.pattern.finditer(text, begin, end)
        }
        return sorted(spans)


@cache
def load_frames() -> tuple[Frame, ...]:
    """Return the kinds of frames of rules/frames.toml, in the order in which they are replaced."""
    data = read_rules("frames")
    vocabulary = Vocabulary(data["words"], data["parts"])
    frames: list[Frame] = []
    for row in data["frame"]:
        fields = {**row, "anchors": frozenset(vocabulary.expand_words(row["anchors"]))}
        source = vocabulary.fill_pattern(join_lines(fields.pop("pattern")))
        frames.append(Frame(**fields, source=source))
    return tuple(frames)


@cache
def _load_anchors() -> frozenset[str]:
    return frozenset[str]().union(*(frame.anchors for frame in load_frames()))


def replace_frames(text: str, words: Set[str]) -> str:
    """Replace each frame in a folded text by the word that the rules know it by.

    `words` are the words of the text. Returns the same object if the text has no frame.
    """
    if _load_anchors().isdisjoint(words):
        return text
    offsets = WordOffsets(text)
    for frame in load_frames():
        if frame.anchors.isdisjoint(words):
            continue
        if spans := frame.find_spans(text, offsets, words):
            text = _replace_spans(text, spans, f" {frame.word} ")
            offsets = WordOffsets(text)
    return text


def _replace_spans(text: str, spans: list[tuple[int, int]], word: str) -> str:
    """Return a text with these (begin, end) replaced by a word; `spans` are in order, and one that
    overlaps an earlier one is left out.
    """
    parts: list[str] = []
    position = 0
    for begin, end in spans:
        if begin >= position:
            parts += [text[position:begin], word]
            position = end
    return "".join([*parts, text[position:]])
