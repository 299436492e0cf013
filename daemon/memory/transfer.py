"""Export memory as lines of JSON, and import them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from daemon.definitions.toml_text import FIRST_YEAR, LAST_YEAR
from daemon.definitions.words import shorten
from daemon.errors import Refused
from daemon.memory import rows
from daemon.memory.memory import CATEGORIES, check_key, check_text
from daemon.memory.segments import Segment, make_segment_part
from daemon.models import Json, SegmentType
from daemon.store.connection import Connection
from daemon.store.rows import clean, from_microseconds, to_microseconds

FORMAT = "agentd-memory/1"
_MAX_POSITION = 2**31
# Items or runs per page.
_PAGE = 200


class ExportPage(NamedTuple):
    """Some lines of an export, and the cursor of the next page; None at the end."""

    lines: list[Json]
    next_cursor: str | None


def export(connection: Connection, cursor: str | None) -> ExportPage:
    """Return the page of an export at a cursor, None for the first: items, then runs."""
    kind, _, last_id = (cursor or "item:0").partition(":")
    if kind == "item":
        items = rows.items_in(connection, "id > ? ORDER BY id LIMIT ?", (int(last_id or 0), _PAGE))
        lines = [{"form": FORMAT}] if cursor is None else []
        lines += [_item(item) for item in items]
        return ExportPage(lines, f"item:{items[-1].id}" if len(items) == _PAGE else "run:0")
    run_rows = connection.execute(
        (
            "SELECT id, run_id, routine, goal, status, started, ended FROM memory_run WHERE id > ? "
            "ORDER BY id LIMIT ?"
        ),
        (int(last_id or 0), _PAGE),
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
        "SELECT iteration, segment, part, type, at, who, tainted, text FROM memory_segment WHERE "
        "memory_run = ?"
        " ORDER BY id",
        (id_,),
    )
    names = ("iteration", "segment", "part", "type", "at", "who", "tainted", "text")
    return {
        "archived": run,
        "routine": routine,
        "goal": goal,
        "status": status,
        "started": from_microseconds(started).isoformat(),
        "ended": from_microseconds(ended).isoformat(),
        "texts": [
            {
                **dict(zip(names, text, strict=True)),
                "at": from_microseconds(text[4]).isoformat(),
                "tainted": bool(text[6]),
            }
            for text in texts
        ],
    }


class ImportResult(NamedTuple):
    """The counts of an import."""

    items: int
    runs: int
    unchanged: int
    """Lines that were not imported: an item with a later change here, a run that is archived."""


class ImportRows(NamedTuple):
    """The rows of some lines; all lines are parsed before a row is written."""

    items: list[rows.StoredItem]
    runs: list[tuple[dict[str, Any], list[Any]]]


def parse_lines(lines: Iterable[str], first_number: int = 1) -> ImportRows:
    """Parse lines of an export; raises Refused with the number of an invalid line."""
    import_rows = ImportRows([], [])
    for number, line in enumerate(lines, first_number):
        if not line.strip():
            continue
        try:
            data = _read_json(line)
            if "item" in data:
                import_rows.items.append(_read_item(data))
            elif "archived" in data:
                import_rows.runs.append(_read_run(data))
            elif data.get("form") != FORMAT:
                raise ValueError(f"neither an item nor an archived run, nor the head of {FORMAT}")
        except (KeyError, TypeError, ValueError, AttributeError, Refused) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else shorten(str(error))
            msg = (
                f"line {number} is no line of an export: {problem}; "
                "nothing from there on was taken in"
            )
            raise Refused(msg) from None
    return import_rows


def _read_json(line: str) -> Any:
    """Parse a line. Raises ValueError."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _read_moment(text: str) -> datetime:
    """Return a moment with a zone. Raises ValueError for one that no calendar reckons with."""
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


def _read_run(data: Json) -> tuple[dict[str, Any], list[Any]]:
    fields = {name: clean(str(data[name])) for name in ("routine", "goal", "status")}
    moments = {name: to_microseconds(_read_moment(data[name])) for name in ("started", "ended")}
    parts, previous = [], ""
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
        parts.append(make_segment_part(fields["routine"], segment, part, segment.text, previous))
        previous = segment.text
    return {"run": clean(data["archived"]), **fields, **moments}, parts


def import_rows(connection: Connection, work: ImportRows) -> ImportResult:
    """Store the rows; an item with a later change here, and an archived run, stay as they are."""
    unchanged = 0
    for item in work.items:
        old_item = rows.item(connection, item.key)
        if old_item and old_item.updated >= item.updated:
            unchanged += 1
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
    for fields, parts in work.runs:
        if connection.execute(
            "SELECT 1 FROM memory_run WHERE run_id = ?", (fields["run"],)
        ).fetchone():
            unchanged += 1
            continue
        rows.put_run(connection, **fields, parts=parts)
        rows.hide_run_line(connection, fields["run"])
    return ImportResult(len(work.items), len(work.runs), unchanged)
