"""Find again: the index proposes, what is known of each text besides its words decides.

The index alone (bm25 over five weighted columns) finds 78 % of the evidence that LoCoMo's questions need. Each reason
below adds to it, and is one that holds for any store: several good hits in a run speak for that run; who is named in
the question is probably who said it; who asks with the key of an item wants that item; a question seldom holds the
answer; what a tool put out tells less than what somebody said; of two Chinese texts the one that shares more of the
question's characters is nearer. All are shares of the best score, as bm25 has no scale of its own. Recency is not among
them: it costs more than it gives.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from daemon.memory import tokens
from daemon.memory.index import WEIGHTS
from daemon.memory.texts import Text, by_ids
from daemon.models import SegmentType
from daemon.store.rows import clean

# More candidates than these change nothing in the first ten.
POOL = 64

# Below so many texts every question is answered within milliseconds. Above, so many may be weighed: 20 ms.
SMALL, BUDGET = 50_000, 20_000
_SAMPLE = 5_000

_EXACT = 2.0
_RUN = 0.15
_NAMED = 0.15
_ASKS = 0.15
_CHARACTERS = 0.3
_TELLS_LESS: dict[str, float] = {SegmentType.TOOL_CALL: 0.2, SegmentType.TOOL_RESULT: 0.1, SegmentType.REASONING: 0.1}

_SEARCH = (
    f"SELECT rowid, -bm25(memory_fts, {', '.join(map(str, WEIGHTS))}) AS score FROM memory_fts"  # noqa: S608
    " WHERE memory_fts MATCH ? ORDER BY score DESC, rowid DESC LIMIT ?"
)
# Two questions in one: asked together, SQLite would read the whole table for them.
_ENDS = "SELECT (SELECT min(id) FROM memory_fts_docsize), (SELECT max(id) FROM memory_fts_docsize)"
_COUNT = "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH ? AND rowid BETWEEN ? AND ?"


class Hit(NamedTuple):
    """A text that was found, and how well it fits: 1.0 is the best hit of its question."""

    relevance: float
    text: Text


def search(
    connection: sqlite3.Connection,
    question: str,
    limit: int,
    *,
    exclude_run: str | None = None,
    per_run: int | None = None,
    per_routine: int | None = None,
) -> list[Hit]:
    """Return the texts that fit best, best first; at most so many of one run and of one routine."""
    query = tokens.query(question)
    if not query.terms or limit < 1:
        return []
    match = expression(connection, query.terms)
    scores: dict[int, float] = dict(connection.execute(_SEARCH, (match, max(POOL, 2 * limit))).fetchall())
    key = clean(question).strip()
    for (exact,) in connection.execute("SELECT -id FROM memory_item WHERE key = ?", (key,)):
        scores.setdefault(exact, 0.0)
    candidates = [text for text in by_ids(connection, scores).values() if not exclude_run or text.run_id != exclude_run]
    if not candidates:
        return []
    # of equals the later one, so that the order never depends on chance
    ranked = sorted(
        _weighed(query, key, scores, candidates), key=lambda hit: (hit.relevance, hit.text.at), reverse=True
    )
    best = ranked[0].relevance if ranked[0].relevance > 0 else 1.0
    capped = [*_capped(ranked, per_run, per_routine)][:limit]
    return [Hit(max(0.0, hit.relevance / best), hit.text) for hit in capped]


def expression(
    connection: sqlite3.Connection, terms: Sequence[str], *, small: int = SMALL, budget: int = BUDGET
) -> str:
    """Return what to ask the index: any of the terms; in a big store the rare ones choose what all of them weigh.

    Leaving frequent terms out altogether would cost recall; this costs hardly any, and saves most of the time.
    """
    frequencies = _frequencies(connection, terms, small)
    if sum(frequencies.values()) <= 2 * budget:
        return tokens.any_of(terms)
    rare: list[str] = []
    for term in sorted(terms, key=lambda term: frequencies[term]):
        if rare and sum(frequencies[each] for each in (*rare, term)) > budget:
            break
        rare.append(term)
    return f"({tokens.any_of(rare)}) AND ({tokens.any_of(terms)})"


def _frequencies(connection: sqlite3.Connection, terms: Sequence[str], small: int) -> dict[str, int]:
    """Estimate in how many texts each term stands, from the newest ones; of a small store nothing has to be known."""
    low, high = connection.execute(_ENDS).fetchone()
    size = (high or 0) - (low or 0)
    if size <= small:
        return dict.fromkeys(terms, 0)
    reach = min(size, _SAMPLE)
    sample = (high - reach, high) if high > -low else (low, low + reach)  # of segments or of items: where most are
    counts = {term: connection.execute(_COUNT, (tokens.any_of([term]), *sample)).fetchone()[0] for term in terms}
    return {term: count * size // reach for term, count in counts.items()}


def _weighed(query: tokens.Query, key: str, scores: dict[int, float], candidates: list[Text]) -> Iterator[Hit]:
    top = max(scores[text.id] for text in candidates) or 1.0
    runs: defaultdict[int, float] = defaultdict(float)
    for text in candidates:
        if text.run:
            runs[text.run] += (scores[text.id] / top) ** 2  # squared: one good hit outweighs a handful of poor ones
    best_run = max(runs.values(), default=1.0)
    named = _named(query, candidates)
    for text in candidates:
        score = scores[text.id] / top - _ASKS * text.asks - _TELLS_LESS.get(text.type, 0.0)
        if text.key == key:
            score += _EXACT
        if text.run:
            score += _RUN * runs[text.run] / best_run
        if text.who in named or text.source in named:
            score += _NAMED
        if query.characters:
            score += _CHARACTERS * len(query.characters.intersection(text.text)) / len(query.characters)
        yield Hit(score, text)


def _named(query: tokens.Query, candidates: Iterable[Text]) -> set[str]:
    """Return the speakers and routines whose whole name is in the question."""
    names = {name for text in candidates for name in (text.who, text.source) if name}
    return {name for name in names if (words := tokens.words(name)) and words <= query.words}


def _capped(ranked: Iterable[Hit], per_run: int | None, per_routine: int | None) -> Iterator[Hit]:
    runs: Counter[int] = Counter()
    routines: Counter[str] = Counter()
    for hit in ranked:
        text = hit.text
        if text.run:
            if (per_run and runs[text.run] >= per_run) or (per_routine and routines[text.source] >= per_routine):
                continue
            runs[text.run] += 1
            routines[text.source] += 1
        yield hit
