"""Search memory, and read the neighbours of what was found.

The index proposes texts, and a weighted sum of reasons ranks them.

Theory of operation. The index alone (bm25 over five weighted columns) finds 78 % of the evidence
that LoCoMo's questions need. Each reason adds a share of the best score, as bm25 has no scale of
its own, and each holds for any store:

- run: several good hits in a run raise all texts of the run;
- key: a question that is the key of an item asks for that item;
- name: a speaker or routine named in the question probably wrote the answer;
- person: what a person said comes before what an agent made of it;
- characters: of two Chinese texts the one with more characters of the question is nearer;
- time: a question about yesterday is answered by texts of that day first;
- asks, answers: a question seldom holds the answer, the text right after it often does;
- answer shape: "when" and "how many" are answered by a text with a time or a number;
- type: the output of a tool says less than a message.

Recency is not a reason: it loses more answers than it finds.

With an embedder, the cosine of question and text joins the sum as the reason "meaning", over the
texts that either index or embedding found. (Fusing by ranks loses ten points with a weak embedder;
this sum can only gain.)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from heapq import nlargest
from itertools import groupby
from math import inf, log
from typing import NamedTuple

from daemon.errors import NotFound
from daemon.memory import fulltext, index, vectors
from daemon.memory.answer_shapes import make_answer_test
from daemon.memory.fulltext.words import Query, query_of, words_of
from daemon.memory.rows import (
    ITEM_ITERATION,
    SEED_PREFIX,
    Text,
    chunk,
    goals_among,
    texts_by_id,
    texts_of_run,
    times_of_change,
)
from daemon.memory.similarity import DuplicateFinder
from daemon.memory.times import TimeSpan, find_time_span
from daemon.models import Anchor, ExpandedContext, MemoryChunk, SegmentType
from daemon.store.connection import Connection
from daemon.store.rows import clean, from_microseconds, to_microseconds
from daemon.token_estimate import estimate_tokens

# Terms of a question that are looked for: a whole prompt may be the question, and its frequent
# words cost time and find nothing. Chinese has more terms, as two of its pairs are about a word.
_TERMS, _CHINESE_TERMS = 16, 32
# A term of so many texts is frequent. Of a term with at most so few, the goals among its texts are
# left out of the count.
_FREQUENT, _FEW = 250, 64
# With so many rare terms a long question needs no frequent ones. With fewer, frequent terms are
# looked for as well, but only in so many of the newest segments.
_ENOUGH_TERMS, _NEWEST = 4, 3_000

# Texts that the index proposes: more of them change nothing in the first ten hits.
POOL = 64

# How much each reason counts, in units of the best score of the index; `_ASKS` is subtracted.
_KEY = 2.0
_RUN = 0.15
_NAME = 0.15
_PERSON = 0.2
_ASKS = 0.1
_ANSWERS = 0.15
_ANSWER_SHAPE = 0.1
_CHARACTERS = 0.3
_TIME = 0.3
# Share of the cosine in the sum, with an embedder (measured with MiniLM on LoCoMo and REALTALK:
# 0.25 to 0.4 differ little).
_COSINE = 0.35
# What is subtracted for a text of these types.
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
    "person",
    "characters",
    "time",
    "asks",
    "answers",
    "form",  # the answer shape, under the name that the API has given it since its first version
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


class Selection(NamedTuple):
    """The texts that fit a question, the best first."""

    hits: list[RecallHit]
    left_out_hits: list[RecallHit]
    """Texts that strangers may have written, where only untainted ones are wanted."""


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
    untainted_only: bool = False,
    without_goals: bool = False,
    without_seeds: bool = False,
) -> Selection:
    """Return the texts that fit a question best, the best first.

    At most `per_run` hits are of one run, and `per_routine` of one routine. Words such as
    "yesterday" count from `now`, in its zone. Of texts that are nearly the same, one is returned.
    With `untainted_only`, texts that strangers may have written are left out; with
    `without_goals`, the goals of routines; with `without_seeds`, what the daemon says of itself.
    """
    key = clean(question).strip()
    time_span = find_time_span(question, now) if now else None
    ids_within = _ids_within(connection, time_span) if time_span else None
    # with texts of that time, its words are none of the answer: the "9" of "9 days ago"
    other_words = question.replace(time_span.words, " ", 1) if time_span and ids_within else ""
    query = query_of(question)
    terms = query_of(other_words).terms or query.terms
    scores: dict[int, float] = {}
    if terms and limit > 0:
        scores = _propose(connection, terms, max(POOL, 2 * limit), ids_within)
    required_ids: set[int] = set()
    if limit > 0:
        required_ids |= {
            item_id
            for (item_id,) in connection.execute(
                "SELECT -id FROM memory_item WHERE key = ?", (key,)
            )
        }
        if query_embedding:  # then even a low score of the index may be outweighed: all are read
            required_ids |= {*scores, *vectors.nearest(connection, query_embedding)}
    scores = dict.fromkeys(required_ids, 0.0) | scores
    candidates = _Candidates(connection, scores, required_ids, exclude_run, limit)
    texts = candidates.read_first()
    if not texts:
        return Selection([], [])
    score_text, max_score = _make_scorer(question, query, key, candidates.scores, texts, time_span)
    hits = [score_text(text) for text in texts]
    if query_embedding:
        hits = _add_cosines(
            hits, vectors.cosines(connection, query_embedding, (hit.text.id for hit in hits))
        )
    ranked_hits = _rank(hits, candidates, score_text, max_score)
    if without_goals:
        ranked_hits = (hit for hit in ranked_hits if not hit.text.is_goal)
    if without_seeds:
        ranked_hits = (
            hit for hit in ranked_hits if not (hit.text.key or "").startswith(SEED_PREFIX)
        )
    selection = _select(ranked_hits, limit, per_run, per_routine, untainted_only=untainted_only)
    best = max((hit.relevance for hits in selection for hit in hits), default=1.0)
    scale = best if best > 0 else 1.0
    return Selection(
        *(
            [hit._replace(relevance=max(0.0, hit.relevance / scale)) for hit in hits]
            for hits in selection
        )
    )


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
    ).hits


def _ids_within(connection: Connection, time_span: TimeSpan) -> tuple[int, int] | None:
    """Return the first and the last segment of the runs that ended in a time span; None if there
    are none.
    """
    runs = connection.execute(
        _RUNS_WITHIN, (to_microseconds(time_span.begin), to_microseconds(time_span.end))
    ).fetchone()
    first_id, last_id = connection.execute(_IDS_OF_RUNS, runs).fetchone()
    return None if first_id is None or last_id is None else (first_id, last_id)


def _propose(
    connection: Connection,
    query_terms: Sequence[str],
    pool: int,
    ids_within: tuple[int, int] | None,
) -> dict[int, float]:
    """Return the scores of texts that the index finds, by id; texts within `ids_within`, those of a
    time that the question names, are always among them.
    """
    terms, frequent_terms = _choose_terms(connection, query_terms)
    scores = _best(connection, terms, pool) if terms else {}
    if frequent_terms:
        scores = _add_newest(connection, scores, frequent_terms, pool)
    if query_terms and not scores:
        index.check_newest(connection)
    if ids_within:
        if terms:
            scores |= fulltext.index_of(connection).best_within(
                connection, terms, *ids_within, POOL
            )
        for (id_,) in connection.execute(_LATEST_WITHIN, (*ids_within, POOL // 4)):
            scores.setdefault(id_, 0.0)
    return scores


def _add_newest(
    connection: Connection, scores: Mapping[int, float], terms: Sequence[str], pool: int
) -> dict[int, float]:
    """Return the scores and those of the newest texts with frequent terms: at most `pool`, the best
    first.

    Each term adds its weight in the newest texts. BM25 would count all texts with the term, which
    takes the longer the more there are.
    """
    (newest,) = connection.execute("SELECT max(id) FROM memory_segment").fetchone()
    ids_by_term = fulltext.index_of(connection).ids_within(
        connection, terms, (newest or 0) - _NEWEST + 1, newest or 0
    )
    new_scores: defaultdict[int, float] = defaultdict(float)
    for ids in ids_by_term:
        weight = log(_NEWEST / len(ids)) if ids else 0.0
        for id_ in ids:
            new_scores[id_] += weight
    best_new_scores = nlargest(pool, ((score, id_) for id_, score in new_scores.items()))
    sums = dict(scores)
    for score, id_ in best_new_scores:
        sums[id_] = sums.get(id_, 0.0) + score
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], -entry[0])))


def _choose_terms(
    connection: Connection, terms: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the terms to look for, and those to look for in the newest texts only: of a long
    question the rarest terms, and if these are few, frequent ones.

    Goals do not count, as a goal would find nothing but goals by its rarest words. Nor does a term
    of no text.
    """
    limit = _TERMS if all(map(str.isascii, terms)) else _CHINESE_TERMS
    if len(terms) <= limit:
        return terms, ()
    ids_by_term = fulltext.index_of(connection).ids_with(connection, terms, _FREQUENT)
    ids_of_rare_terms = {id_ for ids in ids_by_term if len(ids) <= _FEW for id_ in ids if id_ > 0}
    goals = goals_among(connection, ids_of_rare_terms)
    counts = [len(ids) - len(goals.intersection(ids)) for ids in ids_by_term]
    ranking = sorted((count, position) for position, count in enumerate(counts) if count)
    rare = [
        terms[position] for _, position in ranking[:limit] if len(ids_by_term[position]) < _FREQUENT
    ]
    if len(rare) >= _ENOUGH_TERMS:
        return rare, ()
    return rare, [terms[position] for _, position in ranking[len(rare) : 2 * _ENOUGH_TERMS]]


