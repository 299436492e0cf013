"""A run's text as rows: what a caller hands in, what is kept of it, how long texts are cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from daemon.models import SegmentType
from daemon.store.rows import clean, stamp

# A hit is one piece: longer ones bury what matters, shorter ones lose what it belongs to.
MAX_PIECE = 800
# Of a longer text the beginning and the end are kept; the journal has the whole.
TEXT_CHARACTERS = 20_000
# Below this a text says little by itself ("Yes, both."): it repeats only what follows the same
# text.
_SHORT_TEXT = 40
# All until behind the last end of a sentence: found from the back, where it is near.
_SENTENCES = re.compile(r".*(?:(?<=[。！？；\n])|(?<=[.!?;])\s)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One text of a run, at its place."""

    iteration: int
    segment: int
    type: SegmentType
    timestamp: datetime
    text: str
    who: str = ""
    """Who said it: a person, the agent, a tool."""
    tainted: bool = False
    """The run had read untrusted bytes by then."""
    part: int = 0
    """Where it stands among several texts at one place."""


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
    """Return one row: a part of a segment, whose text is `text`; `before` is the text before it in
    the run.
    """
    return RunPiece(
        iteration=segment.iteration,
        segment=segment.segment,
        part=part,
        type=segment.type.value,
        at=stamp(segment.timestamp),
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
    pieces_: list[str] = []
    remainder = text.strip()
    while len(remainder) > limit:
        match = _SENTENCES.match(remainder, limit // 2, limit)
        end = (
            match.end()
            if match and match.end() > limit // 2
            else remainder.rfind(" ", limit // 2, limit) + 1 or limit
        )
        pieces_.append(remainder[:end].rstrip())
        remainder = remainder[end:].lstrip()
    return [piece_ for piece_ in (*pieces_, remainder) if piece_]


def _shorten_middle(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS:
        return text
    half = TEXT_CHARACTERS // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


@lru_cache(maxsize=128)  # a routine that asks the same each time often does and says the same
def _digest(routine: str, kind: SegmentType, text: str, previous: str) -> int:
    """Return a number that is the same for what a routine says again, whatever the spacing and
    case.
    """
    normalized = "\0".join((routine, kind.value, " ".join(text.split()).casefold(), previous))
    return int.from_bytes(blake2b(normalized.encode(), digest_size=8).digest(), signed=True)
