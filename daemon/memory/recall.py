"""Search memory: the index proposes texts, and a weighted sum of reasons ranks them.

Theory of operation. The index alone (bm25 over five weighted columns) finds 78 % of the evidence
that LoCoMo's questions need. Each reason adds a share of the best score, as bm25 has no scale of
its own, and each holds for any store:

- run: several good hits in a run raise all texts of the run;
- key: a question that is the key of an item asks for that item;
- name: a speaker or routine named in the question probably wrote the answer;
- characters: of two Chinese texts the one with more characters of the question is nearer;
- time: a question about yesterday is answered by texts of that day first;
- asks, answers: a question seldom holds the answer, the text right after it often does;
- length: bm25 overrates a text of three words;
- form: "when" and "how many" are answered by a text with a time or a number;
- type: the output of a tool says less than a message.

Recency is not a reason: it loses more answers than it finds.

With an embedder, the cosine of question and text joins the sum as the reason "meaning", over the
texts that either index or embedding found. (Fusing by ranks loses ten points with a weak embedder;
this sum can only gain.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf, log1p
from typing import NamedTuple

from daemon import tokens
from daemon.memory import fulltext, vectors
from daemon.memory.answer_shapes import looks_like_answer
from daemon.memory.similarity import DuplicateFinder
from daemon.memory.texts import Text, by_ids, times_of_change
from daemon.memory.times import TimeSpan, find_time_span
from daemon.models import SegmentType
from daemon.store.rows import clean, to_microseconds
from daemon.store.statements import Connection

# Texts that the index proposes: more of them change nothing in the first ten hits.
POOL = 64

_EXACT = 2.0
_RUN = 0.15
_NAME = 0.15
_ASKS = 0.1
_ANSWERS = 0.15
_ANSWER_SHAPE = 0.1
_LENGTH = 0.2
# Tokens of a complete thought; a longer text gets no more for its length.
_FULL_LENGTH = 55
_FULL_LENGTH_LOG = log1p(_FULL_LENGTH)
_CHARACTERS = 0.3
_TIME = 0.3
# Share of the cosine in the sum, with an embedder (measured with MiniLM on LoCoMo and REALTALK:
# 0.25 to 0.4 differ little).
_COSINE = 0.35
_TYPE_PENALTY: dict[str, float] = {
    SegmentType.TOOL_CALL: 0.2,
    SegmentType.TOOL_RESULT: 0.1,
    SegmentType.REASONING: 0.1,
}

_LATEST_WITHIN = (
    "SELECT id FROM memory_segment WHERE id BETWEEN ? AND ? AND superseded IS NULL"
    " AND type IN ('user_message', 'response', 'summary') ORDER BY id DESC LIMIT ?"
)
_RUNS_WITHIN = "SELECT min(id), max(id) FROM memory_run WHERE ended >= ? AND ended < ?"
# First segment of the first run, last segment of the last run, among the runs with segments.
_IDS_OF_RUNS = (
    "SELECT (SELECT min(id) FROM memory_segment"
    " WHERE memory_run = (SELECT min(memory_run) FROM memory_segment WHERE memory_run >= ?)),"
    " (SELECT max(id) FROM memory_segment"
    " WHERE memory_run = (SELECT max(memory_run) FROM memory_segment WHERE memory_run <= ?))"
)


# Names of the reasons for or against a text, in the order of RecallHit.shares.
_REASONS = (
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
    "meaning",
)


class RecallHit(NamedTuple):
    """A text that fits a question, and its relevance: 1.0 is the best hit of the question."""

    relevance: float
    text: Text
    shares: tuple[float, ...]
    """The share of each reason, in units of the best score of the index."""

    @property
    def reasons(self) -> dict[str, float]:
        """The reasons with a share other than 0, by name."""
        return {
            reason: share for reason, share in zip(_REASONS, self.shares, strict=False) if share
        }


def search(
    connection: Connection,
    question: str,
    limit: int,
    *,
    now: datetime | None = None,
    query_embedding: vectors.QueryEmbedding | None = None,
    exclude_run: str | None = None,
    per_run: int | None = None,
    per_routine: int | None = None,
) -> list[RecallHit]:
    """Return the texts that fit a question best, the best first.

    At most `per_run` hits are of one run, and `per_routine` of one routine. Words such as
    "yesterday" count from `now`, in its zone. Of texts that are nearly the same, one is returned.
    """
    query = tokens.query(question)
    key = clean(question).strip()
    time_span = find_time_span(question, now) if now else None
    is_searchable = query.terms and limit > 0
    scores = _propose(connection, query, max(POOL, 2 * limit), time_span) if is_searchable else {}
    required: set[int] = set()
    if limit > 0:
        required |= {
            item_id
            for (item_id,) in connection.execute(
                "SELECT -id FROM memory_item WHERE key = ?", (key,)
            )
        }
        if query_embedding:  # then even a low score of the index may be outweighed: all are read
            required |= {*scores, *vectors.nearest(connection, query_embedding)}
    scores = dict.fromkeys(required, 0.0) | scores
    candidates = _Candidates(connection, scores, required, exclude_run, limit)
    texts = candidates.read_first()
    if not texts:
        return []
    score_text, max_score = _make_scorer(question, query, key, candidates.scores, texts, time_span)
    hits = [score_text(text) for text in texts]
    if query_embedding:
        hits = _add_cosines(
            hits, vectors.cosines(connection, query_embedding, (hit.text.id for hit in hits))
        )
    selected = _select(_rank(hits, candidates, score_text, max_score), limit, per_run, per_routine)
    best = selected[0].relevance if selected and selected[0].relevance > 0 else 1.0
    return [hit._replace(relevance=max(0.0, hit.relevance / best)) for hit in selected]


def merge_hits(hit_lists: Sequence[Sequence[RecallHit]], limit: int) -> list[RecallHit]:
    """Return the hits of several questions as one list, the best first; each text has the
    relevance of the question it fits best.
    """
    best: dict[int, RecallHit] = {}
    for hit in (hit for hits in hit_lists for hit in hits):
        if hit.text.id not in best or hit.relevance > best[hit.text.id].relevance:
            best[hit.text.id] = hit
    return _select(
        sorted(best.values(), key=lambda hit: (hit.relevance, hit.text.at), reverse=True),
        limit,
        None,
        None,
    )


def _propose(
    connection: Connection, query: tokens.Query, pool: int, time_span: TimeSpan | None
) -> dict[int, float]:
    """Return the scores of texts that the index finds, by id; with a time span, texts of that span
    are always among them.
    """
    scores = _best(connection, query.terms, pool)
    if time_span:
        first_run, last_run = connection.execute(
            _RUNS_WITHIN, (to_microseconds(time_span.begin), to_microseconds(time_span.end))
        ).fetchone()
        within = connection.execute(_IDS_OF_RUNS, (first_run, last_run)).fetchone()
        if within[0] is not None:
            scores |= fulltext.of(connection).best_within(
                connection, query.terms, within[0], within[1], POOL
            )
            for (id_,) in connection.execute(_LATEST_WITHIN, (*within, POOL // 4)):
                scores.setdefault(id_, 0.0)
    return scores


def _best(connection: Connection, terms: Sequence[str], pool: int) -> dict[int, float]:
    """Return the scores of texts that the index finds, by id, the best first; of items with equal
    scores, the last changed first.
    """
    scores = fulltext.of(connection).best(connection, terms, pool)
    counts = Counter(score for id_, score in scores.items() if id_ < 0)
    if tied := [id_ for id_, score in scores.items() if id_ < 0 and counts[score] > 1]:
        changed_at = times_of_change(connection, tied)
        ranked = sorted(
            scores, key=lambda id_: (scores[id_], changed_at.get(id_, 0), id_), reverse=True
        )
        scores = {id_: scores[id_] for id_ in ranked}
    return scores


class _Candidates:
    """The proposed texts: segments are read at once, as they raise one another's score, items only
    when they may be among the best.
    """

    def __init__(
        self,
        connection: Connection,
        scores: dict[int, float],
        required: set[int],
        exclude_run: str | None,
        step: int,
    ) -> None:
        self._connection, self._exclude_run, self._step = connection, exclude_run, step
        self.scores = scores
        self._first_ids = [id_ for id_ in scores if id_ > 0 or id_ in required]
        self.unread_items = [id_ for id_ in scores if id_ < 0 and id_ not in required]
        """Ids of the items that are not read yet, the best first."""

    def read_first(self) -> list[Text]:
        """Read the segments, the required items and the item with the best score of all texts."""
        texts = self.read_more(self._first_ids)
        while self.unread_items and self.scores[self.unread_items[0]] > max(
            (self.scores[text.id] for text in texts), default=0
        ):
            texts += self.read_more()  # the texts before were of the excluded run
        return texts

    def read_more(self, extra_ids: Iterable[int] = ()) -> list[Text]:
        """Read the texts with these ids and the next `step` items, without the excluded run's."""
        next_items, self.unread_items = (
            self.unread_items[: self._step],
            self.unread_items[self._step :],
        )
        texts = by_ids(self._connection, (*extra_ids, *next_items)).values()
        return [text for text in texts if not self._exclude_run or text.run_id != self._exclude_run]


