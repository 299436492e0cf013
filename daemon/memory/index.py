"""The full-text index over items and segments.

The index is derived from the tables: `rebuild_some` makes a lost one again.

Theory of operation. The index holds no text (contentless FTS5), so deleting a row takes exactly the
words that the row was inserted with. These words are made again from the tables, hence two rules:
segments and their neighbours are removed from the index *before* a segment is changed or deleted;
and when WORDS_VERSION has changed, everything is indexed again.

A segment is found by its own words (body), and with a lower weight by the words of the two segments
before it and the two after it, as a reply seldom repeats the question. Two kinds of neighbours do
not count: a long text, whose words would make everything around it answer every question, and the
goal of a routine, with which each of its reports would match the goal of its next run.
Items have no neighbours.
The id of a row is `id` for a segment and `-id` for an item.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from daemon.errors import StoreDamaged
from daemon.memory import fulltext
from daemon.memory.fulltext.base import Document
from daemon.memory.fulltext.words import WORDS_VERSION, text_for_index
from daemon.memory.segments import GOAL_SPEAKER, SOURCES_OF_NEW_GOALS
from daemon.store.connection import Connection
from daemon.store.rows import from_microseconds

_NEIGHBOURS = 2
# Characters up to which a text is context of its neighbours.
_CONTEXT_CHARACTERS = 400

_STATE_KEY = "memory.index"
# Segments or items per transaction: about 50 ms.
_BATCH = 500
# Segments, and items, that `search_samples` searches for.
_SAMPLES = 24

# English whatever the locale, unlike strftime's.
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class IndexedSegment(NamedTuple):
    """The columns of a segment that are indexed."""

    id: int
    at: int
    speaker: str
    routine: str
    text: str


class State(NamedTuple):
    """The progress of the index: runs with ids above `low_run` and up to `high_run` are not
    indexed yet, and items likewise. Texts that came after the rebuild began are indexed at once.
    """

    version: int = 0
    low_run: int = 0
    high_run: int = 0
    low_item: int = 0
    high_item: int = 0

    @property
    def is_complete(self) -> bool:
        holds_all = self.low_run >= self.high_run and self.low_item >= self.high_item
        return self.version == WORDS_VERSION and holds_all

    def holds_run(self, run: int) -> bool:
        """Tell whether the segments of a run, by its id in memory, are indexed already."""
        return not self.low_run < run <= self.high_run

    def holds_item(self, id_: int) -> bool:
        """Tell whether an item is indexed already, unless its `indexed` is 0."""
        return not self.low_item < id_ <= self.high_item


def add_segments_of_run(
    connection: Connection, segments: Sequence[IndexedSegment], ids: Container[int]
) -> None:
    """Index the segments with these ids; `segments` are all segments of their run."""
    _insert(connection, documents(segments, ids))


def _add_run(connection: Connection, run: int) -> None:
    """Index the segments of a run that are not superseded."""
    rows = _rows(connection, "s.memory_run = ?", (run,))
    ids = connection.execute(
        "SELECT id FROM memory_segment WHERE memory_run = ? AND superseded IS NULL", (run,)
    )
    _insert(connection, documents(rows, {id_ for (id_,) in ids}))


def add_segments(connection: Connection, ids: Iterable[int]) -> None:
    """Index single segments that are in the tables already."""
    _insert(connection, _segment_documents(connection, ids))


def remove_segments(connection: Connection, ids: Iterable[int]) -> None:
    """Remove segments from the index, before they or their neighbours are changed in the tables."""
    _delete(connection, _segment_documents(connection, ids))


def add_item(connection: Connection, id_: int, key: str, text: str, updated: int) -> None:
    """Index an item that is in the table already; `updated` is in microseconds."""
    if state(connection).holds_item(id_):  # else `rebuild_some` indexes it
        _insert(connection, [_item_document(id_, key, text, updated)])


def remove_item(connection: Connection, id_: int, key: str, text: str, updated: int) -> None:
    """Remove an item from the index; the arguments are those it was indexed with."""
    if state(connection).holds_item(id_):
        _delete(connection, [_item_document(id_, key, text, updated)])


def state(connection: Connection) -> State:
    """Return the progress of the index. Raises StoreDamaged if its record cannot be read."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_STATE_KEY,)).fetchone()
    try:
        return State(*json.loads(row[0])) if row else State()
    except (ValueError, TypeError) as error:
        raise StoreDamaged(f"the record of the memory's index is damaged ({error})") from error


def _store_state(connection: Connection, value: State) -> None:
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (_STATE_KEY, json.dumps(value)),
    )


def clear_if_outdated(connection: Connection) -> bool:
    """Empty the index if it is of another WORDS_VERSION; return whether texts are left to index.

    Comes before any other write: the words of another version cannot be deleted by this one.
    """
    if state(connection).version != WORDS_VERSION:
        fulltext.index_of(connection).clear(connection)
        _store_state(connection, _empty_state(connection))
    return not state(connection).is_complete


