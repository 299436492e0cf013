"""Read items and segments of archived runs; write them together with the index.

The functions take a connection and run in a transaction of the caller.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from daemon.memory import folding, index, vectors
from daemon.memory.folding import StoredTemplate
from daemon.memory.index import IndexedSegment
from daemon.memory.segments import GOAL_SPEAKER, SOURCES_OF_NEW_GOALS, SegmentPart
from daemon.models import Anchor, MemoryChunk, SegmentType
from daemon.store.connection import Connection, padded, placeholders
from daemon.store.rows import from_microseconds

# Iteration in the anchor of an item, whose segment is the id of the item; runs begin at 0.
ITEM_ITERATION = -1


class Text(NamedTuple):
    """A segment, or an item: then `run` is 0, and `id` negative as in the index."""

    id: int
    run: int
    run_id: str
    source: str
    iteration: int
    segment: int
    type: str
    at: int
    speaker: str
    is_question: int
    tainted: int
    key: str | None
    text: str

    @property
    def is_goal(self) -> bool:
        """Whether it is what the runs of a routine are started for."""
        return (
            self.speaker == GOAL_SPEAKER
            and self.type == SegmentType.USER_MESSAGE
            and self.source not in SOURCES_OF_NEW_GOALS
        )

    @property
    def is_by_person(self) -> bool:
        """Whether a person said it to an agent."""
        return self.type == SegmentType.USER_MESSAGE and not self.is_goal


# The same as `Text._make` in a third of the time: a search makes a hundred of them.
_make_text = partial(tuple.__new__, Text)

_SEGMENT_COLUMNS = (
    "s.id, s.memory_run, r.run_id, r.routine, s.iteration, s.segment, s.type, s.at, s.who, s.asks, "
    "s.tainted,"
    " NULL, s.text"
)
_FROM_SEGMENTS = "FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
_ITEM_COLUMNS = (
    f"-id, 0, coalesce(run_id, ''), '', {ITEM_ITERATION}, id,"
    " CASE category WHEN 'conversation' THEN 'summary' ELSE 'knowledge' END, updated, '', 0, "
    "tainted, key, text"
)
_FROM_ITEMS = "FROM memory_item"


def texts_by_id(connection: Connection, ids: Iterable[int]) -> dict[int, Text]:
    """Return the existing texts with these ids, by id."""
    id_list = list(ids)
    texts: dict[int, Text] = {}
    for columns, source, numbers in (
        (_SEGMENT_COLUMNS, f"{_FROM_SEGMENTS} WHERE s.id IN ", [id_ for id_ in id_list if id_ > 0]),
        (_ITEM_COLUMNS, f"{_FROM_ITEMS} WHERE id IN ", [-id_ for id_ in id_list if id_ < 0]),
    ):
        if numbers:
            texts |= {
                row[0]: _make_text(row)
                for row in _select_by_number(connection, columns, source, numbers)
            }
    return texts


def goals_among(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Return those of these segments that are goals of routines."""
    if not (id_list := list(ids)):
        return set()
    rows = _select_by_number(
        connection,
        "s.id, r.routine",
        f"{_FROM_SEGMENTS} WHERE s.who = '{GOAL_SPEAKER}' AND s.type = 'user_message' AND s.id IN ",
        id_list,
    )
    return {id_ for id_, routine in rows if routine not in SOURCES_OF_NEW_GOALS}


def times_of_change(connection: Connection, items: Iterable[int]) -> dict[int, int]:
    """Return the times of the last change of the existing items, in microseconds by id."""
    return dict(
        _select_by_number(
            connection, "-id, updated", "FROM memory_item WHERE id IN ", [-id_ for id_ in items]
        )
    )


