"""Find again: the index proposes, what is known of each text besides its words decides.

The index alone (bm25 over five weighted columns) finds 78 % of the evidence that LoCoMo's questions
need. Each reason below adds to it, and is one that holds for any store: several good hits in a run
speak for that run; who is named in the question is probably who said it; who asks with the key of
an item wants that item; a question seldom holds the answer, but what was said right after it often
does; who asks when or how many is answered by a text with a time or a number in it; three words say
little, and bm25 thinks too well of them; what a tool put out tells less than what somebody said; of
two Chinese texts the one that shares more of the question's characters is nearer; who asks about
yesterday is told of that day first. All are shares of the best score, as bm25 has no scale of its
own. Recency is not among them: it costs more than it gives.

Where an embedder is at hand, what a text means is added to what it says: a weighted sum over what
either of them found. (Fusing by ranks loses ten points with a weak embedder; by this sum it can
only gain.)
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf, log1p
from typing import NamedTuple

from daemon import tokens
from daemon.memory import fulltext, vectors
from daemon.memory.answer_shapes import looks_like_answer
from daemon.memory.similarity import Folder
from daemon.memory.texts import Text, by_ids, changed
from daemon.memory.times import TimeSpan, span
from daemon.models import SegmentType
from daemon.store.rows import clean, stamp

# More candidates than these change nothing in the first ten.
POOL = 64

_EXACT = 2.0
_RUN = 0.15
_NAMED = 0.15
_ASKS = 0.1
_ANSWERS = 0.15
_FORM = 0.1
_LENGTH = 0.2
# So many tokens are a thought put into words; what is longer says no more by that alone.
_THOUGHT = 55
_FULL = log1p(_THOUGHT)
_CHARACTERS = 0.3
_WHEN = 0.3
# Of the sum where an embedder is at hand (measured with MiniLM on LoCoMo and REALTALK: 0.25 to 0.4
# differ little).
_MEANING = 0.35
_TELLS_LESS: dict[str, float] = {
    SegmentType.TOOL_CALL: 0.2,
    SegmentType.TOOL_RESULT: 0.1,
    SegmentType.REASONING: 0.1,
}

_LATEST_WITHIN = (
    "SELECT id FROM memory_segment WHERE id BETWEEN ? AND ? AND superseded IS NULL"
    " AND type IN ('user_message', 'response', 'summary') ORDER BY id DESC LIMIT ?"
)
_RUNS_WITHIN = "SELECT min(id), max(id) FROM memory_run WHERE ended >= ? AND ended < ?"
# Of the first and the last of these runs that said anything.
_IDS_OF_RUNS = (
    "SELECT (SELECT min(id) FROM memory_segment"
    " WHERE memory_run = (SELECT min(memory_run) FROM memory_segment WHERE memory_run >= ?)),"
    " (SELECT max(id) FROM memory_segment"
    " WHERE memory_run = (SELECT max(memory_run) FROM memory_segment WHERE memory_run <= ?))"
)


# What speaks for a text, or against it, in the order of Hit.parts.
_REASONS = (
    *(
        "words",
        "run",
        "key",
        "name",
        "characters",
        "time",
        "asks",
        "answers",
        "length",
        "form",
        "type",
    ),
    "meaning",
)


class RecallHit(NamedTuple):
    """A text that was found, and how well it fits: 1.0 is the best hit of its question."""

    relevance: float
    text: Text
    parts: tuple[float, ...]
    """What each reason added, in shares of the best score of the index."""

    @property
    def why(self) -> dict[str, float]:
        """The reasons that had a part in it, by name."""
        return {reason: part for reason, part in zip(_REASONS, self.parts, strict=False) if part}


def search(
    connection: sqlite3.Connection,
    question: str,
    limit: int,
    *,
    now: datetime | None = None,
    meant: vectors.Meant | None = None,
    exclude_run: str | None = None,
    per_run: int | None = None,
    per_routine: int | None = None,
) -> list[RecallHit]:
    """Return the texts that fit best, best first; at most so many of one run and of one routine.

    `now`, in the zone of who asks, is what "yesterday" counts from; of texts that are nearly the
    same one is told.
    """
    query = tokens.query(question)
    key = clean(question).strip()
    when = span(question, now) if now else None
    asked = query.terms and limit > 0
    scores = _proposed(connection, query, max(POOL, 2 * limit), when) if asked else {}
    sure: set[int] = set()
    if limit > 0:
        sure |= {
            exact
            for (exact,) in connection.execute("SELECT -id FROM memory_item WHERE key = ?", (key,))
        }
        if meant:  # then nothing is known of a text by its score alone
            sure |= {*scores, *vectors.nearest(connection, meant)}
    scores = dict.fromkeys(sure, 0.0) | scores
    pile = _Pile(connection, scores, sure, exclude_run, limit)
    candidates = pile.first()
    if not candidates:
        return []
    weigh, most = _scales(question, query, key, pile.scores, candidates, when)
    hits = [weigh(text) for text in candidates]
    if meant:
        hits = _with_meaning(
            hits, vectors.cosines(connection, meant, (hit.text.id for hit in hits))
        )
    kept = _kept(_ranked(hits, pile, weigh, most), limit, per_run, per_routine)
    best = kept[0].relevance if kept and kept[0].relevance > 0 else 1.0
    return [hit._replace(relevance=max(0.0, hit.relevance / best)) for hit in kept]


def fused(found: Sequence[Sequence[RecallHit]], limit: int) -> list[RecallHit]:
    """Return what several questions found as one list: a text counts as much as in the question it
    answers best.
    """
    best: dict[int, RecallHit] = {}
    for hit in (hit for hits in found for hit in hits):
        if hit.text.id not in best or hit.relevance > best[hit.text.id].relevance:
            best[hit.text.id] = hit
    return _kept(
        sorted(best.values(), key=lambda hit: (hit.relevance, hit.text.at), reverse=True),
        limit,
        None,
        None,
    )


def _proposed(
    connection: sqlite3.Connection, query: tokens.Query, pool: int, when: TimeSpan | None
) -> dict[int, float]:
    """Return what the index finds, with its score; of the time the question speaks of, some in any
    case.
    """
    scores = _best(connection, query.terms, pool)
    if when:
        first, last = connection.execute(
            _RUNS_WITHIN, (stamp(when.begin), stamp(when.end))
        ).fetchone()
        within = connection.execute(_IDS_OF_RUNS, (first, last)).fetchone()
        if within[0] is not None:
            scores |= fulltext.of(connection).best_within(
                connection, query.terms, within[0], within[1], POOL
            )
            for (id_,) in connection.execute(_LATEST_WITHIN, (*within, POOL // 4)):
                scores.setdefault(id_, 0.0)
    return scores


def _best(connection: sqlite3.Connection, terms: Sequence[str], pool: int) -> dict[int, float]:
    """Return what the index finds, best first; of items that fit equally well, those changed
    last.
    """
    scores = fulltext.of(connection).best(connection, terms, pool)
    often = Counter(score for id_, score in scores.items() if id_ < 0)
    if equals := [id_ for id_, score in scores.items() if id_ < 0 and often[score] > 1]:
        at = changed(connection, equals)
        ranked = sorted(scores, key=lambda id_: (scores[id_], at.get(id_, 0), id_), reverse=True)
        scores = {id_: scores[id_] for id_ in ranked}
    return scores


class _Pile:
    """The texts that are proposed: segments, which speak for one another, and items, read as they
    are needed.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        scores: dict[int, float],
        sure: set[int],
        exclude_run: str | None,
        step: int,
    ) -> None:
        self._connection, self._exclude_run, self._step = connection, exclude_run, step
        self.scores = scores
        self._sure = [id_ for id_ in scores if id_ > 0 or id_ in sure]
        self.waiting = [id_ for id_ in scores if id_ < 0 and id_ not in sure]
        """The items that have not been read, the best first."""

    def first(self) -> list[Text]:
        """Return what has to be known in any case; the best score of all is among it."""
        found = self.more(self._sure)
        while self.waiting and self.scores[self.waiting[0]] > max(
            (self.scores[text.id] for text in found), default=0
        ):
            found += self.more()  # those before were of the run that asks
        return found

    def more(self, beside: Iterable[int] = ()) -> list[Text]:
        """Return the next few items."""
        step, self.waiting = self.waiting[: self._step], self.waiting[self._step :]
        found = by_ids(self._connection, (*beside, *step)).values()
        return [text for text in found if not self._exclude_run or text.run_id != self._exclude_run]


