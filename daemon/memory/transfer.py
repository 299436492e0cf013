"""Export memory as lines of JSON, and import them.

The line of a run says of each text its digest and which earlier text stands for it in the index:
retention has shortened texts and forgotten wordings since, so an import could not find that out
again, and would answer questions otherwise than the memory that was exported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from daemon.definitions.toml_text import FIRST_YEAR, LAST_YEAR
from daemon.definitions.words import shorten
from daemon.errors import Refused
from daemon.memory import rows
from daemon.memory.memory import CATEGORIES, check_key, check_text
from daemon.memory.segments import Segment, SegmentPart, make_segment_part
from daemon.models import Json, SegmentType
from daemon.store.connection import Connection
from daemon.store.rows import clean, from_microseconds, to_microseconds

FORMAT = "agentd-memory/1"
_MAX_POSITION = 2**31
_MAX_ID = 2**63 - 1  # of a row, in either database
_DIGEST = re.compile(r"-?[0-9]{1,19}")
# Items or runs per page.
_PAGE = 200


class ExportPage(NamedTuple):
    """Some lines of an export, and the cursor of the next page; None at the end."""

    lines: list[Json]
    next_cursor: str | None


def export(connection: Connection, cursor: str | None) -> ExportPage:
    """Return the page of an export at a cursor, None for the first: items, then runs.

    Raises ValueError for a cursor that no page has returned.
    """
    kind, _, last_id_text = (cursor or "item:0").partition(":")
    last_id = int(last_id_text or 0)
    if not 0 <= last_id <= _MAX_ID:
        raise ValueError(f"no row has the id {last_id}")
    if kind == "item":
        items = rows.items_in(connection, "id > ? ORDER BY id LIMIT ?", (last_id, _PAGE))
        lines = [{"form": FORMAT}] if cursor is None else []
        lines += [_item(item) for item in items]
        return ExportPage(lines, f"item:{items[-1].id}" if len(items) == _PAGE else "run:0")
    run_rows = connection.execute(
        (
            "SELECT id, run_id, routine, goal, status, started, ended FROM memory_run WHERE id > ? "
            "ORDER BY id LIMIT ?"
        ),
        (last_id, _PAGE),
    ).fetchall()
    return ExportPage(
        [_run(connection, row) for row in run_rows],
        f"run:{run_rows[-1][0]}" if len(run_rows) == _PAGE else None,
    )


def _item(item: rows.StoredItem) -> Json:
    return {
        "item": item.key,
        "text": item.text,
        "category": item.category,
        "run": item.run_id,
        "tainted": bool(item.tainted),
        "pinned": bool(item.pinned),
        "created": from_microseconds(item.created).isoformat(),
        "updated": from_microseconds(item.updated).isoformat(),
    }


def _run(connection: Connection, row: tuple[Any, ...]) -> Json:
    id_, run, routine, goal, status, started, ended = row
    texts = connection.execute(
        "SELECT s.iteration, s.segment, s.part, s.type, s.at, s.who, s.tainted, s.digest, s.text,"
        " other_run.run_id, other.iteration, other.segment, other.part FROM memory_segment s"
        # an equal text of a later day stands for it when that has been imported, too
        " LEFT JOIN memory_segment other ON other.id = s.superseded AND other.id < s.id"
        " LEFT JOIN memory_run other_run ON other_run.id = other.memory_run"
        " WHERE s.memory_run = ? ORDER BY s.id",
        (id_,),
    )
    return {
        "archived": run,
        "routine": routine,
        "goal": goal,
        "status": status,
        "started": from_microseconds(started).isoformat(),
        "ended": from_microseconds(ended).isoformat(),
        "texts": [_text(*text) for text in texts],
    }


def _text(
    iteration: int, segment: int, part: int, type_: str, at: int, who: str, tainted: int,
    digest: int, text: str, *repeated_place: Any,
) -> Json:  # fmt: skip
    return {
        "iteration": iteration,
        "segment": segment,
        "part": part,
        "type": type_,
        "at": from_microseconds(at).isoformat(),
        "who": who,
        "tainted": bool(tainted),
        "digest": str(digest),  # as text: not every reader of JSON has numbers of 64 bits
        **({"repeats": list(repeated_place)} if repeated_place[0] is not None else {}),
        "text": text,
    }


class ImportResult(NamedTuple):
    """The counts of an import."""

    items: int
    """Lines with a memory item, those that were not imported included."""
    runs: int
    """Lines with an archived run, those that were not imported included."""
    unchanged: int
    """Lines that were not imported: an item with a later change here, a run that is archived."""


class ImportedRun(NamedTuple):
    """An archived run of an export."""

    columns: dict[str, Any]
    """The columns of memory_run, for `rows.put_run`."""
    parts: list[SegmentPart]
    repeated_places: list[rows.PartPlace | None] | None
    """By part, the place of the text that it repeats; None for an export of a version that did not
    tell.
    """


class ImportRows(NamedTuple):
    """The rows of some lines; all lines are parsed before a row is written."""

    items: list[rows.StoredItem]
    runs: list[ImportedRun]


def parse_lines(lines: Iterable[str], first_number: int = 1) -> ImportRows:
    """Parse lines of an export; raises Refused with the number of an invalid line."""
    parsed_rows = ImportRows([], [])
    for number, line in enumerate(lines, first_number):
        if not line.strip():
            continue
        try:
            data = _read_json(line)
            if "item" in data:
                parsed_rows.items.append(_read_item(data))
            elif "archived" in data:
                parsed_rows.runs.append(_read_run(data))
            elif data.get("form") != FORMAT:
                raise ValueError(f"neither an item nor an archived run, nor the head of {FORMAT}")
        except (KeyError, TypeError, ValueError, AttributeError, Refused) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else shorten(str(error))
            msg = (
                f"line {number} is no line of an export: {problem}; "
                "nothing from there on was taken in"
            )
            raise Refused(msg) from None
    return parsed_rows


def _read_json(line: str) -> Any:
    """Parse a line that is a JSON object. Raises ValueError."""
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  the caller takes a ValueError
    return data


def _read_moment(text: str) -> datetime:
    """Return a moment. Raises ValueError unless it is of the years FIRST_YEAR to LAST_YEAR."""
    moment = datetime.fromisoformat(text)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{text} is no moment of the years {FIRST_YEAR} to {LAST_YEAR}")
    return moment


def _read_number(value: object) -> int:
    """Return a position in a run. Raises ValueError."""
    if not isinstance(value, int) or not 0 <= value <= _MAX_POSITION:
        raise ValueError("a position in a run is a number from 0 on")
    return value


def _read_item(data: Json) -> rows.StoredItem:
    key = check_key(data["item"])
    if data["category"] not in CATEGORIES:
        raise ValueError(f"{data['category']!r} is no category")
    created, updated = (
        to_microseconds(_read_moment(data[name])) for name in ("created", "updated")
    )
    run = clean(data["run"]) if data.get("run") else None
    text = check_text(key, data["text"])
    return rows.StoredItem(
        0,
        key,
        data["category"],
        run,
        bool(data.get("tainted")),
        bool(data.get("pinned")),
        created,
        updated,
        text,
    )


def _read_run(data: Json) -> ImportedRun:
    fields = {name: clean(str(data[name])) for name in ("routine", "goal", "status")}
    moments = {name: to_microseconds(_read_moment(data[name])) for name in ("started", "ended")}
    parts: list[SegmentPart] = []
    previous = ""
    repeated_places: list[rows.PartPlace | None] = []
    for text in data["texts"]:
        segment = Segment(
            iteration=_read_number(text["iteration"]),
            segment=_read_number(text["segment"]),
            type=SegmentType(text["type"]),
            timestamp=_read_moment(text["at"]),
            text=clean(text["text"]),
            speaker=clean(text["who"]),
            tainted=bool(text.get("tainted")),
        )
        part = _read_number(text["part"])
        new_part = make_segment_part(fields["routine"], segment, part, segment.text, previous)
        if "digest" in text:
            new_part = new_part._replace(digest=_read_digest(text["digest"]))
            repeated_places.append(_read_place(text["repeats"]) if "repeats" in text else None)
        parts.append(new_part)
        previous = segment.text
    are_known = len(repeated_places) == len(parts)
    run_fields = {"run": clean(data["archived"]), **fields, **moments}
    return ImportedRun(run_fields, parts, repeated_places if are_known else None)


def _read_digest(value: object) -> int:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value) or abs(int(value)) >= 2**63:
        raise ValueError("a digest is a whole number of 64 bits, as text")
    return int(value)


def _read_place(value: object) -> rows.PartPlace:
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("what a text repeats is the run, iteration, segment and part")
    run, *position = value
    return rows.PartPlace(clean(run), *map(_read_number, position))


def import_rows(connection: Connection, parsed_rows: ImportRows) -> ImportResult:
    """Store the rows; an item with a later change here, and an archived run, stay as they are."""
    unchanged_count = 0
    for item in parsed_rows.items:
        old_item = rows.item(connection, item.key)
        if old_item and old_item.updated >= item.updated:
            unchanged_count += 1
            continue
        rows.put_item(
            connection,
            key=item.key,
            text=item.text,
            category=item.category,
            run=item.run_id,
            tainted=bool(item.tainted),
            now=item.updated,
        )
        connection.execute(
            "UPDATE memory_item SET created = CASE WHEN created > ? THEN ? ELSE created END,"
            " pinned = ? WHERE key = ?",
            (item.created, item.created, item.pinned, item.key),
        )
    for columns, parts, repeated_places in parsed_rows.runs:
        if connection.execute(
            "SELECT 1 FROM memory_run WHERE run_id = ?", (columns["run"],)
        ).fetchone():
            unchanged_count += 1
        else:
            rows.put_run(connection, **columns, parts=parts, repeated_places=repeated_places)
        rows.hide_run_line(connection, columns["run"])
    return ImportResult(len(parsed_rows.items), len(parsed_rows.runs), unchanged_count)
