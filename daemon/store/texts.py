"""What prompts have in common is kept once, by its content.

Theory of operation. Most of a prompt says the same in every run: who the agent is, the guides it
has, the routine's own sections, the schemas of its functions. Such parts are texts in a table of
their own, under the digest of what they say, and the column of a `prompt` step holds their digests
and behind them, as JSON, the rest of the body with numbers in the places of the texts. Whoever
reads the step gets the body as it was handed in.

Whether a text is there is asked in the transaction in which the step that names it is written, so
nothing has to be known of works that were undone, of other processes or of what was let go
meanwhile. With the first run of a day a text is written again: its day is known then, and harm that
the disk did to it is over.

A text may go once no step names it. None of a run that was made after its day does, so only older
runs have to be looked at.
"""

# ruff: noqa: S608  what is put into statements are marks and constants of this module; values are
# bound
from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from daemon.models import Json, Step, StepKind
from daemon.store import rows
from daemon.store.rows import LAST_BEFORE, deflate, to_microseconds
from daemon.store.statements import Connection, placeholders

MARK = b"t"  # what is not in parts begins with a brace, or with an x
# characters: what is shorter takes less in its place than its digest and a look whether it is there
LEAST = 1024
MOST = 32  # texts in one prompt: their digests are read without the rest
# Sections that are never the same for long: what was recalled, what time it is, what was said last.
NEW_EACH_TIME = frozenset({"memory", "environment", "routine"})
# Stands in a text for the boundary, which only one run knows.
_GAP = "\0"

_SIZE = 16
_DAY = 86_400_000_000
_ALL_DAYS = 100_000_000

Text: TypeAlias = tuple[bytes, bytes]
"""A digest, and what it is of."""

_KEEP = """
INSERT INTO text (digest, used, body) VALUES (?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET
    used = CASE WHEN text.used > excluded.used THEN text.used ELSE excluded.used END,
    body = excluded.body
"""


class Parted(NamedTuple):
    """A body in parts."""

    own: bytes
    """As JSON, with the places of its texts in the list of them."""
    texts: list[Text]


# --- writing


def encode(step: Step) -> bytes | Parted:
    """Return a step's body as JSON; that of a prompt in parts, if there are any that other runs may
    share.
    """
    body = step.body
    system, functions = body.get("system"), body.get("functions")
    if (
        step.kind is not StepKind.PROMPT
        or not isinstance(system, str)
        or not isinstance(functions, list)
    ):
        return rows.encode(body)
    texts: list[Text] = []
    own = {**body, "system": _pieces(system, body, texts)}
    schemas = rows.encode(functions)
    if len(schemas) >= LEAST and (text := _text(schemas)):
        own["functions"] = len(texts)
        texts.append(text)
    return Parted(rows.encode(own), texts) if texts else rows.encode(body)


def _pieces(system: str, body: Json, texts: list[Text]) -> list[str | int]:
    """Return a system prompt in pieces; of those that are added to `texts`, their places there."""
    pieces: list[str | int] = []
    boundary, done = body.get("boundary"), 0
    # The first mention tells what the marks mean. The others are marks, around what is new each
    # time.
    mention = system.find(boundary) if boundary and isinstance(boundary, str) else -1
    for begin, end in _lasting(body.get("sections"))[: MOST - 1]:
        piece = system[begin:end]
        if len(piece) < LEAST or _GAP in piece:
            continue
        text = _text(piece.replace(str(boundary), _GAP) if begin <= mention < end else piece)
        if text:
            pieces += (system[done:begin], len(texts))
            texts.append(text)
            done = end
    pieces.append(system[done:])
    return pieces


def _lasting(sections: Any) -> list[tuple[int, int]]:
    """Return where the long parts of a prompt begin and end that other runs may have as well.

    A long section is a part of its own, so that routines may share it that differ in others; short
    ones that stand side by side are one.
    """
    parts: list[tuple[int, int]] = []
    begin = end = 0
    for name, size in sections.items() if isinstance(sections, dict) else ():
        if type(size) is not int or size < 0:
            return []
        following = end + size + 2  # with the blank line behind it
        if size >= LEAST or name in NEW_EACH_TIME:
            if end - begin >= LEAST:
                parts.append((begin, end))
            if name not in NEW_EACH_TIME:
                parts.append((end, following))
            begin = following
        end = following
    if end - begin >= LEAST:
        parts.append((begin, end))
    return parts


@lru_cache(maxsize=32)
def _text(said: str | bytes) -> Text | None:
    """Return a text as it is kept; None of half a surrogate pair."""
    try:
        content = said if isinstance(said, bytes) else said.encode()
    except UnicodeEncodeError:
        return None
    return digest_of(content), content