def renew(connection: Connection) -> None:
    """Replace a damaged or missing index by an empty one; call it outside of a transaction."""
    fulltext.index_of(connection).renew(connection)
    connection.execute("BEGIN")
    _store_state(connection, _empty_state(connection))
    connection.execute("COMMIT")


def _empty_state(connection: Connection) -> State:
    (run,) = connection.execute("SELECT coalesce(max(id), 0) FROM memory_run").fetchone()
    (item,) = connection.execute("SELECT coalesce(max(id), 0) FROM memory_item").fetchone()
    return State(WORDS_VERSION, 0, run, 0, item)


def rebuild_some(connection: Connection) -> bool:
    """Index the next batch of texts; True if nothing is left.

    A batch is short, as the journal shares the connection and waits for it; other writes may come
    between two batches.
    """
    clear_if_outdated(connection)
    progress = state(connection)
    if progress.low_item < progress.high_item:
        progress = progress._replace(low_item=_index_items(connection, progress))
    elif progress.low_run < progress.high_run:
        progress = progress._replace(low_run=_index_runs(connection, progress))
    else:
        return True
    _store_state(connection, progress)
    return progress.is_complete


def _index_items(connection: Connection, progress: State) -> int:
    rows = connection.execute(
        (
            "SELECT id, key, text, updated FROM memory_item WHERE id > ? AND id <= ? AND indexed = "
            "1 ORDER BY id LIMIT ?"
        ),
        (progress.low_item, progress.high_item, _BATCH),
    ).fetchall()
    _insert(connection, (_item_document(*row) for row in rows))
    return rows[-1][0] if len(rows) == _BATCH else progress.high_item


def _index_runs(connection: Connection, progress: State) -> int:
    indexed_segments = 0
    runs = connection.execute(
        "SELECT id FROM memory_run WHERE id > ? AND id <= ? ORDER BY id",
        (progress.low_run, progress.high_run),
    )
    for (run,) in runs:
        _add_run(connection, run)
        (count,) = connection.execute(
            "SELECT count(*) FROM memory_segment WHERE memory_run = ?", (run,)
        ).fetchone()
        indexed_segments += count
        if indexed_segments >= _BATCH:
            return int(run)
    return progress.high_run


def merge_some(connection: Connection, is_first: bool) -> bool:
    """Do one step of the merge that removes deleted words from the index; True at its end."""
    return fulltext.index_of(connection).merge_some(connection, is_first)


def compact(connection: Connection) -> None:
    """Merge a few parts of the index, which makes searches faster while it grows."""
    fulltext.index_of(connection).compact(connection)


def check(connection: Connection) -> None:
    """Run the database's own check of the index, which reads all of it; raises an error if it is
    damaged.
    """
    fulltext.index_of(connection).check(connection)
    check_newest(connection)


def find_faults(connection: Connection) -> list[str]:
    """Return the faults of the index, by the database's check and its number of texts; reads all
    of it.
    """
    progress = state(connection)
    indexed_count = fulltext.index_of(connection).check(connection)
    (text_count,) = connection.execute(
        "SELECT (SELECT count(*) FROM memory_item WHERE indexed = 1 AND NOT (id > ? AND id <= ?)) + "  # noqa: E501
        "(SELECT count(*) FROM memory_segment WHERE superseded IS NULL AND NOT (memory_run > ? AND "
        "memory_run <= ?))",
        (progress.low_item, progress.high_item, progress.low_run, progress.high_run),
    ).fetchone()
    return (
        []
        if indexed_count == text_count
        else [f"the index holds {indexed_count} texts where there are {text_count}"]
    )


