"""Find what is made to look like the frame around a text: chat templates, voices of the system,
ends of tool results.

They are listed in rules/frames.toml and replaced by words that survive the loss of punctuation, so
that rules can be written about them.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache, cached_property

from daemon.injection.signs import Vocabulary, WordOffsets, on_one_line, read_rules


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One kind of frame, and the words without which it cannot stand."""

    id: str
    word: str
    """What takes its place."""
    source: str
    """Of its pattern."""
    anchors: frozenset[str]
    hit: str
    miss: str
    needs: str = ""
    """A piece of text without which it cannot stand either."""
    back: int = 16
    ahead: int = 80

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source)

    def spans(self, text: str, offsets: WordOffsets, present: Set[str]) -> list[tuple[int, int]]:
        """Return where it stands in a text that holds these words."""
        if self.needs not in text:
            return []
        spans = {
            match.span()
            for begin, end in offsets.around(self.anchors & present, self.back, self.ahead)
            for match in self.pattern.finditer(text, begin, end)
        }
        return sorted(spans)


@cache
def load_frames() -> tuple[Frame, ...]:
    """Return the frames, in the order in which they are looked for."""
    data = read_rules("frames")
    vocabulary = Vocabulary(data["words"], data["parts"])
    frames: list[Frame] = []
    for row in data["frame"]:
        fields = {**row, "anchors": frozenset(vocabulary.listed(row["anchors"]))}
        source = vocabulary.filled(on_one_line(fields.pop("pattern")))
        frames.append(Frame(**fields, source=source))
    return tuple(frames)


@cache
def _anchors() -> frozenset[str]:
    return frozenset[str]().union(*(frame.anchors for frame in load_frames()))


def replace_frames(text: str, present: Set[str]) -> str:
    """Replace each frame in a folded text by the word that the rules know it by.

    `present` are the words of the text. Returns the same object if the text has no frame.
    """
    if _anchors().isdisjoint(present):
        return text
    offsets = WordOffsets(text)
    for frame in load_frames():
        if not frame.anchors.isdisjoint(present) and (spans := frame.spans(text, offsets, present)):
            text = _replace_spans(text, spans, f" {frame.word} ")
            offsets = WordOffsets(text)
    return text


def _replace_spans(text: str, spans: list[tuple[int, int]], by: str) -> str:
    pieces: list[str] = []
    at = 0
    for begin, end in spans:
        if begin >= at:
            pieces += [text[at:begin], by]
            at = end
    return "".join([*pieces, text[at:]])
