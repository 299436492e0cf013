"""Rows, weights and the choice of rare terms, for both full-text indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Weights of a word in the text itself, the two texts before, the two after, the speaker's name, the
# date. The texts before explain a text better than those after it (measured on LoCoMo, harmless on
# CMRC 2018).
WEIGHTS = (1.0, 0.35, 0.2, 0.5, 0.5)

# Up to this number of texts every search takes milliseconds. In a larger store at most MAX_POSTINGS
# texts are scored: 20 ms.
SMALL_STORE, MAX_POSTINGS = 50_000, 20_000
# Texts in which the frequency of a term is counted.
SAMPLE = 5_000


class Document(NamedTuple):
    """One row of the index."""

    id: int
    body: str
    earlier: str
    later: str
    speaker: str
    date: str


def choose_rare_terms(
    terms: Sequence[str], frequencies: dict[str, int], *, max_postings: int = MAX_POSTINGS
) -> list[str] | None:
    """Return the rare terms that select the texts to score; None if all terms may select.

    The score still counts all terms: leaving frequent terms out of it would lose hits.
    """
    if sum(frequencies.values()) <= 2 * max_postings:
        return None
    rare: list[str] = []
    for term in sorted(terms, key=lambda term: frequencies[term]):
        if rare and sum(frequencies[counted_term] for counted_term in (*rare, term)) > max_postings:
            break
        rare.append(term)
    return rare