def _make_scorer(
    question: str,
    query: tokens.Query,
    key: str,
    scores: dict[int, float],
    candidates: list[Text],
    time_span: TimeSpan | None,
) -> tuple[Callable[[Text], RecallHit], Callable[[int], float]]:
    """Return two functions: one makes a hit of a text, one gives the highest relevance that an
    unread item, named by its id, can reach.
    """
    best_score = max(scores[text.id] for text in candidates) or 1.0
    run_scores: defaultdict[int, float] = defaultdict(float)
    for text in candidates:
        if text.run:
            # squared: one good hit outweighs a handful of poor ones
            run_scores[text.run] += (scores[text.id] / best_score) ** 2
    best_run_score = max(run_scores.values(), default=1.0) or 1.0
    mentioned = _find_named(query, candidates)
    has_answer_shape = looks_like_answer(question)
    question_scores = {
        text.id + 1: scores[text.id] / best_score for text in candidates if text.asks and text.run
    }
    begin, end = (
        (to_microseconds(time_span.begin), to_microseconds(time_span.end)) if time_span else (0, 0)
    )
    characters = query.characters

    def score_text(text: Text) -> RecallHit:
        word_share = scores[text.id] / best_score
        shares = (
            word_share,
            _RUN * run_scores[text.run] / best_run_score if text.run else 0.0,
            _EXACT if text.key == key else 0.0,
            _NAME if text.who in mentioned or text.source in mentioned else 0.0,
            _CHARACTERS * len(characters.intersection(text.text)) / len(characters)
            if characters
            else 0.0,
            _TIME if begin <= text.at < end else 0.0,
            -_ASKS if text.asks else 0.0,
            _ANSWERS * question_scores[text.id] if text.id in question_scores else 0.0,
            # no reasons by themselves: only for texts that the index found
            _LENGTH * _length_share(text) if word_share else 0.0,
            _ANSWER_SHAPE
            if word_share and has_answer_shape and has_answer_shape(text.text)
            else 0.0,
            -_TYPE_PENALTY[text.type] if text.type in _TYPE_PENALTY else 0.0,
        )
        return RecallHit(sum(shares), text, shares)

    max_bonus = (
        (_CHARACTERS if characters else 0.0)
        + (_TIME if time_span else 0.0)
        + _LENGTH
        + (_ANSWER_SHAPE if has_answer_shape else 0.0)
    )
    return score_text, lambda id_: scores[id_] / best_score + max_bonus