def _best(connection: Connection, terms: Sequence[str], pool: int) -> dict[int, float]:
    """Return the scores of texts that the index finds, by id, the best first; of items with equal
    scores, the last changed first.
    """
    scores = fulltext.index_of(connection).best(connection, terms, pool)
    counts = Counter(score for id_, score in scores.items() if id_ < 0)
    if tied_ids := [id_ for id_, score in scores.items() if id_ < 0 and counts[score] > 1]:
        changed_at = times_of_change(connection, tied_ids)
        ids = sorted(
            scores, key=lambda id_: (scores[id_], changed_at.get(id_, 0), id_), reverse=True
        )
        scores = {id_: scores[id_] for id_ in ids}
    return scores


class _Candidates:
    """The proposed texts: segments are read at once, as they raise one another's score, items only
    when they may be among the best.
    """

    def __init__(
        self,
        connection: Connection,
        scores: dict[int, float],
        required_ids: set[int],
        exclude_run: str | None,
        step: int,
    ) -> None:
        """`required_ids` are read at once; of the other items `step` are read at a time."""
        self._connection, self._exclude_run, self._step = connection, exclude_run, step
        self.scores = scores
        self._first_ids = [id_ for id_ in scores if id_ > 0 or id_ in required_ids]
        self.unread_items = [id_ for id_ in scores if id_ < 0 and id_ not in required_ids]
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
        next_items = self.unread_items[: self._step]
        self.unread_items = self.unread_items[self._step :]
        texts = texts_by_id(self._connection, (*extra_ids, *next_items)).values()
        return [text for text in texts if not self._exclude_run or text.run_id != self._exclude_run]


