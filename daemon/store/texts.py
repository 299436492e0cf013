"""Texts that the prompts of several runs share, each kept once by the digest of its content.

Theory of operation. Most of a prompt is the same in every run: who the agent is, the skills it has,
the routine's own sections, the schemas of its functions. Such parts are rows of the table `text`.
The body column of a `prompt` step holds the digests of its texts and behind them, as JSON, the rest
of the body with an index into these digests in the place of each text. `BodyReader` puts the texts
back, so a reader of the step gets the body as it was written.

Whether a text is in the table is asked in the transaction that writes the step, so nothing is
cached that a rollback, another process or a deletion could make wrong. The first run of a day
writes a text again, with the day in the column `used`; that also replaces a damaged text.

A text is deleted once no step names it. Steps of runs created after the day in `used` do not, so
only the steps of older runs have to be searched.
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
from daemon.store.connection import Connection, placeholders
from daemon.store.rows import LAST_BEFORE, deflate, to_microseconds

# The first byte of a body that shares texts; other bodies begin with `{`, or `x` where deflated.
MARK = b"t"
# Characters: a shorter text costs less in its place than its digest and the look-up.
MIN_TEXT = 1024
# Texts of one prompt: their digests are the first bytes of the column, and read without the rest.
MAX_TEXTS = 32
# Sections that differ in each run: recalled memory, the time, the routine's last report.
CHANGING_SECTIONS = frozenset({"memory", "environment", "routine"})
# Stands in a shared text for the boundary, which is different in each run.
_BOUNDARY_MARK = "\0"

_DIGEST_SIZE = 16
_DAY = 86_400_000_000  # microseconds
_AFTER_EVERY_DAY = 100_000_000

SharedText: TypeAlias = tuple[bytes, bytes]
"""The digest of a text, and the text in UTF-8."""

_INSERT_TEXT = """
INSERT INTO text (digest, used, body) VALUES (?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET
    used = CASE WHEN text.used > excluded.used THEN text.used ELSE excluded.used END,
    body = excluded.body
"""


class SplitBody(NamedTuple):
    """A prompt's body without the texts it shares, and these texts."""

    own: bytes
    """The body as JSON, with an index into `texts` in the place of each text."""
    texts: list[SharedText]


# --- writing


def encode(step: Step) -> bytes | SplitBody:
    """Return a step's body as JSON; a prompt's split, if other runs may share parts of it."""
    body = step.body
    system, functions = body.get("system"), body.get("functions")
    if (
        step.kind is not StepKind.PROMPT
        or not isinstance(system, str)
        or not isinstance(functions, list)
    ):
        return rows.encode(body)
    texts: list[SharedText] = []
    own_body = {**body, "system": _split_system_prompt(system, body, texts)}
    schemas = rows.encode(functions)
    if len(schemas) >= MIN_TEXT and (text := _shared_text(schemas)):
        own_body["functions"] = len(texts)
        texts.append(text)
    return SplitBody(rows.encode(own_body), texts) if texts else rows.encode(body)


def _split_system_prompt(system: str, body: Json, texts: list[SharedText]) -> list[str | int]:
    """Return a system prompt in pieces: strings, and indexes of the texts added to `texts`."""
    pieces: list[str | int] = []
    boundary, position = body.get("boundary"), 0
    # Only the first occurrence, which explains the boundary, is in a section that runs share. The
    # others stand around facts and recalled texts.
    explanation = system.find(boundary) if boundary and isinstance(boundary, str) else -1
    for begin, end in _shared_spans(body.get("sections"))[: MAX_TEXTS - 1]:
        piece = system[begin:end]
        if len(piece) < MIN_TEXT or _BOUNDARY_MARK in piece:
            continue
        if begin <= explanation < end:
            piece = piece.replace(str(boundary), _BOUNDARY_MARK)
        text = _shared_text(piece)
        if text:
            pieces += (system[position:begin], len(texts))
            texts.append(text)
            position = end
    pieces.append(system[position:])
    return pieces


def _shared_spans(sections: Any) -> list[tuple[int, int]]:
    """Return (begin, end) of the long spans of a system prompt that other runs may have as well.

    `sections` maps the name of each section to its length, in their order. A long section is a span
    of its own, so that routines share it though they differ in others; adjacent short sections are
    one span.
    """
    spans: list[tuple[int, int]] = []
    begin = end = 0
    for name, size in sections.items() if isinstance(sections, dict) else ():
        if type(size) is not int or size < 0:
            return []
        section_end = end + size + 2  # with the blank line behind it
        if size >= MIN_TEXT or name in CHANGING_SECTIONS:
            if end - begin >= MIN_TEXT:
                spans.append((begin, end))
            if name not in CHANGING_SECTIONS:
                spans.append((end, section_end))
            begin = section_end
        end = section_end
    if end - begin >= MIN_TEXT:
        spans.append((begin, end))
    return spans


@lru_cache(maxsize=32)
def _shared_text(text: str | bytes) -> SharedText | None:
    """Return a text with its digest; None if it holds half a surrogate pair, which UTF-8 cannot."""
    try:
        content = text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError:
        return None
    return digest_of(content), content


def digest_of(content: bytes) -> bytes:
    """Return the digest that is the key of a text."""
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


def store_body(
    connection: Connection, body: bytes | SplitBody, created: datetime, at: int
) -> bytes:
    """Write the texts of an encoded body that the table does not have for today yet; return the
    value of the body's column.

    `created` is when the run was created, `at` when the step was made, in microseconds.
    """
    if isinstance(body, bytes):
        return deflate(body)
    texts, day = dict(body.texts), max(to_microseconds(created), at) // _DAY
    query = f"SELECT count(*) FROM text WHERE digest IN ({placeholders(texts)}) AND used >= ?"
    (count,) = connection.execute(query, (*texts, day)).fetchone()
    if count < len(texts):
        insert_texts(
            connection, ((digest, day, zlib.compress(content)) for digest, content in texts.items())
        )
    digests = b"".join(digest for digest, _ in body.texts)
    return b"".join((MARK, bytes((len(body.texts),)), digests, deflate(body.own)))


def insert_texts(connection: Connection, texts: Iterable[tuple[bytes, int, bytes]]) -> None:
    """Insert texts, each as (digest, day, deflated text), or update them where they exist."""
    connection.executemany(_INSERT_TEXT, texts)


# --- reading


class BodyReader:
    """Decodes the body columns of steps, with the texts that they share."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._texts: dict[bytes, bytes] = {}
        """The texts read so far, by digest."""

    def __call__(self, column: bytes) -> Json:
        """Return the body of a column.

        Raises ValueError, or what json and zlib raise, if the column or one of its texts is
        damaged.
        """
        if column[:1] != MARK:
            return rows.decode(column)
        digests, body = references(column), _decode_own_body(column)
        boundary = str(body.get("boundary", ""))
        system, functions = body["system"], body["functions"]
        body["system"] = "".join(
            piece
            if isinstance(piece, str)
            else self._text(digests[piece]).decode().replace(_BOUNDARY_MARK, boundary)
            for piece in system
        )
        if isinstance(functions, int):
            body["functions"] = json.loads(self._text(digests[functions]))
        return body

    def _text(self, digest: bytes) -> bytes:
        if digest not in self._texts:
            row = self._connection.execute(
                "SELECT body FROM text WHERE digest = ?", (digest,)
            ).fetchone()
            if row is None:
                raise ValueError(f"its text {digest.hex()} is missing")
            self._texts[digest] = inflate_text(digest, row[0])
        return self._texts[digest]


def inflate_text(digest: bytes, column: bytes) -> bytes:
    """Return the text that a column holds; raises ValueError if its digest is another one."""
    try:
        text = zlib.decompress(column)
    except (TypeError, zlib.error):
        text = b""
    if digest_of(text) != digest:
        raise ValueError(f"its text {digest.hex()} is damaged")
    return text


def decode_references(column: bytes) -> Json:
    """Return the body of a column without loading its shared texts.

    A number in place of a text is an index into `texts`, the list of their digests in hex.
    """
    if column[:1] != MARK:
        return rows.decode(column)
    return {**_decode_own_body(column), "texts": [digest.hex() for digest in references(column)]}


def _decode_own_body(column: bytes) -> Json:
    return rows.decode(column[2 + _DIGEST_SIZE * len(references(column)) :])


def references(column: bytes) -> list[bytes]:
    """Return the digests of the texts that a column names; its beginning, up to the digests, is
    enough.
    """
    if column[:1] != MARK:
        return []
    count = int.from_bytes(column[1:2], "big")
    return [
        column[start : start + _DIGEST_SIZE]
        for start in range(2, 2 + _DIGEST_SIZE * count, _DIGEST_SIZE)
    ]


# --- deleting


def find_unused_texts(connection: Connection, before: datetime | None = None) -> list[bytes]:
    """Return the digests of the texts that no step names.

    With `before`, only those that were not used on that day or later.
    """
    day = _AFTER_EVERY_DAY if before is None else day_of(before)
    digests = {
        digest for (digest,) in connection.execute("SELECT digest FROM text WHERE used < ?", (day,))
    }
    if digests:
        columns = connection.execute(
            "SELECT substr(body, 1, ?) FROM step"
            f" WHERE kind = 'prompt' AND run_id <= {LAST_BEFORE}",
            (2 + _DIGEST_SIZE * MAX_TEXTS, day * _DAY),
        )
        for (column,) in columns:
            digests.difference_update(references(column))
    return sorted(digests)


def delete_texts(
    connection: Connection, digests: Iterable[bytes], before: datetime | None = None
) -> None:
    """Delete texts; with `before`, not those that were used on that day or later."""
    day = _AFTER_EVERY_DAY if before is None else day_of(before)
    connection.executemany(
        "DELETE FROM text WHERE digest = ? AND used < ?", [(digest, day) for digest in digests]
    )


def day_of(moment: datetime) -> int:
    """Return the day of a moment as the column `used` has it: days since 1970."""
    return to_microseconds(moment) // _DAY