def _select_by_number(
    connection: Connection, columns: str, source: str, numbers: list[int]
) -> Iterable[Any]:
    """Return rows by their ids; SQLite returns all of them as one JSON value.

    For each row that it fetches, a thread releases the interpreter's lock, and may wait a
    millisecond to get it back.
    """
    numbers = padded(numbers, 0)  # no row has the id 0
    source = f"{source}({placeholders(numbers)})"
    if not isinstance(connection, sqlite3.Connection):
        return connection.execute(f"SELECT {columns} {source}", numbers)
    query = f"SELECT CAST(json_group_array(json_array({columns})) AS BLOB) {source}"
    (result,) = connection.execute(query, numbers).fetchone()
    rows: list[Any] = json.loads(result)
    return rows


def texts_of_run(connection: Connection, run_id: str) -> list[Text]:
    """Return the texts of a run in their order."""
    rows = connection.execute(
        f"SELECT {_SEGMENT_COLUMNS} {_FROM_SEGMENTS} WHERE r.run_id = ? ORDER BY s.id", (run_id,)
    )
    return list(map(_make_text, rows))


def anchor_of(text: Text) -> Anchor:
    """Return the place of a text, from which `recall.expand` reads what is around it."""
    return Anchor(
        run_id=text.run_id,
        iteration=text.iteration,
        segment=text.segment,
        type=SegmentType(text.type),
        timestamp=from_microseconds(text.at),
    )


def chunk(text: Text, relevance: float = 1.0) -> MemoryChunk:
    """Return a text as a MemoryChunk, which other packages use."""
    return MemoryChunk(
        content=text.text,
        anchor=anchor_of(text),
        relevance=relevance,
        key=text.key,
        source=text.source,
        speaker=text.speaker,
        tainted=bool(text.tainted),
    )


class StoredItem(NamedTuple):
    """One row of memory_item; its times are in microseconds."""

    id: int
    key: str
    category: str
    run_id: str | None
    tainted: int
    pinned: int
    created: int
    updated: int
    text: str
    indexed: int = 1


# Prefix of the key of a run line, the item that holds an archived run in one line. The run's id
# follows.
RUN_LINE_PREFIX = "run:"
# Of the keys of items that come with the daemon: what it says of itself.
SEED_PREFIX = "agentd:"

_ITEM = "id, key, category, run_id, tainted, pinned, created, updated, text, indexed"


def item(connection: Connection, key: str) -> StoredItem | None:
    """Return the item with exactly this key; None if there is none."""
    row = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE key = ?", (key,)).fetchone()
    return StoredItem(*row) if row else None


def items(connection: Connection, category: str | None, limit: int) -> list[StoredItem]:
    """Return items of a category, None for all, the last changed first."""
    return items_in(
        connection,
        "CAST(? AS TEXT) IS NULL OR category = ? ORDER BY updated DESC, id DESC LIMIT ?",
        (category, category, limit),
    )


def items_in(
    connection: Connection, condition: str, values: tuple[object, ...] = ()
) -> list[StoredItem]:
    """Return the items of `SELECT … FROM memory_item WHERE <condition>`."""
    rows = connection.execute(f"SELECT {_ITEM} FROM memory_item WHERE {condition}", values)
    return [StoredItem(*row) for row in rows]


def put_item(
    connection: Connection,
    *,
    key: str,
    text: str,
    category: str,
    run: str | None,
    tainted: bool,
    now: int,
    indexed: bool = True,
) -> bool:
    """Store an item under its key, in place of an earlier one, whose time of creation stays.

    Return whether there was an earlier one. `now` is in microseconds.
    """
    row = connection.execute(
        "INSERT INTO memory_item (key, category, run_id, tainted, created, updated, text, indexed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING id",
        (key, category, run, int(tainted), now, now, text, int(indexed)),
    ).fetchone()
    old_item = item(connection, key) if row is None else None  # most keys are new
    if old_item is not None:
        _remove_from_index(connection, old_item)
        row = connection.execute(
            "UPDATE memory_item SET category = ?, run_id = ?, tainted = ?, updated = ?, text = ?, "
            "indexed = ?"
            " WHERE key = ? RETURNING id",
            (category, run, int(tainted), now, text, int(indexed), key),
        ).fetchone()
    if indexed:
        index.add_item(connection, row[0], key, text, now)
    return old_item is not None