def _scales(
    question: str,
    query: tokens.Query,
    key: str,
    scores: dict[int, float],
    candidates: list[Text],
    when: TimeSpan | None,
) -> tuple[Callable[[Text], RecallHit], Callable[[int], float]]:
    """Return what weighs a text, and what tells from its score how much an item may weigh."""
    top = max(scores[text.id] for text in candidates) or 1.0
    runs: defaultdict[int, float] = defaultdict(float)
    for text in candidates:
        if text.run:
            runs[text.run] += (
                scores[text.id] / top
            ) ** 2  # squared: one good hit outweighs a handful of poor ones
    best_run = max(runs.values(), default=1.0) or 1.0
    named, fits = _named(query, candidates), looks_like_answer(question)
    asked = {text.id + 1: scores[text.id] / top for text in candidates if text.asks and text.run}
    begin, end = (stamp(when.begin), stamp(when.end)) if when else (0, 0)
    characters = query.characters

    def weigh(text: Text) -> RecallHit:
        words = scores[text.id] / top
        parts = (
            words,
            _RUN * runs[text.run] / best_run if text.run else 0.0,
            _EXACT if text.key == key else 0.0,
            _NAMED if text.who in named or text.source in named else 0.0,
            _CHARACTERS * len(characters.intersection(text.text)) / len(characters)
            if characters
            else 0.0,
            _WHEN if begin <= text.at < end else 0.0,
            -_ASKS if text.asks else 0.0,
            _ANSWERS * asked[text.id] if text.id in asked else 0.0,
            # neither is a reason by itself
            _LENGTH * _fullness(text) if words else 0.0,
            _FORM if words and fits and fits(text.text) else 0.0,
            -_TELLS_LESS[text.type] if text.type in _TELLS_LESS else 0.0,
        )
        return RecallHit(sum(parts), text, parts)

    may = (
        (_CHARACTERS if characters else 0.0)
        + (_WHEN if when else 0.0)
        + _LENGTH
        + (_FORM if fits else 0.0)
    )
    return weigh, lambda id_: scores[id_] / top + may