def search_samples(connection: Connection) -> list[str]:
    """Search the index for some texts by their own words, and return its faults; takes the same
    time in a store of any size.
    """
    progress = state(connection)
    fulltext.index_of(connection).check_size(connection)
    low, high = connection.execute("SELECT min(id), max(id) FROM memory_segment").fetchone()
    rows: list[tuple[int, int, str]] = []
    for step in range(_SAMPLES if high else 0):
        rows += connection.execute(
            (
                "SELECT id, memory_run, text FROM memory_segment WHERE id >= ? AND superseded IS "
                "NULL ORDER BY id LIMIT 1"
            ),
            (low + (high - low) * step // _SAMPLES,),
        )
    texts = {id_: text for id_, run, text in rows if progress.holds_run(run)}
    items = connection.execute(
        "SELECT -id, id, text FROM memory_item WHERE indexed = 1 ORDER BY id DESC LIMIT ?",
        (_SAMPLES,),
    )
    texts |= {id_: text for id_, item, text in items if progress.holds_item(item)}
    missing_ids = [id_ for id_, text in texts.items() if not _holds(connection, id_, text)]
    return (
        [f"the index does not know {len(missing_ids)} of {len(texts)} texts by their own words"]
        if missing_ids
        else []
    )


def check_newest(connection: Connection) -> None:
    """Raise StoreDamaged if the index does not know the newest text by its own words.

    Called when a search found nothing: in an index whose record of its parts is cut short, SQLite
    finds nothing, and reports no error.
    """
    row = connection.execute(
        "SELECT id, memory_run, text FROM memory_segment WHERE superseded IS NULL"
        " ORDER BY id DESC LIMIT 1"
    ).fetchone()
    if row and state(connection).holds_run(row[1]) and not _holds(connection, row[0], row[2]):
        raise StoreDamaged("the index of the memory does not know its newest text")


def _holds(connection: Connection, id_: int, text: str) -> bool:
    if not isinstance(text, str):
        raise StoreDamaged(f"the row {id_} of the memory holds no text")
    words = [word for word in text_for_index(text).split() if word.isalnum()][:3]
    return not words or fulltext.index_of(connection).holds(connection, id_, words)


def documents(rows: Sequence[IndexedSegment], ids: Container[int]) -> Iterator[Document]:
    """Yield the index rows of the segments with these ids; `rows` are segments of one run with
    their neighbours, ordered by id.
    """
    included_ids = [row.id for row in rows if row.id in ids]
    context = {
        row.id: _cached_words(row.text)
        for row in rows
        if len(row.text) <= _CONTEXT_CHARACTERS
        and (row.speaker != GOAL_SPEAKER or row.routine in SOURCES_OF_NEW_GOALS)
        and any(abs(row.id - id_) <= _NEIGHBOURS for id_ in included_ids)
    }
    for row in rows:
        if row.id in ids:
            yield Document(
                id=row.id,
                body=context.get(row.id) or text_for_index(row.text),
                earlier=" ".join(
                    context.get(neighbour, "") for neighbour in range(row.id - _NEIGHBOURS, row.id)
                ),
                later=" ".join(
                    context.get(neighbour, "")
                    for neighbour in range(row.id + 1, row.id + _NEIGHBOURS + 1)
                ),
                speaker=_cached_words(f"{row.speaker} {row.routine}"),
                date=_date(row.at),
            )


# Words of short texts: the repeated texts of a routine are neighbours of its new ones.
_cached_words = lru_cache(maxsize=128)(text_for_index)


def _segment_documents(connection: Connection, ids: Iterable[int]) -> Iterator[Document]:
    """Yield the index rows of single segments; none for segments that are not indexed yet."""
    progress = state(connection)
    for run, segment_ids in _group_neighbours(connection, ids):
        if progress.holds_run(run):
            values = (run, segment_ids[0] - _NEIGHBOURS, segment_ids[-1] + _NEIGHBOURS)
            yield from documents(
                _rows(connection, "s.memory_run = ? AND s.id BETWEEN ? AND ?", values),
                set(segment_ids),
            )


def _group_neighbours(connection: Connection, ids: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Group segments of one run that share neighbours, by run, so that each neighbour is read and
    split into words once.
    """
    groups: list[tuple[int, list[int]]] = []
    for id_ in sorted(ids):
        (run,) = connection.execute(
            "SELECT memory_run FROM memory_segment WHERE id = ?", (id_,)
        ).fetchone()
        if groups and groups[-1][0] == run and id_ - groups[-1][1][-1] <= 2 * _NEIGHBOURS:
            groups[-1][1].append(id_)
        else:
            groups.append((run, [id_]))
    return groups


def _item_document(id_: int, key: str, text: str, updated: int) -> Document:
    return Document(-id_, text_for_index(f"{key}\n{text}"), "", "", "", _date(updated))


def _rows(connection: Connection, condition: str, values: tuple[int, ...]) -> list[IndexedSegment]:
    rows = connection.execute(
        "SELECT s.id, s.at, s.who, r.routine, s.text FROM memory_segment s"
        f" JOIN memory_run r ON r.id = s.memory_run WHERE {condition} ORDER BY s.id",
        values,
    )
    return [IndexedSegment(*row) for row in rows]


def _date(at: int) -> str:
    return _date_words(from_microseconds(at).date())


@lru_cache(maxsize=64)
def _date_words(day: date) -> str:
    """Return the words for a day in English and Chinese."""
    month, weekday, chinese_weekday = (
        _MONTHS[day.month - 1],
        _DAYS[day.weekday()],
        "一二三四五六日"[day.weekday()],
    )
    numbers = f"{day:%Y-%m-%d} {day.day} {day.month}"
    return text_for_index(
        f"{numbers} {month} {month[:3]} {weekday} 周{chinese_weekday} 星期{chinese_weekday}"
    )


def _insert(connection: Connection, rows: Iterable[Document]) -> None:
    fulltext.index_of(connection).insert(connection, rows)


def _delete(connection: Connection, rows: Iterable[Document]) -> None:
    fulltext.index_of(connection).delete(connection, rows)
