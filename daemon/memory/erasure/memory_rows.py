"""Find, delete and overwrite the items and archived runs of an erasure.

The functions take a connection and run in a transaction of the caller. The journal's part is in
journal_rows.py, the order of the steps in erasure.py.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

from daemon.memory import folding, fulltext, index, rows, vectors
from daemon.memory.fulltext.porter import stems_of
from daemon.memory.fulltext.words import (
    JOINED_NUMBER,
    irregular_forms_of,
    query_of,
    text_for_index,
)
from daemon.memory.segments import split
from daemon.models import SegmentType
from daemon.store.connection import Connection
from daemon.store.rows import clean, to_microseconds

# Seeds are stored again at each start: only a request with such a key erases one.
_NO_SEED = "pinned = 0 AND substr(key, 1, ?) <> ?"

# Texts that are searched for quotes in one transaction.
_TEXTS_AT_ONCE = 5_000


def runs(
    connection: Connection, *, run: str | None, routine: str | None, before: datetime | None
) -> list[str]:
    """Return the archived runs that fit all conditions; None is no condition."""
    conditions = [
        ("run_id = ?", run),
        ("routine = ?", routine),
        ("ended < ?", before and to_microseconds(before)),
    ]
    condition_sql = (
        " AND ".join(condition for condition, value in conditions if value is not None) or "TRUE"
    )
    values = [value for _, value in conditions if value is not None]
    return [
        id_
        for (id_,) in connection.execute(
            f"SELECT run_id FROM memory_run WHERE {condition_sql} ORDER BY id",
            values,
        )
    ]


def items(
    connection: Connection,
    *,
    key: str | None,
    query: str | None,
    before: datetime | None,
    runs: Sequence[str] | None,
    archived_runs: Sequence[str],
) -> list[rows.StoredItem]:
    """Return the items that fit all conditions, by id; None is no condition.

    `runs` are the runs that stored the items. The lines of `archived_runs` are always included.
    """
    items_by_key = {}
    if key is not None:
        item = rows.item(connection, clean(key).strip())
        items_by_key = {item.key: item} if item else {}
    elif runs is not None:
        for run in runs:
            items_by_key |= {
                item.key: item for item in rows.items_in(connection, "run_id = ?", (run,))
            }
    else:
        items_by_key = {
            item.key: item
            for item in rows.items_in(
                connection, _NO_SEED, (len(rows.SEED_PREFIX), rows.SEED_PREFIX)
            )
        }
    if query is not None:
        has_all_words = words_matcher(query)
        if key is None and runs is None:
            items_by_key |= {item.key: item for item in rows.items_in(connection, "pinned = 1")}
        items_by_key = {
            item.key: item
            for item in items_by_key.values()
            if has_all_words(f"{item.key}\n{item.text}")
        }
    if before is not None:
        items_by_key = {
            item.key: item
            for item in items_by_key.values()
            if item.updated < to_microseconds(before)
        }
    for run in archived_runs:
        if line := rows.item(connection, f"{rows.RUN_LINE_PREFIX}{run}"):
            items_by_key[line.key] = line
    return sorted(items_by_key.values(), key=lambda item: item.id)


def find_runs_with_words(connection: Connection, query: str) -> list[str]:
    """Return the archived runs with a text that holds all words of a query, in any inflection."""
    terms = query_of(query).terms
    if not terms:
        return []
    matching_runs = fulltext.index_of(connection).runs_with_terms(connection, terms)
    # superseded texts are not in the index
    has_all_words = words_matcher(query)
    superseded_texts = connection.execute(
        "SELECT r.run_id, s.text FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
        " WHERE s.superseded IS NOT NULL"
    )
    return sorted({*matching_runs, *(run for run, text in superseded_texts if has_all_words(text))})


def words_matcher(query: str) -> Callable[[str], bool]:
    """Return a predicate: whether a text holds all words of a query, in any inflection and without
    stop words, as the index would find them.
    """
    terms = query_of(query).terms
    stems = frozenset(stems_of(" ".join(terms)))
    # A text without the beginning of one of the words, nor an irregular form of it, is not taken
    # apart: most texts are such. A number as one word (14d30) stands in no text: `text_for_index`
    # makes it.
    beginnings = [
        {*(word[:-1] for word in stems_of(term)), *irregular_forms_of(term)}
        for term in terms
        if not JOINED_NUMBER.fullmatch(term)
    ]

    def has_all_words(text: str) -> bool:
        if text.isascii():
            lower_text = text.lower()
            for alternatives in beginnings:
                if not any(beginning in lower_text for beginning in alternatives):
                    return False
        return bool(stems) and stems <= set(stems_of(text_for_index(text)))

    return has_all_words


def split_into_quotable(text: str, limit: int) -> Iterator[str]:
    """Yield the lines of a text, and the sentences of long lines: prompts quote these units."""
    for line in text.splitlines():
        yield line.strip()
        yield from split(line, limit)


class SearchedTexts(NamedTuple):
    """The erased texts to search for in memory, the longest first."""

    everywhere: Sequence[str]
    in_results: Sequence[str]
    """In what the tools of memory returned: there, texts of other runs are quotes."""

    def for_segment(self, type_: str, speaker: str) -> Sequence[str]:
        """Return the texts to search for in a segment."""
        is_result = type_ == SegmentType.TOOL_RESULT and speaker.startswith("memory_")
        return self.in_results if is_result else self.everywhere


def find_runs_quoting(
    connection: Connection, searched_texts: SearchedTexts, below: int | None
) -> tuple[list[int], int | None]:
    """Return the archived runs that hold one of these texts, among the next texts below an id.

    With them comes the id to continue below, None if there are no more texts. One call reads
    _TEXTS_AT_ONCE texts, so that no transaction is long.
    """
    condition = "" if below is None else f"WHERE id < {below:d}"
    texts = connection.execute(
        f"SELECT id, memory_run, type, who, text FROM memory_segment {condition}"
        f" ORDER BY id DESC LIMIT {_TEXTS_AT_ONCE}"
    )
    runs, last_id, count = dict[int, None](), below, 0
    for id_, run, type_, speaker, text in texts:
        last_id, count = id_, count + 1
        if any(quote in text for quote in searched_texts.for_segment(type_, speaker)):
            runs[run] = None
    return list(runs), last_id if count == _TEXTS_AT_ONCE else None


def find_items_quoting(
    connection: Connection, searched_texts: Sequence[str]
) -> list[rows.StoredItem]:
    """Return the items that hold one of these texts."""
    return [
        item
        for item in rows.items_in(connection, "TRUE")
        if any(searched_text in item.text for searched_text in searched_texts)
    ]


def overwrite_run(
    connection: Connection, run: int, searched_texts: SearchedTexts, mark: str
) -> None:
    """Replace these texts by a mark in an archived run, and index the run again."""
    segments = connection.execute(
        "SELECT id, superseded, type, who, text FROM memory_segment WHERE memory_run = ?", (run,)
    ).fetchall()
    indexed_ids = [id_ for id_, superseded, *_ in segments if superseded is None]
    index.remove_segments(connection, indexed_ids)
    changed_texts = [
        (new_text, id_)
        for id_, _, type_, speaker, text in segments
        if (quotes := searched_texts.for_segment(type_, speaker))
        and (new_text := _replace_all(text, quotes, mark)) != text
    ]
    connection.executemany("UPDATE memory_segment SET text = ? WHERE id = ?", changed_texts)
    vectors.drop(connection, [id_ for _, id_ in changed_texts])
    folding.forget_templates(connection)
    index.add_segments(connection, indexed_ids)


def overwrite_item(
    connection: Connection, key: str, searched_texts: Sequence[str], mark: str
) -> None:
    """Replace these texts by a mark in an item, if it exists, and index the item again."""
    item = rows.item(connection, key)
    if item is None:
        return
    text = _replace_all(item.text, searched_texts, mark)
    if item.indexed:
        index.remove_item(connection, item.id, item.key, item.text, item.updated)
    vectors.drop(connection, [-item.id])
    connection.execute("UPDATE memory_item SET text = ? WHERE id = ?", (text, item.id))
    if item.indexed:
        index.add_item(connection, item.id, item.key, text, item.updated)


def _replace_all(text: str, searched_texts: Sequence[str], mark: str) -> str:
    for searched_text in searched_texts:
        text = text.replace(searched_text, mark)
    return text


def drop_run(connection: Connection, run: str, digest: str | None, now: datetime) -> None:
    """Delete an archived run, and store a digest: the given one, else that of its texts."""
    if digest is None:
        texts = connection.execute(
            "SELECT s.text FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
            " WHERE r.run_id = ? ORDER BY s.id",
            (run,),
        )
        digest = digest_of(text for (text,) in texts)
    rows.drop_run(connection, run)
    folding.forget_templates(connection)
    _store_digest(connection, "run", run, digest, now)


def drop_items(connection: Connection, items: Iterable[rows.StoredItem], now: datetime) -> None:
    """Delete items, and store their digests."""
    for item in items:
        rows.drop_item(connection, item.key)
        _store_digest(connection, "item", item.run_id, digest_of((item.key, item.text)), now)


def digest_of(texts: Iterable[str]) -> str:
    """Return the digest that stays of erased texts, in hexadecimal."""
    return blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _store_digest(
    connection: Connection, kind: str, run: str | None, digest: str, now: datetime
) -> None:
    connection.execute(
        "INSERT INTO memory_tombstone (at, kind, run_id, digest) VALUES (?, ?, ?, ?)",
        (to_microseconds(now), kind, run, digest),
    )
