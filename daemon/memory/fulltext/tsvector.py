"""The index in PostgreSQL: a tsvector of each text, under a GIN index.

`FullText` says what each function promises.

The server neither splits nor ranks texts: its parser takes a Chinese sentence for one word, and
ts_rank ignores how rare a word is. So the words are made here as FTS5 makes them, the column of a
word is its weight class (A to D), and BM25 is computed here as in FTS5, over the texts that the
server proposes by a rough score.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import log
from typing import Any

from daemon.errors import StoreDamaged
from daemon.memory.fulltext.base import (
    MAX_POSTINGS,
    SAMPLE,
    SMALL_STORE,
    WEIGHTS,
    Document,
    choose_rare_terms,
)
from daemon.memory.fulltext.porter import stems_of
from daemon.store.connection import placeholders

# FTS5's constants: https://sqlite.org/fts5.html#the_bm25_function
_K1, _B = 1.2, 0.75
# Speaker and date have the same weight, and share a class.
_WEIGHT_CLASSES = "ABCDD"
_CLASS_WEIGHTS = dict(zip(_WEIGHT_CLASSES, WEIGHTS, strict=True))
_RANKS = "{" + ", ".join(str(_CLASS_WEIGHTS[letter]) for letter in "DCBA") + "}"
# Proposed texts per returned text: the rough score is good, not exact.
_OVERSAMPLING = 4
# Positions of one word in a tsvector: the server's limit.
_MAX_POSITIONS = 255


def insert(connection: Any, rows: Iterable[Document]) -> None:
    document_rows = [(row.id, *_document(row)) for row in rows]
    connection.executemany(
        "INSERT INTO memory_fts (rowid, words, document) VALUES (?, ?, CAST(? AS TSVECTOR))"
        " ON CONFLICT (rowid) DO UPDATE SET words = excluded.words, document = excluded.document",
        document_rows,
    )
    _add_to_size(connection, len(document_rows), sum(words for _, words, _ in document_rows))


def delete(connection: Any, rows: Iterable[Document]) -> None:
    ids = [row.id for row in rows]
    marks = placeholders(ids)
    deleted_rows = connection.execute(
        f"DELETE FROM memory_fts WHERE rowid IN ({marks}) RETURNING words",
        ids,
    ).fetchall()
    _add_to_size(connection, -len(deleted_rows), -sum(words for (words,) in deleted_rows))


def _add_to_size(connection: Any, texts: int, words: int) -> None:
    """Add to the counts of texts and words, of which BM25 takes the average; negative: subtract."""
    if texts:
        connection.execute(
            "UPDATE memory_fts_size SET texts = texts + ?, words = words + ?", (texts, words)
        )


def clear(connection: Any) -> None:
    connection.execute("DELETE FROM memory_fts")
    connection.execute("UPDATE memory_fts_size SET texts = 0, words = 0")


def renew(connection: Any) -> None:
    connection.control(
        "BEGIN; TRUNCATE memory_fts; UPDATE memory_fts_size SET texts = 0, words = 0;"
        " REINDEX INDEX memory_fts_document; COMMIT"
    )


def merge_some(connection: Any, is_first: bool) -> bool:
    return True  # the server merges by itself, and an erasure rewrites its tables


def compact(connection: Any) -> None:
    """Do nothing: the server compacts its index itself."""


def check(connection: Any) -> int:
    return check_size(connection)


def check_size(connection: Any) -> int:
    (texts,) = connection.execute("SELECT count(*) FROM memory_fts").fetchone()
    (index_count,) = connection.execute("SELECT texts FROM memory_fts_size").fetchone()
    if index_count != texts:
        msg = f"the index of the memory counts {index_count} texts where it holds {texts}"
        raise StoreDamaged(msg)
    return int(texts)


def holds(connection: Any, id_: int, words: Sequence[str]) -> bool:
    query_text = " & ".join(f"'{word}':A" for word in stems_of(" ".join(words)))
    query = "SELECT 1 FROM memory_fts WHERE rowid = ? AND document @@ CAST(? AS TSQUERY)"
    return connection.execute(query, (id_, query_text)).fetchone() is not None


def runs_with_terms(connection: Any, terms: Sequence[str]) -> list[str]:
    query_text = " & ".join(f"'{word}':A" for word in stems_of(" ".join(terms)))
    rows = connection.execute(
        "SELECT DISTINCT r.run_id FROM memory_fts f JOIN memory_segment s ON s.id = f.rowid"
        " JOIN memory_run r ON r.id = s.memory_run WHERE f.document @@ CAST(? AS TSQUERY)",
        (query_text,),
    )
    return [run for (run,) in rows]


def ids_with(connection: Any, terms: Sequence[str], limit: int) -> list[list[int]]:
    return _ids(connection, terms, "LIMIT ?", (limit,))


def ids_within(
    connection: Any, terms: Sequence[str], first_id: int, last_id: int
) -> list[list[int]]:
    return _ids(connection, terms, "AND rowid BETWEEN ? AND ?", (first_id, last_id))


def _ids(
    connection: Any, terms: Sequence[str], condition: str, arguments: tuple[int, ...]
) -> list[list[int]]:
    """Return the ids of the texts with each term that fulfil a condition."""
    if not terms:
        return []
    ids_sql = (
        f"ARRAY(SELECT rowid FROM memory_fts WHERE document @@ CAST(? AS TSQUERY) {condition})"
    )
    # a term of which the server makes several words is looked up by the first of them
    words = [next(stems_of(term), "") for term in terms]
    literals = [(f"'{word}'" if word else "", *arguments) for word in words]
    row = connection.execute(
        f"SELECT {', '.join([ids_sql] * len(words))}",
        list(chain.from_iterable(literals)),
    ).fetchone()
    return [list(ids) for ids in row]


def best(
    connection: Any,
    terms: Sequence[str],
    pool: int,
    *,
    small: int = SMALL_STORE,
    budget: int = MAX_POSTINGS // 4,
) -> dict[int, float]:
    stems = list(dict.fromkeys(stems_of(" ".join(terms))))
    texts, average = _size(connection)
    counts = _counts(connection, stems, texts, small)
    rare_terms = choose_rare_terms(stems, counts, max_postings=budget) if texts > small else None
    return _rank(connection, stems, rare_terms or stems, _idf(counts, texts), average, pool)


def best_within(
    connection: Any, terms: Sequence[str], first_id: int, last_id: int, pool: int
) -> dict[int, float]:
    stems = list(dict.fromkeys(stems_of(" ".join(terms))))
    texts, average = _size(connection)
    idf = _idf(_counts(connection, stems, texts, SMALL_STORE), texts)
    return _rank(connection, stems, stems, idf, average, pool, (first_id, last_id))


def _rank(
    connection: Any,
    stems: Sequence[str],
    selecting_stems: Sequence[str],
    idf: Mapping[str, float],
    average: float,
    pool: int,
    within: tuple[int, int] | None = None,
) -> dict[int, float]:
    """Return the scores of the best texts by BM25, by id, among those that the server proposes.

    Texts with a word of `selecting_stems` are proposed; the score counts all `stems`.
    """
    if not stems:
        return {}
    rough_score = " + ".join(
        ["? * ts_rank(CAST(? AS REAL[]), document, CAST(? AS TSQUERY))"] * len(stems)
    )
    parameters = chain.from_iterable((idf[word], _RANKS, f"'{word}'") for word in stems)
    condition = "" if within is None else "AND rowid BETWEEN ? AND ?"
    rows = connection.execute(
        "SELECT f.rowid, f.words, u.lexeme, u.weights FROM (SELECT rowid, words, document FROM "
        "memory_fts"
        f" WHERE document @@ CAST(? AS TSQUERY) {condition}"
        f" ORDER BY ({rough_score}) / ({1 - _B} + {_B} * words / CAST(? AS REAL)) DESC,"
        " abs(rowid) DESC LIMIT ?) AS f"
        " CROSS JOIN LATERAL unnest(f.document) AS u WHERE u.lexeme = ANY(?)",
        (
            " | ".join(f"'{word}'" for word in selecting_stems),
            *(within or ()),
            *parameters,
            average,
            _OVERSAMPLING * pool,
            list(stems),
        ),
    )
    scores: defaultdict[int, float] = defaultdict(float)
    for id_, words, word, classes in rows:
        frequency = sum(_CLASS_WEIGHTS[letter] for letter in classes)
        scores[id_] += (
            idf[word] * frequency * (_K1 + 1) / (frequency + _K1 * (1 - _B + _B * words / average))
        )
    return dict(sorted(scores.items(), key=lambda hit: (-hit[1], -abs(hit[0])))[:pool])


def _size(connection: Any) -> tuple[int, float]:
    """Return the number of texts, and their average number of words."""
    texts, words = connection.execute("SELECT texts, words FROM memory_fts_size").fetchone()
    return texts, words / texts if texts else 1.0


def _counts(connection: Any, stems: Sequence[str], texts: int, small: int) -> dict[str, int]:
    """Return the number of texts with each word; in a large store an estimate from the newest."""
    if not stems:
        return {}
    count_sql = "(SELECT count(*) FROM memory_fts WHERE document @@ CAST(? AS TSQUERY) {among})"
    literals = [f"'{word}'" for word in stems]
    if texts <= small:
        query = f"SELECT {', '.join([count_sql.format(among='')] * len(stems))}"
        return dict(zip(stems, connection.execute(query, literals).fetchone(), strict=True))
    low, high = connection.execute("SELECT min(rowid), max(rowid) FROM memory_fts").fetchone()
    # of segments or of items, whichever are more
    sample = (high - SAMPLE, high) if high > -low else (low, low + SAMPLE)
    query = (
        f"SELECT {', '.join([count_sql.format(among='AND rowid BETWEEN ? AND ?')] * len(stems))}"
    )
    values = chain.from_iterable((word, *sample) for word in literals)
    counts = connection.execute(query, list(values)).fetchone()
    return {word: count * texts // SAMPLE for word, count in zip(stems, counts, strict=True)}


def _idf(counts: Mapping[str, int], texts: int) -> dict[str, float]:
    """Return the inverse document frequency of each word, as FTS5 computes it."""
    return {
        word: max(log((texts - count + 0.5) / (count + 0.5)), 1e-6)
        for word, count in counts.items()
    }


def _document(row: Document) -> tuple[int, str]:
    """Return the number of words of a text, and its tsvector: each word with positions and weight
    classes.
    """
    classes_by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    count = 0
    for weight_class, text in zip(_WEIGHT_CLASSES, row[1:], strict=True):
        for word in stems_of(text):
            classes_by_word[word][weight_class] += 1
            count += 1
    return count, " ".join(
        f"'{word}':{','.join(_positions(counts))}" for word, counts in classes_by_word.items()
    )


def _positions(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the positions of one word with their weight classes.

    They are counted from 1, as no search asks for the true positions.
    """
    classes = [weight_class for weight_class in "ABCD" for _ in range(counts.get(weight_class, 0))]
    for position, weight_class in enumerate(classes[:_MAX_POSITIONS], 1):
        yield f"{position}{weight_class}"