def _make_scorer(
    question: str,
    query: Query,
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
    named_sources = _find_named(query, candidates)
    has_answer_shape = make_answer_test(question)
    question_scores = {
        text.id + 1: scores[text.id] / best_score
        for text in candidates
        if text.is_question and text.run
    }
    begin = end = 0
    if time_span:
        begin, end = to_microseconds(time_span.begin), to_microseconds(time_span.end)
    characters = query.characters

    def score_text(text: Text) -> RecallHit:
        word_share = scores[text.id] / best_score
        shares = (  # in the order of _REASONS
            word_share,
            _RUN * run_scores[text.run] / best_run_score if text.run else 0.0,
            _KEY if text.key == key else 0.0,
            _NAME if text.speaker in named_sources or text.source in named_sources else 0.0,
            _PERSON if text.is_by_person else 0.0,
            _CHARACTERS * len(characters.intersection(text.text)) / len(characters)
            if characters
            else 0.0,
            _TIME if begin <= text.at < end else 0.0,
            -_ASKS if text.is_question else 0.0,
            _ANSWERS * question_scores[text.id] if text.id in question_scores else 0.0,
            # no reason by itself: only for texts that the index found
            _ANSWER_SHAPE
            if word_share and has_answer_shape and has_answer_shape(text.text)
            else 0.0,
            -_TYPE_PENALTY[text.type] if text.type in _TYPE_PENALTY else 0.0,
        )
        return RecallHit(sum(shares), text, shares)

    max_bonus = (
        (_CHARACTERS if characters else 0.0)
        + (_TIME if time_span else 0.0)
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


def _add_cosines(hits: list[RecallHit], cosines: Mapping[int, float]) -> list[RecallHit]:
    """Return the hits with the share of their cosine added; a text without an embedding counts as
    the farthest.
    """
    best = max(hit.relevance for hit in hits)
    low, high = min(cosines.values(), default=0.0), max(cosines.values(), default=1.0)
    scored_hits = []
    scale = (1 - _COSINE) / best if best > 0 else 0.0
    for hit in hits:
        cosine_share = _COSINE * (cosines.get(hit.text.id, low) - low) / ((high - low) or 1.0)
        shares = (*(share * scale for share in hit.shares), cosine_share)
        scored_hits.append(RecallHit(sum(shares), hit.text, shares))
    return scored_hits


def _find_named(query: Query, candidates: Iterable[Text]) -> set[str]:
    """Return the speakers and routines whose full name is in the question."""
    names = {name for text in candidates for name in (text.speaker, text.source) if name}
    return {name for name in names if (name_words := words_of(name)) and name_words <= query.words}


def _select(
    hits: Iterable[RecallHit],
    limit: int,
    per_run: int | None,
    per_routine: int | None,
    *,
    untainted_only: bool = False,
) -> Selection:
    """Return the first `limit` hits within the limits of a run and a routine, each text once, and
    of a segment in several parts the best one.
    """
    segments: set[tuple[int, int, int]] = set()
    runs: Counter[int] = Counter()
    routines: Counter[str] = Counter()
    selected_hits: list[RecallHit] = []
    left_out_hits: list[RecallHit] = []
    duplicates = DuplicateFinder()
    for hit in hits:
        if len(selected_hits) == limit:
            break
        text = hit.text
        if text.run and (text.run, text.iteration, text.segment) in segments:
            continue
        if untainted_only and text.tainted:
            if len(left_out_hits) < limit:
                left_out_hits.append(hit)
            continue
        # Lines of deleted runs are alike too, and count within the limit of their routine.
        is_of_routine = bool(text.run) or text.type == SegmentType.SUMMARY
        if is_of_routine and (
            (per_run and runs[text.run] >= per_run)
            or (per_routine and routines[text.source] >= per_routine)
        ):
            continue
        position = duplicates.find_or_add(text.text)
        if position is not None:
            if (
                text.at > selected_hits[position].text.at
                and text.key is None
                and selected_hits[position].text.key is None
            ):
                # of duplicates the newest is returned
                selected_hits[position] = selected_hits[position]._replace(text=text)
            continue
        if is_of_routine:
            routines[text.source] += 1
        if text.run:
            runs[text.run] += 1
            segments.add((text.run, text.iteration, text.segment))
        selected_hits.append(hit)
    return Selection(selected_hits, left_out_hits)


_OUR_TAG = re.compile(r"<(?=[\s/]*memory)", re.IGNORECASE)
# Share of the best hit's relevance; hits below it seldom have more than a word in common with the
# question.
MIN_RELEVANCE = 0.3
# Characters of a hit, and of a neighbour of a hit, in a prompt.
HIT_CHARACTERS = 800
NEIGHBOUR_CHARACTERS = 200


def expand(connection: Connection, anchor: Anchor, window: int) -> ExpandedContext:
    """Return the text at an anchor, and `window` texts of its run before and after it; raises
    NotFound.
    """
    if anchor.iteration == ITEM_ITERATION:
        texts = list(texts_by_id(connection, [-anchor.segment]).values())
    else:
        texts = texts_of_run(connection, anchor.run_id)
    chunks_by_position = {
        position: _join_parts(parts)
        for position, parts in groupby(texts, lambda text: (text.iteration, text.segment))
    }
    position = (anchor.iteration, anchor.segment)
    if position not in chunks_by_position:
        msg = (
            f"nothing is remembered of run {anchor.run_id or '-'} at "
            f"{anchor.iteration}/{anchor.segment}"
        )
        raise NotFound(msg)
    focus = list(chunks_by_position).index(position)
    chunks = tuple(chunks_by_position.values())
    return ExpandedContext(
        run=anchor.run_id,
        focus=chunks[focus],
        before=chunks[max(0, focus - window) : focus],
        after=chunks[focus + 1 : focus + 1 + window],
    )


def _join_parts(parts: Iterable[Text]) -> MemoryChunk:
    first_part, *other_parts = parts
    content = "\n".join((first_part.text, *(part.text for part in other_parts)))
    return replace(chunk(first_part), content=content)


def excerpt(
    connection: Connection,
    hits: Sequence[RecallHit],
    budget: int,
    *,
    untainted_only: bool = False,
) -> tuple[str, bool]:
    """Return the hits and their neighbours as text for a prompt, and whether any of it is tainted.

    The oldest text comes first. With at most `budget` tokens, better hits take precedence. The text
    stands between the tags <memory> and </memory>: no remembered text can close them, or look like
    a heading with time, source and trust. With `untainted_only`, tainted neighbours are left out.
    """
    hit_texts = {hit.text.id: hit.text for hit in hits if hit.relevance >= MIN_RELEVANCE}
    neighbour_ids = {id_ + step for id_ in hit_texts if id_ > 0 for step in (-1, 1)}
    texts = texts_by_id(connection, neighbour_ids - hit_texts.keys()) | hit_texts
    if (item := _best_item_below(hits)) and not _is_said_by(texts.values(), item):
        hit_texts[item.id] = texts[item.id] = item
    lines: dict[int, str] = {}
    remaining = budget - estimate_tokens(_put_in_tags(()))
    for id_, text in hit_texts.items():
        neighbours = [
            neighbour
            for neighbour in (id_ - 1, id_ + 1)
            if neighbour in texts
            and 0 < texts[neighbour].run == text.run
            and not texts[neighbour].is_goal
            and not (untainted_only and texts[neighbour].tainted)
        ]
        for line_ids in ([id_, *neighbours], [id_]):
            new_lines = {
                line_id: _line_of(texts[line_id], line_id in hit_texts)
                for line_id in line_ids
                if line_id not in lines
            }
            cost = estimate_tokens(_heading(text, tainted=True)) + sum(
                map(estimate_tokens, new_lines.values())
            )
            if cost <= remaining:
                lines |= new_lines
                remaining -= cost
                break
    blocks = []
    for group in _group_adjacent([texts[id_] for id_ in sorted(lines)]):
        head = _heading(group[0], tainted=any(text.tainted for text in group))
        blocks.append("\n".join((head, *(lines[text.id] for text in group))))
    return _put_in_tags(blocks) if blocks else "", any(texts[id_].tainted for id_ in lines)


def _best_item_below(hits: Sequence[RecallHit]) -> Text | None:
    """Return the best stored item among the hits if it is below the least relevance.

    In a memory of a few texts a word of the item may be in most of them, and then counts little.
    But somebody stored the item to have it recalled, and it is short.
    """
    items = [hit for hit in hits if hit.text.type == SegmentType.KNOWLEDGE]
    return items[0].text if items and items[0].relevance < MIN_RELEVANCE else None


def _is_said_by(texts: Iterable[Text], item: Text) -> bool:
    """Tell whether one of the texts holds all words of an item."""
    item_words = words_of(item.text)
    return any(item_words <= words_of(text.text) for text in texts)


def _group_adjacent(texts: Sequence[Text]) -> list[list[Text]]:
    """Group texts that follow each other in one run, the oldest group first."""
    groups: list[list[Text]] = []
    for text in texts:
        previous = groups[-1][-1] if groups else None
        if previous and 0 < previous.run == text.run and previous.id + 1 == text.id:
            groups[-1].append(text)
        else:
            groups.append([text])
    return sorted(groups, key=lambda group: group[0].at)


def _heading(text: Text, *, tainted: bool) -> str:
    """Return the line above a group of texts: time, source, and whether strangers may have written
    them.
    """
    source = f" · {text.source or text.key}" if text.source or text.key else ""
    return f"[{_minute(text.at // 60_000_000)}{source}{' · untrusted' if tainted else ''}]"


@lru_cache(maxsize=64)  # the hits of a search are often of one hour, and found again
def _minute(number: int) -> str:
    """Return the minute with this number since 1970 as `2026-11-20 08:30 UTC`."""
    return (
        from_microseconds(number * 60_000_000).isoformat(" ", "minutes").replace("+00:00", " UTC")
    )


def _line_of(text: Text, is_hit: bool) -> str:
    return quote_line(
        text.speaker, shorten(text.text, HIT_CHARACTERS if is_hit else NEIGHBOUR_CHARACTERS)
    )


def shorten(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"


def quote_line(speaker: str, text: str) -> str:
    """Return a text as a prompt shows it: a list item with the speaker, further lines indented."""
    # Headings begin at the margin: indented, a remembered text cannot imitate one, nor the tag.
    text = "\n  ".join(text.splitlines())
    if "<" in text:
        text = _OUR_TAG.sub("‹", text)
    return f"- {speaker}: {text}" if speaker else f"- {text}"


def _put_in_tags(blocks: Iterable[str]) -> str:
    """Return the blocks between the tags that set memory apart in a prompt."""
    return "\n".join(("<memory>", "\n\n".join(blocks), "</memory>"))
