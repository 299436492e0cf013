"""Cut the segments of a run into parts, the rows of memory_segment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from daemon.models import SegmentType
from daemon.store.rows import clean, to_microseconds

# Characters of one part, and so of one hit: in a longer part the answer is hard to see, a shorter
# part lacks its context.
MAX_PART_CHARACTERS = 800
# Characters of a segment: of a longer segment the beginning and end are stored, the journal has the
# whole.
SEGMENT_CHARACTERS = 20_000
# Who "speaks" the goal of a run.
GOAL_SPEAKER = "goal"
# Names under which runs are archived that have a new goal each time, which somebody asked for. The
# runs of a routine all have the same goal.
SOURCES_OF_NEW_GOALS = ("ask", "subagent")
# Characters up to which a text that ends in a question mark is a question: a long answer often ends
# by asking what else to do.
_MAX_QUESTION = 200
# Characters. A shorter text ("Yes, both.") depends on the text before it: it is a repetition only
# behind the same text.
_SHORT_TEXT = 40
# The text up to the last end of a sentence: greedy, so the search begins at the end.
_SENTENCES = re.compile(r".*(?:(?<=[。！？；\n])|(?<=[.!?;])\s)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One text of a run, at its anchor: a message, a tool call, a result."""

    iteration: int
    segment: int
    type: SegmentType
    timestamp: datetime
    text: str
    speaker: str = ""
    """The speaker: a person, the agent, a tool."""
    tainted: bool = False
    """The run had read untrusted bytes by then."""
    part: int = 0
    """The position among several texts at one anchor."""


class SegmentPart(NamedTuple):
    """A part of a segment: one row of memory_segment without its ids, by column.

    `at` is in microseconds. Parts of a routine with the same `digest` have the same text.
    """

    iteration: int
    segment: int
    part: int
    type: str
    at: int
    speaker: str
    is_question: int
    tainted: int
    digest: int
    text: str


def make_segment_parts(routine: str, segments: Iterable[Segment]) -> Iterator[SegmentPart]:
    """Yield the parts of a run's segments: a long segment has several, a blank one none."""
    previous_text = ""
    for segment in segments:
        for part, text in enumerate(split(shorten_middle(clean(segment.text), SEGMENT_CHARACTERS))):
            yield make_segment_part(routine, segment, segment.part + part, text, previous_text)
            previous_text = text


def make_segment_part(
    routine: str, segment: Segment, part: int, text: str, previous_text: str
) -> SegmentPart:
    """Return one part of a segment; `previous_text` is the text before it in the run."""
    return SegmentPart(
        iteration=segment.iteration,
        segment=segment.segment,
        part=part,
        type=segment.type.value,
        at=to_microseconds(segment.timestamp),
        speaker=clean(segment.speaker),
        is_question=int(len(text) < _MAX_QUESTION and text.endswith(("?", "？"))),
        tainted=int(segment.tainted),
        digest=_make_digest(
            routine, segment.type, text, previous_text if len(text) < _SHORT_TEXT else ""
        ),
        text=text,
    )


def split(text: str, limit: int = MAX_PART_CHARACTERS) -> list[str]:
    """Cut a text into parts of at most `limit` characters: at the ends of sentences, else of words,
    else anywhere.
    """
    parts: list[str] = []
    remainder = text.strip()
    while len(remainder) > limit:
        sentences = _SENTENCES.match(remainder, limit // 2, limit)
        if sentences and sentences.end() > limit // 2:
            end = sentences.end()
        else:
            end = remainder.rfind(" ", limit // 2, limit) + 1 or limit
        parts.append(remainder[:end].rstrip())
        remainder = remainder[end:].lstrip()
    return [part_text for part_text in (*parts, remainder) if part_text]


def shorten_middle(text: str, limit: int) -> str:
    """Return a text; of one that is longer than `limit` characters, the beginning and the end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


@lru_cache(maxsize=128)  # runs of one routine often have the same texts
def _make_digest(routine: str, kind: SegmentType, text: str, previous_text: str) -> int:
    """Return a number that is equal for equal texts of a routine; spacing and case are ignored."""
    normalized_text = "\0".join(
        (routine, kind.value, " ".join(text.split()).casefold(), previous_text)
    )
    return int.from_bytes(blake2b(normalized_text.encode(), digest_size=8).digest(), signed=True)
