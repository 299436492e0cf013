"""The words of texts, put in and asked for: SQLite's FTS5 (fts5.py) or PostgreSQL's tsvector
(tsvector.py).

Both hold the same words (tokens.py makes them), weigh them alike and answer with BM25, so that what
memory finds does not depend on where it is kept. Not here: which texts are in the index, and what
else but words speaks for a text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from daemon.memory.fulltext import fts5, tsvector
from daemon.memory.fulltext.base import Document


class FullText(Protocol):
    """What either of them does, on a connection to its database."""

    def insert(self, connection: Any, rows: Iterable[Document]) -> None:
        """Put texts in."""

    def delete(self, connection: Any, rows: Iterable[Document]) -> None:
        """Take texts out, given exactly what they were put in with."""

    def clear(self, connection: Any) -> None:
        """Take everything out."""

    def renew(self, connection: Any) -> None:
        """Make an empty index in the place of one that is damaged or gone; inside no transaction,
        and leaving none.
        """

    def merge_some(self, connection: Any, is_first: bool) -> bool:
        """Do a part of what leaves nothing deleted in it; tell whether there was nothing to do."""

    def compact(self, connection: Any) -> None:
        """Make a few of its many small parts one, as every question has to look into each of
        them.
        """

    def check(self, connection: Any) -> int:
        """Let it look through itself, and return how many texts it holds."""

    def holds(self, connection: Any, id_: int, words: Sequence[str]) -> bool:
        """Tell whether it knows a text by these words of its own."""

    def runs_with_terms(self, connection: Any, terms: Sequence[str]) -> list[str]:
        """Return the runs in which one text itself holds all of the terms."""

    def best(self, connection: Any, terms: Sequence[str], pool: int) -> dict[int, float]:
        """Return the texts that fit best, with their scores; in a big store the rare terms choose
        them.
        """

    def best_within(
        self, connection: Any, terms: Sequence[str], first_id: int, last_id: int, pool: int
    ) -> dict[int, float]:
        """Return the same among the segments of these ids."""


def of(connection: Any) -> FullText:
    """Return the index of the database behind a connection."""
    if isinstance(connection, sqlite3.Connection):
        return fts5

    return tsvector