def _ranked(
    hits: list[RecallHit],
    pile: _Pile,
    weigh: Callable[[Text], RecallHit],
    most: Callable[[int], float],
) -> Iterator[RecallHit]:
    """Yield hits, the best first, and read more of them when those that wait might be better."""
    while True:
        # of equals the later one, so that the order never depends on chance
        hits.sort(key=lambda hit: (hit.relevance, hit.text.at, -abs(hit.text.id)))
        least = most(pile.waiting[0]) if pile.waiting else -inf
        while hits and hits[-1].relevance >= least:
            yield hits.pop()
        if not pile.waiting:
            return
        hits += map(weigh, pile.more())


def _fullness(text: Text) -> float:
    """Return how much of a thought a text can hold, up to 1; what is kept under a key is one in any
    case.
    """
    return min(1.0, log1p(tokens.estimate(text.text)) / _FULL) if text.run else 1.0


def _with_meaning(hits: list[RecallHit], near: Mapping[int, float]) -> list[RecallHit]:
    """Return the hits weighed by what they mean as well; where that is not known yet, as if it were
    the farthest.
    """
    best = max(hit.relevance for hit in hits)
    low, high = min(near.values(), default=0.0), max(near.values(), default=1.0)
    weighed = []
    words = (1 - _MEANING) / best if best > 0 else 0.0
    for hit in hits:
        meaning = _MEANING * (near.get(hit.text.id, low) - low) / ((high - low) or 1.0)
        parts = (*(part * words for part in hit.parts), meaning)
        weighed.append(RecallHit(sum(parts), hit.text, parts))
    return weighed


def _named(query: tokens.Query, candidates: Iterable[Text]) -> set[str]:
    """Return the speakers and routines whose whole name is in the question."""
    names = {name for text in candidates for name in (text.who, text.source) if name}
    return {name for name in names if (words := tokens.words(name)) and words <= query.words}


def _kept(
    ranked: Iterable[RecallHit], limit: int, per_run: int | None, per_routine: int | None
) -> list[RecallHit]:
    """Return the best ones, within what a run and a routine may take, each text once."""
    runs: Counter[int] = Counter()
    routines: Counter[str] = Counter()
    kept: list[RecallHit] = []
    folder = Folder()
    for hit in ranked:
        if len(kept) == limit:
            break
        text = hit.text
        # Lines about runs that are gone are alike as well, and share what one routine may take.
        told = bool(text.run) or text.type == SegmentType.SUMMARY
        if told and (
            (per_run and runs[text.run] >= per_run)
            or (per_routine and routines[text.source] >= per_routine)
        ):
            continue
        place = folder.place_of(text.text)
        if place is not None:
            if text.at > kept[place].text.at and text.key is None and kept[place].text.key is None:
                kept[place] = kept[place]._replace(text=text)  # the newest of them stands for all
            continue
        if told:
            routines[text.source] += 1
        if text.run:
            runs[text.run] += 1
        kept.append(hit)
    return kept