def _rank(
    hits: list[RecallHit],
    candidates: _Candidates,
    score_text: Callable[[Text], RecallHit],
    max_score: Callable[[int], float],
) -> Iterator[RecallHit]:
    """Yield hits, the best first; unread items are read when they might be better."""
    while True:
        # of equal hits the later text, so that the order never depends on chance
        hits.sort(key=lambda hit: (hit.relevance, hit.text.at, -abs(hit.text.id)))
        threshold = max_score(candidates.unread_items[0]) if candidates.unread_items else -inf
        while hits and hits[-1].relevance >= threshold:
            yield hits.pop()
        if not candidates.unread_items:
            return
        hits += map(score_text, candidates.read_more())


def _length_share(text: Text) -> float:
    """Return the length of a text as a share of a complete thought, up to 1; an item always is
    one.
    """
    return min(1.0, log1p(tokens.estimate(text.text)) / _FULL_LENGTH_LOG) if text.run else 1.0


def _add_cosines(hits: list[RecallHit], cosines: Mapping[int, float]) -> list[RecallHit]:
    """Return the hits with the share of their cosine added; a text without an embedding counts as
    the farthest.
    """
    best = max(hit.relevance for hit in hits)
    low, high = min(cosines.values(), default=0.0), max(cosines.values(), default=1.0)
    scored = []
    scale = (1 - _COSINE) / best if best > 0 else 0.0
    for hit in hits:
        cosine_share = _COSINE * (cosines.get(hit.text.id, low) - low) / ((high - low) or 1.0)
        shares = (*(share * scale for share in hit.shares), cosine_share)
        scored.append(RecallHit(sum(shares), hit.text, shares))
    return scored


def _find_named(query: tokens.Query, candidates: Iterable[Text]) -> set[str]:
    """Return the speakers and routines whose full name is in the question."""
    names = {name for text in candidates for name in (text.who, text.source) if name}
    return {
        name for name in names if (name_words := tokens.words(name)) and name_words <= query.words
    }


def _select(
    hits: Iterable[RecallHit], limit: int, per_run: int | None, per_routine: int | None
) -> list[RecallHit]:
    """Return the first `limit` hits within the limits of a run and a routine, each text once."""
    runs: Counter[int] = Counter()
    routines: Counter[str] = Counter()
    selected: list[RecallHit] = []
    duplicates = DuplicateFinder()
    for hit in hits:
        if len(selected) == limit:
            break
        text = hit.text
        # Lines of deleted runs are alike too, and count within the limit of their routine.
        is_of_routine = bool(text.run) or text.type == SegmentType.SUMMARY
        if is_of_routine and (
            (per_run and runs[text.run] >= per_run)
            or (per_routine and routines[text.source] >= per_routine)
        ):
            continue
        position = duplicates.find_duplicate(text.text)
        if position is not None:
            if (
                text.at > selected[position].text.at
                and text.key is None
                and selected[position].text.key is None
            ):
                # of duplicates the newest is returned
                selected[position] = selected[position]._replace(text=text)
            continue
        if is_of_routine:
            routines[text.source] += 1
        if text.run:
            runs[text.run] += 1
        selected.append(hit)
    return selected