def _remove_from_index(connection: Connection, old_item: StoredItem) -> None:
    if old_item.indexed:
        index.remove_item(connection, old_item.id, old_item.key, old_item.text, old_item.updated)
    vectors.drop(connection, [-old_item.id])


def drop_item(connection: Connection, key: str) -> bool:
    """Delete an item; False if there was none."""
    old_item = item(connection, key)
    if old_item is None:
        return False
    _remove_from_index(connection, old_item)
    connection.execute("DELETE FROM memory_item WHERE id = ?", (old_item.id,))
    return True


def pin(connection: Connection, key: str, pinned: bool) -> bool:
    """Protect an item from retention, or end the protection; False if there is no such item."""
    cursor = connection.execute("UPDATE memory_item SET pinned = ? WHERE key = ?", (pinned, key))
    return cursor.rowcount > 0


def demote(connection: Connection, key: str) -> None:
    """Make an item neither core nor pinned."""
    connection.execute(
        "UPDATE memory_item SET category = 'custom', pinned = 0 WHERE key = ?", (key,)
    )


def seed(connection: Connection, seeds: Iterable[tuple[str, str]], category: str, now: int) -> None:
    """Store these items; an unchanged one is not written, so that its time stays that of its last
    change.
    """
    for key, text in seeds:
        old_item = item(connection, key)
        if old_item is None or (old_item.text, old_item.category) != (text, category):
            put_item(
                connection, key=key, text=text, category=category, run=None, tainted=False, now=now
            )


class PartPlace(NamedTuple):
    """Where a part of an archived run stands, in any database."""

    run: str
    iteration: int
    segment: int
    part: int


def put_run(
    connection: Connection,
    *,
    run: str,
    routine: str,
    goal: str,
    status: str,
    started: int,
    ended: int,
    parts: Sequence[SegmentPart],
    repeated_places: Sequence[PartPlace | None] | None = None,
) -> bool:
    """Archive a run as the parts of its segments, in place of an earlier archive, as after a crash.

    Texts that a routine repeats would flood every search. So of equal texts one is in the index,
    and the rows of the others name it as superseding them:

    - a new text supersedes the equal texts of earlier days;
    - an equal text of the same day stays in the index and supersedes the new text: replacing it
      would cost more than all other work for a run;
    - a text of the same day that differs in numbers only does so, too (folding.py).

    `repeated_places` is for an import: by part, the place of the earlier text that superseded it
    where it comes from; None where none did.

    Return whether searches may change: not if the same day had all texts already. `started` and
    `ended` are in microseconds.
    """
    run_values = (run, routine, goal, status, started, ended)
    row = connection.execute(_INSERT_RUN, run_values).fetchone()
    is_replaced = row is None and drop_run(connection, run)
    if row is None:
        row = connection.execute(_INSERT_RUN, run_values).fetchone()
    (memory_run,) = row
    equal_texts = _find_equal_texts(connection, {part.digest for part in parts})
    templates = folding.make_templates(routine, parts)
    stored_templates = folding.find_templates(connection, templates)
    if repeated_places is None:
        superseding_ids = _find_superseding(parts, templates, equal_texts, stored_templates)
    else:
        superseding_ids = [place and _id_at(connection, place) for place in repeated_places]
    connection.executemany(
        _INSERT_SEGMENT,
        [
            (memory_run, *part, superseding_id)
            for part, superseding_id in zip(parts, superseding_ids, strict=True)
        ],
    )
    if None in superseding_ids:
        ids = [id_ for (id_,) in connection.execute(_SELECT_SEGMENT_IDS, (memory_run,))]
        ids_to_index: set[int] = set()
        new_ids: dict[int, int] = {}  # of the first new text, by digest
        for id_, part, template, superseding_id in zip(
            ids, parts, templates, superseding_ids, strict=True
        ):
            if superseding_id is None:
                ids_to_index.add(id_)
                new_ids.setdefault(part.digest, id_)
                if template:
                    stored_template = stored_templates.get(template.digest)
                    is_first = stored_template is None or not _is_same_day(
                        stored_template.at, part.at
                    )
                    stored_templates[template.digest] = StoredTemplate(
                        id_ if stored_template is None or is_first else stored_template.segment,
                        part.at,
                        folding.widen(stored_template, template.numbers),
                    )
        folding.store_templates(
            connection,
            {
                template.digest: stored_templates[template.digest]
                for template, superseding_id in zip(templates, superseding_ids, strict=True)
                if template and superseding_id is None
            }.items(),
        )
        successors = {
            equal_text.id: new_id
            for digest, new_id in new_ids.items()
            for equal_text in equal_texts[digest]
        }
        # a text that stands for others of its day is found by that day
        for id_ in folding.find_representatives(connection, successors):
            del successors[id_]
        _supersede(connection, successors)
        index.add_segments_of_run(
            connection,
            [
                IndexedSegment(id_, part.at, part.speaker, routine, part.text)
                for id_, part in zip(ids, parts, strict=True)
            ],
            ids_to_index,
        )
    return is_replaced or not parts or None in superseding_ids


