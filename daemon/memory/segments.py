"""Turn the segments of a run into rows: shortened, cut into parts, with a digest each."""

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

# Characters of one row, and so of one hit: in a longer one the answer is hard to see, a shorter one
# lacks its context.
MAX_PIECE = 800
# Characters of a segment: of a longer one the beginning and end are stored, the journal has the
# whole.
TEXT_CHARACTERS = 20_000
# Characters. A shorter text ("Yes, both.") depends on the text before it: it is a repetition only
# behind the same text.
_SHORT_TEXT = 40
# The text up to the last end of a sentence: greedy, so the search begins at the end.
_SENTENCES = re.compile(r".*(?:(?<=[。！？；\n])|(?<=[.!?;])\s)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One text of a run, at its anchor."""

    iteration: int
    segment: int
    type: SegmentType
    timestamp: datetime
    text: str
    who: str = ""
    """The speaker: a person, the agent, a tool."""
    tainted: bool = False
    """The run had read untrusted bytes by then."""
    part: int = 0
    """The position among several texts at one anchor."""


class RunPiece(NamedTuple):
    """One row of memory_segment, without its ids."""

    iteration: int
    segment: int
    part: int
    type: str
    at: int
    who: str
    asks: int
    tainted: int
    digest: int
    text: str


def segment_rows(routine: str, segments: Iterable[Segment]) -> Iterator[RunPiece]:
    """Yield the rows of a run's segments; blank ones are left out."""
    previous = ""
    for segment in segments:
        for part, text in enumerate(split(_shorten_middle(clean(segment.text)))):
            yield segment_row(routine, segment, segment.part + part, text, previous)
            previous = text


def segment_row(routine: str, segment: Segment, part: int, text: str, previous: str) -> RunPiece:
    """Return the row of one part of a segment; `previous` is the text before it in the run."""
    return RunPiece(
        iteration=segment.iteration,
        segment=segment.segment,
        part=part,
        type=segment.type.value,
        at=to_microseconds(segment.timestamp),
        who=clean(segment.who),
        asks=int(text.endswith(("?", "？"))),
        tainted=int(segment.tainted),
        digest=_digest(routine, segment.type, text, previous if len(text) < _SHORT_TEXT else ""),
        text=text,
    )


def split(text: str, limit: int = MAX_PIECE) -> list[str]:
    """Cut a text into parts of at most `limit` characters: at the ends of sentences, else of words,
    else anywhere.
    """
    parts: list[str] = []
    remainder = text.strip()
    while len(remainder) > limit:
        match = _SENTENCES.match(remainder, limit // 2, limit)
        end = (
            match.end()
            if match and match.end() > limit // 2
            else remainder.rfind(" ", limit // 2, limit) + 1 or limit
        )
        parts.append(remainder[:end].rstrip())
        remainder = remainder[end:].lstrip()
    return [part_text for part_text in (*parts, remainder) if part_text]


def _shorten_middle(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS:
        return text
    half = TEXT_CHARACTERS // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


@lru_cache(maxsize=128)  # runs of one routine often have the same texts
def _digest(routine: str, kind: SegmentType, text: str, previous: str) -> int:
    """Return a number that is equal for equal texts of a routine; spacing and case are ignored."""
    normalized = "\0".join((routine, kind.value, " ".join(text.split()).casefold(), previous))
    return int.from_bytes(blake2b(normalized.encode(), digest_size=8).digest(), signed=True)