def digest_of(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SIZE).digest()


def column_of(connection: Connection, body: bytes | Parted, made: datetime, at: int) -> bytes:
    """Return what the column is to hold of an encoded body; its texts are there from then on.

    `made` is when the run was, and `at` when it was told, as columns have it.
    """
    if isinstance(body, bytes):
        return deflate(body)
    texts, day = dict(body.texts), max(to_microseconds(made), at) // _DAY
    there = f"SELECT count(*) FROM text WHERE digest IN ({placeholders(texts)}) AND used >= ?"
    (count,) = connection.execute(there, (*texts, day)).fetchone()
    if count < len(texts):
        keep(
            connection, ((digest, day, zlib.compress(content)) for digest, content in texts.items())
        )
    names = b"".join(digest for digest, _ in body.texts)
    return b"".join((MARK, bytes((len(body.texts),)), names, deflate(body.own)))


def keep(connection: Connection, kept: Iterable[tuple[bytes, int, bytes]]) -> None:
    """Write texts down as columns hold them: digest, day, and the deflated text."""
    connection.executemany(_KEEP, kept)


# --- reading


class BodyReader:
    """Makes bodies of the columns that a connection finds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[bytes, bytes] = {}

    def __call__(self, column: bytes) -> Json:
        """Return the body of a column.

        ValueError and its like, if that or a text of it is harmed.
        """
        if column[:1] != MARK:
            return rows.decode(column)
        digests, body = references(column), _own(column)
        boundary = str(body.get("boundary", ""))
        system, functions = body["system"], body["functions"]
        body["system"] = "".join(
            piece
            if isinstance(piece, str)
            else self._text(digests[piece]).decode().replace(_GAP, boundary)
            for piece in system
        )
        if isinstance(functions, int):
            body["functions"] = json.loads(self._text(digests[functions]))
        return body

    def _text(self, digest: bytes) -> bytes:
        if digest not in self._known:
            row = self._connection.execute(
                "SELECT body FROM text WHERE digest = ?", (digest,)
            ).fetchone()
            if row is None:
                raise ValueError(f"its text {digest.hex()} is missing")
            self._known[digest] = whole(digest, row[0])
        return self._known[digest]


def whole(digest: bytes, column: bytes) -> bytes:
    """Return the text that a column holds; ValueError if it is not the one of this digest."""
    try:
        text = zlib.decompress(column)
    except (TypeError, zlib.error):
        text = b""
    if digest_of(text) != digest:
        raise ValueError(f"its text {digest.hex()} is harmed")
    return text


def decode_references(column: bytes) -> Json:
    """Return the body of a column without loading its shared texts.

    A number in place of a text is an index into `texts`, the list of their digests in hex.
    """
    if column[:1] != MARK:
        return rows.decode(column)
    return {**_own(column), "texts": [digest.hex() for digest in references(column)]}


def _own(column: bytes) -> Json:
    return rows.decode(column[2 + _SIZE * len(references(column)) :])


def references(column: bytes) -> list[bytes]:
    """Return the digests of the texts that a column, or as much of it as `unused` looks at,
    names.
    """
    if column[:1] != MARK:
        return []
    return [
        column[at : at + _SIZE]
        for at in range(2, 2 + _SIZE * int.from_bytes(column[1:2], "big"), _SIZE)
    ]


# --- letting go


def unused(connection: Connection, before: datetime | None = None) -> list[bytes]:
    """Return the texts that no step names; with `before`, those of them that were not used on that
    day or later.
    """
    day = _ALL_DAYS if before is None else day_of(before)
    found = {
        digest for (digest,) in connection.execute("SELECT digest FROM text WHERE used < ?", (day,))
    }
    if found:
        columns = connection.execute(
            (
                "SELECT substr(body, 1, ?) FROM step WHERE kind = 'prompt' AND run_id <= "
                f"{LAST_BEFORE}"
            ),
            (2 + _SIZE * MOST, day * _DAY),
        )
        for (column,) in columns:
            found.difference_update(references(column))
    return sorted(found)


def drop(connection: Connection, digests: Iterable[bytes], before: datetime | None = None) -> None:
    """Delete texts, but those that were used since."""
    day = _ALL_DAYS if before is None else day_of(before)
    connection.executemany(
        "DELETE FROM text WHERE digest = ? AND used < ?", [(digest, day) for digest in digests]
    )


def day_of(moment: datetime) -> int:
    """Return a day as the column `used` has it."""
    return to_microseconds(moment) // _DAY