def _find_superseding(
    parts: Sequence[SegmentPart],
    templates: Sequence[folding.Template | None],
    equal_texts: Mapping[int, Sequence[_EqualText]],
    stored_templates: Mapping[int, StoredTemplate],
) -> list[int | None]:
    """Return, by part, the text of the same day that is equal or differs in numbers only; None
    where there is none.
    """
    superseding_ids = [_id_of_same_day(equal_texts[part.digest], part.at) for part in parts]
    for position, (part, template) in enumerate(zip(parts, templates, strict=True)):
        if superseding_ids[position] is None and template:
            stored_template = stored_templates.get(template.digest)
            if (
                stored_template
                and _is_same_day(stored_template.at, part.at)
                and stored_template.is_within_bounds(template.numbers)
            ):
                superseding_ids[position] = stored_template.segment
    return superseding_ids


def _id_at(connection: Connection, place: PartPlace) -> int | None:
    """Return the id of the text at a place; None if it is not there."""
    row = connection.execute(
        "SELECT s.id FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run"
        " WHERE r.run_id = ? AND s.iteration = ? AND s.segment = ? AND s.part = ?",
        place,
    ).fetchone()
    return row[0] if row else None


_DAY = 86_400_000_000  # microseconds
_INSERT_RUN = (
    "INSERT INTO memory_run (run_id, routine, goal, status, started, ended)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING RETURNING id"
)
# Row by row, as the ids of a run have to follow each other.
_INSERT_SEGMENT = (
    "INSERT INTO memory_segment"
    " (memory_run, iteration, segment, part, type, at, who, asks, tainted, digest, text,"
    " superseded)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_SEGMENT_IDS = "SELECT id FROM memory_segment WHERE memory_run = ? ORDER BY id"


class _EqualText(NamedTuple):
    """An indexed segment with the same digest as a new one."""

    id: int
    at: int
    """Microseconds."""


def _find_equal_texts(
    connection: Connection, digests: Iterable[int]
) -> defaultdict[int, list[_EqualText]]:
    """Return the indexed segments with these digests, by digest, the oldest first."""
    digest_list = list(digests)
    equal_texts: defaultdict[int, list[_EqualText]] = defaultdict(list)
    for begin in range(0, len(digest_list), _DIGESTS_PER_QUERY):
        batch = padded(digest_list[begin : begin + _DIGESTS_PER_QUERY], digest_list[begin])
        rows = connection.execute(
            "SELECT digest, id, at FROM memory_segment WHERE superseded IS NULL"
            f" AND digest IN ({placeholders(batch)}) ORDER BY id",
            batch,
        )
        for digest, id_, at in rows:
            equal_texts[digest].append(_EqualText(id_, at))
    return equal_texts


_DIGESTS_PER_QUERY = 64


def _id_of_same_day(equal_texts: Iterable[_EqualText], at: int) -> int | None:
    """Return the id of the first of these texts that is of the day of `at`, in UTC."""
    for equal_text in equal_texts:
        if _is_same_day(equal_text.at, at):
            return equal_text.id
    return None


def _is_same_day(first: int | None, second: int) -> bool:
    """Tell whether two moments (microseconds) are of one day in UTC; not if one is None."""
    return first is not None and first // _DAY == second // _DAY


def _supersede(connection: Connection, successors: Mapping[int, int]) -> None:
    """Remove repeated texts from the index; `successors` has the id of the newer text by theirs.

    All are removed together: the index is flushed between two statements, and many small writes
    cost more than the words in them.
    """
    if successors:
        index.remove_segments(connection, successors)
        vectors.drop(connection, successors)
        connection.executemany(
            "UPDATE memory_segment SET superseded = ? WHERE id = ?",
            [(successor, id_) for id_, successor in successors.items()],
        )


def drop_run(connection: Connection, run: str) -> bool:
    """Delete an archived run, and index the texts that its texts superseded.

    False if there was no such run.
    """
    row = connection.execute("SELECT id FROM memory_run WHERE run_id = ?", (run,)).fetchone()
    if row is None:
        return False
    segments = connection.execute(
        "SELECT id, superseded FROM memory_segment WHERE memory_run = ?", row
    ).fetchall()
    index.remove_segments(connection, [id_ for id_, superseded in segments if superseded is None])
    vectors.drop(connection, [id_ for id_, _ in segments])
    # what a superseded text of the run had superseded is now superseded by the text that is left
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ?",
        [(superseded, id_) for id_, superseded in segments if superseded is not None],
    )
    # of several texts that an indexed text of the run superseded, the last is indexed instead and
    # supersedes the others
    reinstated_ids = connection.execute(
        "SELECT max(earlier.id), gone.id FROM memory_segment earlier"
        " JOIN memory_segment gone ON gone.id = earlier.superseded"
        " WHERE gone.memory_run = ? AND earlier.memory_run != gone.memory_run GROUP BY gone.id",
        row,
    ).fetchall()
    connection.executemany(
        "UPDATE memory_segment SET superseded = ? WHERE superseded = ? AND id != ?",
        [(reinstated_id, gone_id, reinstated_id) for reinstated_id, gone_id in reinstated_ids],
    )
    # the foreign keys delete its segments and set `superseded` of the reinstated ones to NULL
    connection.execute("DELETE FROM memory_run WHERE id = ?", row)
    index.add_segments(connection, [reinstated_id for reinstated_id, _ in reinstated_ids])
    _index_run_line(connection, run)
    return True


def hide_run_line(connection: Connection, run: str) -> None:
    """Remove the run line of a run from the index: it repeats the segments of the run."""
    run_line = item(connection, f"{RUN_LINE_PREFIX}{run}")
    if run_line is not None and run_line.indexed:
        _remove_from_index(connection, run_line)
        connection.execute("UPDATE memory_item SET indexed = 0 WHERE id = ?", (run_line.id,))


def _index_run_line(connection: Connection, run: str) -> None:
    """Index the run line of a run whose segments are deleted."""
    run_line = item(connection, f"{RUN_LINE_PREFIX}{run}")
    if run_line is not None and not run_line.indexed:
        connection.execute("UPDATE memory_item SET indexed = 1 WHERE id = ?", (run_line.id,))
        index.add_item(connection, run_line.id, run_line.key, run_line.text, run_line.updated)
