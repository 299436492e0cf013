"""The full-text index: FTS5 in SQLite (fts5.py), tsvector in PostgreSQL (tsvector.py).

Both hold the same words (from words.py), with the same weights, and score by BM25, so that search
results do not depend on the database. Not here: which texts are indexed (index.py), and the reasons
besides words for a hit (recall.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from daemon.memory.fulltext import fts5, tsvector
from daemon.memory.fulltext.base import Document


class FullText(Protocol):
    """The functions of both modules, on a connection to their database."""

    def insert(self, connection: Any, rows: Iterable[Document]) -> None:
        """Insert texts."""

    def delete(self, connection: Any, rows: Iterable[Document]) -> None:
        """Delete texts; the rows must be those that were inserted."""

    def clear(self, connection: Any) -> None:
        """Delete all texts."""

    def renew(self, connection: Any) -> None:
        """Replace a damaged or missing index by an empty one; call it outside of a transaction."""

    def merge_some(self, connection: Any, is_first: bool) -> bool:
        """Do one step of the merge that removes deleted words; True at its end."""

    def compact(self, connection: Any) -> None:
        """Merge a few small parts of the index: a search reads every part."""

    def check(self, connection: Any) -> int:
        """Check the whole index, and return its number of texts."""

    def check_size(self, connection: Any) -> int:
        """Return the number of texts; raises StoreDamaged if the index counts others for its
        scores.
        """

    def holds(self, connection: Any, id_: int, words: Sequence[str]) -> bool:
        """Tell whether a search for words of a text finds the text."""

    def runs_with_terms(self, connection: Any, terms: Sequence[str]) -> list[str]:
        """Return the runs with a text whose own words include all terms."""

    def ids_with(self, connection: Any, terms: Sequence[str], limit: int) -> list[list[int]]:
        """Return the ids of up to `limit` texts with each term, in the order of the terms."""

    def ids_within(
        self, connection: Any, terms: Sequence[str], first_id: int, last_id: int
    ) -> list[list[int]]:
        """Return the ids of the segments from `first_id` to `last_id` with each term, in the order
        of the terms. Unlike a score, this costs the same in a store of any size.
        """

    def best(self, connection: Any, terms: Sequence[str], pool: int) -> dict[int, float]:
        """Return the scores of the best texts by id, the best first, at most `pool`; in a large
        store only texts with the rare terms are scored.
        """

    def best_within(
        self, connection: Any, terms: Sequence[str], first_id: int, last_id: int, pool: int
    ) -> dict[int, float]:
        """Return the scores of the best segments from `first_id` to `last_id`, by id."""


def index_of(connection: Any) -> FullText:
    """Return the index of the database behind a connection."""
    if isinstance(connection, sqlite3.Connection):
        return fts5

    return tsvector
