"""What both full-text indexes have in common: the rows, the weights, and which words choose in a
big store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# How much a word counts that stands in the text itself, the two before, the two after, the
# speaker's name, the date. What was said before explains a text more than what was said after it
# (measured on LoCoMo, harmless on CMRC 2018).
WEIGHTS = (1.0, 0.35, 0.2, 0.5, 0.5)

# Below so many texts every question is answered within milliseconds. Above, so many may be weighed:
# 20 ms.
SMALL_STORE, MAX_POSTINGS = 50_000, 20_000
SAMPLE = 5_000


class Document(NamedTuple):
    """One row of the index."""

    id: int
    body: str
    earlier: str
    later: str
    who: str
    date: str


def choose_rare_terms(
    terms: Sequence[str], frequencies: dict[str, int], *, max_postings: int = MAX_POSTINGS
) -> list[str] | None:
    """Return the terms that are to choose what all of them weigh; None where all of them may.

    Leaving frequent terms out altogether would cost recall; this costs hardly any, and saves most
    of the time.
    """
    if sum(frequencies.values()) <= 2 * max_postings:
        return None
    rare: list[str] = []
    for term in sorted(terms, key=lambda term: frequencies[term]):
        if rare and sum(frequencies[other] for other in (*rare, term)) > max_postings:
            break
        rare.append(term)
    return rare
